"""The records that the library returns: Attribution and Curve, frozen data that convert to and from JSON. No torch."""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from whichtoken.decode import decode_record, parse_json
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.targets import Target
from whichtoken.words import Span, Word, words_of

if TYPE_CHECKING:
    from PIL.Image import Image

SCHEMA = 3  # incremented when a field changes its meaning
OPTIONAL = ("picture", "value", "n_unknown")  # fields that are written only if they differ from their default
PNG = b"\x89PNG\r\n\x1a\n"  # first bytes of a PNG file; 8 more bytes, width and height follow
How = Literal["bilinear", "patch"]  # how scores of patches are drawn: interpolated, or patch by patch
Reading = Literal["probability", "value"]  # what a model's output is read as; that of a regression model is a value


@dataclass(frozen=True)
class Picture:
    """An image as the model read it: resized and cropped, without normalisation. Its patches are the last tokens."""

    source: str  # its file, or its number among the images
    png: str  # base64
    width: int
    height: int
    rows: int  # of patches
    columns: int
    pixels: tuple[tuple[float, ...], ...] = ()  # scores row by row, if the method scores pixels


@dataclass(frozen=True)
class Attribution:
    """The scores of one method for one input, and how they were computed.

    Token fields are parallel; special tokens and image patches have no span, sequence or word.
    `scores` are raw and signed.
    """

    texts: tuple[str, ...]  # one text, the two of a pair, or none if there is a picture
    tokens: tuple[str, ...]
    spans: tuple[Span | None, ...]  # character offsets into texts[sequence]
    sequences: tuple[int | None, ...]
    word_ids: tuple[int | None, ...]  # the tokenizer's; they restart in each sequence
    scores: tuple[float, ...]
    label: str  # what is explained, for display
    target: Target  # the same as data: a class by index, two classes, or an answer by its tokens in this record
    probability: float | None  # None if the model predicts a value
    method: str
    settings: Mapping[str, Any]
    tuned_on_deletion: bool  # the method used the deletion curve that it may be evaluated by
    model: str
    revision: str  # hub revision, or a hash of the weights
    n_cut: int  # content tokens truncated at the model's length limit
    n_windows: int  # windows that the scores are averaged over
    details: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[tuple[float, ...], ...] = ()  # if requested: per-layer terms of a method that sums over layers
    seconds: float = field(default=0.0, compare=False)  # share of the shared passes plus the method's own time
    # Forward passes and perturbed inputs that the method would have needed on its own; the mean over its batch.
    evaluations: float = field(default=0.0, compare=False)
    picture: Picture | None = None
    value: float | None = None  # what a regression model predicts
    n_unknown: int = 0  # content tokens that the tokenizer does not know

    @property
    def reading(self) -> Reading:
        return "probability" if self.value is None else "value"

    @property
    def output(self) -> float:
        """The probability, or the predicted value of a regression model."""
        output = self.probability if self.value is None else self.value
        assert output is not None, "a record has one of the two"
        return output

    def words(self) -> tuple[Word, ...]:
        """Return the words as slices of the texts; token scores are summed, and special tokens left out."""
        return words_of(self.texts, self.spans, self.sequences, self.word_ids, self.scores)

    def grid(self) -> tuple[tuple[float, ...], ...]:
        """Return the scores of an image's patches, row by row."""
        if self.picture is None:
            raise UsageError("this attribution explains a text, which has no grid of patches; use scores or words()")
        rows, columns = self.picture.rows, self.picture.columns
        patches = self.scores[len(self.scores) - rows * columns :]
        return tuple(patches[row * columns : (row + 1) * columns] for row in range(rows))

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Attribution":
        """Parse the output of `to_json`; raise BadArtifact if the text is not the JSON of one attribution."""
        record = decode_record(cls, parse_json(text, f"the JSON of one {cls.__name__}"), SCHEMA, defaults=True)
        _check_parallel(record, ("tokens", "spans", "sequences", "word_ids", "scores"))
        if any(len(row) != len(record.scores) for row in record.layers):
            raise BadArtifact("Attribution: a layer must have as many scores as there are tokens")
        if record.picture is not None:
            _check_picture(record.picture, len(record.tokens))
        if (record.probability is None) == (record.value is None):
            raise BadArtifact("Attribution: it must have a probability or a value, and not both")
        return record

    def to_html(self, path: str | Path | None = None) -> str:
        """Return a self-contained HTML page and write it to `path`, if given; `wt.plot.to_html` has more options."""
        from whichtoken.render.html import to_html

        return to_html(self, path)

    def to_latex(self) -> str:
        """Return a fragment for a LaTeX document; `wt.plot.to_latex` has more options."""
        from whichtoken.render.latex import to_latex

        return to_latex(self)

    def to_image(self, path: str | Path | None = None, how: How = "bilinear", size: int | None = None) -> "Image":
        """Return the explained image with its scores overlaid (a PIL image), and write it to `path` as PNG, if given.

        Orange supports the label, blue opposes it; opacity shows strength. `how`: "bilinear" interpolates between
        patches, or shows single pixels if the method scores them; "patch" does not interpolate. `size`: pixels of the
        longer side; the default is the picture's own size, with small pictures enlarged.
        """
        from whichtoken.render.pictures import to_image

        image: Image = to_image(self, path, how, size)
        return image

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        from whichtoken.render.html import fragment

        return fragment(self)


