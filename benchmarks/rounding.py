"""Measure how much the scores of a text differ between a batch and the same text alone, for every method, in float32.

    python benchmarks/rounding.py TEXTS.tsv PARSED.conllu [MODEL ...] [--texts N]

MODEL is a folder of a text classifier; a head that is missing there gets random weights (seed 0). The default model
is always measured, too. TEXTS.tsv has a column `text`; texts after the first N build the reference library of models
that have none, and the parsed sentences their head mask. The figure is the largest difference between two scores of a
token, as a share of the largest score of its text. The report is printed and written to benchmarks/results/rounding.md.
"""

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import whichtoken as wt

RESULT = Path(__file__).parent / "results" / "rounding.md"
SENTENCES = 200  # that select the heads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("conllu", type=Path)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--texts", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    texts = [text for example in wt.data.read_examples(arguments.file) for text in example.texts]
    texts, others = texts[: arguments.texts], texts[arguments.texts :][:400]
    subjects = [wt.load(), *(open_model(folder, others, arguments.conllu) for folder in arguments.models)]
    rows = [
        f"| {name} | {' | '.join(f'{largest_difference(subject, texts, name):.0e}' for subject in subjects)} |"
        for name in wt.method_names()
    ]
    names = [path.name for path in (arguments.file, arguments.conllu, *arguments.models)]
    command = f"`python benchmarks/rounding.py {' '.join(names)} --texts {len(texts)}`, float32, one thread"
    meaning = "The largest difference between two scores of a token, as a share of the largest score of its text."
    head = ["# A text in a batch, and alone", "", f"{command}. {meaning}", ""]
    titles = f"| method | {' | '.join(subject.title for subject in subjects)} |"
    report = "\n".join([*head, titles, f"|---|{'---|' * len(subjects)}", *rows, ""])
    RESULT.write_text(report)
    print(report)


def open_model(folder: Path, texts: Sequence[str], conllu: Path) -> wt.Subject:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False
    ).eval()
    subject = wt.Subject(model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False), name=folder.name)
    sentences = list(islice(wt.heads.read_conllu(conllu), SENTENCES))
    subject = subject.with_heads(wt.heads.build(subject, sentences))
    return subject.with_references(wt.references.build(subject, texts))


def largest_difference(subject: wt.Subject, texts: Sequence[str], name: str) -> float:
    together = [records[name] for records in wt.explain(subject, texts, [name])]
    worst = 0.0
    for text, record in zip(texts, together, strict=True):
        alone = torch.tensor(wt.explain(subject, [text], [name])[0][name].scores)
        worst = max(worst, float((torch.tensor(record.scores) - alone).abs().max() / alone.abs().max().clamp(1e-30)))
    print(f"{subject.title}: {name} {worst:.1e}")
    return worst


if __name__ == "__main__":
    main()
