"""Measure `posterior`: against other methods and budgets, its settings, and whether its intervals can be trusted.

    python benchmarks/posterior.py compare sst2/dev.tsv --texts 836 --name sst2
    python benchmarks/posterior.py compare sst2/dev.tsv --texts 100 --name sst2-500 --many
    python benchmarks/posterior.py compare sst2/dev.tsv --texts 200 --name 12-layers --model bert_12x384_sst2 \
        --references refs12
    python benchmarks/posterior.py normalise sst2/dev.tsv --texts 100
    python benchmarks/posterior.py ablate sst2/train.tsv --texts 100
    python benchmarks/posterior.py calibrate sst2/dev.tsv --texts 20
    python benchmarks/posterior.py overhead sst2/dev.tsv --texts 32

`compare`, `normalise` and `ablate` store benchmarks in benchmarks/runs/posterior-NAME, which `make results` reads; a
run that was interrupted goes on where it stopped, and a larger --texts adds texts. `calibrate` and `overhead` write
reports to benchmarks/results. Settings were chosen on training texts (`ablate`).
"""

import argparse
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau

import whichtoken as wt
from scoring import sample_texts
from whichtoken._explain import explain_with
from whichtoken.core.trace import Method
from whichtoken.models import LogitCache

RUNS, RESULTS = Path(__file__).parent / "runs", Path(__file__).parent / "results"
BUDGETS = (16, 32, 64, 128)
MANY = 500  # the evaluations that people give lime and shap
SINGLE = ("attn-lrp", "att-x-att-grads", "attcat", "random")
ALTERNATIVES: dict[str, tuple[Any, ...]] = {
    "prior": ("attn-lrp", "integrated-gradients", "attcat", "none"),
    "proposal": ("both-ends", "prior", "uniform"),
    "perturbation": ("mask", "mixed"),
    "units": ("token",),
    "explore": (0.0, 0.5),
    "per_round": (4, 16, 64),
}
BINS = (0.0, 0.5, 0.8, 0.95, 1.01)
N_REFERENCE = 4000  # deletions behind the effects that intervals are compared with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "normalise", "ablate", "calibrate", "overhead"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--name", default="")
    parser.add_argument("--model")
    parser.add_argument("--references", type=Path)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--min-tokens", type=int, default=10)
    parser.add_argument(
        "--many", action="store_true", help=f"also tis, and lime and kernel-shap with other budgets, up to {MANY}"
    )
    args = parser.parse_args()
    if args.what == "overhead":
        torch.set_num_threads(1)  # CPU seconds of several threads would include those in which they wait
    subject = wt.load(args.model, references=args.references)
    if args.what == "compare":
        bench(subject, args, rivals(subject, args.many), f"posterior-{args.name}")
    elif args.what == "normalise":
        bench(subject, args, rivals(subject, False), "posterior-normalised", ("aopc", "normalised-aopc"))
    elif args.what == "ablate":
        bench(subject, args, alternatives(), f"posterior-{args.name or 'settings'}")
    elif args.what == "calibrate":
        write("posterior_calibration", calibrate(subject, sample_sentences(args)), args)
    else:
        write("posterior_overhead", overhead(subject, sample_sentences(args)), args)


def sample_sentences(args: argparse.Namespace) -> list[str]:
    """Draw texts of at least --min-tokens words, because the training data also hold phrases."""
    long_enough = [text for text in sample_texts(args.data, 100 * args.texts) if len(text.split()) >= args.min_tokens]
    return long_enough[: args.texts]


def bench(
    subject: wt.Subject,
    args: argparse.Namespace,
    methods: list[str | Method],
    name: str,
    metrics: tuple[str, ...] = ("aopc",),
) -> None:
    how = wt.bench.protocol(
        metrics=metrics,
        perturbations=("delete", "mask"),
        sample=args.texts,
        min_tokens=args.min_tokens,
        max_tokens=args.max_tokens,
    )
    print(wt.bench.run(subject, args.data, methods, protocol=how, out=RUNS / name))


def rivals(subject: wt.Subject, many: bool) -> list[str | Method]:
    """Return `posterior` with several budgets and the methods it is compared with, cheap ones and those that search."""
    methods: list[str | Method] = [wt.method("posterior", budget=budget) for budget in BUDGETS]
    methods += [wt.method("posterior", units="token"), *SINGLE, "integrated-gradients", "leave-one-out"]
    methods += [wt.method(name, budget=64) for name in ("lime", "kernel-shap")]
    methods += ["refined-noise", *(["contrast-cat"] if subject.references is not None else [])]
    if many:
        others = [budget for budget in (*BUDGETS, MANY) if budget != 64]
        methods += ["tis", *(wt.method(name, budget=n) for name in ("lime", "kernel-shap") for n in others)]
    return methods


