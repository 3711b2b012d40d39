"""Measure explanations of generated answers against other packages, in one run, as ratios of CPU time.

    python benchmarks/generation_speed.py [--model FOLDER] [--prompt 256] [--answer 32] [--repeat 3]
        [--only WORD] [--tiny]

Without `--model`, a random Llama of 6 x 288 is used, so nothing is downloaded. Each row runs the same method on one
prompt and answer in whichtoken and in another package, in turn, and divides the least CPU times. Packages that are not
installed (captum, inseq) leave their rows out. Writes benchmarks/results/generation_speed.md; `--tiny` (a test that
everything runs) does not.
"""

import argparse
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import process_time
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import whichtoken as wt

RESULTS = Path(__file__).parent / "results" / "generation_speed.md"
SLOW = 20.0  # seconds
N_REMOVED = 64  # tokens of a prompt that are removed one by one
Work = Callable[[], object]


@dataclass(frozen=True)
class Rival:
    """The same work in whichtoken and in another package."""

    what: str
    package: str
    ours: Work
    theirs: Work


def random_subject(n_words: int = 4000, positions: int = 512, layers: int = 6, dim: int = 288) -> wt.Subject:
    words = ["<s>", "</s>", "<unk>", *(f"w{i}" for i in range(n_words))]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=dim,
        intermediate_size=dim * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=6,
        max_position_embeddings=positions,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return wt.Subject(LlamaForCausalLM(config).eval(), tokenizer, name=f"random Llama, {layers} x {dim}")


def make_texts(subject: wt.Subject, n_prompt: int, n_answer: int) -> tuple[str, str]:
    """Return a prompt and a continuation with these numbers of tokens, by the subject's own tokenizer."""
    generator = torch.Generator().manual_seed(1)
    if subject.name.startswith("random"):
        words = [
            f"w{int(i)}"
            for i in torch.randint(0, len(subject.tokenizer) - 3, (n_prompt + n_answer,), generator=generator)
        ]
        return " ".join(words[:n_prompt]), " " + " ".join(words[n_prompt:])
    story = "Ada was born in Lyon, where she played the piano. Tom was born in Oslo and liked to play chess. " * 200
    ids = subject.tokenizer(story, add_special_tokens=False)["input_ids"]
    prompt, both = (subject.tokenizer.decode(ids[:n]) for n in (n_prompt, n_prompt + n_answer))
    return prompt, both[len(prompt) :]


def least_times(row: Rival, repeat: int) -> tuple[float, float]:
    """Return the least CPU time of each. The first run only counts if it is so long that starting up hardly matters."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(repeat + 1):
        for work, taken in zip((row.ours, row.theirs), times, strict=True):
            start = process_time()
            work()
            taken.append(process_time() - start)
        if number == 0 and times[1][0] > SLOW:
            break
    first = 0 if len(times[1]) == 1 else 1
    return min(times[0][first:]), min(times[1][first:])


def captum_rivals(subject: wt.Subject, prompt: str, answer: str) -> list[Rival]:
    from captum.attr import (
        FeatureAblation,
        LayerGradientXActivation,
        LLMAttribution,
        LLMGradientAttribution,
        TextTokenInput,
    )

    model, tokenizer = subject.model, subject.tokenizer

    def target(given: str) -> Any:
        return tokenizer(given + answer, return_tensors="pt")["input_ids"][0][len(tokenizer(given)["input_ids"]) :]

    def gradients() -> object:
        method = LLMGradientAttribution(LayerGradientXActivation(model, model.get_input_embeddings()), tokenizer)
        return method.attribute(TextTokenInput(prompt, tokenizer), target=target(prompt))

    def ablation() -> object:
        method = LLMAttribution(FeatureAblation(model), tokenizer)
        return method.attribute(TextTokenInput(short, tokenizer), target=target(short), use_cached_outputs=True)

    def ours(method: Any, rows: Any, given: str = prompt) -> Work:
        arguments: dict[str, Any] = {"continuation": answer, "target": "logprob", "rows": rows}
        return lambda: wt.explain(subject, prompt=given, methods=[method], **arguments)

    # Captum takes a forward pass for each removed token and each token of the answer, which is minutes for 256 tokens.
    kept = tokenizer(prompt, add_special_tokens=False)["input_ids"][:N_REMOVED]
    short, tokens = tokenizer.decode(kept), wt.method("leave-one-out", units="token")
    removing = f"removing each of {len(kept)} tokens, each token of the answer"
    return [
        Rival("gradient x input, each token of the answer", "captum", ours("gradient-x-input", "token"), gradients),
        Rival("gradient x input, the whole answer", "captum", ours("gradient-x-input", "answer"), gradients),
        Rival(removing, "captum", ours(tokens, "token", short), ablation),
    ]


def inseq_rivals(subject: wt.Subject, prompt: str, answer: str) -> list[Rival]:
    import inseq

    model = inseq.load_model(subject.model, "input_x_gradient", tokenizer=subject.tokenizer)

    def gradients() -> object:
        return model.attribute(prompt, prompt + answer, show_progress=False)

    def ours(rows: Any) -> Work:
        return lambda: wt.explain(subject, prompt=prompt, continuation=answer, methods="gradient-x-input", rows=rows)

    return [
        Rival("gradient x input, each token of the answer", "inseq", ours("token"), gradients),
        Rival("gradient x input, the whole answer", "inseq", ours("answer"), gradients),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a language model; default: a random one")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--answer", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="a word in the names of the rows to run")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.tiny:
        subject = random_subject(50, 64, 2, 24)
        options.prompt, options.answer, options.repeat = 12, 4, 1
    else:
        subject = random_subject() if options.model is None else wt.load(options.model)
    prompt, answer = make_texts(subject, options.prompt, options.answer)
    lines = [
        "# Explaining generated answers: speed against other packages",
        "",
        f"{subject.title}, {options.prompt} + {options.answer} tokens, float32, {torch.get_num_threads()} thread(s), "
        f"torch {torch.__version__}, {platform.machine()}. Least CPU seconds of {options.repeat} runs in turn "
        "(`python benchmarks/generation_speed.py`). Below 1, whichtoken is faster. The other packages "
        "have no map of the whole answer except the sum of the maps of its tokens.",
        "",
        "| same method | package | whichtoken, s | package, s | ratio |",
        "|---|---|---|---|---|",
    ]
    for package, make in (("inseq", inseq_rivals), ("captum", captum_rivals)):
        try:
            found = version(package)
            rows = make(subject, prompt, answer)
        except (PackageNotFoundError, ImportError) as missing:
            lines.append(f"| | {package}: not installed ({type(missing).__name__}) | | | |")
            continue
        for row in (row for row in rows if options.only in f"{row.what} {row.package}"):
            try:
                ours, theirs = least_times(row, options.repeat)
            except Exception as failure:  # of the other package, with this version of transformers
                lines.append(f"| {row.what} | {package} {found} | | fails: {type(failure).__name__} | |")
                continue
            lines.append(f"| {row.what} | {package} {found} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.3f} |")
            print(lines[-1], flush=True)
            if not options.tiny:
                RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
