"""patch_scores: from images, as a vision Transformer reads them, to one score for each patch."""

from collections.abc import Iterable
from typing import SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.errors import BadInput, BadSetting, NotFinite
from whichtoken.models import ModelProbe, Subject, capture
from whichtoken.registry import chosen_methods
from whichtoken.targets import Target, as_target, check_target, resolve
from whichtoken.trace import Method, passes

IMAGES_AT_ONCE = 16


def patch_scores(
    subject: Subject,
    pixels: Float[Tensor, "batch channel row column"],
    methods: Iterable[str | Method] = ("transatt",),
    target: Target | SupportsIndex | str | None = None,
) -> dict[str, Float[Tensor, "batch row column"]]:
    """Raw scores of each method, on the grid of patches. `pixels`: as the model's image processor returns them.

    `subject`: `Subject(model, None)` of an image classifier (ViT). Methods that delete words of texts are refused.
    """
    if not (isinstance(subject, Subject) and subject.architecture.images):
        raise BadSetting("subject", subject, "a Subject of an image classifier: wt.Subject(model, None)")
    if not isinstance(pixels, Tensor) or not len(pixels):
        raise BadInput(
            f"pixels is {type(pixels).__name__}; expected a tensor, batch x channel x row x column, not empty"
        )
    wanted, chosen = as_target(target), chosen_methods(methods)
    check_target(wanted, subject.labels)
    found: dict[str, list[Tensor]] = {key: [] for key in chosen}
    for first in range(0, len(pixels), IMAGES_AT_ONCE):
        with torch.inference_mode(False):  # tensors made under it could never enter a graph
            some = _of_some(subject, pixels[first : first + IMAGES_AT_ONCE].clone(), chosen, wanted)
        for key, scores in some.items():
            if not scores.isfinite().all():
                raise NotFinite(f"{key} gives NaN or infinite scores for one of the images from number {first} on")
            found[key].append(scores)
    side = subject.model.config.image_size // subject.model.config.patch_size
    return {key: torch.cat(parts)[:, 1:].reshape(-1, side, side) for key, parts in found.items()}


def _of_some(subject: Subject, pixels: Tensor, chosen: dict[str, Method], wanted: Target) -> dict[str, Tensor]:
    batch = subject.image_batch(pixels)
    goal = resolve(wanted, subject.logits(batch), subject.labels)
    probe, scores = ModelProbe(subject, batch, goal), {}
    for view, needs in passes(chosen.values()).items():
        trace = capture(subject, batch, lambda logits: goal, needs)
        for key, method in chosen.items():
            if method.needs.view == view:
                scores[key] = method(trace.restrict(method.needs), probe).tokens
    return scores
