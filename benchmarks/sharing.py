"""Measure what sharing saves: a benchmark of all single-pass methods and Contrast-CAT, compared with a naive loop.

    python benchmarks/sharing.py TEXTS.tsv [--texts N]

In the naive loop, each method explains each text separately, and every perturbed text is evaluated by itself, each time
it is needed. Both use the same methods, orders and steps, and their curves are compared. The run is single-threaded, so
that the ratio does not depend on the load of the machine. The report is printed and written to
benchmarks/results/sharing.md.
"""

import argparse
import platform
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor
from tqdm import tqdm

import whichtoken as wt
from scoring import sample_texts
from whichtoken._explain import explain_with
from whichtoken.bench._protocol import protocol
from whichtoken.bench._run import prepare
from whichtoken.bench.measure import Bench, Item, measure
from whichtoken.bench.results import Part
from whichtoken.core.picks import Picks
from whichtoken.core.rows import Rows
from whichtoken.core.trace import Ask
from whichtoken.evaluate import degrade_input, open_input
from whichtoken.models import LogitCache

RESULT = Path(__file__).parent / "results" / "sharing.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    subject = wt.load()
    texts = [text for text in sample_texts(args.file, 10**9) if len(text.split()) >= 10][: args.texts]
    names = [name for name in wt.method_names() if single_pass(name) or name == "contrast-cat"]
    bench = prepare(subject, names, protocol(metrics=("aopc", "log-odds"), perturbations=("delete",)))
    items = [Item(i, i, "", (text,), len(subject.encode([(text,)])[0].ids)) for i, text in enumerate(texts)]
    measure(bench, items[:1])  # warm-up
    start = perf_counter()
    part = measure(bench, items)
    shared = perf_counter() - start
    start = perf_counter()
    asked, difference = naive(bench, texts, part)
    alone = perf_counter() - start
    report = f"""# What sharing saves

`python benchmarks/sharing.py {args.file.parent.name}/{args.file.name} --texts {len(texts)}`, {len(names)} methods,
highest scores first and lowest scores first, ten points each; {subject.title}, one thread, {platform.machine()}.

| | perturbed texts | seconds per text |
|---|---|---|
| naive loop | {asked:,} | {alone / len(texts):.2f} |
| one benchmark | {part.evaluated:,} | {shared / len(texts):.2f} |

{asked / part.evaluated:.1f} x fewer evaluations, {alone / shared:.1f} x less time.
Largest difference between the curves: {difference:.0e}.
"""
    RESULT.write_text(report, encoding="utf-8")
    print(report)


def single_pass(name: str) -> bool:
    return not wt.method(name).needs.asks - {Ask.HEADS, Ask.PASSES} and name not in ("integrated-gradients",)


@dataclass(frozen=True)
class OneByOne(LogitCache):
    """A cache that stores nothing: every sequence is evaluated by itself, each time it is needed."""

    def read(self, rows: Rows, picks: Picks) -> list[Tensor]:
        self.tally.asked += len(rows)
        self.tally.evaluated += len(rows)
        return [self.subject.logits(self.subject.batch([rows[i]]))[0] for i in range(len(rows))]


def naive(bench: Bench, texts: list[str], part: Part) -> tuple[int, float]:
    """Return the number of evaluated texts, and the largest difference from the curves of the benchmark."""
    cache, difference = OneByOne(bench.task.subject), 0.0
    for text, measured in zip(tqdm(texts, desc="naive"), part.inputs, strict=True):
        for name, method in bench.methods.items():
            attributions = list(explain_with(cache, [text], [method])[0].values())
            for plan in bench.protocol.plans():
                curve = degrade_input(open_input(bench.task, attributions, cache), attributions, [plan])[0][0]
                pairs = zip(curve.probability, measured.curve(name, plan).probability, strict=True)
                difference = max(difference, *(abs(a - b) for a, b in pairs))
    return cache.tally.evaluated, difference


if __name__ == "__main__":
    main()
