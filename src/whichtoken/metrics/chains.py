"""Chains of nested sets of removed units, one set per removal step: the best one known, and a better one to try."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Sets = NDArray[np.bool_]  # set x unit: True where removed
Ask = Callable[[Sets], NDArray[np.float64]]  # the drop in probability for each set
Gains = Callable[[NDArray[np.bool_]], NDArray[np.float64]]  # of a set, if the second unit replaces the first
MOST_SWAPS = 60  # of a climb


@dataclass(frozen=True)
class Sizes:
    """The sizes of a chain's sets, smallest first, and the weight of each in the AOPC."""

    counts: tuple[int, ...]
    weights: NDArray[np.float64]


@dataclass
class KnownSets:
    """The sets that were evaluated, each once."""

    ask: Ask
    most: int
    sets: list[NDArray[np.bool_]] = field(default_factory=list)
    drops: list[float] = field(default_factory=list)
    _places: dict[bytes, int] = field(default_factory=dict)

    def __contains__(self, removed: NDArray[np.bool_]) -> bool:
        return removed.tobytes() in self._places

    def add(self, sets: Sequence[NDArray[np.bool_]] | Sets) -> int:
        """Evaluate the sets that are new, as far as the budget allows, and return how many these are."""
        new = {removed.tobytes(): removed for removed in sets if removed not in self}
        chosen = list(new.values())[: max(0, self.most - len(self.sets))]
        if chosen:
            self.record(chosen, self.ask(np.array(chosen)))
        return len(chosen)

    def record(self, sets: Sequence[NDArray[np.bool_]] | Sets, drops: NDArray[np.float64]) -> None:
        self._places.update((removed.tobytes(), len(self.sets) + i) for i, removed in enumerate(sets))
        self.sets += list(sets)
        self.drops += drops.tolist()

    def swapped(self, removed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the first and second unit of each swap of this set that leads to a known set, and the drops there."""
        sets = np.array(self.sets)
        gone, came = removed & ~sets, sets & ~removed
        near = np.flatnonzero((gone.sum(1) == 1) & (came.sum(1) == 1))
        return gone[near].argmax(1), came[near].argmax(1), np.array(self.drops)[near]

    def drop(self, removed: NDArray[np.bool_]) -> float | None:
        place = self._places.get(removed.tobytes())
        return None if place is None else self.drops[place]


def nest(order: NDArray[np.int64], sizes: Sizes) -> Sets:
    """Return the chain of an order of removal."""
    ranks = np.argsort(order, kind="stable")
    return np.array([ranks < count for count in sizes.counts])


def best_chain(known: KnownSets, sizes: Sizes, sign: int) -> tuple[float, Sets]:
    """Return the largest sum over a chain of known sets, and the chain; there must be one of all sizes."""
    sets, drops = np.array(known.sets), sign * np.array(known.drops)
    of_size = [np.flatnonzero(sets.sum(1) == count) for count in sizes.counts]
    totals, parents = sizes.weights[0] * drops[of_size[0]], []
    for smaller, larger, weight in zip(of_size[:-1], of_size[1:], sizes.weights[1:], strict=True):
        outside = sets[smaller].astype(np.float64) @ ~sets[larger].T  # units of the smaller set that are missing
        reached = np.where(outside == 0, totals[:, None], -np.inf)
        parents.append(reached.argmax(0))
        totals = reached.max(0) + weight * drops[larger]
    last = int(totals.argmax())
    chain, total = [of_size[-1][last]], float(totals[last])
    for smaller, parent in zip(of_size[-2::-1], reversed(parents), strict=True):
        last = parent[last]
        chain.append(smaller[last])
    return total, sets[chain[::-1]]


def climb(chain: Sets, gains_of: Gains, sizes: Sizes) -> Sets:
    """Swap two units of a chain as long as that makes it better, the best swap first."""
    chain, n_units = chain.copy(), chain.shape[1]
    gains, changed, least = np.zeros((len(chain), n_units, n_units)), np.arange(len(chain)), 0.0
    for _ in range(MOST_SWAPS):
        for i in changed:
            gains[i] = sizes.weights[i] * gains_of(chain[i])
        total = gains.sum(0)
        least = least or 1e-9 * float(np.abs(total).max())
        first, second = divmod(int(total.argmax()), n_units)
        if total[first, second] <= least:
            break
        changed = np.flatnonzero(chain[:, first] & ~chain[:, second])
        chain[np.ix_(changed, [first, second])] = (False, True)
    return chain


def new_neighbours(chain: Sets, gains: NDArray[np.float64], known: KnownSets, most: int) -> list[NDArray[np.bool_]]:
    """Return sets, not evaluated yet, that swaps would bring into the chain, those with the highest gains first."""
    neighbours: dict[bytes, NDArray[np.bool_]] = {}
    total = np.where((chain[:, :, None] & ~chain[:, None, :]).any(0), gains, -np.inf)
    for place in np.argsort(-total, axis=None, kind="stable"):
        first, second = divmod(int(place), chain.shape[1])
        if len(neighbours) >= most or total[first, second] == -np.inf:
            break
        swapped = chain[chain[:, first] & ~chain[:, second]]
        swapped[:, first], swapped[:, second] = False, True
        neighbours.update((removed.tobytes(), removed) for removed in swapped if removed not in known)
    return list(neighbours.values())
