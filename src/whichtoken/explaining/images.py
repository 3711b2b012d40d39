"""Images, for classifiers: one score for each patch. Prepared some at a time, and batched by size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.core.objectives import Target, as_target, check_target, resolve
from whichtoken.core.trace import Ask, Method
from whichtoken.errors import BadInput, BadSetting, NotFinite, UsageError
from whichtoken.explaining.scoring import BatchScores, Scored, Work, in_chunks, made_by, score_batch, work_of
from whichtoken.models import Batch, Subject, Task, batches
from whichtoken.models.architectures import PREFIXES
from whichtoken.models.images import Prepared, as_images, png_of, prepare, seen
from whichtoken.records import Attribution, Picture

IMAGES_AT_ONCE = 16
IMAGE_SUBJECT = "a Subject of an image classifier: wt.Subject(model, None)"
TEXTS_ONLY = {
    Ask.REFERENCES: "it contrasts with reference texts",
    Ask.DELETIONS: "it deletes words",
    Ask.HEADS: "its heads are chosen by the syntax of texts",
}
PREFIX_NAMES = dict(zip(PREFIXES, ("[CLS]", "[DIST]", "[REG{}]"), strict=True))

AnyTarget = Target | SupportsIndex | str | None


def each_image(
    subject: Subject,
    images: Iterable[Any],
    methods: Iterable[str | Method],
    target: AnyTarget = None,
    layers: bool = False,
) -> Iterator[dict[str, Attribution]]:
    """As `explain` with images, one result after the other: images are read as they are needed."""
    work, wanted = _work(subject, methods, target, layers)
    return _each(work, as_images(images), wanted)


def patch_scores(
    subject: Subject,
    pixels: Float[Tensor, "batch channel row column"],
    methods: Iterable[str | Method] = ("transatt",),
    target: AnyTarget = None,
) -> dict[str, Float[Tensor, "batch row column"]]:
    """Raw scores of each method, on the grid of patches. `pixels`: as the model's image processor returns them.

    For whoever wants tensors and nothing else: `subject` may be `Subject(model, None)`, and pillow is not needed.
    """
    if not (isinstance(subject, Subject) and subject.task is Task.IMAGES):
        raise BadSetting("subject", getattr(subject, "title", type(subject).__name__), IMAGE_SUBJECT)
    if not isinstance(pixels, Tensor) or not len(pixels):
        raise BadInput(
            f"pixels is {type(pixels).__name__}; expected a tensor, batch x channel x row x column, not empty"
        )
    work, wanted = _work(subject, methods, target, False)
    found: dict[str, list[Tensor]] = {key: [] for key in work.methods}
    for first in range(0, len(pixels), IMAGES_AT_ONCE):
        with torch.inference_mode(False):  # tensors made under it could never enter a graph
            batch = subject.image_batch(pixels[first : first + IMAGES_AT_ONCE].clone())
            some = _scored(work, batch, first, wanted)
        for key, scored in some.scored.items():
            found[key].append(torch.tensor([one.scores for one in scored], dtype=torch.float64))
    rows, columns = _grid(batch)
    tokens = {key: torch.cat(parts).to(some.logits) for key, parts in found.items()}  # its dtype and device
    return {key: of_all[:, -rows * columns :].reshape(-1, rows, columns) for key, of_all in tokens.items()}


def reason_against(subject: Subject, method: Method) -> str | None:
    """Why a method cannot read images, if it cannot."""
    said = [reason for ask, reason in TEXTS_ONLY.items() if ask in method.needs.asks]
    baseline = method.settings.get("baseline")
    if baseline in ("pad", "mask") and getattr(subject.fillers, str(baseline)) is None:
        said.append(f"there is no {baseline} token among patches: set baseline to zero")
    return said[0] if said else None


def prefix_names(subject: Subject) -> tuple[str, ...]:
    """What stands before the patches."""
    found = [(name, getattr(subject.embeddings, name, None)) for name in PREFIXES]
    counts = [(PREFIX_NAMES[name], tokens.shape[1]) for name, tokens in found if tokens is not None]
    return tuple(name.format(number) for name, count in counts for number in range(1, count + 1))


def _work(subject: Subject, methods: Iterable[str | Method], target: AnyTarget, layers: bool) -> tuple[Work, Target]:
    """All that can be refused before anything is read."""
    work, wanted = work_of(subject, methods, layers), as_target(target)
    if subject.task is not Task.IMAGES:
        raise UsageError(f"{subject.title} reads texts, not images; pass texts, or load an image classifier")
    for method in work.methods.values():
        if (reason := reason_against(subject, method)) is not None:
            raise UsageError(f"{method.label} cannot explain images: {reason}; see wt.method_names() for others")
    check_target(wanted, subject.labels)
    return work, wanted


def _each(work: Work, images: Iterable[Any], target: Target) -> Iterator[dict[str, Attribution]]:
    for chunk, first, bar in in_chunks(images, IMAGES_AT_ONCE, "images"):
        found: list[dict[str, Attribution]] = []
        with torch.inference_mode(False):  # tensors made under it could never enter a graph
            for some in _batches(work, prepare(work.subject, chunk, first)):
                found += _results(work, some, first + len(found), target)
                bar.update(len(some))
        bar.clear()  # whoever prints results must not find it in the way
        yield from found


def _batches(work: Work, images: Sequence[Prepared]) -> Iterator[list[Prepared]]:
    """Images of one size, which only tensors need not have; in order, and not more than fit in memory."""
    for _, group in groupby(images, key=lambda image: image.pixels.shape):
        same = list(group)
        n_tokens = work.subject.image_batch(same[0].pixels[None]).ids.shape[1]
        for indices in batches([n_tokens] * len(same), work.fits):
            yield [same[i] for i in indices]


def _results(work: Work, images: Sequence[Prepared], first: int, target: Target) -> list[dict[str, Attribution]]:
    subject = work.subject
    batch = subject.image_batch(torch.stack([image.pixels.to(subject.device) for image in images]))
    found = _scored(work, batch, first, target)
    goal = resolve(target, found.logits, subject.labels)
    probability = goal.probability(found.logits, subject.link).tolist()
    tokens = (*prefix_names(subject), *_patch_names(_grid(batch)))
    results = []
    for i, image in enumerate(images):
        picture = _picture(subject, image, _grid(batch))
        about = {"label": goal.named(i, subject.labels), "probability": probability[i], "tokens": tokens}
        scored = {key: rows[i] for key, rows in found.scored.items()}
        results.append({key: _attribution(made_by(work, key) | about, one, picture) for key, one in scored.items()})
    return [{key: result[key] for key in work.methods} for result in results]


def _scored(work: Work, batch: Batch, first: int, target: Target) -> BatchScores:
    numbers = range(first, first + len(batch.ids))
    found = score_batch(work, batch, numbers, lambda logits: resolve(target, logits, work.subject.labels))
    for key, rows in found.scored.items():
        for number, one in zip(numbers, rows, strict=True):
            if one.pixels is not None and not one.pixels.isfinite().all():
                raise NotFinite(f"{key} gives NaN or infinite scores of pixels for input {number}")
    return found


def _attribution(about: Mapping[str, Any], one: Scored, picture: Picture) -> Attribution:
    nothing = (None,) * len(one.scores)
    return Attribution(
        texts=(),
        spans=nothing,
        sequences=nothing,
        word_ids=nothing,
        scores=one.scores,
        n_cut=0,
        n_windows=1,
        details=one.details,
        layers=one.layers,
        seconds=one.seconds,
        evaluations=one.evaluations,
        picture=replace(picture, pixels=_rows(one.pixels)),
        **about,
    )


def _picture(subject: Subject, image: Prepared, grid: tuple[int, int]) -> Picture:
    shown = seen(subject.tokenizer, image.pixels)
    return Picture(image.source, png_of(shown), shown.shape[1], shown.shape[0], *grid)


def _rows(pixels: Tensor | None) -> tuple[tuple[float, ...], ...]:
    return () if pixels is None else tuple(tuple(row) for row in pixels.tolist())


def _patch_names(grid: tuple[int, int]) -> tuple[str, ...]:
    return tuple(f"patch {row},{column}" for row in range(1, grid[0] + 1) for column in range(1, grid[1] + 1))


def _grid(batch: Batch) -> tuple[int, int]:
    assert batch.grid is not None, "made by image_batch"
    return batch.grid
