"""Pixel perturbation: which pixels go in which order, and metrics of what the model then says. No torch.

Positive: the most relevant pixels go first; negative: the least relevant. Chefer et al., CVPR 2021, remove 10, 20 ..
90 % and report the area under the accuracy (`tenths`); TokenTM, Wu et al., CVPR 2024, remove 0, 5 .. 100 % and report
AOPC and log-odds of the predicted class too (`twentieths`). They are not in `whichtoken.metrics`, whose metrics are of
one text's curve: accuracy is of a set of images, and TokenTM's means count the whole image as a level.
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

ROUNDING = 1e-12  # of the largest score
SMALLEST = 1e-300  # a probability that underflowed is not impossible, only not representable


@dataclass(frozen=True)
class PixelCurves:
    """What the model says of a set of images as pixels are removed, in the order of one method's heat maps."""

    method: str
    order: PixelOrder
    grid: PixelGrid
    fill: Fill  # what removed pixels become: black, or the mean of their channel in their image
    of: Of  # whose probability it is: of the class predicted for the whole image, or of the label
    right: Literal["label", "prediction"]  # what is correct: the label, or the prediction for the whole image
    removed: tuple[float, ...]  # fractions of the pixels, from 0
    correct: tuple[tuple[bool, ...], ...]  # image, level
    probability: tuple[tuple[float, ...], ...]  # image, level

    @property
    def accuracy(self) -> tuple[float, ...]:
        """Mean over the images, at each level."""
        return tuple(np.mean(self.correct, axis=0).tolist())

    @property
    def mean_probability(self) -> tuple[float, ...]:
        return tuple(np.mean(self.probability, axis=0).tolist())

    @property
    def mean_log_odds(self) -> tuple[float, ...]:
        """Mean over the images of ln(p_k / p), at each level."""
        return tuple(_log_ratios(self).mean(0).tolist())


def accuracy_auc(curves: PixelCurves) -> tuple[float, ...]:
    """Area under accuracy by trapezoids, times 100, for each image; their mean is the area under the mean accuracy.

    From the whole image on: at most 90 for `tenths`, 100 for `twentieths`. Positive: lower is better; negative: higher.
    """
    found = np.asarray(curves.correct, dtype=np.float64)
    return tuple(100 * float(np.trapezoid(image, curves.removed)) for image in found)


def aopc(curves: PixelCurves) -> tuple[float, ...]:
    """For each image the mean of p - p_k over all levels, the first (nothing removed, 0) included, as TokenTM has it.

    Positive: higher is better. `metrics.curves.aopc` leaves that level out: of `twentieths` it is 21/20 of this.
    """
    found = np.asarray(curves.probability, dtype=np.float64)
    return tuple((found[:, :1] - found).mean(1).tolist())


def log_odds(curves: PixelCurves) -> tuple[float, ...]:
    """For each image the mean of ln(p_k / p) over the same levels as `aopc`.

    Below 0 where the probability falls. Positive: lower is better.
    """
    return tuple(_log_ratios(curves).mean(1).tolist())


def removal_order(heat: Map, order: PixelOrder) -> NDArray[np.int64]:
    """Positions of pixels, counted row by row, in the order in which they go.

    Ties, also those that only rounding tells apart (enlarging makes many), fall by position, the first goes first; the
    two orders are each other's reverse, as those of tokens are.
    """
    if order not in ("positive", "negative"):
        raise BadSetting("order", order, "'positive', the most relevant first, or 'negative', the least")
    if not np.isfinite(heat).all():
        raise BadInput("some scores of a heat map are NaN or infinite, which have no rank; give finite scores")
    ranked = np.argsort(-rounded(heat).ravel(), kind="stable")
    return ranked if order == "positive" else ranked[::-1]


def rounded(heat: Map) -> Map:
    """Scores in units of what rounding can make of them, so that those which only it tells apart are equal."""
    found: Map = np.asarray(heat, dtype=np.float64)
    grain = max(ROUNDING * np.abs(found).max(), np.finfo(np.float64).tiny)
    whole: Map = np.round(found / grain)
    return whole


def without_pixels(
    image: NDArray[Any], ranked: NDArray[np.int64], count: int, filler: Sequence[float] | NDArray[Any]
) -> NDArray[Any]:
    """The image (channel row column) with its first `count` pixels, in all channels, set to the channel's filler."""
    changed = image.reshape(len(image), -1).copy()
    changed[:, ranked[:count]] = np.asarray(filler, dtype=image.dtype)[:, None]
    return changed.reshape(image.shape)


def _log_ratios(curves: PixelCurves) -> NDArray[np.float64]:
    found = np.log(np.maximum(np.asarray(curves.probability, dtype=np.float64), SMALLEST))
    ratios: NDArray[np.float64] = found - found[:, :1]
    return ratios
