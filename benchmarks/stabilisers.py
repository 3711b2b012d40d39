"""Measure how far the stabilised divisions that we leave out would change the scores of LRP methods, in float64.

    PYTHONPATH=. python benchmarks/stabilisers.py sst2/dev.tsv [--texts N]

The authors divide by x + 1e-9 also where a tensor is used twice and at the attention mask; we divide only where a rule
does. The test of parity restores their divisions (tests/methods/test_golden_relevance.py), and so does this script, on
the default model. The figure is the largest change of a token's score, as a share of the largest score of its text.
The report is printed and written to benchmarks/results/stabilisers.md.
"""

import argparse
from pathlib import Path
from statistics import median

import torch
from tests.methods.test_golden_relevance import stabilised_as_theirs

import whichtoken as wt
from scoring import sample_texts

RESULT = Path(__file__).parent / "results" / "stabilisers.md"
METHODS = {"transatt": True, "partial-lrp": True, "full-lrp": True, "full-lrp@repo": False, "partial-lrp@repo": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    args = parser.parse_args()
    texts = sample_texts(args.data, args.texts)
    subject = wt.load(dtype=torch.float64)
    changes = {name: changes_of(subject, texts, name, METHODS[name]) for name in METHODS}
    rows = [f"| `{name}` | {median(found):.0e} | {max(found):.0e} |" for name, found in changes.items()]
    command = f"`PYTHONPATH=. python benchmarks/stabilisers.py {args.data.name} --texts {len(texts)}`, {subject.name}"
    meaning = "The largest change of a token's score in a text, as a share of the largest score of the text."
    report = ["# Stabilised divisions that are left out", "", f"{command}, float64. {meaning}", ""]
    RESULT.write_text("\n".join([*report, "| method | median over texts | largest |", "|---|---|---|", *rows, ""]))
    print(RESULT.read_text())


def changes_of(subject: wt.Subject, texts: list[str], name: str, conserve: bool) -> list[float]:
    plain = [result[name].scores for result in wt.explain(subject, texts, [name])]
    with stabilised_as_theirs(subject.model, conserve=conserve):  # batches of one: their sums run over a whole batch
        theirs = [wt.explain(subject, [text], [name])[0][name].scores for text in texts]
    return [
        max(abs(a - b) for a, b in zip(ours, other, strict=True)) / max(map(abs, ours))
        for ours, other in zip(plain, theirs, strict=True)
    ]


if __name__ == "__main__":
    main()
