"""Pixel perturbation as the papers about images report it: accuracy, AOPC and log-odds of a set of images.

Chefer et al., CVPR 2021, and TokenTM, Wu et al., CVPR 2024. The images go through the same logit cache and removals as
`degrade`; what differs is that accuracy against labels is tracked too, and that heat maps may come from anywhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, SupportsIndex, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from whichtoken._explain import plan, scored_pieces
from whichtoken.core.objectives import Anything, Link
from whichtoken.core.perturb import Fill as FillPixels
from whichtoken.core.perturb import Perturbation
from whichtoken.core.removal_steps import Steps, grid_of
from whichtoken.core.rows import Row
from whichtoken.core.trace import Method
from whichtoken.errors import BadInput, BadSetting
from whichtoken.models import LogitCache, Subject
from whichtoken.records import Attribution
from whichtoken.targets import label_index
from whichtoken.tasks import Piece, task_for
from whichtoken.tasks.classify import link_of
from whichtoken.tasks.image import ImageClassification
from whichtoken.vision.maps import pixel_map
from whichtoken.vision.pixels import Fill, Of, PixelCurves, PixelGrid, PixelOrder, removal_order

IMAGES_AT_ONCE = 16  # whose answers are kept together
IMAGE_SUBJECT = "a Subject of an image classifier: wt.Subject(model, None)"


@dataclass(frozen=True)
class PixelPlan:
    """How images are degraded. The defaults are TokenTM's; Chefer et al.: `tenths`, and `of` either."""

    order: PixelOrder = "positive"  # the most relevant pixels first, or the least
    grid: PixelGrid = "twentieths"
    fill: Fill = "black"  # what removed pixels become: black, or the mean of their channel in their image
    of: Of = "predicted"  # whose probability is measured; the maps should explain the same class

    def __post_init__(self) -> None:
        for setting, allowed in (("order", PixelOrder), ("grid", PixelGrid), ("fill", Fill), ("of", Of)):
            if getattr(self, setting) not in get_args(allowed):
                raise BadSetting(setting, getattr(self, setting), f"one of {', '.join(get_args(allowed))}")


@dataclass(frozen=True)
class _Images:
    """As the model reads them, and what is known of them."""

    rows: Sequence[Row]
    labels: Sequence[int] | None
    fills: Mapping[str, Perturbation]
    size: tuple[int, int]


def patch_scores(
    subject: Subject,
    pixels: Float[Tensor, "batch channel row column"],
    methods: Iterable[str | Method] = ("transatt",),
    target: Any = None,
) -> dict[str, Float[Tensor, "batch row column"]]:
    """Raw scores of each method, on the grid of patches. `pixels`: as the model's image processor returns them.

    For whoever wants tensors and nothing else: `subject` may be `Subject(model, None)`, and pillow is not needed.
    """
    _check_subject(subject)
    if not isinstance(pixels, Tensor) or not len(pixels):
        raise BadInput(
            f"pixels is {type(pixels).__name__}; expected a tensor, batch x channel x row x column, not empty"
        )
    job = plan(subject, methods, target)
    found: dict[str, list[Tensor]] = {key: [] for key in job.methods}
    for first in range(0, len(pixels), IMAGES_AT_ONCE):
        with torch.inference_mode(False):  # tensors made under it could never enter a graph
            some = pixels[first : first + IMAGES_AT_ONCE].clone()
            pieces = [Piece(first + i, job.subject.image_row(image), job.target) for i, image in enumerate(some)]
            parts = scored_pieces(job, pieces)
        for key, tensors in found.items():
            tensors += [torch.tensor(parts[piece.index][0].scored[key].scores, dtype=torch.float64) for piece in pieces]
    assert pieces[0].row.image is not None, "a row of an image"
    rows, columns = pieces[0].row.image.grid
    model = job.subject.model
    return {
        key: torch.stack(of_all)[:, -rows * columns :].reshape(-1, rows, columns).to(job.subject.device, model.dtype)
        for key, of_all in found.items()
    }


def degrade_images(
    subject: Subject,
    pixels: Float[Tensor, "image channel row column"],
    maps: Mapping[str, Sequence[Attribution | Any]],
    plans: Iterable[PixelPlan] = (PixelPlan(),),
    labels: Sequence[SupportsIndex | str] | None = None,
    black: Sequence[float] | None = None,
) -> list[PixelCurves]:
    """For each plan, and in it for each method, what the model says of the images as ever more pixels are removed.

    `pixels`: as the model's image processor returns them. `maps`: of each method, an attribution or a heat map (pixels,
    or patches, which are enlarged) for every image. `labels`: what is right; without them, what the model predicts for
    the whole image. `black`: of each channel, if the subject has no image processor that says it. Without gradients;
    of each image every distinct remainder is evaluated once, whichever methods, orders, grids and levels ask for it.
    """
    wanted = list(plans)
    _check_subject(subject)
    subject = subject.twinned()
    images = _checked(subject, pixels, maps, wanted, labels, black)
    link, found = link_of(subject), dict[tuple[int, str], list[tuple[list[bool], list[float]]]]()
    groups = range(0, len(images.rows), IMAGES_AT_ONCE)
    unit = f" x {IMAGES_AT_ONCE} images"
    for first in tqdm(groups, desc="evaluating", unit=unit, disable=None, delay=1, leave=False):
        numbers = range(first, min(first + IMAGES_AT_ONCE, len(images.rows)))
        logits, start = _logits(LogitCache(subject), _remainders(images, numbers, maps, wanted)), 0
        for number, method, place in product(numbers, maps, range(len(wanted))):
            of_levels = logits[start : start + len(_steps(wanted[place], images).counts)]
            label = None if images.labels is None else images.labels[number]
            found.setdefault((place, method), []).append(_measured(link, of_levels, label, wanted[place].of))
            start += len(of_levels)
    return [_curves(how, method, found[place, method], images) for place, how in enumerate(wanted) for method in maps]