Order = Literal["morf", "lerf", "random"]


@dataclass(frozen=True)
class Plan:
    """How inputs are degraded: the perturbation, the order, the steps and the units that are removed."""

    perturbation: str = "delete"
    order: Order = "morf"  # most relevant first, least relevant first, or random
    grid: str = "tenths"
    level: str = "token"  # or "word", "pixel"
    seed: int = 0  # of the random order

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise BadSetting("order", self.order, "'morf' (most relevant first), 'lerf' (least first) or 'random'")

    def __str__(self) -> str:
        """Return the plan as shown to users and used in column names."""
        return f"{self.perturbation} {self.order} {self.grid}"

    def same_steps(self, other: "Plan") -> bool:
        """Return whether the plans differ at most in order and seed, so that bounds of one hold for the other."""
        return (self.perturbation, self.grid, self.level) == (other.perturbation, other.grid, other.level)


@dataclass(frozen=True)
class Curve:
    """How a probability or value changes as tokens are removed: the most or least relevant first, or at random."""

    key: str  # of the input
    order: Order
    perturbation: str
    removed: tuple[float, ...]  # fractions, 0 to 1
    probability: tuple[float, ...]  # empty if the model predicts a value
    label: str  # the label whose probability it is, or the name of the output
    target: Target
    method: str  # the method that ranked the tokens
    settings: Mapping[str, Any]
    model: str
    revision: str
    n_cut: int
    grid: str = "tenths"
    level: str = "token"
    tuned_on_deletion: bool = False  # the method used deletion curves to compute its scores
    seconds: float = field(default=0.0, compare=False)
    value: tuple[float, ...] = ()  # what a regression model predicts at each step

    @property
    def outputs(self) -> tuple[float, ...]:
        """The probabilities, or the predicted values of a regression model."""
        return self.value or self.probability

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Curve":
        """Parse the output of `to_json`; raise BadArtifact if the text is not the JSON of one curve."""
        record = decode_record(cls, parse_json(text, f"the JSON of one {cls.__name__}"), SCHEMA, defaults=True)
        if record.value and record.probability:
            raise BadArtifact("Curve: it must have probabilities or values, and not both")
        _check_parallel(record, ("removed", "value" if record.value else "probability"))
        return record


def _to_json(record: Attribution | Curve) -> str:
    values = {"record": type(record).__name__, "schema": SCHEMA, **asdict(record)}
    for optional in fields(record):
        if optional.name in OPTIONAL and values[optional.name] == optional.default:
            del values[optional.name]  # so that older versions can read the records of texts and of classifiers
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def _check_parallel(record: Attribution | Curve, names: tuple[str, ...]) -> None:
    lengths = {name: len(getattr(record, name)) for name in names}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{n} {name}" for name, n in lengths.items())
        raise BadArtifact(f"{type(record).__name__}: {counts}; there must be the same number of each")


def _check_picture(picture: Picture, n_tokens: int) -> None:
    """Raise BadArtifact unless the picture holds an image of the size that it states."""
    size, grid = (picture.width, picture.height), (picture.rows, picture.columns)
    if min(*size, *grid) < 1 or math.prod(grid) > n_tokens:
        raise BadArtifact(f"picture: {size} pixels in {grid} patches; need at least 1 of each, and a token per patch")
    if picture.pixels and (
        len(picture.pixels) != picture.height or {len(row) for row in picture.pixels} != {picture.width}
    ):
        raise BadArtifact(f"picture: pixel scores are not {picture.height} rows of {picture.width}")
    try:
        head = base64.b64decode(picture.png, validate=True)[:24]
    except (binascii.Error, ValueError) as error:
        raise BadArtifact(f"picture: png is not base64: {error}") from error
    if head[:8] != PNG or (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) != size:
        raise BadArtifact(f"picture: png is not a PNG image of {picture.width} x {picture.height}")
