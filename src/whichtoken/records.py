"""What leaves the library: Attribution and Curve, plain frozen data with JSON in and out. No torch."""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from whichtoken.decode import decode_record, parse_json
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.targets import Target
from whichtoken.words import Span, Word, words_of

if TYPE_CHECKING:
    from PIL.Image import Image

SCHEMA = 3  # raised when a field changes its meaning
PNG = b"\x89PNG\r\n\x1a\n"  # how such a file begins; then come 8 bytes, width and height
How = Literal["bilinear", "patch"]  # scores of patches on an image: smooth between them, or patch by patch


@dataclass(frozen=True)
class Picture:
    """An image as the model saw it: resized and cut, with its normalisation undone. Its patches are the last tokens."""

    source: str  # its file, or which of the images it was
    png: str  # in base64
    width: int
    height: int
    rows: int  # of patches
    columns: int
    pixels: tuple[tuple[float, ...], ...] = ()  # scores row by row, where a method gives them


@dataclass(frozen=True)
class Attribution:
    """The scores of one method for one input, and how they were made.

    Fields of tokens run in parallel; a special token has no span, sequence or word, nor has a patch of an image.
    `scores` are raw and signed.
    """

    texts: tuple[str, ...]  # one text, the two of a pair, or none: then there is a picture
    tokens: tuple[str, ...]
    spans: tuple[Span | None, ...]  # characters in texts[sequence]
    sequences: tuple[int | None, ...]
    word_ids: tuple[int | None, ...]  # the tokenizer's, counted anew in each sequence
    scores: tuple[float, ...]
    label: str  # what is explained, as people read it
    target: Target  # the same, structured: a class by index, two of them, or an answer by its tokens in this record
    probability: float
    method: str
    settings: Mapping[str, Any]
    tuned_on_deletion: bool  # the method looked at the deletion curve that it may be judged by
    model: str
    revision: str  # of the hub, or a hash of the weights
    n_cut: int  # content tokens that the model's length limit cut off
    n_windows: int  # over how many windows the scores are averaged
    details: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[tuple[float, ...], ...] = ()  # if asked for: the terms of a method that is a sum over layers
    seconds: float = field(default=0.0, compare=False)  # this input's share of shared passes, and the method's own
    # Passes of the model and shortened texts that it would have taken alone; the mean over the batch it was in.
    evaluations: float = field(default=0.0, compare=False)
    picture: Picture | None = None

    def words(self) -> tuple[Word, ...]:
        """Words as slices of the texts; scores summed over their tokens, special tokens left out."""
        return words_of(self.texts, self.spans, self.sequences, self.word_ids, self.scores)

    def grid(self) -> tuple[tuple[float, ...], ...]:
        """The scores of an image's patches, row by row."""
        if self.picture is None:
            raise UsageError("this attribution is of a text, which has no grid of patches; see scores and words()")
        rows, columns = self.picture.rows, self.picture.columns
        patches = self.scores[len(self.scores) - rows * columns :]
        return tuple(patches[row * columns : (row + 1) * columns] for row in range(rows))

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Attribution":
        """BadArtifact if the text is anything else than the JSON of one attribution."""
        made = decode_record(cls, parse_json(text, f"the JSON of one {cls.__name__}"), SCHEMA, defaults=True)
        _check_parallel(made, ("tokens", "spans", "sequences", "word_ids", "scores"))
        if any(len(row) != len(made.scores) for row in made.layers):
            raise BadArtifact("Attribution: a layer must have as many scores as there are tokens")
        if made.picture is not None:
            _check_picture(made.picture, len(made.tokens))
        return made

    def to_html(self, path: str | Path | None = None) -> str:
        """A self-contained page, also written to `path` if there is one; `wt.plot.to_html` has more options."""
        from whichtoken.render.html import to_html

        return to_html(self, path)

    def to_latex(self) -> str:
        """A fragment for a LaTeX document; `wt.plot.to_latex` has more options."""
        from whichtoken.render.latex import to_latex

        return to_latex(self)

    def to_image(self, path: str | Path | None = None, how: How = "bilinear", size: int | None = None) -> "Image":
        """Of an image: its scores in colours on top of it (a PIL image), also written to `path` as PNG.

        Orange speaks for the label, blue against it, the more the less one sees through. `how`: smooth between patches,
        or patch by patch; "bilinear" shows single pixels where the method scores them. `size`: pixels of the longer
        side; by default the picture's own, small ones enlarged.
        """
        from whichtoken.render.pictures import to_image

        made: Image = to_image(self, path, how, size)
        return made

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from whichtoken.render.html import fragment

        return fragment(self)


