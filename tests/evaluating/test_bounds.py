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
from whichtoken.metrics.bounds import find_bounds
from whichtoken.metrics.chains import Ask, Sets
from whichtoken.metrics.curves import aopc, normalise
from whichtoken.metrics.surrogate import AnswerScale, choose_kernel, fit_surrogate
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
def test_every_set_equals_every_order(n: int, seed: int, grid: str) -> None:
    counts = counts_of(grid, n)
    values, ask = drops_of(n, seed)
    expected = by_every_order(n, counts, values)
    for found in (find_bounds(n, counts, ask), find_bounds(n, counts, ask, budget=2.0**n, exact=0)):
        assert (found.lower, found.upper) == pytest.approx(expected)
        assert found.exact


def test_eight_units_against_every_order() -> None:
    counts = counts_of("tenths", 8)
    values, ask = drops_of(8, 1)
    found = find_bounds(8, counts, ask)
    assert (found.lower, found.upper) == pytest.approx(by_every_order(8, counts, values))
    more = find_bounds(9, counts_of("tenths", 9), drops_of(9, 1)[1], budget=513 / 9 / 8)
    less = find_bounds(9, counts_of("tenths", 9), drops_of(9, 1)[1], budget=511 / 9 / 8)
    assert (more.exact, less.exact) == (True, False)  # there are 512 sets
    assert more.lower <= less.lower < less.upper <= more.upper


@pytest.mark.parametrize("grid", ["tenths", "twentieths", "all"])
@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_bounds_that_an_order_reaches(seed: int, grid: str) -> None:
    """Where every set has a drop of its own, sums over sets that are not nested lie beyond those of every order."""
    values, ask = drops_of(7, seed)
    lowest, highest = by_every_order(7, counts_of(grid, 7), values)
    found = find_bounds(7, counts_of(grid, 7), ask, exact=0)
    assert lowest - 1e-12 <= found.lower < found.upper <= highest + 1e-12
    assert not found.exact


def interacting(n: int, seed: int) -> tuple[float, Ask]:
    """A glass box with pairs that interact: the probability of the whole, and the drops."""
    source = np.random.default_rng(seed)
    effects, pairs = source.normal(size=n), np.triu(source.normal(size=(n, n)), 1) / n**0.5

    def probability(sets: Sets) -> NDArray[np.float64]:
        log_odds = 2 - sets @ effects - np.einsum("si,ij,sj->s", sets, pairs, sets)
        return np.asarray(1 / (1 + np.exp(-log_odds)))

    whole = float(probability(np.zeros((1, n), dtype=bool))[0])
    return whole, lambda sets: whole - probability(sets)


def counted(ask: Ask) -> tuple[set[bytes], Ask]:
    asked: set[bytes] = set()

    def count(sets: Sets) -> NDArray[np.float64]:
        new = {removed.tobytes() for removed in sets}
        assert len(new) == len(sets)
        assert not new & asked, "a set is evaluated again"
        asked.update(new)
        return ask(sets)

    return asked, count


@pytest.mark.parametrize("n", [10, 17, 26])
@pytest.mark.parametrize("seed", range(3))
def test_no_random_order_is_better_or_worse_than_the_bounds(n: int, seed: int) -> None:
    whole, ask = interacting(n, seed)
    counts = counts_of("tenths", n)
    found = find_bounds(n, counts, ask, whole=whole)
    source, orders = np.random.default_rng(seed), []
    for _ in range(2000):
        ranks = source.permutation(n)
        orders.append(ask(np.array([ranks < count for count in counts])).mean())
    alone = ask(np.eye(n, dtype=bool))
    for ranks in (np.argsort(np.argsort(alone)), np.argsort(np.argsort(-alone))):  # leave-one-out, LeRF and MoRF
        orders.append(ask(np.array([ranks < count for count in counts])).mean())
    assert found.lower <= min(orders)
    assert found.upper >= max(orders)


@pytest.mark.parametrize(("n", "grid"), [(9, "tenths"), (20, "tenths"), (12, "all"), (30, "eraser")])
@pytest.mark.parametrize("budget", [0, 0.5, 1.2, 2])
def test_the_budget_is_kept_and_no_set_is_evaluated_twice(n: int, grid: str, budget: float) -> None:
    whole, ask = interacting(n, 0)
    asked, count = counted(ask)
    counts = counts_of(grid, n)
    find_bounds(n, counts, count, budget, whole)
    steps = len(set(counts) - {0})
    assert len(asked) <= max(budget * n * steps, 1 + 2 * n + 2 * steps)


