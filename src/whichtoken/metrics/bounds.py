"""Bounds of the AOPC of an input over all removal orders, exact or by beam search.

AOPC is a weighted sum over nested sets of removed tokens. For a short text every set is evaluated and the best chain of
sets computed; for a longer one a beam of chains grows step by step, as in Edin et al., "Normalized AOPC", 2024. If a
step removes several tokens, it takes those with the largest effects when removed alone, with variants of the last one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

EXACT = 8  # most units for which all sets are evaluated: 256
WIDTH = 3  # of the beam

Sets = NDArray[np.bool_]  # set x unit: True where removed
Ask = Callable[[Sets], NDArray[np.float64]]  # the drop in probability for each set


@dataclass(frozen=True)
class Bounds:
    lower: float
    upper: float
    exact: bool


def find_bounds(n: int, counts: Sequence[int], ask: Ask, width: int, exact: int = EXACT) -> Bounds:
    """Bound the mean over `counts` of the drop when that many of `n` units are removed, in nested sets."""
    weights = np.bincount(counts, minlength=n + 1) / len(counts)
    if n <= exact:
        return Bounds(*_search_all_sets(n, weights, ask), exact=True)
    lower, upper = _beam_search(n, weights, ask, width, -1), _beam_search(n, weights, ask, width, 1)
    return Bounds(lower, upper, exact=False)


def _search_all_sets(n: int, weights: NDArray[np.float64], ask: Ask) -> tuple[float, float]:
    numbers = np.arange(2**n)
    sets = (numbers[:, None] >> np.arange(n) & 1).astype(bool)
    sizes = sets.sum(1)
    drops = ask(sets) * weights[sizes]
    low, high = drops.copy(), drops.copy()
    for number in numbers[1:]:  # sets with one unit less come before it
        smaller = [number ^ (1 << i) for i in range(n) if sets[number, i]]
        low[number] += min(low[smaller])
        high[number] += max(high[smaller])
    return float(low[-1]), float(high[-1])


def _beam_search(n: int, weights: NDArray[np.float64], ask: Ask, width: int, sign: Literal[-1, 1]) -> float:
    states: Sets = np.zeros((1, n), dtype=bool)
    totals = np.array([weights[0] * sign * ask(states)[0]])
    removed = 0
    for count in (c for c in range(1, n + 1) if weights[c]):
        sets, parents = _grow_sets(states, count - removed, ask, width, sign)
        values = totals[parents] + weights[count] * sign * ask(sets)
        order = np.argsort(-values, kind="stable")
        _, first = np.unique(sets[order], axis=0, return_index=True)  # the best chain to each set
        chosen = order[np.sort(first)[:width]]
        states, totals, removed = sets[chosen], values[chosen], count
    return float(sign * totals.max())


def _grow_sets(states: Sets, more: int, ask: Ask, width: int, sign: int) -> tuple[Sets, NDArray[np.int64]]:
    """Return each state with `more` further units removed, in several ways, and the number of its parent state."""
    grown, parents = [], []
    for number, state in enumerate(states):
        left = np.flatnonzero(~state)
        if more >= len(left):
            ways = [left]
        elif more == 1:
            ways = [left[[i]] for i in range(len(left))]
        else:
            alone = np.repeat(state[None], len(left), 0)
            alone[np.arange(len(left)), left] = True
            ranked = left[np.argsort(-sign * ask(alone), kind="stable")]
            next_best = ranked[more - 1 : more - 1 + width]
            ways = [np.append(ranked[: more - 1], last) for last in next_best]
        for way in ways:
            child = state.copy()
            child[way] = True
            grown.append(child)
            parents.append(number)
    return np.array(grown), np.array(parents)