Order = Literal["morf", "lerf", "random"]


@dataclass(frozen=True)
class Plan:
    """How inputs are degraded: by which removal, in which order, in which steps, and what goes at once."""

    perturbation: str = "delete"
    order: Order = "morf"  # the most relevant first, the least, or at random
    grid: str = "tenths"
    level: str = "token"  # or words, or pixels
    seed: int = 0  # of the random order

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise BadSetting("order", self.order, "'morf', the most relevant first, 'lerf', the least, or 'random'")

    def __str__(self) -> str:
        """For people, and for names of columns."""
        return f"{self.perturbation} {self.order} {self.grid}"

    def same_steps(self, other: "Plan") -> bool:
        """They differ in their order at most: what bounds one bounds the other."""
        return (self.perturbation, self.grid, self.level) == (other.perturbation, other.grid, other.level)


@dataclass(frozen=True)
class Curve:
    """How a probability falls as tokens are removed: most relevant first, least first, or at random."""

    key: str  # of the input
    order: Order
    perturbation: str
    removed: tuple[float, ...]  # fractions, 0 to 1
    probability: tuple[float, ...]
    label: str  # whose probability it is
    target: Target
    method: str  # that ranked the tokens
    settings: Mapping[str, Any]
    model: str
    revision: str
    n_cut: int
    grid: str = "tenths"
    level: str = "token"
    tuned_on_deletion: bool = False  # the method looked at deletion curves when it made its scores
    seconds: float = field(default=0.0, compare=False)

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Curve":
        """BadArtifact if the text is anything else than the JSON of one curve."""
        made = decode_record(cls, parse_json(text, f"the JSON of one {cls.__name__}"), SCHEMA, defaults=True)
        _check_parallel(made, ("removed", "probability"))
        return made


def _to_json(record: Attribution | Curve) -> str:
    made = {"record": type(record).__name__, "schema": SCHEMA, **asdict(record)}
    if made.get("picture", True) is None:
        del made["picture"]  # of texts, whose records stay as older versions read them
    return json.dumps(made, ensure_ascii=False, allow_nan=False)


def _check_parallel(made: Attribution | Curve, names: tuple[str, ...]) -> None:
    lengths = {name: len(getattr(made, name)) for name in names}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{n} {name}" for name, n in lengths.items())
        raise BadArtifact(f"{type(made).__name__}: {counted}; there must be as many of each")


def _check_picture(made: Picture, n_tokens: int) -> None:
    """There must be an image of the size that the record says."""
    size, grid = (made.width, made.height), (made.rows, made.columns)
    if min(*size, *grid) < 1 or math.prod(grid) > n_tokens:
        raise BadArtifact(f"picture: {size} pixels in {grid} patches; there must be some, and a token for each patch")
    if made.pixels and (len(made.pixels) != made.height or {len(row) for row in made.pixels} != {made.width}):
        raise BadArtifact(f"picture: scores of pixels are not {made.height} rows of {made.width}")
    try:
        head = base64.b64decode(made.png, validate=True)[:24]
    except (binascii.Error, ValueError) as error:
        raise BadArtifact(f"picture: png is not in base64: {error}") from error
    if head[:8] != PNG or (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) != size:
        raise BadArtifact(f"picture: png is no PNG image of {made.width} x {made.height}")