def _logits(cache: LogitCache, rows: Iterable[Row]) -> Float[Tensor, "row label"]:
    """In double precision. No more rows are held than the model reads at once: all of them would not fit in memory."""
    found, waiting = list[Tensor](), list[Row]()
    for row in rows:
        waiting.append(row)
        if not cache.subject.fits(len(waiting) + 1, len(row)):
            found += cache.read(waiting, Anything())
            waiting = []
    return torch.stack([*found, *cache.read(waiting, Anything())]).to("cpu", torch.float64)


def _remainders(
    images: _Images, numbers: Iterable[int], maps: Mapping[str, Sequence[Any]], plans: Sequence[PixelPlan]
) -> Iterator[Row]:
    """Of each image, method and plan the levels, from nothing removed on."""
    for number, of_method in product(numbers, maps.values()):
        heat = pixel_map(of_method[number], *images.size)
        for how in plans:
            ranked = removal_order(heat, how.order)
            for count in _steps(how, images).counts:
                keep = np.ones(heat.size, dtype=bool)
                keep[ranked[:count]] = False
                yield images.fills[how.fill](images.rows[number], keep)


def _steps(how: PixelPlan, images: _Images) -> Steps:
    height, width = images.size
    return grid_of(how.grid).steps(height * width, 0, "morf")


def _measured(
    link: Link, logits: Float[Tensor, "level label"], label: int | None, of: Of
) -> tuple[list[bool], list[float]]:
    """At each level: is the answer right, and the probability of the class that is explained."""
    predicted = logits.argmax(1)
    right = int(predicted[0]) if label is None else label
    scored = right if of == "label" else int(predicted[0])
    return (predicted == right).tolist(), link.probabilities(logits)[:, scored].tolist()


def _curves(
    how: PixelPlan, method: str, measured: Sequence[tuple[list[bool], list[float]]], images: _Images
) -> PixelCurves:
    return PixelCurves(
        method=method,
        order=how.order,
        grid=how.grid,
        fill=how.fill,
        of=how.of,
        right="prediction" if images.labels is None else "label",
        removed=_steps(how, images).removed,
        correct=tuple(tuple(correct) for correct, _ in measured),
        probability=tuple(tuple(probability) for _, probability in measured),
    )


def _check_subject(subject: Subject) -> None:
    if not isinstance(subject, Subject) or not isinstance(task_for(subject), ImageClassification):
        raise BadSetting("subject", getattr(subject, "title", type(subject).__name__), IMAGE_SUBJECT)


def _checked(
    subject: Subject,
    pixels: Tensor,
    maps: Mapping[str, Sequence[Any]],
    plans: Sequence[PixelPlan],
    labels: Sequence[SupportsIndex | str] | None,
    black: Sequence[float] | None,
) -> _Images:
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or not len(pixels):
        found = tuple(pixels.shape) if isinstance(pixels, Tensor) else type(pixels).__name__
        raise BadInput(f"pixels is {found}; expected a tensor, image x channel x row x column, not empty")
    counted = {f"maps of {method!r}": len(of_method) for method, of_method in maps.items()}
    counted |= {} if labels is None else {"labels": len(labels)}
    if not maps or not plans or set(counted.values()) != {len(pixels)}:
        raise BadInput(
            f"{len(pixels)} images, {len(plans)} plans, {counted or 'no maps'}; give one of each for an image"
        )
    if labels is None and any(how.of == "label" for how in plans):
        raise BadSetting("of", "label", "'predicted' where there are no labels; or give labels")
    wide = pixels.detach().to("cpu", torch.promote_types(pixels.dtype, torch.float32))
    known = None if labels is None else [label_index(label, subject.labels) for label in labels]
    rows, size = [subject.image_row(image) for image in wide], (pixels.shape[2], pixels.shape[3])
    return _Images(rows, known, _fills(subject, pixels.shape[1], plans, black), size)


def _fills(
    subject: Subject, channels: int, plans: Sequence[PixelPlan], black: Sequence[float] | None
) -> dict[str, Perturbation]:
    if black is not None and len(black) != channels:
        raise BadSetting("black", black, f"what black is after the image processor, for each of {channels} channels")
    removals = ImageClassification(subject).removals()
    given = {} if black is None else {"black": FillPixels("black", tuple(black))}
    return {how.fill: given.get(how.fill) or removals[how.fill] for how in plans}