def alternatives() -> list[str | Method]:
    changed = [wt.method("posterior", None, **{key: v}) for key, values in ALTERNATIVES.items() for v in values]
    return ["posterior", *changed]


def calibrate(subject: wt.Subject, texts: list[str]) -> list[str]:
    """Compare intervals with a fit to many random removals, and two seeds with each other."""
    budgets = {budget: wt.method("posterior", budget=budget) for budget in BUDGETS}
    again = wt.method("posterior", seed=1)
    reference = wt.method("posterior", budget=N_REFERENCE, per_round=N_REFERENCE // 2, proposal="uniform", prior="none")
    results = wt.explain(subject, texts, [*budgets.values(), again, reference])
    truth = [effects_of(result[reference.label]) for result in results]
    lines = [
        f"The effects of words are compared with those of `{reference.label}`, which asks up to {N_REFERENCE}",
        f"questions about each of {len(texts)} texts ({sum(map(len, truth))} words).",
        "",
        "| questions | words inside their 90 % interval | mean width of an interval | additivity |",
        "|---|---|---|---|",
    ]
    for budget, method in budgets.items():
        found = [result[method.label] for result in results]
        inside, width = zip(*(covered(one, effects) for one, effects in zip(found, truth, strict=True)), strict=True)
        additivity = [o.confidence.additivity for o in found if o.confidence and o.confidence.additivity is not None]
        lines.append(
            f"| {budget} | {np.concatenate(inside).mean():.1%} | {np.concatenate(width).mean():.2f} "
            f"| {np.mean(additivity):.2f} |"
        )
    firsts = np.array(
        [
            (one.confidence.first, effects_of(one).argmax() == effects.argmax())
            for method in budgets.values()
            for one, effects in zip((result[method.label] for result in results), truth, strict=True)
            if one.confidence is not None
        ]
    )
    lines += [
        "",
        "| stated probability that the first word is the first | texts and budgets | it is |",
        "|---|---|---|",
    ]
    for low, high in pairwise(BINS):
        chosen = firsts[(firsts[:, 0] >= low) & (firsts[:, 0] < high)]
        if len(chosen):
            stated, right = chosen.mean(0)
            lines.append(f"| {low:.0%} to {min(high, 1):.0%}, mean {stated:.0%} | {len(chosen)} | {right:.0%} |")
    pairs = [(effects_of(r[budgets[64].label]), effects_of(r[again.label])) for r in results]
    taus = [kendalltau(*pair).statistic for pair in pairs if len(pair[0]) > 1]
    same = np.mean([one.argmax() == other.argmax() for one, other in pairs])
    lines += [
        "",
        f"Two seeds, 64 questions: Kendall's tau {np.nanmean(taus):.2f} over the words of a text; the same first ",
    ]
    lines[-1] += f"word in {same:.0%} of the texts."
    return lines


def effects_of(record: wt.Attribution) -> NDArray[np.float64]:
    return np.array([word.score for word in record.words()])


def covered(record: wt.Attribution, truth: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return, for each word, whether its interval contains the true effect, and the width of the interval."""
    low, high = (np.array([getattr(word, name) for word in record.words()], dtype=float) for name in ("low", "high"))
    return (low <= truth) & (truth <= high), high - low


def overhead(subject: wt.Subject, texts: list[str]) -> list[str]:
    """Explain twice with one logit cache: the second time, the model evaluates nothing but the first pass."""
    methods: list[str | Method] = ["posterior"]
    cache, seconds = LogitCache(subject), []
    explain_with(LogitCache(subject), texts[:2], methods)  # the first call of a process is slower
    for chosen in (methods, methods, ["att-x-att-grads"]):
        start = process_time()
        explain_with(cache, texts, chosen)
        seconds.append(process_time() - start)
    first, second, single = seconds
    return [
        f"{len(texts)} texts, `posterior` with 64 questions, one thread: {first / len(texts):.3f} s of CPU time each,",
        f"of which {(second - single) / len(texts):.3f} s ({(second - single) / first:.1%}) remain if every answer is",
        "already known: choosing questions, fitting, and looking answers up.",
    ]


def write(name: str, lines: list[str], args: argparse.Namespace) -> None:
    path = RESULTS / f"{name}.md"
    command = f"`python benchmarks/posterior.py {args.what} {args.data} --texts {args.texts}`"
    path.write_text("\n".join([command, "", *lines]) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
