"""Pixel perturbation as the image papers report it: accuracy, AOPC and log-odds of a set of images.

Chefer et al., CVPR 2021, and TokenTM, Wu et al., CVPR 2024. The logit cache and the removals are those of `degrade`;
unlike `degrade`, this also tracks accuracy against labels, and accepts heat maps from any source.
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

from whichtoken._explain import plan
from whichtoken.core.perturb import Fill as FillPixels
from whichtoken.core.perturb import Perturbation
from whichtoken.core.picks import Link, pick_nothing
from whichtoken.core.removal_steps import Steps, find_grid
from whichtoken.core.rows import Row
from whichtoken.core.trace import Method
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.models import LogitCache, Subject
from whichtoken.records import Attribution
from whichtoken.scoring import score_pieces
from whichtoken.targets import label_index
from whichtoken.tasks import Piece, task_for
from whichtoken.tasks.classify import link_of
from whichtoken.tasks.image import ImageClassification
from whichtoken.vision.maps import pixel_map
from whichtoken.vision.pixels import Fill, Of, PixelCurves, PixelGrid, PixelOrder, removal_order

IMAGES_AT_ONCE = 16  # that share a logit cache
IMAGE_SUBJECT = "a Subject of an image classifier: wt.Subject(model, None)"


@dataclass(frozen=True)
class PixelPlan:
    """How images are degraded. The defaults are TokenTM's; Chefer et al. use `tenths` and either value of `of`."""

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
    """Images as the model reads them, with their labels, fills and size."""

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
    """Return each method's raw scores on the grid of patches. `pixels`: as the model's image processor returns them.

    It works on tensors only: `subject` may be `Subject(model, None)`, and pillow is not needed.
    """
    _check_subject(subject)
    if not isinstance(pixels, Tensor) or not len(pixels):
        raise BadInput(
            f"pixels is {type(pixels).__name__}; expected a tensor, batch x channel x row x column, not empty"
        )
    job = plan(subject, methods, target)
    collected: dict[str, list[Tensor]] = {key: [] for key in job.methods}
    for first in range(0, len(pixels), IMAGES_AT_ONCE):
        with torch.inference_mode(False):  # inference tensors cannot take part in autograd
            chunk = pixels[first : first + IMAGES_AT_ONCE].clone()
            pieces = [Piece(first + i, job.subject.image_row(image), job.targets[0]) for i, image in enumerate(chunk)]
            parts = score_pieces(job, pieces)
        for key, tensors in collected.items():
            tensors += [torch.tensor(parts[piece.index][0].scored[key].scores, dtype=torch.float64) for piece in pieces]
    assert pieces[0].row.image is not None, "a row of an image"
    rows, columns = pieces[0].row.image.grid
    model = job.subject.model
    return {
        key: torch.stack(all_scores)[:, -rows * columns :]
        .reshape(-1, rows, columns)
        .to(job.subject.device, model.dtype)
        for key, all_scores in collected.items()
    }


def degrade_images(
    subject: Subject,
    pixels: Float[Tensor, "image channel row column"],
    maps: Mapping[str, Sequence[Attribution | Any]],
    plans: Iterable[PixelPlan] = (PixelPlan(),),
    labels: Sequence[SupportsIndex | str] | None = None,
    black: Sequence[float] | None = None,
) -> list[PixelCurves]:
    """Return, for each plan and method, the model's output for the images as more and more pixels are removed.

    `pixels`: as the model's image processor returns them. `maps`: for each method, an attribution or heat map (pixels,
    or patches, which are upscaled) per image. `labels`: the correct classes; by default the model's predictions for the
    whole images. `black`: its value in each channel, if the subject has no image processor to define it. No gradients
    are computed, and each distinct perturbed image is evaluated once across methods, orders, grids and levels.
    """
    pixel_plans = list(plans)
    _check_subject(subject)
    if link_of(subject) is Link.VALUE:
        raise UsageError(f"{subject.title} predicts a value, and these curves are of classes; use wt.degrade")
    subject = subject.with_twin()
    images = _check_images(subject, pixels, maps, pixel_plans, labels, black)
    link, measured = link_of(subject), dict[tuple[int, str], list[tuple[list[bool], list[float]]]]()
    groups = range(0, len(images.rows), IMAGES_AT_ONCE)
    unit = f" x {IMAGES_AT_ONCE} images"
    for first in tqdm(groups, desc="evaluating", unit=unit, disable=None, delay=1, leave=False):
        numbers = range(first, min(first + IMAGES_AT_ONCE, len(images.rows)))
        logits, start = _logits(LogitCache(subject), _perturbed_rows(images, numbers, maps, pixel_plans)), 0
        for number, method, k in product(numbers, maps, range(len(pixel_plans))):
            level_logits = logits[start : start + len(_steps(pixel_plans[k], images).counts)]
            label = None if images.labels is None else images.labels[number]
            measured.setdefault((k, method), []).append(_measure_levels(link, level_logits, label, pixel_plans[k].of))
            start += len(level_logits)
    return [_curves(how, method, measured[k, method], images) for k, how in enumerate(pixel_plans) for method in maps]


