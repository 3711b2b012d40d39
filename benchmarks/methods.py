"""Measure the deletion scores and the cost of every method on the same texts.

    python benchmarks/methods.py TEXTS.tsv [--model MODEL] [--references DIR] [--texts N]

TEXTS.tsv has a header and a column `text`. Without --model, the default model is used. The deletion score is the mean
drop of the predicted class's probability when 10, 20 .. 90 % of the content tokens are deleted, highest scores first;
the row `random` is the baseline. The cost is the time to explain all texts with that method alone, divided by that of
`cat`, which is one forward and one backward pass. The report is printed and written to benchmarks/results/methods.md.
"""

import argparse
import os
import platform
from pathlib import Path
from time import perf_counter

import numpy as np
from tqdm import tqdm

import whichtoken as wt
from scoring import mean_drops, mean_with_interval, sample_texts

REPEATS = (5, 1)  # the fastest run counts; slow methods run once
SLOW = ("contrast-cat", "integrated-gradients", "refined-noise", "tis")
RESULT = Path(__file__).parent / "results" / "methods.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--references")
    parser.add_argument("--texts", type=int, default=200)
    args = parser.parse_args()
    subject = wt.load(args.model, references=args.references)
    texts = [text for text in sample_texts(args.file, 10**9) if len(text.split()) >= 8][: args.texts]
    names = wt.method_names()
    seconds = {}
    for name in tqdm(["cat", *names], desc="timing"):  # the very first run is the warm-up
        seconds[name] = min(time_method(subject, texts, name) for _ in range(REPEATS[name in SLOW]))
    drops: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for result in tqdm(wt.explain_each(subject, texts, names), total=len(texts), desc="deleting"):
        for name, drop in zip(result, mean_drops(subject, list(result.values())), strict=True):
            drops[name].append(drop)
    report = table(subject, names, drops, seconds, len(texts), f"{args.file.parent.name}/{args.file.name}")
    RESULT.write_text(report, encoding="utf-8")
    print(report)


def time_method(subject: wt.Subject, texts: list[str], name: str) -> float:
    start = perf_counter()
    wt.explain(subject, texts, [name])
    return perf_counter() - start


def table(
    subject: wt.Subject,
    names: tuple[str, ...],
    drops: dict[str, list[tuple[float, float]]],
    seconds: dict[str, float],
    count: int,
    source: str,
) -> str:
    ranked = sorted(names, key=lambda name: -float(np.mean([most for most, _ in drops[name]])))
    rows = []
    for name in ranked:
        most, least = (mean_with_interval(np.array(column)) for column in zip(*drops[name], strict=True))
        mark = " *" if wt.method(name).tuned_on_deletion else ""
        rows.append(f"| {name}{mark} | {most} | {least} | {seconds[name] / seconds['cat']:.1f} |")
    return f"""# Every method on the same texts

`python benchmarks/methods.py {source} --texts {count}`, texts of at least 8 words, {subject.title}.
{platform.machine()}, {os.cpu_count()} cores. Mean and 95 % bootstrap interval over texts.

| method | deletion, highest first (higher is better) | deletion, lowest first (lower is better) | cost |
|---|---|---|---|
{chr(10).join(rows)}

\\* tuned on the deletion curve, which flatters its deletion score. Cost: time of the method alone divided by that of
one forward and one backward pass (`cat`); methods that run together share that pass.
"""


if __name__ == "__main__":
    main()
