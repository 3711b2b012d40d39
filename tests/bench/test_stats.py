"""Intervals and tests over texts, against a slow bootstrap and against every flip of signs."""

import random
from itertools import product
from statistics import fmean, stdev

import numpy as np
import pytest

from whichtoken.bench.stats import cell, holm, interval, paired_p

SKEWED = [0.02, 0.9, 0.1, 0.05, 0.3, 0.01, 0.6, 0.08, 0.2, 0.04, 0.15, 0.7]


def exact_p(differences: list[float]) -> float:
    """The share of all assignments of signs whose mean is at least as far from 0."""
    observed = abs(fmean(differences))
    means = [
        abs(fmean([sign * d for sign, d in zip(signs, differences, strict=True)]))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return sum(mean >= observed - 1e-12 for mean in means) / len(means)


def test_the_interval_is_that_of_a_slow_bootstrap() -> None:
    source = random.Random(1)
    means = sorted(fmean(source.choices(SKEWED, k=len(SKEWED))) for _ in range(20_000))
    low, high = interval(np.array(SKEWED))
    assert low == pytest.approx(means[500], abs=0.01)
    assert high == pytest.approx(means[19_500], abs=0.015)
    assert fmean(SKEWED) - low < high - fmean(SKEWED)  # it leans as the values do


def test_the_interval_of_a_normal_sample_is_1_96_standard_errors_wide() -> None:
    values = np.random.default_rng(5).normal(3.0, 2.0, 400)
    low, high = interval(values)
    error = stdev(values.tolist()) / 20
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)


def test_the_same_texts_are_drawn_for_every_method() -> None:
    values = np.array(SKEWED)
    low, high = interval(values)
    assert interval(2 * values + 1) == pytest.approx((2 * low + 1, 2 * high + 1))


def test_the_interval_of_a_ratio_of_sums_is_that_of_a_slow_bootstrap() -> None:
    pairs = [(value, 1 + i % 3) for i, value in enumerate(SKEWED)]
    source = random.Random(1)
    ratios = []
    for _ in range(20_000):
        drawn = source.choices(pairs, k=len(pairs))
        ratios.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))
    low, high = interval(np.array(pairs), lambda means: means[:, 0] / means[:, 1])
    assert low == pytest.approx(sorted(ratios)[500], abs=0.01)
    assert high == pytest.approx(sorted(ratios)[19_500], abs=0.015)


def test_a_cell_has_mean_interval_and_number() -> None:
    found = cell(SKEWED)
    assert found.mean == pytest.approx(fmean(SKEWED))
    assert (found.n, found.p) == (12, None)  # tests come later
    assert (found.low, found.high) == interval(np.array(SKEWED))
    assert (cell([0.5]).low, cell([0.5]).mean, cell([0.5]).high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    "differences",
    [
        [0.3],
        [0.3, 0.2],
        [1.0, -2.0, 4.0],
        [0.5, 0.5, 0.5, -0.5],  # ties with the observed mean count
        [0.1, 0.4, 0.3, 0.2, -0.1],
        [3.0, 1.0, 2.0, -1.5, 2.5, 0.5],
        [0.2, 0.9, -0.3, 0.4, 0.1, 0.7, 0.3],
        [0.2, 0.9, 0.3, 0.4, 0.1, 0.7, 0.3, 0.25],
    ],
    ids=len,
)
def test_p_is_the_share_of_all_flips(differences: list[float]) -> None:
    best = [0.5 + d for d in differences]
    other = [0.5] * len(differences)
    exact = exact_p(differences)
    spread = (exact * (1 - exact) / 2000) ** 0.5  # of a share of 2000 flips
    assert paired_p(best, other) == pytest.approx(exact, abs=4 * spread + 0.001)


def test_p_does_not_ask_which_of_the_two_is_first() -> None:
    a, b = SKEWED, [value**2 for value in SKEWED]
    assert paired_p(a, b) == paired_p(b, a) < 0.01


def test_p_pairs_the_texts() -> None:
    """The same values in another order are no longer each a little better."""
    better = [value + 0.01 for value in SKEWED]
    assert 0 < paired_p(better, SKEWED) < 0.005
    assert paired_p(better, SKEWED[1:] + SKEWED[:1]) > 0.5


def test_methods_that_are_alike_have_p_1() -> None:
    assert paired_p(SKEWED, SKEWED) == 1.0


def test_p_is_never_0() -> None:
    many = [1.0 + i / 100 for i in range(60)]
    assert paired_p(many, [0.0] * 60) == pytest.approx(1 / 2001)


def test_holm_by_hand() -> None:
    # Sorted: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1, which may not be below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_the_same_values_give_the_same_answer_whatever_was_drawn_before() -> None:
    first = cell(SKEWED), paired_p(SKEWED, SKEWED[::-1])
    np.random.seed(9)
    assert (cell(SKEWED), paired_p(SKEWED, SKEWED[::-1])) == first
