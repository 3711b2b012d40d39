"""Measure presets and settings on training sentences: which settings should a name alone stand for?

    whichtoken heads build --conllu ud_ewt/en_ewt-ud-dev.conllu --model bert_12x384_sst2 --out heads12.json
    python benchmarks/presets.py sst2/train.tsv --model bert_12x384_sst2 --heads heads12.json

Without --model, the default model. The texts are training texts, because the settings chosen by them are later measured
on the development set. The benchmark is stored in benchmarks/runs/presets-MODEL; `make results` writes the tables.
"""

import argparse
from pathlib import Path

import whichtoken as wt
from whichtoken.core.trace import Method

RUNS = Path(__file__).parent / "runs"
FAMILIES: list[str | Method] = ["attcat", "attcat@repo", "attcat@paper", "cat", "gae", "transatt", "random"]
AXES: list[str | Method] = [
    wt.method(name, axis=axis)
    for name in ("grad-sam", "att-grads", "att-x-att-grads")
    for axis in ("query", "key", "readout")
]
MASK_LRP: list[str | Method] = ["mask-lrp@paper", "mask-lrp@repo"]
MASK_LRP += [
    wt.method("mask-lrp", variant=variant, rollout=rollout)
    for variant, rollout in (("paper", "normalised"), ("repo", "raw"), ("repo", "normalised"))
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--heads", type=Path)
    parser.add_argument("--texts", type=int, default=200)
    args = parser.parse_args()
    subject = wt.load(args.model, heads=args.heads)
    name = "default" if args.model is None else Path(args.model).name
    how = wt.bench.protocol(metrics=("aopc",), perturbations=("delete",), sample=args.texts)
    table = wt.bench.run(subject, args.data, [*FAMILIES, *AXES, *MASK_LRP], protocol=how, out=RUNS / f"presets-{name}")
    print(table)


if __name__ == "__main__":
    main()
