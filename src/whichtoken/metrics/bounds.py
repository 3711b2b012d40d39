"""Bounds of the AOPC of an input over all removal orders, exact or by a search.

AOPC is a weighted sum over nested sets of removed units: a chain. For a short text every set is evaluated and the best
chain computed. For a longer one, a surrogate learns from the sets evaluated so far; both ends are searched in rounds,
each of which swaps units in the best chain known while the surrogate predicts a gain, and evaluates the sets of the new
chain. The bounds are those of the best and the worst chain of all sets evaluated, whichever order these came from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whichtoken.metrics.chains import Ask, KnownSets, Sizes, best_chain, climb, nest, new_neighbours
from whichtoken.metrics.surrogate import AnswerScale, Surrogate, choose_kernel, fit_surrogate

EXACT = 8  # units up to which all sets are evaluated: 256
BUDGET = 1.2  # evaluations for each unit and step
MORE = 1.3  # times as many answers, and the surrogate's kernel is chosen again
PER_ROUND = 8  # new sets for each end, at least
# Rounds take turns: the standard deviations that are added to predictions, and whether a climb on the surrogate's own
# scale comes first. Near probabilities of 0 and 1, drops hardly tell sets apart; log-odds do.
ROUNDS = ((0.0, False), (0.5, False), (1.0, True))

Convert = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Bounds:
    lower: float
    upper: float
    exact: bool
    worst: tuple[float, ...] = ()  # the drop at each step of the order that has the lower bound
    best: tuple[float, ...] = ()


def find_bounds(
    n: int,
    counts: Sequence[int],
    ask: Ask,
    budget: float = BUDGET,
    whole: float | None = None,
    exact: int = EXACT,
) -> Bounds:
    """Bound the mean over `counts` of the drop when that many of `n` units are removed, in nested sets.

    `budget`: evaluations for each unit and each step that removes a different number of units. The search always
    makes those it starts with: two for each unit and each step. `whole`: the probability of the whole input, if drops
    are of probabilities. All sets are evaluated if there are at most `exact` units or if the budget allows it.
    """
    weights = np.bincount(counts, minlength=n + 1) / len(counts)
    sizes = tuple(size for size in range(1, n + 1) if weights[size])
    most = int(budget * n * len(sizes))
    if n <= exact or 2**n <= most or not sizes:
        known = KnownSets(ask, 2**n)
        lower, upper = _search_all_sets(n, weights, known)
        return Bounds(lower, upper, True, *(_drops_of(known, sizes, weights, counts, sign) for sign in (-1, 1)))
    chains = Sizes(sizes, weights[list(sizes)])
    known = _search(n, chains, ask, max(most, 1 + 2 * n + 2 * len(sizes)), AnswerScale(whole))
    nothing = float(weights[0] * known.drops[0])
    upper, lower = (nothing + sign * best_chain(known, chains, sign)[0] for sign in (1, -1))
    return Bounds(lower, upper, False, *(_drops_of(known, sizes, weights, counts, sign) for sign in (-1, 1)))


def _drops_of(
    known: KnownSets, sizes: tuple[int, ...], weights: NDArray[np.float64], counts: Sequence[int], sign: int
) -> tuple[float, ...]:
    """Return the drop at each step of the best chain known (`sign` 1), or of the worst (-1)."""
    drops = {0: known.drops[0]}  # the empty set is the first one
    if sizes:
        _, chain = best_chain(known, Sizes(sizes, weights[list(sizes)]), sign)
        drops |= {int(removed.sum()): known.drop(removed) or 0.0 for removed in chain}
    return tuple(drops[count] for count in counts)


def _search_all_sets(n: int, weights: NDArray[np.float64], known: KnownSets) -> tuple[float, float]:
    numbers = np.arange(2**n)
    sets = (numbers[:, None] >> np.arange(n) & 1).astype(bool)
    sizes = sets.sum(1)
    known.add(sets)
    drops = np.array(known.drops) * weights[sizes]
    low, high = drops.copy(), drops.copy()
    for number in numbers[1:]:  # sets with one unit less come before it
        smaller = [number ^ (1 << i) for i in range(n) if sets[number, i]]
        low[number] += min(low[smaller])
        high[number] += max(high[smaller])
    return float(low[-1]), float(high[-1])


def _search(n: int, sizes: Sizes, ask: Ask, most: int, answers: AnswerScale) -> KnownSets:
    """Evaluate sets in rounds until the budget is spent or nothing new is proposed; the first one is the empty set."""
    known = _start(n, sizes, ask, most, answers)
    turn, n_new, enough = 0, 1, 0.0
    while n_new:
        sets, scaled = np.array(known.sets), answers.scale(np.array(known.drops))
        if len(sets) >= enough:
            kernel, enough = choose_kernel(sets, scaled), MORE * len(sets)
        surrogate = fit_surrogate(sets, scaled, kernel)
        optimism, climbs_twice = ROUNDS[turn % len(ROUNDS)]
        proposed = list[NDArray[np.bool_]]()
        for sign in (1, -1):
            guess = Guess(surrogate, known, answers, sign, optimism)
            proposed += _propose(known, sizes, guess, climbs_twice)
        n_new, turn = known.add(proposed), turn + 1
    return known


def _start(n: int, sizes: Sizes, ask: Ask, most: int, answers: AnswerScale) -> KnownSets:
    """Evaluate each unit removed alone and kept alone, and the two orders that these imply.

    Units are sorted by their own drops, so that ties which the search breaks by position do not depend on the text's.
    """
    nothing, alone = np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool)
    drops = ask(np.concatenate([nothing, alone]))
    order = np.argsort(-drops[1:], kind="stable")
    known = KnownSets(lambda sets: ask(sets[:, np.argsort(order)]), most)
    known.record(np.concatenate([nothing, alone]), drops[np.append(0, 1 + order)])
    known.add(~alone)
    scaled = answers.scale(np.array(known.drops))
    effects = scaled[1 : 1 + n] - scaled[1 + n :]
    known.add(np.concatenate([nest(np.argsort(-sign * effects, kind="stable"), sizes) for sign in (1, -1)]))
    return known


@dataclass(frozen=True)
class Guess:
    """What sets are worth to one end of the search: their drops if these are known, else what a surrogate predicts."""

    surrogate: Surrogate
    known: KnownSets
    answers: AnswerScale
    sign: int  # 1: for the upper bound, -1: for the lower one
    optimism: float

    def scaled_gains(self, removed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the gains of swaps, on the scale of the surrogate."""
        return self._gains(removed, self.answers.scale, lambda scaled: scaled)

    def gains(self, removed: NDArray[np.bool_]) -> NDArray[np.float64]:
        return self._gains(removed, lambda drops: drops, self.answers.drops)

    def _gains(self, removed: NDArray[np.bool_], of_drops: Convert, of_scaled: Convert) -> NDArray[np.float64]:
        values, optimism = np.zeros((len(removed), len(removed))), self.sign * self.optimism
        values[np.ix_(removed, ~removed)] = of_scaled(self.surrogate.predict_swaps(removed, optimism))
        first, second, drops = self.known.swapped(removed)
        values[first, second] = of_drops(drops)
        drop = self.known.drop(removed)
        own = (
            of_drops(np.array([drop]))
            if drop is not None
            else of_scaled(self.surrogate.predict(removed[None], optimism))
        )
        return self.sign * np.where(removed[:, None] & ~removed, values - own, 0)


def _propose(known: KnownSets, sizes: Sizes, guess: Guess, climbs_twice: bool) -> list[NDArray[np.bool_]]:
    """Return sets to evaluate for one end: those of a better chain, and else neighbours of the best one known."""
    _, best = best_chain(known, sizes, guess.sign)
    start = climb(best, guess.scaled_gains, sizes) if climbs_twice else best
    chosen = [removed for removed in climb(start, guess.gains, sizes) if removed not in known]
    if len(chosen) < PER_ROUND:
        gains = sum(weight * guess.gains(removed) for weight, removed in zip(sizes.weights, best, strict=True))
        chosen += new_neighbours(best, gains, known, PER_ROUND - len(chosen))
    return chosen
