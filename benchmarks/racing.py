"""Measure Contrast-CAT with a budget: how many evaluations it saves, and what that costs in AOPC.

    python benchmarks/racing.py DATA.tsv [--texts N] [--budgets 24,42,64]

For texts of at least 10 words, with the default model: `contrast-cat` and its control `refined-noise`, exact and with
each budget. AOPC: mean drop of the predicted probability when 10, 20 .. 90 % of the tokens are deleted, the most
relevant first. The report is printed and written to benchmarks/results/racing.md.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import whichtoken as wt
from scoring import mean_with_interval, sample_texts
from whichtoken._explain import explain_with
from whichtoken.core.trace import Method
from whichtoken.evaluate import degrade_input, open_input
from whichtoken.metrics.curves import aopc
from whichtoken.models import LogitCache
from whichtoken.records import Plan
from whichtoken.tasks import task_for

RESULT = Path(__file__).parent / "results" / "racing.md"
LEAST = 10  # words, because the training data also hold phrases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--budgets", default="24,42,64")
    args = parser.parse_args()
    torch.set_num_threads(1)
    subject, budgets = wt.load(), [int(budget) for budget in args.budgets.split(",")]
    long_enough = [text for text in sample_texts(args.data, 100 * args.texts) if len(text.split()) >= LEAST]
    texts = long_enough[: args.texts]
    command = (
        f"`python benchmarks/racing.py {args.data.parent.name}/{args.data.name} --texts {args.texts} "
        f"--budgets {args.budgets}`"
    )
    lines = [
        "# Contrast-CAT with a budget",
        "",
        f"{command}: model {subject.title}, {len(texts)} texts. `difference`: of the AOPC from the exact one, text by "
        "text, with a 95 % bootstrap interval. `same`: texts in which the same maps survive.",
        "",
        "| | evaluations | fewer by | AOPC | difference | same |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("contrast-cat", "refined-noise"):
        lines += rows(subject, texts, [wt.method(name), *(wt.method(name, budget=budget) for budget in budgets)])
    RESULT.write_text("\n".join(lines) + "\n")
    print(RESULT.read_text())


def rows(subject: wt.Subject, texts: list[str], methods: list[Method]) -> list[str]:
    """Return a row for each method; the first is the one that the others are compared with."""
    values, evaluations, survivors = [], [], []
    for text in tqdm(texts, desc=methods[0].label):
        cache = LogitCache(subject)
        result = explain_with(cache, [text], methods)[0]
        records = [result[method.label] for method in methods]
        opened = open_input(task_for(cache.subject), records, cache)
        curves = degrade_input(opened, records, [Plan("delete", "morf", "tenths", "token")])[0]
        values.append([aopc(curve) for curve in curves])
        evaluations.append([record.details["evaluations"] for record in records])
        survivors.append([record.details["survivors"] for record in records])
    found, counts = np.array(values), np.array(evaluations).mean(0)
    lines = []
    for i, method in enumerate(methods):
        cells = [f"`{method.label}`", f"{counts[i]:.1f}", f"{counts[0] / counts[i]:.2f} x", f"{found[:, i].mean():.4f}"]
        same = np.mean([of_text[i] == of_text[0] for of_text in survivors])
        cells += [mean_with_interval(found[:, i] - found[:, 0]), f"{same:.0%}"] if i else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
