"""Measure `posterior`: against other methods and budgets, its settings, and whether its intervals can be trusted.

    python benchmarks/posterior.py compare sst2/dev.tsv --texts 836 --name sst2
    python benchmarks/posterior.py compare sst2/dev.tsv --texts 100 --name sst2-500 --many
    python benchmarks/posterior.py compare sst2/dev.tsv --texts 200 --name 12-layers --model bert_12x384_sst2 \
        --references refs12
    python benchmarks/posterior.py ablate sst2/train.tsv --texts 100
    python benchmarks/posterior.py calibrate sst2/dev.tsv --texts 20
    python benchmarks/posterior.py overhead sst2/dev.tsv --texts 32

`compare` and `ablate` store benchmarks in benchmarks/runs/posterior-NAME, which `make results` reads; a run that was
interrupted goes on where it stopped, and a larger --texts adds texts. `calibrate` and `overhead` write reports to
benchmarks/results. Settings were chosen on training texts (`ablate`).
"""

import argparse
from pathlib import Path
from typing import Any

import whichtoken as wt
from scoring import sample_texts
from whichtoken.core.trace import Method

RUNS, RESULTS = Path(__file__).parent / "runs", Path(__file__).parent / "results"
BUDGETS = (16, 32, 64, 128)
MANY = 500  # the evaluations that people give lime and shap
SINGLE = ("attn-lrp", "att-x-att-grads", "attcat", "random")
ALTERNATIVES: dict[str, tuple[Any, ...]] = {
    "prior": ("attn-lrp", "integrated-gradients", "attcat", "none"),
    "proposal": ("both-ends", "prior", "uniform"),
    "perturbation": ("mask", "mixed"),
    "units": ("token",),
    "per_round": (4, 16, 64),
}
N_REFERENCE = 4000  # deletions behind the effects that intervals are compared with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "ablate", "calibrate", "overhead"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--name", default="")
    parser.add_argument("--model")
    parser.add_argument("--references", type=Path)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--min-tokens", type=int, default=10)
    parser.add_argument(
        "--many", action="store_true", help=f"also tis, and lime and kernel-shap with {MANY} evaluations"
    )
    args = parser.parse_args()
    subject = wt.load(args.model, references=args.references)
    if args.what == "compare":
        bench(subject, args, rivals(subject, args.many), f"posterior-{args.name}")
    elif args.what == "ablate":
        bench(subject, args, alternatives(), f"posterior-{args.name or 'settings'}")
    elif args.what == "calibrate":
        write("posterior_calibration", calibrate(subject, sample_texts(args.data, args.texts)), args)
    else:
        write("posterior_overhead", overhead(subject, sample_texts(args.data, args.texts)), args)


def bench(subject: wt.Subject, args: argparse.Namespace, methods: list[str | Method], name: str) -> None:
    how = wt.bench.protocol(
        metrics=("aopc",),
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
        methods += ["tis", *(wt.method(name, budget=MANY) for name in ("lime", "kernel-shap"))]
    return methods


def alternatives() -> list[str | Method]:
    changed = [wt.method("posterior", None, **{key: v}) for key, values in ALTERNATIVES.items() for v in values]
    return ["posterior", *changed]


def calibrate(subject: wt.Subject, texts: list[str]) -> list[str]:
    """Compare intervals with a fit to many deletions, and two seeds with each other."""
    raise NotImplementedError(texts)


def overhead(subject: wt.Subject, texts: list[str]) -> list[str]:
    raise NotImplementedError(texts)


def write(name: str, lines: list[str], args: argparse.Namespace) -> None:
    path = RESULTS / f"{name}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
