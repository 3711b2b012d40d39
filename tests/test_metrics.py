"""Metrics of curves, and agreement of scores: by hand, against scipy, and what must hold of any numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from scipy.stats import kendalltau
from tests.curves import CURVE, PAIRS, curves, of

from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.metrics import curves as metrics
from whichtoken.metrics import ranks
from whichtoken.metrics.curves import METRICS
from whichtoken.records import Curve, Order

ERASER = replace(
    CURVE, grid="eraser", removed=(0.0, 0.01, 0.05, 0.1, 0.2, 0.5), probability=(0.9, 0.8, 0.7, 0.5, 0.3, 0.2)
)


def test_metrics_by_hand() -> None:
    assert metrics.aopc(CURVE) == pytest.approx((0.4 + 0.6) / 2)
    assert metrics.log_odds(CURVE) == pytest.approx((math.log(0.5) + math.log(0.25)) / 2)
    assert math.isfinite(metrics.log_odds(replace(CURVE, probability=(0.8, 0.0, 0.0))))
    # 0.5 * (0.8 + 0.4) / 2 + 0.5 * (0.4 + 0.2) / 2 = 0.3 + 0.15, of a range of 1
    assert metrics.auc(CURVE) == pytest.approx(0.45)
    # the same points over a range of 0.5: 0.225 / 0.5
    assert metrics.auc(replace(CURVE, removed=(0.0, 0.25, 0.5))) == pytest.approx(0.45)
    with pytest.raises(UsageError, match="a curve needs the whole text"):
        metrics.aopc(replace(CURVE, removed=(0.1, 0.5, 1.0)))
    with pytest.raises(UsageError, match="a curve needs the whole text"):
        metrics.auc(replace(CURVE, removed=(0.0,), probability=(0.8,)))


@given(curves())
def test_auc_is_numpys_trapezoid_and_a_mean_probability(curve: Curve) -> None:
    expected = np.trapezoid(curve.probability, curve.removed) / curve.removed[-1]
    assert metrics.auc(curve) == pytest.approx(float(expected), abs=1e-12)
    assert min(curve.probability) - 1e-12 <= metrics.auc(curve) <= max(curve.probability) + 1e-12
    backwards = replace(curve, removed=curve.removed[::-1], probability=curve.probability[::-1])
    assert metrics.auc(backwards) == metrics.auc(curve)


def test_directions_and_what_each_metric_is_measured_on() -> None:
    assert {name: (metric.better, metric.curve) for name, metric in METRICS.items()} == {
        "aopc": ("higher", "any"),
        "log-odds": ("lower", "any"),
        "auc": ("lower", "any"),
        "comprehensiveness": ("higher", "eraser morf"),
        "sufficiency": ("lower", "eraser lerf"),
    }
    steep, flat = of(0.9, 0.1, 0.05), of(0.9, 0.8, 0.7)
    for metric in METRICS.values():
        order: Order = "lerf" if metric.curve == "eraser lerf" else "morf"
        grid = "tenths" if metric.curve == "any" else "eraser"
        small, large = (metric.measure(replace(curve, grid=grid, order=order)) for curve in (flat, steep))
        # To keep the highest and lose little is good, so that the flatter curve is the better one there.
        better, worse = (small, large) if metric.name == "sufficiency" else (large, small)
        assert (better > worse) == (metric.better == "higher"), metric.name


def test_comprehensiveness_removes_and_sufficiency_keeps_the_highest() -> None:
    # drops 0.1, 0.2, 0.4, 0.6, 0.7
    assert metrics.comprehensiveness(ERASER) == pytest.approx(2.0 / 5)
    kept = replace(ERASER, order="lerf", removed=(0.0, 0.5, 0.8, 0.9, 0.95, 0.99))
    assert metrics.sufficiency(replace(kept, probability=(0.9, 0.9, 0.8, 0.8, 0.6, 0.4))) == pytest.approx(1.0 / 5)
    with pytest.raises(UsageError, match="order 'morf', not of grid 'eraser' and order 'lerf'"):
        metrics.comprehensiveness(kept)
    with pytest.raises(UsageError, match="order 'lerf', not of grid 'eraser' and order 'morf'"):
        metrics.sufficiency(ERASER)
    with pytest.raises(UsageError, match="grid 'eraser' and order 'morf', not of grid 'tenths'"):
        metrics.comprehensiveness(CURVE)


def test_what_each_step_contributes() -> None:
    assert metrics.per_step(CURVE, "aopc") == pytest.approx((0.0, 0.4, 0.6))
    assert metrics.per_step(CURVE, "log-odds") == pytest.approx((0.0, math.log(0.5), math.log(0.25)))
    assert metrics.per_step(CURVE, "aopc")[0] == metrics.per_step(CURVE, "log-odds")[0] == 0.0
    with pytest.raises(UnknownName, match="known: aopc, log-odds"):
        metrics.per_step(CURVE, "auc")  # type: ignore[arg-type]


@given(curves())
def test_steps_average_to_the_metric(curve: Curve) -> None:
    n = len(curve.removed) - 1
    assert sum(metrics.per_step(curve, "aopc")) / n == pytest.approx(metrics.aopc(curve), abs=1e-12)
    assert sum(metrics.per_step(curve, "log-odds")) / n == pytest.approx(metrics.log_odds(curve), abs=1e-9)


def test_a_value_between_two_bounds() -> None:
    assert metrics.normalise(0.3, 0.1, 0.5) == pytest.approx(0.5)
    assert metrics.normalise(0.1, 0.1, 0.5) == 0.0
    assert metrics.normalise(0.2, 0.6, 0.1) == pytest.approx(0.8)  # 0.4 of the way down 0.5
    assert metrics.normalise(0.7, 0.1, 0.5) == pytest.approx(1.5)  # bounds that were searched for can be passed
    assert metrics.normalise(0.2, 0.2, 0.2) is None


def test_kendall_by_hand() -> None:
    # Pairs (0 1) (0 2) (1 2): a rises + + +, b rises + + -: (1 + 1 - 1) / 3
    assert ranks.kendall([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    # With a tie, a tells 2 pairs apart and b 3; both rise in those two: 2 / sqrt(2 * 3)
    assert ranks.kendall([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(6))
    for constant in ([5.0, 5.0, 5.0], [1.0, 2.0, 3.0]):
        assert ranks.kendall([5.0, 5.0, 5.0], constant) == 0.0
    assert ranks.kendall([1.0], [2.0]) == 0.0
    assert ranks.kendall([1e308, -1e308], [-1e308, 1e308]) == -1.0


@given(PAIRS)
def test_kendall_is_scipys_tau_b(pair: tuple[list[float], list[float]]) -> None:
    a, b = pair
    found = ranks.kendall(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found == 0.0
    else:
        assert found == pytest.approx(kendalltau(a, b).statistic, abs=1e-12)


@given(PAIRS)
def test_agreement_is_symmetric_and_the_tau_of_each_two(pair: tuple[list[float], list[float]]) -> None:
    rows = [*pair, [-score for score in pair[0]]]
    tau = ranks.agreement(rows)
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            assert tau[i][j] == tau[j][i] == pytest.approx(ranks.kendall(a, b), abs=1e-12)
    assert tau[0][0] == (0.0 if len(set(pair[0])) == 1 else 1.0)
    assert tau[0][2] == -tau[0][0]


def test_scores_that_cannot_be_ranked_together_are_refused() -> None:
    assert ranks.agreement([]) == ()
    with pytest.raises(UsageError, match=r"scores of \[2, 3\] tokens"):
        ranks.kendall([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match="NaN or infinite"):
        ranks.agreement([[1.0, math.nan]])


def test_precision_at_k_counts_and_recall_at_k_divides_by_the_lengths() -> None:
    scores = [0.1, 0.9, 0.5, 0.5, 0.5, -1.0]
    assert ranks.precision_at_k(scores, [1, 3], k=1) == 1
    assert ranks.precision_at_k(scores, [3, 4], k=3) == 1  # of the three that tie, 2 and 3 come first
    assert ranks.precision_at_k(scores, [3, 4]) == 2
    # Two texts: counts 1 and 2 of spans of 2 and 4 tokens, 1.5 / 3; the mean of ratios would be 0.5 too
    assert ranks.recall_at_k([1, 2], [2, 4]) == pytest.approx(0.5)
    assert ranks.recall_at_k([1, 0], [1, 4]) == pytest.approx(0.2)  # where that would be 0.5
    with pytest.raises(BadSetting, match="k=0"):
        ranks.precision_at_k(scores, [1], k=0)
    with pytest.raises(UsageError, match=r"gold positions \[6\] are not among the 6 tokens"):
        ranks.precision_at_k(scores, [6, 1])
    for counts, lengths in (([1], [1, 2]), ([], []), ([0], [0])):
        with pytest.raises(UsageError, match="one of each for every text"):
            ranks.recall_at_k(counts, lengths)
