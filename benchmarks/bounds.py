"""Compare the search for the bounds of AOPC with a beam search that evaluates every remaining unit at each step.

    python benchmarks/bounds.py DATA.tsv [DATA.tsv ..] [--texts N] [--budget B]

For texts of at least 10 words from each file, with the default model, on the grid of tenths. The beam of width 3 is the
search that whichtoken used before. Reports the sets evaluated (each counts once for a text) and the bounds, on texts
that are too long for evaluating all sets. The report is printed and written to benchmarks/results/bounds.md.
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

import whichtoken as wt
from scoring import sample_texts
from whichtoken.core.removal_steps import find_grid
from whichtoken.evaluate import open_input
from whichtoken.metrics.bounds import BUDGET, EXACT, find_bounds
from whichtoken.metrics.chains import Ask, Sets
from whichtoken.models import LogitCache
from whichtoken.tasks import task_for

RESULT = Path(__file__).parent / "results" / "bounds.md"
WIDTH = 3
LEAST = 10  # words, because the training data also hold phrases
ROUNDING = 1e-4  # bounds this close count as the same


@dataclass(frozen=True)
class Counting:
    """The drops of one text, remembered; `asked` holds the distinct sets of one search."""

    ask: Ask
    known: dict[bytes, float] = field(default_factory=dict)
    asked: set[bytes] = field(default_factory=set)

    def __call__(self, sets: Sets) -> NDArray[np.float64]:
        keys = [removed.tobytes() for removed in sets]
        self.asked.update(keys)
        new = {key: removed for key, removed in zip(keys, sets, strict=True) if key not in self.known}
        if new:
            self.known.update(zip(new, self.ask(np.array(list(new.values()))).tolist(), strict=True))
        return np.array([self.known[key] for key in keys])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--budget", type=float, default=BUDGET, help="evaluations for each unit and step")
    args = parser.parse_args()
    torch.set_num_threads(1)
    subject, lines = wt.load(), list[str]()
    for path in args.data:
        long_enough = [text for text in sample_texts(path, 100 * args.texts) if len(text.split()) >= LEAST]
        lines += table(subject, long_enough[: args.texts], args.budget, f"{path.parent.name}/{path.name}")
    names = " ".join(f"{path.parent.name}/{path.name}" for path in args.data)
    command = f"`python benchmarks/bounds.py {names} --texts {args.texts} --budget {args.budget}`"
    RESULT.write_text(
        "\n".join([f"# Search for the bounds of AOPC\n\n{command}: model {subject.title}.", *lines]) + "\n"
    )
    print(RESULT.read_text())


def table(subject: wt.Subject, texts: list[str], budget: float, title: str) -> list[str]:
    rows = []
    for text in tqdm(texts, desc=title):
        units, counts, ask, whole = open_text(subject, text)
        if units > EXACT:
            beam, search = Counting(ask), Counting(ask)
            old = (beam_search(units, counts, beam, -1), beam_search(units, counts, beam, 1))
            new = find_bounds(units, counts, search, budget, whole)
            rows.append((units, len(beam.asked), len(search.asked), *old, new.lower, new.upper))
    n, before, after, low_before, high_before, low, high = np.array(rows).T
    lower, higher = low_before - low, high - high_before
    ratio, overall = after / before, after.sum() / before.sum()
    return [
        "",
        f"## {title}: {len(rows)} texts of {n.min():.0f} to {n.max():.0f} tokens, {n.mean():.1f} on average",
        "",
        "| | beam of width 3 | search | difference | texts with better / worse bounds | largest loss |",
        "|---|---|---|---|---|---|",
        f"| evaluations, mean | {before.mean():.0f} | {after.mean():.0f} | {overall:.3f} of the beam's "
        f"(mean of ratios {ratio.mean():.3f}, highest {ratio.max():.3f}) | | |",
        f"| upper bound, mean | {high_before.mean():.5f} | {high.mean():.5f} | {higher.mean():+.5f} | "
        f"{(higher > ROUNDING).sum()} / {(higher < -ROUNDING).sum()} | {max(0, -higher.min()):.4f} |",
        f"| lower bound, mean | {low_before.mean():.5f} | {low.mean():.5f} | {-lower.mean():+.5f} | "
        f"{(lower > ROUNDING).sum()} / {(lower < -ROUNDING).sum()} | {max(0, -lower.min()):.4f} |",
    ]


def open_text(subject: wt.Subject, text: str) -> tuple[int, tuple[int, ...], Ask, float]:
    """Return the number of units, the steps, what measures drops, and the probability of the whole text."""
    cache = LogitCache(subject)
    opened = open_input(task_for(cache.subject), list(wt.explain(subject, [text], ["random"])[0].values()), cache)
    units, removal = opened.units("token"), opened.task.removal(None)
    whole = opened.keep(np.ones((1, opened.opened.n_elements), dtype=bool), removal)[0]

    def ask(sets: Sets) -> NDArray[np.float64]:
        kept = np.ones((len(sets), opened.opened.n_elements), dtype=bool)
        for pattern, removed in zip(kept, sets, strict=True):
            pattern[[i for unit, gone in zip(units, removed, strict=True) if gone for i in unit.elements]] = False
        return whole - np.array(opened.keep(kept, removal))

    counts = find_grid("tenths").steps(len(units), opened.opened.n_fixed, "morf").counts[1:]
    return len(units), counts, ask, whole


def beam_search(n: int, counts: tuple[int, ...], ask: Ask, sign: int) -> float:
    """Grow chains of sets step by step, as in Edin et al., "Normalized AOPC", 2024.

    A step that removes several units takes those with the largest effects when removed alone from the current set, with
    variants of the last one.
    """
    weights = np.bincount(counts, minlength=n + 1) / len(counts)
    beam = [(np.zeros(n, dtype=bool), 0.0)]
    removed = 0
    for count in (size for size in range(1, n + 1) if weights[size]):
        grown: dict[bytes, tuple[NDArray[np.bool_], float]] = {}
        for state, total in beam:
            children = grow(state, count - removed, ask, sign)
            for child, drop in zip(children, ask(children), strict=True):
                value = total + weights[count] * sign * drop
                if child.tobytes() not in grown or grown[child.tobytes()][1] < value:
                    grown[child.tobytes()] = (child, value)
        beam = sorted(grown.values(), key=lambda pair: -pair[1])[:WIDTH]
        removed = count
    return float(sign * beam[0][1])


def grow(state: NDArray[np.bool_], more: int, ask: Ask, sign: int) -> Sets:
    left = np.flatnonzero(~state)
    alone = np.repeat(state[None], len(left), 0)
    alone[np.arange(len(left)), left] = True
    if more == 1:
        return alone
    ranked = left[np.argsort(-sign * ask(alone), kind="stable")]
    ways = [np.append(ranked[: more - 1], last) for last in ranked[more - 1 : more - 1 + WIDTH]]
    children = np.repeat(state[None], len(ways), 0)
    for child, way in zip(children, ways, strict=True):
        child[way] = True
    return children


if __name__ == "__main__":
    main()
