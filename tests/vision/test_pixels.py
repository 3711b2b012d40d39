"""Metrics of images with pixels removed, by hand; and which pixels go."""

from itertools import pairwise
from math import log
from typing import Any

import numpy as np
import pytest

from whichtoken.errors import BadInput, BadSetting
from whichtoken.vision import PixelCurves, accuracy_auc, aopc, log_odds, removal_order, without_pixels

TENTHS = tuple(k / 10 for k in range(10))
TWENTIETHS = tuple(k / 20 for k in range(21))


def curves(correct: Any, probability: Any = None, grid: Any = "tenths", order: Any = "positive") -> PixelCurves:
    removed = TENTHS if grid == "tenths" else TWENTIETHS
    ones = tuple((1.0,) * len(removed) for _ in correct)
    return PixelCurves("m", order, grid, "black", "predicted", "label", removed, correct, probability or ones)


def falling(n_right: int, of: int = 10) -> tuple[bool, ...]:
    return tuple(level < n_right for level in range(of))


@pytest.mark.parametrize(("grid", "n", "most"), [("tenths", 10, 90.0), ("twentieths", 21, 100.0)])
def test_an_image_that_stays_right_has_the_largest_area(grid: str, n: int, most: float) -> None:
    assert accuracy_auc(curves((falling(n, n),), grid=grid)) == pytest.approx((most,))
    assert accuracy_auc(curves((falling(0, n),), grid=grid)) == (0.0,)


def test_areas_by_hand() -> None:
    # Right up to 20 %: two trapezoids and a half. Up to 80 %: eight and a half. Right only when whole: a half.
    found = curves((falling(3), falling(9), falling(1)), order="negative")
    assert accuracy_auc(found) == pytest.approx((25.0, 85.0, 5.0))


def test_the_mean_area_is_the_area_of_the_mean_accuracy() -> None:
    right = np.random.default_rng(0).random((7, 10)) < 0.6
    found = curves(tuple(map(tuple, right.tolist())))
    slow = 0.0
    for (a, p), (b, q) in pairwise(zip(TENTHS, found.accuracy, strict=True)):
        slow += 100 * (b - a) * (p + q) / 2
    assert np.mean(accuracy_auc(found)) == pytest.approx(slow)


def test_aopc_and_log_odds_count_the_whole_image_as_a_level() -> None:
    # p = 0.8; at 10 levels half of it, at 10 levels a quarter.
    probability = ((0.8,) + (0.4,) * 10 + (0.2,) * 10, (0.5,) * 21)
    found = curves((falling(21, 21),) * 2, probability, "twentieths")
    assert aopc(found) == pytest.approx(((10 * 0.4 + 10 * 0.6) / 21, 0.0))
    assert log_odds(found) == pytest.approx(((10 * log(1 / 2) + 10 * log(1 / 4)) / 21, 0.0))
    assert found.mean_probability[:2] == pytest.approx((0.65, 0.45))
    assert found.mean_log_odds[-1] == pytest.approx(log(1 / 4) / 2)


def test_a_probability_that_underflowed_is_no_infinity() -> None:
    assert log_odds(curves((falling(10),), ((1.0,) * 9 + (0.0,),))) == pytest.approx((log(1e-300) / 10,))


def test_the_most_relevant_go_first_and_the_least_last() -> None:
    heat = np.array([[0.1, 0.9, -0.5], [0.3, 0.0, 0.2], [0.8, -0.1, 0.4]])
    assert removal_order(heat, "positive").tolist() == [1, 6, 8, 3, 5, 0, 4, 7, 2]
    assert removal_order(heat, "negative").tolist() == [2, 7, 4, 0, 5, 3, 8, 6, 1]


def test_ties_fall_by_position() -> None:
    heat = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 0.0], [1.0, 0.0, 2.0]])
    assert removal_order(heat, "positive").tolist() == [1, 3, 8, 0, 2, 4, 6, 5, 7]
    assert removal_order(heat, "negative").tolist() == [7, 5, 6, 4, 2, 0, 8, 3, 1]
    assert removal_order(np.zeros((28, 28)), "positive").tolist() == list(range(784))
    noise = np.random.default_rng(0).normal(size=(3, 3)) * 1e-15
    assert removal_order(heat + noise, "positive").tolist() == [1, 3, 8, 0, 2, 4, 6, 5, 7]


def test_maps_without_a_rank_are_refused() -> None:
    with pytest.raises(BadInput, match="cannot be ranked"):
        removal_order(np.array([[np.nan, 1.0]]), "positive")
    with pytest.raises(BadSetting, match="the most relevant first"):
        removal_order(np.zeros((2, 2)), "morf")  # type: ignore[arg-type]


def test_pixels_go_in_all_channels() -> None:
    image = np.arange(1.0, 19.0).reshape(2, 3, 3)
    found = without_pixels(image, np.array([1, 6, 8, 3, 5, 0, 4, 7, 2]), 3, (-1.0, -2.0))
    assert found.tolist() == [
        [[1.0, -1.0, 3.0], [4.0, 5.0, 6.0], [-1.0, 8.0, -1.0]],
        [[10.0, -2.0, 12.0], [13.0, 14.0, 15.0], [-2.0, 17.0, -2.0]],
    ]
    assert image[0, 0, 1] == 2.0
    assert without_pixels(image, np.arange(9), 0, (0.0, 0.0)).tolist() == image.tolist()
