"""What a search found about an input: scores of its tokens, intervals, and how sure the order is. numpy only."""

import numpy as np
from jaxtyping import Bool, Float, Int

from whichtoken.core.questions import Search
from whichtoken.trust import Confidence, Removal

CERTAINTY, QUANTILE = 0.9, 1.6448536269514722  # of the credible intervals, and of a normal distribution at that level
# The effect of a word also depends on which other words are removed. It is taken to vary by this multiple of the noise,
# chosen on training sentences of SST-2; `python benchmarks/posterior.py calibrate` measures the coverage.
DISCREPANCY = 0.4
DRAWS = 400  # to estimate how certain the ranking is
TOP = 3  # units that the final check removes
UNRESOLVED = 0.9  # share of its prior standard deviation that a unit keeps if the answers say little about it


def probability_of_top(search: Search, k: int) -> float:
    """Return the probability that the k units with the highest scores have the highest effects."""
    effects = search.effects
    assert effects is not None, "there are answers"
    if k >= search.n_units:
        return 1.0
    generator = np.random.default_rng([*search.key, search.n_rounds])
    normal, context = generator.standard_normal((2, DRAWS, search.n_units))
    draws = effects.draw(normal, generator.standard_normal((DRAWS, 2 + len(search.answers.drops))))
    draws += DISCREPANCY * effects.noise * context
    tails = np.sqrt(effects.freedom / generator.chisquare(effects.freedom, (DRAWS, 1)))
    draws = effects.mean + tails * (draws - effects.mean)
    top = np.argsort(-effects.mean, kind="stable")[:k]
    others = np.delete(draws, top, 1).max(1)
    return float(np.mean(draws[:, top].min(1) > others))


def confidence_of(search: Search, units: Int[np.ndarray, " token"], check: Removal | None) -> Confidence:
    effects = search.effects
    assert effects is not None, "there are answers"
    half = _student_quantile(effects.freedom) * np.hypot(effects.spread, DISCREPANCY * effects.noise)
    low, high = (
        tuple(share_among_tokens(end, search, units).tolist()) for end in (effects.mean - half, effects.mean + half)
    )
    return Confidence(
        low=low,
        high=high,
        level=CERTAINTY,
        n_units=search.n_units,
        n_unresolved=int((effects.spread > UNRESOLVED * effects.prior_spread).sum()),
        n_answers=len(search.answers.drops),
        additivity=effects.additivity,
        first=probability_of_top(search, 1),
        check=check,
    )


def _student_quantile(freedom: int) -> float:
    """Return the quantile of a Student t distribution, by its expansion around the normal one."""
    z, n = QUANTILE, freedom
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def top_supporting(search: Search) -> Bool[np.ndarray, " unit"]:
    """Return the highest units, at most three, that support what is explained."""
    top = np.zeros(search.n_units, dtype=bool)
    if search.effects is not None:
        mean = search.effects.mean
        top[[unit for unit in np.argsort(-mean, kind="stable")[:TOP] if mean[unit] > 0]] = True
    return top


def share_among_tokens(
    values: Float[np.ndarray, " unit"], search: Search, units: Int[np.ndarray, " token"]
) -> Float[np.ndarray, " token"]:
    """Divide the values of units among their tokens: evenly, except for what the map says about tokens of one word."""
    assert search.effects is not None, "there are answers"
    even = (values / search.sizes)[units]
    return np.where(units >= 0, even + search.effects.multiple * search.within[: len(units)], 0)
