"""How sure a process is of its effects: intervals, the order, interactions, and shares of variance. numpy only."""

from collections.abc import Callable, Sequence
from itertools import islice
from math import inf

import numpy as np
from jaxtyping import Bool, Float, Int

from whichtoken.core.linear_algebra import eigenvectors
from whichtoken.methods.posterior.process import FLOOR, Process
from whichtoken.methods.posterior.questions import Search
from whichtoken.trust import Confidence, Interaction, Removal

CERTAINTY, QUANTILE = 0.9, 1.6448536269514722  # of the credible intervals, and of a normal distribution at that level
DRAWS = 400  # to estimate how certain the ranking is
RIVALS = 20  # units that may be first
TOP = 3  # units that the final check removes
FEWEST = 4  # answers from which shares of variance are computed
UNRESOLVED = 0.9  # share of its prior standard deviation that a unit keeps if the answers say little about it
CANDIDATES = 30  # pairs whose intervals are computed
MOST_INTERACTIONS = 10
LEAST_GAIN = 0.01  # share of the variance of the answers that an interaction must predict in addition


def probability_of_top(search: Search, process: Process, k: int) -> float:
    """Return the probability that the k units with the highest scores have the highest effects."""
    if k >= search.n_units:
        return 1.0
    rivals = np.argsort(-process.effects, kind="stable")[: k + RIVALS]
    values, vectors = eigenvectors(process.effect_covariance(rivals))
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    generator = np.random.default_rng([*search.key, search.n_answers])
    draws = generator.standard_normal((DRAWS, len(rivals))) @ root
    tails = np.sqrt(process.freedom / generator.chisquare(process.freedom, (DRAWS, 1)))
    draws = process.effects[rivals] + tails * draws
    return float(np.mean(draws[:, :k].min(1) > draws[:, k:].max(1)))


def confidence_of(
    search: Search, units: Int[np.ndarray, " token"], interactions: Sequence[Interaction], check: Removal | None
) -> Confidence:
    """Describe an input. `units`: of each token, -1 where it cannot be removed."""
    process = search.process
    spread, before = process.spreads
    half = student_quantile(process.freedom) * spread
    low, high = (
        tuple(share_among_tokens(end, search, units).tolist())
        for end in (process.effects - half, process.effects + half)
    )
    return Confidence(
        low=low,
        high=high,
        level=CERTAINTY,
        n_units=search.n_units,
        n_unresolved=int((spread > UNRESOLVED * before).sum()),
        n_answers=len(process.answers.drops),
        additivity=_share_predicted(process, process.leave_one_out_sums),
        first=probability_of_top(search, process, 1),
        check=check,
        predicted=_share_predicted(process, process.leave_one_out),
        interactions=tuple(interactions),
    )


def _share_predicted(process: Process, predicted: Float[np.ndarray, " question"]) -> float | None:
    """Return the share of the variance of the answers, at least 0; None if too few answers can tell."""
    drops = process.answers.drops
    if len(drops) < FEWEST or np.var(drops) <= FLOOR**2:
        return None
    return max(0.0, 1 - float(np.mean((predicted - drops) ** 2) / np.var(drops)))


def student_quantile(freedom: int) -> float:
    """Return the quantile of a Student t distribution, by its expansion around the normal one."""
    z, n = QUANTILE, freedom
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def find_interactions(search: Search) -> list[tuple[tuple[int, int], float, float]]:
    """Return pairs of units, with their interaction and half the width of its interval, strongest first.

    These are pairs whose interval excludes 0 and that help the sum of the effects to predict answers.
    """
    process = search.process
    if search.n_units < 2 or len(process.answers.drops) < FEWEST:
        return []
    means = process.interactions()
    first, second = np.triu_indices(search.n_units, 1)
    strongest = np.argsort(-np.abs(means[first, second]), kind="stable")[:CANDIDATES]
    first, second = first[strongest], second[strongest]
    half = student_quantile(process.freedom) * process.interaction_spreads(first, second)
    sure = np.flatnonzero(np.abs(means[first, second]) > np.maximum(half, FLOOR))
    helpful = _choose_helpful(process, process.leave_one_out_interactions(first[sure], second[sure]))
    chosen = sorted(sure[helpful])
    return [
        ((int(i), int(j)), float(means[i, j]), float(h))
        for i, j, h in zip(first[chosen], second[chosen], half[chosen], strict=True)
    ]


def _choose_helpful(process: Process, added: Float[np.ndarray, "pair question"]) -> list[int]:
    """Choose pairs one by one, always the one that lowers the error of the prediction most."""
    drops = process.answers.drops
    rest, chosen = drops - process.leave_one_out_sums, list[int]()
    total, error = float(((drops - drops.mean()) ** 2).sum()), float((rest**2).sum())
    while len(chosen) < min(MOST_INTERACTIONS, len(added)):
        errors = ((rest - added) ** 2).sum(1)
        errors[chosen] = inf
        best = int(errors.argmin())
        if not error - errors[best] > LEAST_GAIN * total:
            break
        chosen.append(best)
        rest, error = rest - added[best], float(errors[best])
    return chosen


def top_supporting(search: Search, is_word: Callable[[int], bool]) -> Bool[np.ndarray, " unit"]:
    """Return the highest units, at most three, that certainly support what is explained, without punctuation."""
    process, top = search.process, np.zeros(search.n_units, dtype=bool)
    low = process.effects - student_quantile(process.freedom) * process.spreads[0]
    order = np.argsort(-process.effects, kind="stable")
    top[list(islice((unit for unit in order if low[unit] > 0 and is_word(int(unit))), TOP))] = True
    return top


def share_among_tokens(
    values: Float[np.ndarray, " unit"], search: Search, units: Int[np.ndarray, " token"]
) -> Float[np.ndarray, " token"]:
    """Divide the values of units among their tokens: evenly, except for what the maps say about tokens of one word."""
    even = (values / search.sizes)[units]
    return np.where(units >= 0, even + search.process.slopes @ search.within[:, : len(units)], 0)