@pytest.mark.parametrize("ties", [False, True])
def test_the_order_of_the_units_does_not_matter(ties: bool) -> None:
    """Not even if many sets have the same drop, as long as units removed alone differ."""
    n = 15
    whole, drops = interacting(n, 4)

    def ask(sets: Sets) -> NDArray[np.float64]:
        return np.where(ties & (sets.sum(1) > 1), drops(sets).round(1), drops(sets))

    order = np.random.default_rng(1).permutation(n)
    asked, count = counted(ask)
    asked_too, count_too = counted(lambda sets: ask(sets[:, order]))
    found = find_bounds(n, counts_of("tenths", n), count, whole=whole)
    assert find_bounds(n, counts_of("tenths", n), count_too, whole=whole) == found
    assert {np.frombuffer(removed, dtype=bool)[order].tobytes() for removed in asked_too} == asked


def test_more_evaluations_and_log_odds_bring_better_bounds() -> None:
    def mean_width(budget: float, on_log_odds: bool) -> float:
        found = []
        for seed in range(6):
            whole, ask = interacting(20, seed)
            found.append(find_bounds(20, counts_of("tenths", 20), ask, budget, whole if on_log_odds else None))
        return float(np.mean([bounds.upper - bounds.lower for bounds in found]))

    assert mean_width(0, True) < mean_width(0.6, True) < mean_width(1.5, True)
    assert mean_width(1, False) < mean_width(1, True)


@pytest.mark.parametrize("optimism", [0.0, -0.7])
def test_swaps_are_predicted_as_the_sets_that_they_lead_to(optimism: float) -> None:
    source = np.random.default_rng(0)
    sets = source.random((40, 6)) < 0.5
    drops = source.normal(size=40)
    surrogate = fit_surrogate(sets, drops, choose_kernel(sets, drops))
    removed = np.array([True, False, True, True, False, False])
    found = surrogate.predict_swaps(removed, optimism)
    for i, first in enumerate(np.flatnonzero(removed)):
        for j, second in enumerate(np.flatnonzero(~removed)):
            swapped = removed.copy()
            swapped[[first, second]] = False, True
            assert found[i, j] == pytest.approx(float(surrogate.predict(swapped[None], optimism)[0]))


def test_a_surrogate_interpolates_and_is_surest_at_what_it_knows() -> None:
    whole, ask = interacting(8, 0)
    sets = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(bool)
    known, answers = np.random.default_rng(0).permutation(256)[:120], AnswerScale(whole)
    scaled = answers.scale(ask(sets))
    np.testing.assert_allclose(answers.drops(scaled), ask(sets), atol=1e-4)  # probabilities of 0 and 1 are clipped
    surrogate = fit_surrogate(sets[known], scaled[known], choose_kernel(sets[known], scaled[known]))
    predicted, optimistic = (surrogate.predict(sets, optimism) for optimism in (0.0, 1.0))
    new = np.setdiff1d(np.arange(256), known)
    assert np.abs(predicted[known] - scaled[known]).max() < 0.2
    assert np.var(predicted[new] - scaled[new]) < 0.1 * np.var(scaled[new])
    assert (optimistic[known] - predicted[known]).max() < 1e-6 < (optimistic[new] - predicted[new]).min()


@pytest.mark.parametrize("constant", [0.0, 0.3])
def test_where_no_unit_has_an_effect_both_bounds_are_the_same(constant: float) -> None:
    found = find_bounds(12, counts_of("tenths", 12), lambda sets: np.full(len(sets), constant), whole=0.5)
    assert (found.lower, found.upper) == pytest.approx((constant, constant))


@pytest.mark.parametrize("n", [9, 20, 35])
@pytest.mark.parametrize("budget", [0, 1.2])
def test_where_drops_add_up_the_search_finds_the_best_order_of_all(n: int, budget: float) -> None:
    """A glass box: each unit has its own part in the drop."""
    parts = np.random.default_rng(n).normal(size=n)
    counts = counts_of("tenths", n)
    found = find_bounds(n, counts, lambda sets: sets @ parts, budget)

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
        found = aopc_bounds(text, budget=4)  # an untrained model is hard to predict
        assert found.exact == (len(text.units("token")) <= 8)
        assert found.lower < found.upper
        for order in ("morf", "lerf"):
            for curve in degrade(subject, result, order=order):
                assert found.lower - 1e-9 <= aopc(curve) <= found.upper + 1e-9


def test_a_larger_budget_is_not_worse_here_and_words_go_as_one(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    result = wt.explain(subject, ["Charming actors were verily won, but it is slow!"], ["attcat"])[0]
    text = opened(list(result.values()), LogitCache(subject))
    little, much = (aopc_bounds(text, budget=budget) for budget in (0, 2))
    assert much.lower <= little.lower < little.upper <= much.upper
    words = aopc_bounds(text, Plan(level="word"))
    assert words != much
    for budget in (-1, float("nan")):
        with pytest.raises(BadSetting, match="budget="):
            aopc_bounds(text, budget=budget)
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
