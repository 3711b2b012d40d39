"""What only the papers measure: absolute AOPC, pooled areas, tau of positions; by hand, and against scipy."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from tests.curves import CURVE, PAIRS, curves, of

from whichtoken.errors import UsageError
from whichtoken.metrics.curves import StepMetric, aopc, per_step
from whichtoken.metrics.ranks import kendall
from whichtoken.records import Curve
from whichtoken.reproduce.pooled import pooled_minmax_auc
from whichtoken.reproduce.protocols import absolute_aopc, positions_tau

PERCENT = st.integers(1, 100)


def test_a_rise_counts_as_a_drop_only_for_the_absolute_aopc() -> None:
    rising = replace(CURVE, probability=(0.5, 0.4, 0.9))
    assert aopc(rising) == pytest.approx((0.1 - 0.4) / 2)
    assert absolute_aopc(rising) == pytest.approx((0.1 + 0.4) / 2)


@given(curves())
def test_the_absolute_aopc_is_never_smaller(curve: Curve) -> None:
    assert absolute_aopc(curve) >= abs(aopc(curve)) - 1e-12


def test_pooled_areas_by_hand() -> None:
    pool = {
        # drops 0.2 0.4 0.6 and 0.4 0.6 0.8: mean 0.3 0.5 0.7
        "good": [of(1.0, 0.8, 0.6, 0.4, key="1"), of(1.0, 0.6, 0.4, 0.2, key="2")],
        # drops 0.1 0.2 0.5 and 0.1 0.4 0.5: mean 0.1 0.3 0.5
        "poor": [of(1.0, 0.9, 0.8, 0.5, key="1"), of(1.0, 0.9, 0.6, 0.5, key="2")],
    }
    # From 0.1 to 0.7, whichever method it is: good 1/3 2/3 1, poor 0 1/3 2/3; trapezoids of width 0.1
    good, poor = 0.1 * (1 / 6 + 2 / 3 + 1 / 2), 0.1 * (0 + 1 / 3 + 1 / 3)
    assert pooled_minmax_auc(pool, "aopc") == pytest.approx({"good": good, "poor": poor})
    # ln p / p0 at each step, with p0 = 1: the means are those of logarithms, not the logarithm of means
    mean = [(math.log(a) + math.log(b)) / 2 for a, b in ((0.8, 0.6), (0.6, 0.4), (0.4, 0.2))]
    poor_mean = [(math.log(a) + math.log(b)) / 2 for a, b in ((0.9, 0.9), (0.8, 0.6), (0.5, 0.5))]
    low, high = mean[2], poor_mean[0]
    scaled = [(value - low) / (high - low) for value in mean]
    expected = 0.1 * (scaled[0] / 2 + scaled[1] + scaled[2] / 2)
    assert pooled_minmax_auc(pool, "log-odds")["good"] == pytest.approx(expected)


def test_a_pooled_area_of_nine_steps_is_at_most_eight_tenths_and_depends_on_the_others() -> None:
    best, worst, middling = of(1.0, *[0.0] * 9), of(1.0, *[1.0] * 9), of(1.0, *[0.5] * 9)
    pool = {"best": [best], "worst": [worst], "middling": [middling]}
    expected = {"best": 0.8, "worst": 0.0, "middling": 0.4}
    assert pooled_minmax_auc(pool, "aopc") == pytest.approx(expected)
    del pool["best"]
    assert pooled_minmax_auc(pool, "aopc") == pytest.approx({"worst": 0.0, "middling": 0.8})


def test_curves_that_cannot_be_pooled_are_refused() -> None:
    one, other = of(1.0, 0.8, 0.6), of(1.0, 0.7, 0.5)
    refused: list[tuple[dict[str, list[Curve]], str]] = [
        ({}, "at least one text"),
        ({"a": [one], "b": []}, "at least one text"),
        ({"a": [one], "b": [of(1.0, 0.7)]}, r"curves of \[1, 2\] steps"),
        ({"a": [one], "b": [replace(other, order="lerf")]}, "one order and protocol"),
        ({"a": [one], "b": [replace(other, key="x")]}, "the same texts"),
        ({"a": [one], "b": [other, other]}, "the same texts"),
        ({"a": [of(1.0, 0.5, 0.5)]}, "aopc is the same for all methods and steps"),
    ]
    for pool, said in refused:
        with pytest.raises(UsageError, match=said):
            pooled_minmax_auc(pool, "aopc")


@given(
    st.sampled_from(["aopc", "log-odds"]), st.lists(st.lists(PERCENT, min_size=3, max_size=3), min_size=2, max_size=4)
)
def test_pooled_areas_keep_the_order_of_unscaled_ones(metric: StepMetric, percents: list[list[int]]) -> None:
    assume(len({p for row in percents for p in row}) > 1)
    pool = {str(i): [of(1.0, *(p / 100 for p in row))] for i, row in enumerate(percents)}
    areas = pooled_minmax_auc(pool, metric)
    plain = {name: np.trapezoid(per_step(only, metric)[1:]) for name, (only,) in pool.items()}
    for a, b in combinations(pool, 2):
        if plain[a] > plain[b] + 1e-9:
            assert areas[a] > areas[b]
    assert all(-1e-12 <= area <= 0.2 + 1e-12 for area in areas.values())


@given(PAIRS)
def test_kendall_of_the_order_is_scipys_tau_of_the_positions(pair: tuple[list[float], list[float]]) -> None:
    positions = [sorted(range(len(row)), key=lambda i: -row[i]) for row in pair]
    expected = kendalltau(*positions).statistic if len(pair[0]) > 1 else 0.0
    assert positions_tau(*pair) == pytest.approx(expected, abs=1e-12)


def test_kendall_of_the_order_is_no_rank_correlation() -> None:
    scores = np.random.default_rng(0).random(100)
    assert kendall(scores.tolist(), (-scores).tolist()) == -1.0
    assert abs(positions_tau(scores.tolist(), (-scores).tolist())) < 0.2


def test_scores_without_a_rank_have_no_tau_of_positions() -> None:
    with pytest.raises(UsageError, match="NaN or infinite"):
        positions_tau([1.0, math.nan], [1.0, 2.0])
    with pytest.raises(UsageError, match=r"scores of \[2, 3\] tokens"):
        positions_tau([1.0, 2.0], [1.0, 2.0, 3.0])
