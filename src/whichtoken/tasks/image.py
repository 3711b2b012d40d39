"""ClassifyImage: images, by models that read them in patches. One score for each patch."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from whichtoken.core.objectives import ClassObjective
from whichtoken.core.perturb import Fill, Perturbation
from whichtoken.core.rows import Image
from whichtoken.core.trace import Ask, Method
from whichtoken.data.examples import read_images
from whichtoken.errors import NotFinite, UsageError
from whichtoken.models import LongTexts, Subject
from whichtoken.models.architectures import PREFIXES
from whichtoken.models.images import Prepared, as_images, black, from_png, png_of, prepare, seen
from whichtoken.records import Attribution, Picture
from whichtoken.targets import Part, label_of
from whichtoken.tasks.classify import class_facts, class_gold, class_objective, class_target, resolved
from whichtoken.tasks.task import BenchInput, Gold, Opened, Piece, Reason, ScoredPiece, Task, Unit
from whichtoken.vision.maps import pixel_map
from whichtoken.vision.pixels import rounded

TEXTS_ONLY = {
    Ask.REFERENCES: "it contrasts with reference texts",
    Ask.DELETIONS: "it deletes words",
    Ask.HEADS: "its heads are chosen by the syntax of texts",
}
PREFIX_NAMES = dict(zip(PREFIXES, ("[CLS]", "[DIST]", "[REG{}]"), strict=True))


@dataclass(frozen=True)
class ImageClassification(Task):
    subject: Subject

    heads: ClassVar[tuple[str, ...]] = ("AutoModelForImageClassification",)
    name: ClassVar[str] = "images"
    unit: ClassVar[str] = "image"
    tokens: ClassVar[str] = "patches"
    reads: ClassVar[str] = "classifies images"
    keywords: ClassVar[tuple[str, ...]] = ("images",)
    give: ClassVar[str] = "images=[...], or --image FILE"
    default_methods: ClassVar[str] = "token-tm,gae,transatt"
    at_once: ClassVar[int] = 16
    levels: ClassVar[tuple[str, ...]] = ("token", "pixel")
    protocol: ClassVar[Mapping[str, Any]] = {"perturbations": ("black",), "min_tokens": 1}

    def target(self, target: Any) -> Any:
        return class_target(target, self.subject.labels)

    def inputs(self, inputs: object) -> Iterable[Any]:
        return as_images(inputs)

    def can_run(self, method: Method) -> Reason | None:
        said = [Reason(why) for ask, why in TEXTS_ONLY.items() if ask in method.needs.asks]
        baseline = method.settings.get("baseline")
        if baseline in ("pad", "mask"):
            said.append(Reason(f"there is no {baseline} token among patches", "set baseline to zero"))
        return said[0] if said else None

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[Prepared]:
        return prepare(self.subject, inputs, first)

    def pieces(self, documents: Sequence[Prepared], target: Any, first: int) -> list[Piece]:
        found = enumerate(documents, first)
        return [Piece(index, self.subject.image_row(image.pixels), target) for index, image in found]

    def objective(self, pieces: Sequence[Piece], logits: Tensor) -> ClassObjective:
        return class_objective(self.subject, [piece.goal for piece in pieces], logits)

    def record(
        self, document: Prepared, parts: Sequence[ScoredPiece], key: str, made: Mapping[str, Any]
    ) -> Attribution:
        (part,) = parts
        scored, image = part.scored[key], part.piece.row.image
        assert image is not None, "a row of an image"
        if scored.pixels is not None and not scored.pixels.isfinite().all():
            raise NotFinite(f": {key} gives NaN or infinite scores of pixels", index=part.piece.index)
        nothing = (None,) * len(scored.scores)
        fine = () if scored.pixels is None else tuple(tuple(row) for row in scored.pixels.tolist())
        return Attribution(
            texts=(),
            tokens=(*prefix_names(self.subject), *_patch_names(image.grid)),
            spans=nothing,
            sequences=nothing,
            word_ids=nothing,
            scores=scored.scores,
            target=part.target,
            label=label_of(part.target, self.subject.labels),  # type: ignore[arg-type]  # of classes
            probability=part.probability,
            n_cut=0,
            n_windows=1,
            details=scored.details,
            layers=scored.layers,
            seconds=scored.seconds,
            evaluations=scored.evaluations,
            picture=replace(_picture(self.subject, document, image.grid), pixels=fine),
            **made,
        )

    def removals(self) -> Mapping[str, Perturbation]:
        return _Fills(self.subject)

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        """Without the image itself, from the picture in the record: the same where a processor made it of 8 bits."""
        if record.picture is None:
            raise UsageError(f"this attribution is of a text, and {self.subject.title} classifies images")
        given = () if item is None else prepare(self.subject, [item])
        pixels = given[0].pixels if given else from_png(self.subject, record.picture.png)
        row = self.subject.image_row(pixels)
        key = hashlib.sha256(record.picture.png.encode()).hexdigest()[:16]
        return Opened(row, resolved(self.subject, record.target), key, pixels[0].numel(), sum(row.special))

    def units(self, record: Attribution, level: str) -> list[Unit]:
        """Pixels; by token, those of each patch together. Enlarging makes many ties that only rounding tells apart."""
        assert record.picture is not None, "checked when it was opened"
        height, width = record.picture.height, record.picture.width
        if level == "pixel":
            heat = rounded(pixel_map(record, height, width)).ravel().tolist()
            return [Unit((place,), score) for place, score in enumerate(heat)]
        places = np.arange(height * width).reshape(height, width)
        rows, columns = record.picture.rows, record.picture.columns
        down, across = height // rows, width // columns
        scores = record.scores[len(record.scores) - rows * columns :]
        return [
            Unit(tuple(places[r * down : (r + 1) * down, c * across : (c + 1) * across].ravel().tolist()), score)
            for (r, c), score in zip(product(range(rows), range(columns)), scores, strict=True)
        ]

    def gold(self, example: BenchInput, document: Any, index: int, part: Part) -> Gold | None:
        return class_gold(self.subject, example)

    def n_tokens(self, document: Prepared) -> int:
        return len(self.subject.image_row(document.pixels))

    def named(self, document: Prepared) -> str:
        return Image(document.pixels, (0, 0)).digest.hex()

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        """From a folder of image files, a file with a column `image`, or a list of images."""
        for found in read_images(source, labels, columns):
            yield BenchInput(found.image, found.label, found.where)

    def facts(self) -> list[tuple[str, str]]:
        subject = self.subject
        size, patch = subject.image_size, subject.patch_size
        grid = " x ".join(str(whole // part) for whole, part in zip(size, patch, strict=True))
        other = ", or other multiples of a patch" if subject.architecture.image_sizes == "any" else ""
        channels = subject.model.config.num_channels
        return [
            (
                "image",
                f"{size[0]} x {size[1]} pixels of {channels} channels{other}; files are resized by its processor",
            ),
            ("patches", f"{grid}, of {patch[0]} x {patch[1]} pixels"),
            ("before them", ", ".join(prefix_names(subject))),
            *class_facts(subject),
        ]


class _Fills(Mapping[str, Perturbation]):
    """What removed pixels become: black, if the processor says what that is, or the mean of their channel."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def __getitem__(self, name: str) -> Perturbation:
        if name == "mean":
            return Fill(name, None)
        if name != "black":
            raise KeyError(name)
        channels = self._subject.model.config.num_channels
        return Fill(name, tuple(black(self._subject.processor, channels).tolist()))

    def __iter__(self) -> Iterator[str]:
        return iter(("black", "mean"))

    def __len__(self) -> int:
        return 2


def prefix_names(subject: Subject) -> tuple[str, ...]:
    """What stands before the patches."""
    found = [(name, getattr(subject.embeddings, name, None)) for name in PREFIXES]
    counts = [(PREFIX_NAMES[name], tokens.shape[1]) for name, tokens in found if tokens is not None]
    return tuple(name.format(number) for name, count in counts for number in range(1, count + 1))


def _picture(subject: Subject, image: Prepared, grid: tuple[int, int]) -> Picture:
    shown = seen(subject.processor, image.pixels)
    return Picture(image.source, png_of(shown), shown.shape[1], shown.shape[0], *grid)


def _patch_names(grid: tuple[int, int]) -> tuple[str, ...]:
    return tuple(f"patch {row},{column}" for row in range(1, grid[0] + 1) for column in range(1, grid[1] + 1))
