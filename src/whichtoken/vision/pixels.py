"""Pixel perturbation: the order in which pixels are removed, and metrics of the model's output. No torch.

Positive: the most relevant pixels are removed first; negative: the least relevant. Chefer et al., CVPR 2021, remove 10,
20 .. 90 % and report the area under the accuracy (`tenths`); TokenTM, Wu et al., CVPR 2024, remove 0, 5 .. 100 % and
also report AOPC and log-odds of the predicted class (`twentieths`). They are not in `whichtoken.metrics`, which takes
one text's curve: accuracy needs a set of images, and TokenTM's means include the whole image as a level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whichtoken.errors import BadInput, BadSetting
from whichtoken.vision.maps import Map

PixelOrder = Literal["positive", "negative"]
PixelGrid = Literal["tenths", "twentieths"]
Fill = Literal["black", "mean"]
Of = Literal["predicted", "label"]

ROUNDING = 1e-12  # relative to the largest score
SMALLEST = 1e-300  # stands in for a probability that underflowed to 0


@dataclass(frozen=True)
class PixelCurves:
    """The model's output for a set of images as pixels are removed in the order of one method's heat maps."""

    method: str
    order: PixelOrder
    grid: PixelGrid
    fill: Fill  # what removed pixels become: black, or the mean of their channel in their image
    of: Of  # the class whose probability it is: the one predicted for the whole image, or the label
    right: Literal["label", "prediction"]  # what counts as correct: the label, or the prediction for the whole image
    removed: tuple[float, ...]  # fractions of the pixels, from 0
    correct: tuple[tuple[bool, ...], ...]  # image, level
    probability: tuple[tuple[float, ...], ...]  # image, level

    @property
    def accuracy(self) -> tuple[float, ...]:
        """Mean accuracy over the images, at each level."""
        return tuple(np.mean(self.correct, axis=0).tolist())

    @property
    def mean_probability(self) -> tuple[float, ...]:
        return tuple(np.mean(self.probability, axis=0).tolist())

    @property
    def mean_log_odds(self) -> tuple[float, ...]:
        """Mean over the images of ln(p_k / p), at each level."""
        return tuple(_log_ratios(self).mean(0).tolist())


def accuracy_auc(curves: PixelCurves) -> tuple[float, ...]:
    """Return 100 times the area under the accuracy of each image (trapezoids); the mean is that of the mean accuracy.

    It starts at the whole image, so it is at most 90 for `tenths` and 100 for `twentieths`. Positive: lower is better;
    negative: higher is better.
    """
    correct = np.asarray(curves.correct, dtype=np.float64)
    return tuple(100 * float(np.trapezoid(image, curves.removed)) for image in correct)


def aopc(curves: PixelCurves) -> tuple[float, ...]:
    """Return for each image the mean of p - p_k over all levels, including the first (nothing removed), as in TokenTM.

    Positive: higher is better. `metrics.curves.aopc` excludes that level: for `twentieths` it is 21/20 of this.
    """
    p = np.asarray(curves.probability, dtype=np.float64)
    return tuple((p[:, :1] - p).mean(1).tolist())


def log_odds(curves: PixelCurves) -> tuple[float, ...]:
    """Return for each image the mean of ln(p_k / p) over the same levels as `aopc`.

    It is below 0 where the probability falls. Positive: lower is better.
    """
    return tuple(_log_ratios(curves).mean(1).tolist())


def removal_order(heat: Map, order: PixelOrder) -> NDArray[np.int64]:
    """Return the positions of pixels, counted row by row, in removal order.

    Ties, including scores that differ only by rounding (upscaling creates many), are broken by position; the two orders
    are each other's reverse, as for tokens.
    """
    if order not in ("positive", "negative"):
        raise BadSetting("order", order, "'positive', the most relevant first, or 'negative', the least")
    if not np.isfinite(heat).all():
        raise BadInput("some scores of a heat map are NaN or infinite, so they cannot be ranked; give finite scores")
    ranked = np.argsort(-round_scores(heat).ravel(), kind="stable")
    return ranked if order == "positive" else ranked[::-1]


def round_scores(heat: Map) -> Map:
    """Round scores to multiples of the rounding error, so that scores that differ only by it become equal."""
    scores: Map = np.asarray(heat, dtype=np.float64)
    grain = max(ROUNDING * np.abs(scores).max(), np.finfo(np.float64).tiny)
    multiples: Map = np.round(scores / grain)
    return multiples


def without_pixels(
    image: NDArray[Any], ranked: NDArray[np.int64], count: int, filler: Sequence[float] | NDArray[Any]
) -> NDArray[Any]:
    """Return the image (channel row column) with the first `count` of `ranked` pixels set to each channel's filler."""
    changed = image.reshape(len(image), -1).copy()
    changed[:, ranked[:count]] = np.asarray(filler, dtype=image.dtype)[:, None]
    return changed.reshape(image.shape)


def _log_ratios(curves: PixelCurves) -> NDArray[np.float64]:
    log_p = np.log(np.maximum(np.asarray(curves.probability, dtype=np.float64), SMALLEST))
    ratios: NDArray[np.float64] = log_p - log_p[:, :1]
    return ratios
