"""The image classification task, for models that read patches. Every patch gets a score."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from whichtoken.core.perturb import Fill, Perturbation
from whichtoken.core.picks import Picks
from whichtoken.core.rows import Image
from whichtoken.core.trace import Ask, Method
from whichtoken.data.examples import LABELS, ImageExample, read_images
from whichtoken.errors import BadInput, NotFinite, UsageError
from whichtoken.models import LongTexts, Subject
from whichtoken.models.architectures import PREFIXES
from whichtoken.models.images import Prepared, black, check_images, decode_png, encode_png, prepare, to_display
from whichtoken.records import Attribution, Picture, Reading
from whichtoken.targets import Class, Part, label_of
from whichtoken.tasks.classify import (
    class_facts,
    class_gold,
    class_gold_name,
    class_label_probabilities,
    class_target,
    describe_outputs,
    output_fields,
    pick_classes,
    picks_of,
    reading_of,
)
from whichtoken.tasks.task import (
    BenchInput,
    Gold,
    Opened,
    Piece,
    Reason,
    ScoredPiece,
    Task,
    Unit,
    missing_gradient,
    missing_removal,
)
from whichtoken.vision.maps import pixel_map
from whichtoken.vision.pixels import round_scores

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
    purpose: ClassVar[str] = "classifies images"
    keywords: ClassVar[tuple[str, ...]] = ("images",)
    input_hint: ClassVar[str] = "images=[...], or --image FILE"
    default_method: ClassVar[str] = "gae"
    quick_method: ClassVar[str] = "gae"
    at_once: ClassVar[int] = 16
    levels: ClassVar[tuple[str, ...]] = ("token", "pixel")
    protocol: ClassVar[Mapping[str, Any]] = {"perturbations": ("black",), "min_tokens": 1}

    def target(self, target: Any) -> Any:
        return class_target(target, self.subject)

    def all_targets(self) -> list[Class]:
        return [Class(label) for label in range(len(self.subject.labels))]

    def reading(self) -> Reading:
        return reading_of(self.subject)

    def describe_purpose(self) -> str:
        return describe_outputs(self.subject, self.unit) or self.purpose

    def inputs(self, inputs: object) -> Iterable[Any]:
        return check_images(inputs)

    def parse_row(self, row: Mapping[str, Any], index: int) -> ImageExample:
        if "image" not in row:
            raise BadInput(f"row {index}: no column 'image'; the columns are {', '.join(map(str, row))}")
        label = next((row[name] for name in LABELS if name in row), None)
        return ImageExample(row["image"], label, f"row {index}", index)

    def gold_name(self, label: Any) -> str | None:
        return class_gold_name(self.subject, label)

    def can_run(self, method: Method) -> Reason | None:
        method = self.adapt(method)
        reasons = [Reason(why) for ask, why in TEXTS_ONLY.items() if ask in method.needs.asks]
        baseline = method.settings.get("baseline")
        if baseline in ("pad", "mask"):
            reasons.append(Reason(f"there is no {baseline} token among patches", "set baseline to zero"))
        return reasons[0] if reasons else missing_gradient(self.subject, method) or missing_removal(self, method)

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[Prepared]:
        return prepare(self.subject, inputs, first)

    def pieces(self, documents: Sequence[Prepared], target: Any, first: int) -> list[Piece]:
        numbered = enumerate(documents, first)
        return [Piece(index, self.subject.image_row(image.pixels), target) for index, image in numbered]

    def picks(self, pieces: Sequence[Piece], logits: Tensor) -> Picks:
        return pick_classes(self.subject, [piece.goal for piece in pieces], logits)

    def record(
        self, document: Prepared, parts: Sequence[ScoredPiece], key: str, origin: Mapping[str, Any]
    ) -> Attribution:
        (part,) = parts
        scored, image = part.scored[key], part.piece.row.image
        assert image is not None, "a row of an image"
        if scored.pixels is not None and not scored.pixels.isfinite().all():
            raise NotFinite(f": {key} returned NaN or infinite pixel scores", index=part.piece.index)
        no_text = (None,) * len(scored.scores)
        pixel_scores = () if scored.pixels is None else tuple(tuple(row) for row in scored.pixels.tolist())
        return Attribution(
            texts=(),
            tokens=(*prefix_names(self.subject), *_patch_names(image.grid)),
            spans=no_text,
            sequences=no_text,
            word_ids=no_text,
            scores=scored.scores,
            target=part.target,
            label=label_of(part.target, self.subject.labels),  # type: ignore[arg-type]  # of classes
            n_cut=0,
            n_windows=1,
            details=scored.details,
            layers=scored.layers,
            confidence=scored.confidence,
            seconds=scored.seconds,
            evaluations=scored.evaluations,
            picture=replace(_picture(self.subject, document, image.grid), pixels=pixel_scores),
            **output_fields(self.subject, parts),
            **origin,
        )

    def removals(self) -> Mapping[str, Perturbation]:
        return _Fills(self.subject)

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        """Reopen from `item`, or from the record's picture, which is exact if the processor produced 8-bit values."""
        if record.picture is None:
            raise UsageError(f"this attribution explains a text, but {self.subject.title} classifies images")
        prepared = () if item is None else prepare(self.subject, [item])
        pixels = prepared[0].pixels if prepared else decode_png(self.subject, record.picture.png)
        row = self.subject.image_row(pixels)
        key = hashlib.sha256(record.picture.png.encode()).hexdigest()[:16]
        return Opened(row, picks_of(self.subject, record.target), key, pixels[0].numel(), sum(row.special))

    def units(self, record: Attribution, level: str) -> list[Unit]:
        """Return single pixels, or the pixels of each patch. Rounding restores the ties that upscaling blurs."""
        assert record.picture is not None, "`reopen` checks this"
        height, width = record.picture.height, record.picture.width
        if level == "pixel":
            heat = round_scores(pixel_map(record, height, width)).ravel().tolist()
            return [Unit((place,), score) for place, score in enumerate(heat)]
        places = np.arange(height * width).reshape(height, width)
        rows, columns = record.picture.rows, record.picture.columns
        down, across = height // rows, width // columns
        first = len(record.scores) - rows * columns
        grid = [
            tuple(places[r * down : (r + 1) * down, c * across : (c + 1) * across].ravel().tolist())
            for r, c in product(range(rows), range(columns))
        ]
        return [Unit(pixels, record.scores[i], (i,)) for i, pixels in enumerate(grid, first)]

    def gold(self, example: BenchInput, document: Any, index: int, part: Part) -> Gold | None:
        return class_gold(self.subject, example)

    def n_tokens(self, document: Prepared) -> int:
        return len(self.subject.image_row(document.pixels))

    def document_key(self, document: Prepared) -> str:
        return Image(document.pixels, (0, 0)).digest.hex()

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        """Read a folder of image files, a file with a column `image`, or a list of images."""
        for example in read_images(source, labels, columns):
            yield BenchInput(example.image, example.label, example.where, row=example.row)

    def label_probabilities(self, logits: Tensor) -> list[tuple[str, float]]:
        return class_label_probabilities(self.subject, logits)

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
    """Fills for removed pixels: black, if the processor defines it, or the mean of their channel."""

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
    """Return the names of the tokens before the patches."""
    parameters = [(name, getattr(subject.embeddings, name, None)) for name in PREFIXES]
    counts = [(PREFIX_NAMES[name], tokens.shape[1]) for name, tokens in parameters if tokens is not None]
    return tuple(name.format(number) for name, count in counts for number in range(1, count + 1))


def _picture(subject: Subject, image: Prepared, grid: tuple[int, int]) -> Picture:
    display = to_display(subject.processor, image.pixels)
    return Picture(image.source, encode_png(display), display.shape[1], display.shape[0], *grid)


def _patch_names(grid: tuple[int, int]) -> tuple[str, ...]:
    return tuple(f"patch {row},{column}" for row in range(1, grid[0] + 1) for column in range(1, grid[1] + 1))
