"""How well heat maps find the object, as Chefer et al., CVPR 2021, measure it on ImageNet-Segmentation. No torch.

A map is scaled to 0..1; a pixel is foreground if it is strictly above the map's mean. Pixel accuracy and IoU are ratios
of sums over the whole set, so large objects weigh more than small ones and they are no means over images; only average
precision is one. What is found this way need not be what the model uses: this is plausibility, not faithfulness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichtoken.errors import BadInput, UsageError
from whichtoken.vision.maps import scaled

UNLABELLED = -1  # pixels that count for nothing


@dataclass(frozen=True)
class Overlap:
    """Of one image: pixels counted, and its average precision."""

    correct: int
    labelled: int
    intersection: tuple[int, int]  # background, foreground
    union: tuple[int, int]
    average_precision: float


@dataclass(frozen=True)
class Segmentation:
    """What was found in a set of images; `add` gives a new one."""

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
    """A heat map of pixels, on any scale, against the truth: 1 or True for the object, 0 beside it, -1 not labelled.

    A map that is constant or not finite says nothing: no pixel is foreground, and all are ranked alike.
    """
    found, wanted = np.asarray(heat, dtype=np.float64), np.asarray(truth)
    if found.ndim != 2 or found.shape != wanted.shape:
        raise BadInput(f"a heat map of shape {found.shape} and a truth of {wanted.shape}; give the same rows x columns")
    wanted = wanted.astype(np.int8) if wanted.dtype == bool else wanted
    if not np.isin(wanted, (UNLABELLED, 0, 1)).all():
        other = sorted(set(np.unique(wanted).tolist()) - {UNLABELLED, 0, 1})
        raise BadInput(f"a truth holds {other[:5]}; allowed: 1 for the object, 0 beside it, -1 for not labelled")
    known = wanted != UNLABELLED
    if not known.any():
        raise BadInput("a truth has no labelled pixel, so there is nothing to compare with; leave the image out")
    shown = scaled(found)
    says = shown.any()
    chosen, real = (shown > shown.mean())[known], wanted[known] == 1
    halves = np.concatenate(((1 - shown)[known], shown[known])) if says else np.zeros(2 * len(real))
    pairs = ((~chosen, ~real), (chosen, real))
    return Overlap(
        correct=int((chosen == real).sum()),
        labelled=len(real),
        intersection=_of_both([int((a & b).sum()) for a, b in pairs]),
        union=_of_both([int((a | b).sum()) for a, b in pairs]),
        average_precision=average_precision(np.concatenate((~real, real)), halves),
    )


def average_precision(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """Sum over the distinct scores, highest first, of the rise of recall times precision; 0 if nothing is true.

    As scikit-learn's average_precision_score: what has the same score is found together.
    """
    if truth.shape != scores.shape or truth.ndim != 1:
        raise UsageError(f"truth of shape {truth.shape} and scores of {scores.shape}; give one of each for every pixel")
    if not truth.any():
        return 0.0
    order = np.argsort(-scores, kind="stable")
    hits, ranked = np.cumsum(truth[order]), scores[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)  # of each score
    rises = np.diff(hits[last], prepend=0) / hits[-1]
    return float((rises * hits[last] / (last + 1)).sum())


def pixel_accuracy(images: Sequence[Overlap]) -> float:
    """Correct pixels of the whole set / labelled pixels of the whole set."""
    _check(images)
    return sum(image.correct for image in images) / sum(image.labelled for image in images)


def mean_iou(images: Sequence[Overlap]) -> float:
    """Mean of two ratios, of background and of foreground: intersections / unions, each summed over the whole set.

    0 for one that is neither there nor found in any image.
    """
    _check(images)
    sums = [(sum(i.intersection[k] for i in images), sum(i.union[k] for i in images)) for k in (0, 1)]
    return sum(both / either if either else 0.0 for both, either in sums) / 2


def mean_average_precision(images: Sequence[Overlap]) -> float:
    """Mean over images of the average precision of (1 - map, map), one list, against (background, foreground)."""
    _check(images)
    return sum(image.average_precision for image in images) / len(images)


def _of_both(counts: list[int]) -> tuple[int, int]:
    background, foreground = counts
    return background, foreground


def _check(images: Sequence[Overlap]) -> None:
    if not images:
        raise UsageError("no image was compared with a truth; add at least one")
