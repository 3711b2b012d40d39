"""degrade_images: remove pixels in the order of heat maps and ask the model again, which gives PixelCurves."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, get_args

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from whichtoken.core.objectives import label_index
from whichtoken.core.removal_steps import Steps, steps_of
from whichtoken.errors import BadInput, BadSetting, NotFinite
from whichtoken.models import Subject
from whichtoken.models.images import black as black_of
from whichtoken.records import Attribution
from whichtoken.vision.maps import Map, pixel_map
from whichtoken.vision.pixels import Fill, Of, PixelCurves, PixelGrid, PixelOrder, removal_order, without_pixels

IMAGES_AT_ONCE = 16  # whose answers are kept together


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

    pixels: NDArray[Any]  # image channel row column
    labels: Sequence[int] | None
    black: Sequence[float]  # of each channel; empty if nobody asked for it
    n_tokens: int

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[2], self.pixels.shape[3]

    def filler(self, number: int, fill: Fill) -> Sequence[float]:
        means: list[float] = self.pixels[number].mean((1, 2), dtype=np.float64).tolist()
        return self.black if fill == "black" else means


@dataclass(frozen=True)
class _Answers:
    """Logits of images, by their content, so that methods, orders, grids and levels share them."""

    subject: Subject
    n_tokens: int  # of each
    known: dict[bytes, NDArray[np.float64]] = field(default_factory=dict)
    waiting: dict[bytes, NDArray[Any]] = field(default_factory=dict)

    def ask(self, image: NDArray[Any]) -> bytes:
        """A key that `known` will have after `finish`."""
        key = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
        if key not in self.known and key not in self.waiting:
            self.waiting[key] = image
            if not self.subject.fits(len(self.waiting) + 1, self.n_tokens):
                self.finish()
        return key

    def finish(self) -> None:
        if not self.waiting:
            return
        pixels = torch.from_numpy(np.stack(list(self.waiting.values())))
        logits = self.subject.logits(self.subject.image_batch(pixels))
        if not logits.isfinite().all():
            raise NotFinite(f"{self.subject.title} gives NaN or infinite logits for an image with pixels removed")
        self.known.update(zip(self.waiting, logits.to("cpu", torch.float64).numpy(), strict=True))
        self.waiting.clear()


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
    images = _checked(subject, pixels, maps, wanted, labels, black)
    found: dict[tuple[int, str], list[tuple[list[bool], list[float]]]] = {}
    groups = range(0, len(images.pixels), IMAGES_AT_ONCE)
    for first in tqdm(
        groups, desc="evaluating", unit=f" x {IMAGES_AT_ONCE} images", disable=None, delay=1, leave=False
    ):
        answers = _Answers(subject, images.n_tokens)
        numbers = range(first, min(first + IMAGES_AT_ONCE, len(images.pixels)))
        asked = [
            (place, method, number, _asked(answers, images, number, heat, wanted[place]))
            for number in numbers
            for method, heat in _heats(maps, number, images.size)
            for place in range(len(wanted))
        ]
        answers.finish()
        for place, method, number, keys in asked:
            logits = np.stack([answers.known[key] for key in keys])
            label = None if images.labels is None else images.labels[number]
            measured = _measured(subject, logits, label, wanted[place].of)
            found.setdefault((place, method), []).append(measured)
    return [_curves(plan, method, found[place, method], images) for place, plan in enumerate(wanted) for method in maps]


def _heats(maps: Mapping[str, Sequence[Any]], number: int, size: tuple[int, int]) -> Iterable[tuple[str, Map]]:
    return ((method, pixel_map(of_method[number], *size)) for method, of_method in maps.items())


def _asked(answers: _Answers, images: _Images, number: int, heat: Map, plan: PixelPlan) -> list[bytes]:
    """The keys of one image's levels, from nothing removed on."""
    image, filler = images.pixels[number], images.filler(number, plan.fill)
    ranked = removal_order(heat, plan.order)
    return [answers.ask(without_pixels(image, ranked, count, filler)) for count in _steps(plan, images).counts]


def _steps(plan: PixelPlan, images: _Images) -> Steps:
    height, width = images.size
    return steps_of(plan.grid, height * width)


def _measured(
    subject: Subject, logits: NDArray[np.float64], label: int | None, of: Of
) -> tuple[list[bool], list[float]]:
    """At each level: is the answer right, and the probability of the class that is explained."""
    predicted = logits.argmax(1)
    right = int(predicted[0]) if label is None else label
    scored = right if of == "label" else int(predicted[0])
    probability = subject.link.probabilities(torch.from_numpy(logits))[:, scored]
    return (predicted == right).tolist(), probability.tolist()


def _curves(
    plan: PixelPlan, method: str, measured: Sequence[tuple[list[bool], list[float]]], images: _Images
) -> PixelCurves:
    return PixelCurves(
        method=method,
        order=plan.order,
        grid=plan.grid,
        fill=plan.fill,
        of=plan.of,
        right="prediction" if images.labels is None else "label",
        removed=_steps(plan, images).removed,
        correct=tuple(tuple(correct) for correct, _ in measured),
        probability=tuple(tuple(probability) for _, probability in measured),
    )


def _checked(
    subject: Subject,
    pixels: Tensor,
    maps: Mapping[str, Sequence[Any]],
    plans: Sequence[PixelPlan],
    labels: Sequence[SupportsIndex | str] | None,
    black: Sequence[float] | None,
) -> _Images:
    if not (isinstance(subject, Subject) and subject.architecture.images):
        raise BadSetting(
            "subject", getattr(subject, "title", type(subject).__name__), "a Subject of an image classifier"
        )
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or not len(pixels):
        found = tuple(pixels.shape) if isinstance(pixels, Tensor) else type(pixels).__name__
        raise BadInput(f"pixels is {found}; expected a tensor, image x channel x row x column, not empty")
    counted = {f"maps of {method!r}": len(of_method) for method, of_method in maps.items()}
    counted |= {} if labels is None else {"labels": len(labels)}
    if not maps or not plans or set(counted.values()) != {len(pixels)}:
        raise BadInput(
            f"{len(pixels)} images, {len(plans)} plans, {counted or 'no maps'}; give one of each for an image"
        )
    if labels is None and any(plan.of == "label" for plan in plans):
        raise BadSetting("of", "label", "'predicted' where there are no labels; or give labels")
    n_tokens = subject.image_batch(pixels[:1]).ids.shape[1]
    wide = pixels.detach().to("cpu", torch.promote_types(pixels.dtype, torch.float32))
    known = None if labels is None else [label_index(label, subject.labels) for label in labels]
    asks_black = any(plan.fill == "black" for plan in plans)
    return _Images(wide.numpy(), known, _black(subject, pixels.shape[1], black) if asks_black else (), n_tokens)


def _black(subject: Subject, channels: int, given: Sequence[float] | None) -> Sequence[float]:
    found: list[float] = black_of(subject.tokenizer, channels).tolist() if given is None else list(given)
    if len(found) != channels:
        raise BadSetting("black", given, f"what black is after the image processor, for each of {channels} channels")
    return found
