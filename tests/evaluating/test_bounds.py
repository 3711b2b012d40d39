"""The best and the worst order of removal: against every order there is, and on a model whose best order is known."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import whichtoken as wt
from whichtoken.core.removal_steps import find_grid
from whichtoken.errors import BadSetting
from whichtoken.evaluate import OpenInput, aopc_bounds, degrade, open_input
from whichtoken.metrics.bounds import Ask, find_bounds
from whichtoken.metrics.curves import aopc, normalise
from whichtoken.models import LogitCache
from whichtoken.records import Attribution, Plan
from whichtoken.reproduce.protocols import ninths
from whichtoken.tasks import task_for

SubjectOf = Callable[..., wt.Subject]


def opened(attributions: list[Attribution], cache: LogitCache) -> OpenInput:
    return open_input(task_for(cache.subject), attributions, cache)


def counts_of(grid: str, n: int) -> tuple[int, ...]:
    """How many of n units are gone after each step."""
    steps = ninths(n) if grid == "ninths" else find_grid(grid).steps(n, 0, "morf")
    return steps.counts[1:]


def drops_of(n: int, seed: int) -> tuple[NDArray[np.float64], Ask]:
    """A drop for each set of removed units, drawn anew for each: nothing is additive."""
    values = np.random.default_rng(seed).normal(size=2**n)
    return values, lambda sets: values[sets @ (1 << np.arange(n))]


def by_every_order(n: int, counts: tuple[int, ...], values: NDArray[np.float64]) -> tuple[float, float]:
    orders = np.array(list(permutations(range(n))))
    removed = np.pad(np.cumsum(1 << orders, axis=1), ((0, 0), (1, 0)))  # the numbers of the sets, step by step
    found = values[removed[:, list(counts)]].mean(1)
    return float(found.min()), float(found.max())


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(0, 10**6), st.sampled_from(["tenths", "ninths", "twentieths", "all"]))
def test_every_set_and_a_wide_beam_equal_every_order(n: int, seed: int, grid: str) -> None:
    counts = counts_of(grid, n)
    values, ask = drops_of(n, seed)
    expected = by_every_order(n, counts, values)
    exact = find_bounds(n, counts, ask, width=1)
    assert (exact.lower, exact.upper) == pytest.approx(expected)
    assert exact.exact
    if grid == "all":  # a step that removes two at once looks at pairs only by their singles
        beam = find_bounds(n, counts, ask, width=2**n, exact=0)
        assert (beam.lower, beam.upper) == pytest.approx(expected)
        assert not beam.exact


def test_eight_units_against_every_order() -> None:
    counts = counts_of("tenths", 8)
    values, ask = drops_of(8, 1)
    found = find_bounds(8, counts, ask, width=1)
    assert (found.lower, found.upper) == pytest.approx(by_every_order(8, counts, values))
    wide = find_bounds(8, tuple(range(1, 9)), ask, width=2**8, exact=0)
    assert (wide.lower, wide.upper) == pytest.approx(by_every_order(8, tuple(range(1, 9)), values))


@pytest.mark.parametrize("n", [9, 20, 35])
@pytest.mark.parametrize("width", [1, 3])
def test_where_drops_add_up_the_search_finds_the_best_order_of_all(n: int, width: int) -> None:
    """A glass box: each unit has its own part in the drop."""
    parts = np.random.default_rng(n).normal(size=n)
    counts = counts_of("tenths", n)
    found = find_bounds(n, counts, lambda sets: sets @ parts, width)

    def mean_drop(order: NDArray[np.int64]) -> float:
        return float(np.mean([parts[order[:count]].sum() for count in counts]))

    best, worst = mean_drop(np.argsort(-parts)), mean_drop(np.argsort(parts))
    assert (found.lower, found.upper) == pytest.approx((worst, best))
    assert normalise(best, found.lower, found.upper) == pytest.approx(1)
    assert normalise(worst, found.lower, found.upper) == pytest.approx(0)
    # A random order has each unit among the first `count` with chance count / n: the mean over orders is known. With
    # the tenths of n it is as far from the best as from the worst only where the parts are; so it is derived.
    source = np.random.default_rng(0)
    random = np.mean([mean_drop(source.permutation(n)) for _ in range(4000)])
    assert random == pytest.approx(parts.sum() * np.mean(counts) / n, abs=0.1)
    assert 0.2 < (normalise(float(random), found.lower, found.upper) or 0) < 0.8


def test_the_bounds_of_a_text_hold_for_every_method(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    for content in ("It is slow.", "The actors were won, but it is slow, a man!"):
        result = list(wt.explain(subject, [content], ["attcat", "gae", "random"])[0].values())
        text = opened(result, LogitCache(subject))
        found = aopc_bounds(text, width=5)
        assert found.exact == (len(text.units("token")) <= 8)
        assert found.lower < found.upper
        for order in ("morf", "lerf"):
            for curve in degrade(subject, result, order=order):
                assert found.lower - 1e-9 <= aopc(curve) <= found.upper + 1e-9


def test_wider_is_never_worse_here_and_words_go_as_one(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    result = wt.explain(subject, ["Charming actors were verily won, but it is slow!"], ["attcat"])[0]
    text = opened(list(result.values()), LogitCache(subject))
    narrow, wide = (aopc_bounds(text, width=width) for width in (1, 8))
    assert wide.lower <= narrow.lower < narrow.upper <= wide.upper
    words = aopc_bounds(text, Plan(level="word"), width=8)
    assert words != wide
    with pytest.raises(BadSetting, match="width=0"):
        aopc_bounds(text, width=0)
    with pytest.raises(BadSetting, match="fractions of the content tokens"):
        aopc_bounds(text, Plan(grid="ninths"))  # shares of all tokens, and the last one stays


def test_the_search_asks_about_each_set_once(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    result = wt.explain(subject, ["It is slow."], ["attcat"])[0]
    cache = LogitCache(subject)
    text = opened(list(result.values()), cache)
    n = len(text.units("token"))
    aopc_bounds(text)
    assert cache.tally.evaluated <= 2**n
    before = cache.tally.evaluated
    aopc_bounds(text)
    assert cache.tally.evaluated == before
