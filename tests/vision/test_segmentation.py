"""Segmentation: every number by hand on 3 x 3 pixels, and average precision against scikit-learn."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from whichtoken.errors import BadInput, UsageError
from whichtoken.vision import Segmentation, average_precision, overlap, scaled

# Scaled by 8, the mean is 3: 8, 6, 5 and 4 are above it.
HEAT = np.array([[8.0, 6.0, 0.0], [5.0, 4.0, 1.0], [2.0, 1.0, 0.0]])
TRUTH = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0]])


def by_sklearn(truth: Any, scores: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where nothing is true
        return float(average_precision_score(truth, scores))


def test_an_image_by_hand() -> None:
    found = overlap(HEAT, TRUTH)
    assert (found.correct, found.labelled) == (7, 9)  # 4 is wrongly above, 2 wrongly below
    assert found.intersection == (4, 3)
    assert found.union == (6, 5)
    alone = Segmentation((found,))
    assert alone.pixel_accuracy == pytest.approx(7 / 9)
    assert alone.mean_iou == pytest.approx((4 / 6 + 3 / 5) / 2)


def test_average_precision_by_hand() -> None:
    # (1 - map, map) in eighths, highest first, and how many of them are true: 8: 3 of 3; 7: 2 of 2; 6: 1 of 2;
    # 5: 1 of 1; 4: 1 of 2; 3: 0 of 1; 2: 1 of 2; the rest 0. Each true one counts the precision there.
    assert overlap(HEAT, TRUTH).average_precision == pytest.approx((3 + 2 + 6 / 7 + 7 / 8 + 8 / 10 + 9 / 13) / 9)
    # Without ties: true, false, true, true gives 1/3 (1 + 2/3 + 3/4).
    assert average_precision(np.array([True, False, True, True]), np.array([0.9, 0.8, 0.7, 0.1])) == pytest.approx(
        29 / 36
    )


def test_the_mean_itself_is_background() -> None:
    found = overlap([[0.0, 0.5, 1.0]], [[0, 1, 1]])
    assert (found.correct, found.intersection, found.union) == (2, (1, 1), (2, 2))


def test_sums_are_over_the_set_and_only_precision_is_a_mean() -> None:
    other = np.zeros((3, 3), dtype=int)
    other[0, 0] = 1
    both = Segmentation().add(HEAT, TRUTH).add(HEAT, other)  # finds 1 of 1, and 3 too many
    assert both.pixel_accuracy == pytest.approx((7 + 6) / 18)
    assert both.mean_iou == pytest.approx(((4 + 5) / (6 + 8) + (3 + 1) / (5 + 4)) / 2)
    each = [image.average_precision for image in both.images]
    assert both.mean_average_precision == pytest.approx(sum(each) / 2)
    assert each[1] == pytest.approx(
        by_sklearn(np.r_[other.ravel() == 0, other.ravel() == 1], np.r_[1 - scaled(HEAT).ravel(), scaled(HEAT).ravel()])
    )


def test_pixels_without_a_label_count_for_nothing_but_the_threshold() -> None:
    truth = TRUTH.copy()
    truth[1, 1] = truth[0, 2] = -1
    found = overlap(HEAT, truth)
    assert (found.correct, found.labelled) == (6, 7)
    assert found.intersection == (3, 3)
    assert found.union == (4, 4)
    known = truth.ravel() != -1
    shown = scaled(HEAT).ravel()[known]
    assert found.average_precision == pytest.approx(
        by_sklearn(np.r_[truth.ravel()[known] == 0, truth.ravel()[known] == 1], np.r_[1 - shown, shown])
    )


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_is_scikit_learns(seed: int) -> None:
    source = np.random.default_rng(seed)
    truth = source.random(60) < source.random()
    fine, coarse = source.random(60), source.integers(0, 5, 60).astype(float)
    for scores in (fine, coarse, np.zeros(60)):
        assert average_precision(truth, scores) == pytest.approx(by_sklearn(truth, scores), abs=1e-12)


@pytest.mark.parametrize("value", [False, True])
def test_truths_of_one_class(value: bool) -> None:
    one = np.full(20, value)
    scores = np.random.default_rng(1).random(20)
    assert average_precision(one, scores) == pytest.approx(by_sklearn(one, scores)) == float(value)
    truth = np.full((3, 3), value)
    found = overlap(HEAT, truth)
    assert found.correct == (4 if value else 5)
    assert found.intersection == ((0, 4) if value else (5, 0))
    assert found.union == ((5, 9) if value else (9, 4))
    shown = scaled(HEAT).ravel()
    expected = by_sklearn(np.r_[~truth.ravel(), truth.ravel()], np.r_[1 - shown, shown])
    assert found.average_precision == pytest.approx(expected)


@pytest.mark.parametrize("heat", [np.zeros((3, 3)), np.full((3, 3), 7.0), np.full((3, 3), np.nan)])
def test_a_map_that_says_nothing_finds_nothing(heat: Any) -> None:
    found = overlap(heat, TRUTH)
    assert (found.correct, found.intersection, found.union) == (5, (5, 0), (9, 4))
    assert found.average_precision == 0.5  # all are ranked alike, and half of the list is true
    nothing = Segmentation().add(heat, np.zeros((3, 3), dtype=int))
    assert nothing.mean_iou == 0.5  # no foreground in map or truth: 0, not 0 / 0


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(BadInput, match=r"shape \(3, 3\) and a truth mask of shape \(2, 3\)"):
        overlap(HEAT, TRUTH[:2])
    with pytest.raises(BadInput, match=r"shape \(3,\) and .* give the same rows x columns"):
        overlap(HEAT[0], TRUTH[0])
    with pytest.raises(BadInput, match=r"a truth mask contains \[7, 255\]; allowed"):
        overlap(HEAT, np.where(TRUTH == 1, 255, 7))
    with pytest.raises(BadInput, match=r"a truth mask contains \[255\]; allowed"):
        overlap(HEAT, np.where(TRUTH == 1, 255, 0))  # the other pixels are as allowed
    with pytest.raises(BadInput, match="no labelled pixel"):
        overlap(HEAT, np.full((3, 3), -1))
    for ratio in ("pixel_accuracy", "mean_iou", "mean_average_precision"):
        with pytest.raises(UsageError, match="at least one"):
            getattr(Segmentation(), ratio)
    with pytest.raises(UsageError, match="one of each"):
        average_precision(np.array([True]), np.array([0.1, 0.2]))