def _logits(cache: LogitCache, rows: Iterable[Row]) -> Float[Tensor, "row label"]:
    """Return logits in double precision, batch by batch, because not all rows fit in memory at once."""
    logits, pending = list[Tensor](), list[Row]()
    for row in rows:
        pending.append(row)
        if not cache.subject.fits(len(pending) + 1, len(row)):
            logits += cache.read(pending, pick_nothing(len(pending), cache.subject.device))
            pending = []
    return torch.stack([*logits, *cache.read(pending, pick_nothing(len(pending), cache.subject.device))]).to(
        "cpu", torch.float64
    )


def _perturbed_rows(
    images: _Images, numbers: Iterable[int], maps: Mapping[str, Sequence[Any]], plans: Sequence[PixelPlan]
) -> Iterator[Row]:
    """Yield the perturbed images by image, method, plan and level, from nothing removed on."""
    for number, method_maps in product(numbers, maps.values()):
        heat = pixel_map(method_maps[number], *images.size)
        for how in plans:
            ranked = removal_order(heat, how.order)
            for count in _steps(how, images).counts:
                keep = np.ones(heat.size, dtype=bool)
                keep[ranked[:count]] = False
                yield images.fills[how.fill](images.rows[number], keep)


def _steps(how: PixelPlan, images: _Images) -> Steps:
    height, width = images.size
    return find_grid(how.grid).steps(height * width, 0, "morf")


def _measure_levels(
    link: Link, logits: Float[Tensor, "level label"], label: int | None, of: Of
) -> tuple[list[bool], list[float]]:
    """Return at each level whether the prediction is correct, and the probability of the explained class."""
    predicted = logits.argmax(1)
    correct = int(predicted[0]) if label is None else label
    explained = correct if of == "label" else int(predicted[0])
    return (predicted == correct).tolist(), link.apply(logits)[:, explained].tolist()


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


def _check_images(
    subject: Subject,
    pixels: Tensor,
    maps: Mapping[str, Sequence[Any]],
    plans: Sequence[PixelPlan],
    labels: Sequence[SupportsIndex | str] | None,
    black: Sequence[float] | None,
) -> _Images:
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or not len(pixels):
        shape = tuple(pixels.shape) if isinstance(pixels, Tensor) else type(pixels).__name__
        raise BadInput(f"pixels is {shape}; expected a tensor, image x channel x row x column, not empty")
    counts = {f"maps of {method!r}": len(method_maps) for method, method_maps in maps.items()}
    counts |= {} if labels is None else {"labels": len(labels)}
    if not maps or not plans or set(counts.values()) != {len(pixels)}:
        raise BadInput(
            f"{len(pixels)} images, {len(plans)} plans, {counts or 'no maps'}; give at least one plan, and one map "
            "and label per image"
        )
    if labels is None and any(how.of == "label" for how in plans):
        raise BadSetting("of", "label", "'predicted' if there are no labels; or give labels")
    images = pixels.detach().to("cpu", torch.promote_types(pixels.dtype, torch.float32))
    indices = None if labels is None else [label_index(label, subject.labels) for label in labels]
    rows, size = [subject.image_row(image) for image in images], (pixels.shape[2], pixels.shape[3])
    return _Images(rows, indices, _fills(subject, pixels.shape[1], plans, black), size)


def _fills(
    subject: Subject, channels: int, plans: Sequence[PixelPlan], black: Sequence[float] | None
) -> dict[str, Perturbation]:
    if black is not None and len(black) != channels:
        raise BadSetting(
            "black", black, f"the value of black after the image processor, for each of {channels} channels"
        )
    removals = ImageClassification(subject).removals()
    explicit = {} if black is None else {"black": FillPixels("black", tuple(black))}
    return {how.fill: explicit.get(how.fill) or removals[how.fill] for how in plans}
