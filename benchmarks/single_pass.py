"""Measure how much time shared passes, batching and frozen weights save, as ratios within one run on this machine.

    python benchmarks/single_pass.py [MODEL] [--texts N]

MODEL is a folder or hub name; the default is a random model of the size of MiniLM (6 x 384). Three runs are compared:

- research style: each method by itself on each text, eager attention, `loss.backward()` with weight gradients;
- whichtoken, each method alone: batched, without weight gradients;
- whichtoken, all methods together: the same, with one pass for all methods.

The report is printed and written to benchmarks/results/single_pass.md.
"""

import argparse
import os
import platform
import random
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import whichtoken as wt

METHODS = ["attcat", "cat", "rollout", "raw-attention", "gae", "grad-sam", "att-grads", "attention-grad-cam", "cam"]
WORDS = ["the", "film", "is", "very", "slow", "but", "it", "was", "a", "rare", "man", "with", "music"]
RESULT = Path(__file__).parent / "results" / "single_pass.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder or hub name of a BERT-like classifier")
    parser.add_argument("--texts", type=int, default=48)
    arguments = parser.parse_args()
    subject = wt.load(arguments.model) if arguments.model else random_subject()
    texts = make_texts(arguments.texts)
    wt.explain(subject, texts[:4], METHODS)  # warm up
    plain = measure_seconds(lambda: forward_all(subject, texts))
    rows = [
        ("one forward of all texts, batched, no gradients", plain),
        (
            "research style: one by one, eager, with weight gradients",
            measure_seconds(lambda: one_by_one(subject, texts)),
        ),
        ("whichtoken, each method alone", measure_seconds(lambda: [wt.explain(subject, texts, [m]) for m in METHODS])),
        ("whichtoken, all methods together", measure_seconds(lambda: wt.explain(subject, texts, METHODS))),
    ]
    report = table(subject, texts, rows)
    RESULT.write_text(report)
    print(report)


def random_subject(width: int = 384, layers: int = 6) -> wt.Subject:
    """Return a random model of the size of MiniLM, or of another one; time does not depend on the weights."""
    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=4 * width,
    )
    torch.manual_seed(0)
    return wt.Subject(BertForSequenceClassification(config).eval(), fast, name=f"random BERT {layers} x {width}")


def make_texts(count: int) -> list[str]:
    """Return random texts of 8 to 40 words, the length of sentences in reviews."""
    source = random.Random(0)
    return [" ".join(source.choices(WORDS, k=source.randint(8, 40))) for _ in range(count)]


def measure_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of the faster of two runs."""
    times = []
    for _ in range(2):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


def forward_all(subject: wt.Subject, texts: list[str]) -> None:
    with torch.no_grad():
        subject.model(**subject.tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="pt"))


def one_by_one(subject: wt.Subject, texts: list[str]) -> None:
    """Run only the passes; the methods' own arithmetic costs next to nothing."""
    model: Any = subject.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    for _ in METHODS:
        for text in texts:
            batch = subject.tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
            out = model(**batch, output_attentions=True, output_hidden_states=True)
            for tensor in (*out.attentions, *out.hidden_states):
                tensor.retain_grad()
            torch.autograd.backward(out.logits.max())
            model.zero_grad()
    model.set_attn_implementation(before)


def table(subject: wt.Subject, texts: list[str], rows: list[tuple[str, float]]) -> str:
    unit, slow = rows[0][1], rows[1][1]
    lengths = [len(ids) for ids in subject.tokenizer(texts)["input_ids"]]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, torch {torch.__version__}"
    lines = [
        "# One pass for many methods",
        "",
        f"`python benchmarks/single_pass.py`, {machine}, {torch.get_num_threads()} threads. "
        f"Model: {subject.title}; {len(texts)} texts of {min(lengths)} to {max(lengths)} tokens; "
        f"{len(METHODS)} methods: {', '.join(METHODS)}.",
        "",
        "| run | in forwards | faster than research style |",
        "|---|---|---|",
        *(f"| {name} | {seconds / unit:.1f} | {slow / seconds:.1f} x |" for name, seconds in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
