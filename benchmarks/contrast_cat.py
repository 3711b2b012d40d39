"""Measure how much faster refinement is than a plain loop, as ratios within one run on this machine.

    python benchmarks/contrast_cat.py [MODEL] [--references N]

Contrast-CAT deletes tokens in the order of every map, in nine steps, and evaluates each remaining sequence. The plain
loop evaluates one sequence at a time with gradients enabled, like the authors' code. Our refinement evaluates every
distinct sequence once, in batches of similar length, without gradients. Both start from the same maps and must agree.
They run on a random model of the size of BERT-base and, if a folder is given, on MODEL, at 16 to 128 tokens. The report
is printed and written to benchmarks/results/contrast_cat.md.
"""

import argparse
import os
import platform
import random
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import whichtoken as wt
from whichtoken.core.ops import attended_gradient, layer_dot, minmax_maps
from whichtoken.core.rows import Row
from whichtoken.core.trace import Site, Trace
from whichtoken.methods.contrast_cat.contrast import Selection, overlaps
from whichtoken.methods.contrast_cat.refinement import Maps, Refinement, combine
from whichtoken.models import ModelProbe, capture, window_row
from whichtoken.targets import Predicted
from whichtoken.tasks.classify import pick_classes

RESULT = Path(__file__).parent / "results" / "contrast_cat.md"
LENGTHS = (16, 32, 64, 128)
REPO = wt.method("contrast-cat", "repo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder of a model; a body without a head gets a random head")
    parser.add_argument("--references", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    subjects = {"random BERT-base (12 x 768)": random_subject()}
    if arguments.model:
        subjects[Path(arguments.model).name] = real_subject(arguments.model)
    lines = []
    for title, subject in subjects.items():
        for length in LENGTHS:
            lines.append(f"| {title} | " + " | ".join(measure(subject, length, arguments.references)) + " |")
            print(lines[-1], flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, torch {torch.__version__}"
    head = [
        "# Refinement against a plain loop",
        "",
        f"`python benchmarks/contrast_cat.py{f' {Path(arguments.model).name}' if arguments.model else ''}`, {machine}, "
        f"CPU time of one thread. One text, {arguments.references} references, nine steps (settings of the "
        "authors' code). Plain loop: one sequence at a time, eager attention, gradients on.",
        "",
        "| model | tokens | sequences | distinct | faster than the loop | sequences per batch | results differ by |",
        "|---|---|---|---|---|---|---|",
    ]
    RESULT.write_text("\n".join([*head, *lines]) + "\n")
    print(RESULT.read_text())


def measure(subject: wt.Subject, length: int, references: int) -> list[str]:
    words = [token for token in subject.tokenizer.get_vocab() if token.isascii() and token.isalpha()]
    source = random.Random(length)
    corpus = [" ".join(source.choices(sorted(words), k=length)) for _ in range(references)]
    library = wt.references.build(subject, corpus, rule="random", n=references, dtype="float32")
    document = subject.encode([(" ".join(source.choices(sorted(words), k=length)),)])[0]
    row = window_row(document, document.windows[0])
    keep = [*range(length - 1), len(row.ids) - 1]  # exactly `length` tokens: words, then the tokenizer's final token
    ids, types = (tuple(values[i] for i in keep) for values in (row.ids, row.types))
    row = Row(ids, types, tuple(row.special[i] for i in keep))
    twin = subject.with_twin()
    batch = subject.batch([row])
    goal = pick_classes(subject, [Predicted()], twin.logits(batch))  # before the hook: with hooks, padding stays
    trace = capture(subject, batch, lambda logits: goal, REPO.needs)
    maps = maps_of(trace, library, references)
    batch_sizes: list[int] = []
    with twin.model.register_forward_hook(lambda module, args, output: batch_sizes.append(len(output.logits))):
        start = process_time()
        probe = ModelProbe(twin, batch, goal)
        how = Refinement(9, "all", "mean+std", True, "all")
        refined = combine(Maps(maps, torch.ones(maps.shape[:2], dtype=torch.bool), True), trace, probe, how)
        ours = process_time() - start
    start = process_time()
    loop_scores, count = plain_loop(subject, trace, int(goal.columns), maps)
    loop = process_time() - start
    distinct, difference = refined.details[0]["evaluations"], float((refined.scores[0] - loop_scores).abs().max())
    cells = [
        length,
        count,
        distinct,
        f"{loop / ours:.1f} x",
        f"{sum(batch_sizes) / len(batch_sizes):.0f}",
        f"{difference:.0e}",
    ]
    return [str(cell) for cell in cells]


def maps_of(trace: Trace, library: wt.references.ReferenceLibrary, references: int) -> Tensor:
    states, grads = trace.value(Site.HIDDEN)[:-1], trace.grad(Site.HIDDEN)[:-1]
    weights = attended_gradient(trace.value(Site.ATTENTION), grads, trace.lengths)
    seen = overlaps(weights, trace, library, Selection(references, "position", slice(0, -1))).layers.sum(2)
    return minmax_maps(layer_dot(weights, states).sum(1)[:, None, :] - seen, trace.mask)


def plain_loop(subject: wt.Subject, trace: Trace, label: int, maps: Tensor) -> tuple[Tensor, int]:
    """Evaluate map by map and step by step, sharing nothing; gradients are recorded, as in the authors' code."""
    ids, special = trace.ids[0], trace.special[0].tolist()
    length, count = len(ids), 0

    def probability(kept: list[int]) -> float:
        nonlocal count
        count += 1
        logits = subject.model(input_ids=ids[kept][None], attention_mask=torch.ones(1, len(kept))).logits
        return float(logits.softmax(-1)[0, label].detach())

    before = subject.model.config._attn_implementation
    subject.model.set_attn_implementation("eager")
    whole = probability(list(range(length)))
    drops = []
    for scores in maps[0]:
        order = scores.argsort(descending=True, stable=True).tolist()[:-1]
        words = [position for position in order if not special[position]]
        lost = []
        for step in range(1, 10):
            gone = set(words[: round(step * length / 9)])
            lost.append(whole - probability([i for i in range(length) if i not in gone]))
        drops.append(sum(lost) / 9)
    subject.model.set_attn_implementation(before)
    score = torch.tensor(drops, dtype=torch.float64)
    kept = score >= score.mean() + score.std(correction=0)
    mean = maps[0][kept if kept.any() else torch.ones_like(kept)].mean(0)
    return (mean - mean.min()) / (mean.max() - mean.min()), count


def random_subject() -> wt.Subject:
    """Return a random BERT-base; its weights are larger than usual, so that probabilities differ."""
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    config = BertConfig(vocab_size=len(vocabulary), initializer_range=0.05)
    torch.manual_seed(0)
    return wt.Subject(BertForSequenceClassification(config).eval(), tokenizer_of(vocabulary), name="random BERT-base")


def tokenizer_of(vocabulary: list[str]) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names: dict[str, Any] = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def real_subject(folder: str) -> wt.Subject:
    """Load a pretrained body; its head may be random, which does not affect the time."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False
    ).eval()
    with torch.no_grad():  # a fresh head predicts 0.50 for everything; make its predictions differ
        for name, parameter in model.named_parameters():
            if name.startswith("classifier"):
                parameter.mul_(20)
    return wt.Subject(model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False), name=Path(folder).name)


if __name__ == "__main__":
    main()
