"""How well heat maps locate the object, as Chefer et al., CVPR 2021, measure it on ImageNet-Segmentation. No torch.

A map is scaled to 0..1; a pixel is foreground if it is strictly above the map's mean. Pixel accuracy and IoU are ratios
of sums over the whole set, not means over images, so large objects weigh more than small ones; average precision is a
mean over images. The model need not use the object to predict its class: this is plausibility, not faithfulness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichtoken.errors import BadInput, UsageError
from whichtoken.vision.maps import scaled

UNLABELLED = -1  # pixels that are ignored


@dataclass(frozen=True)
class Overlap:
    """The pixel counts of one image, and its average precision."""

    correct: int
    labelled: int
    intersection: tuple[int, int]  # background, foreground
    union: tuple[int, int]
    average_precision: float


@dataclass(frozen=True)
class Segmentation:
    """The overlaps of a set of images; `add` returns a new set."""

    images: tuple[Overlap, ...] = ()

    def add(self, heat: Any, truth: Any) -> "Segmentation":
        return Segmentation((*self.images, overlap(heat, truth)))

    @property
    def pixel_accuracy(self) -> float:
        return pixel_accuracy(self.images)

    @property
    def mean_iou(self) -> float:
        return mean_iou(self.images)

    @property
    def mean_average_precision(self) -> float:
        return mean_average_precision(self.images)


def overlap(heat: Any, truth: Any) -> Overlap:
    """Compare a pixel heat map, on any scale, with `truth`: 1 or True for the object, 0 for background, -1 unlabelled.

    If a map is constant or not finite, no pixel is foreground and all are ranked equally.
    """
    scores, mask = np.asarray(heat, dtype=np.float64), np.asarray(truth)
    if scores.ndim != 2 or scores.shape != mask.shape:
        raise BadInput(
            f"a heat map of shape {scores.shape} and a truth mask of shape {mask.shape}; give the same rows x columns"
        )
    mask = mask.astype(np.int8) if mask.dtype == bool else mask
    if not np.isin(mask, (UNLABELLED, 0, 1)).all():
        other = sorted(set(np.unique(mask).tolist()) - {UNLABELLED, 0, 1})
        raise BadInput(
            f"a truth mask contains {other[:5]}; allowed: 1 for the object, 0 for the background, -1 for unlabelled"
        )
    known = mask != UNLABELLED
    if not known.any():
        raise BadInput("a truth mask has no labelled pixel, so there is nothing to compare with; leave the image out")
    shares = scaled(scores)
    informative = shares.any()
    foreground, is_object = (shares > shares.mean())[known], mask[known] == 1
    halves = np.concatenate(((1 - shares)[known], shares[known])) if informative else np.zeros(2 * len(is_object))
    pairs = ((~foreground, ~is_object), (foreground, is_object))
    return Overlap(
        correct=int((foreground == is_object).sum()),
        labelled=len(is_object),
        intersection=_as_pair([int((a & b).sum()) for a, b in pairs]),
        union=_as_pair([int((a | b).sum()) for a, b in pairs]),
        average_precision=average_precision(np.concatenate((~is_object, is_object)), halves),
    )


def average_precision(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """Return the sum over distinct scores, highest first, of the increase in recall times precision; 0 if none is true.

    As in scikit-learn's average_precision_score, equal scores are retrieved together.
    """
    if truth.shape != scores.shape or truth.ndim != 1:
        raise UsageError(f"truth of shape {truth.shape} and scores of {scores.shape}; give one of each per pixel")
    if not truth.any():
        return 0.0
    order = np.argsort(-scores, kind="stable")
    hits, ranked = np.cumsum(truth[order]), scores[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)  # last index of each distinct score
    rises = np.diff(hits[last], prepend=0) / hits[-1]
    return float((rises * hits[last] / (last + 1)).sum())


def pixel_accuracy(images: Sequence[Overlap]) -> float:
    """Return the correct pixels of the whole set / the labelled pixels of the whole set."""
    _check(images)
    return sum(image.correct for image in images) / sum(image.labelled for image in images)


def mean_iou(images: Sequence[Overlap]) -> float:
    """Return the mean IoU of background and foreground: intersections / unions, each summed over the whole set.

    It is 0 for a class that is neither present nor predicted in any image.
    """
    _check(images)
    sums = [(sum(i.intersection[k] for i in images), sum(i.union[k] for i in images)) for k in (0, 1)]
    return sum(both / either if either else 0.0 for both, either in sums) / 2


def mean_average_precision(images: Sequence[Overlap]) -> float:
    """Return the mean average precision over images, of (1 - map, map) joined against (background, foreground)."""
    _check(images)
    return sum(image.average_precision for image in images) / len(images)


def _as_pair(counts: list[int]) -> tuple[int, int]:
    background, foreground = counts
    return background, foreground


def _check(images: Sequence[Overlap]) -> None:
    if not images:
        raise UsageError("no image was compared with a truth mask; add at least one")
