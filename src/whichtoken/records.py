"""What leaves the library: Attribution and Curve, plain frozen data with JSON in and out. No torch."""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

from whichtoken.errors import BadArtifact, UsageError
from whichtoken.settings import has_type
from whichtoken.words import Span, Word, words_of

if TYPE_CHECKING:
    from PIL.Image import Image

SCHEMA = 1  # raised when a field changes its meaning
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
    label: str  # what is explained
    probability: float
    method: str
    settings: Mapping[str, Any]
    searched: bool  # the method looked at the deletion curve that it may be judged by
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
        return _from_json(cls, text)

    def to_html(self, path: str | Path | None = None) -> str:
        """A self-contained page, also written to `path` if there is one; `whichtoken.to_html` has more to choose."""
        from whichtoken.render.html import to_html

        return to_html(self, path)

    def to_latex(self) -> str:
        """A fragment for a LaTeX document; `whichtoken.to_latex` has more to choose."""
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
class Curve:
    """How a probability falls as tokens are removed: most relevant first, least first, or at random."""

    key: str  # of the input
    order: Order
    perturbation: str
    removed: tuple[float, ...]  # fractions, 0 to 1
    probability: tuple[float, ...]
    label: str  # whose probability it is
    method: str  # that ranked the tokens
    settings: Mapping[str, Any]
    model: str
    revision: str
    n_cut: int
    grid: str = "tenths"
    level: str = "token"
    searched: bool = False  # the method looked at deletion curves when it made its scores
    seconds: float = field(default=0.0, compare=False)

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Curve":
        return _from_json(cls, text)


_R = TypeVar("_R", Attribution, Curve)
_PARALLEL = {
    "Attribution": ("tokens", "spans", "sequences", "word_ids", "scores"),
    "Curve": ("removed", "probability"),
}


def _to_json(record: Attribution | Curve) -> str:
    made = {"record": type(record).__name__, "schema": SCHEMA, **asdict(record)}
    if made.get("picture", True) is None:
        del made["picture"]  # of texts, whose records stay as older versions read them
    return json.dumps(made, ensure_ascii=False, allow_nan=False)


def _from_json(cls: type[_R], text: str) -> _R:
    try:
        found = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise BadArtifact(f"expected the JSON of one {cls.__name__}, found {text[:40]!r}: {error}") from error
    if not isinstance(found, dict) or (found.pop("record", None), found.pop("schema", None)) != (
        cls.__name__,
        SCHEMA,
    ):
        raise BadArtifact(f"expected the JSON of one {cls.__name__}, schema {SCHEMA}; found {text[:80]!r}")
    hints = get_type_hints(cls)
    optional = {f.name for f in fields(cls) if f.default is not MISSING or f.default_factory is not MISSING}
    if wrong := (set(hints) ^ set(found)) - (optional - set(found)):
        raise BadArtifact(f"{cls.__name__}: fields {sorted(wrong)} are missing or not known")
    values = {name: _frozen(value) for name, value in found.items()}
    if values.get("picture") is not None:
        values["picture"] = _picture(values["picture"], values.get("tokens"))
    for name, value in values.items():
        if not has_type(value, hints[name]):
            raise BadArtifact(f"{cls.__name__}: {name} is {value!r:.60}, expected {hints[name]}")
    parallel = _PARALLEL[cls.__name__]
    if len({len(values[name]) for name in parallel}) > 1:
        counted = ", ".join(f"{len(values[name])} {name}" for name in parallel)
        raise BadArtifact(f"{cls.__name__}: {counted}; there must be as many of each")
    if any(len(row) != len(values["scores"]) for row in values.get("layers", ())):
        raise BadArtifact(f"{cls.__name__}: a layer must have as many scores as there are tokens")
    return cls(**values)


def _picture(found: Any, tokens: Any) -> Picture:
    """A picture from its JSON, with an image in it of the size that it says."""
    hints = get_type_hints(Picture)
    if not isinstance(found, dict) or not set(hints) - {"pixels"} <= set(found) <= set(hints):
        raise BadArtifact(f"picture is {found!r:.60}; expected an object with {', '.join(hints)}")
    values = {name: _frozen(value) for name, value in found.items()}
    for name, value in values.items():
        if not has_type(value, hints[name]):
            raise BadArtifact(f"picture: {name} is {value!r:.60}, expected {hints[name]}")
    made = Picture(**values)
    size, grid = (made.width, made.height), (made.rows, made.columns)
    if min(*size, *grid) < 1 or math.prod(grid) > (len(tokens) if isinstance(tokens, tuple) else 0):
        raise BadArtifact(f"picture: {size} pixels in {grid} patches; there must be some, and a token for each patch")
    if made.pixels and (len(made.pixels) != made.height or {len(row) for row in made.pixels} != {made.width}):
        raise BadArtifact(f"picture: scores of pixels are not {made.height} rows of {made.width}")
    try:
        head = base64.b64decode(made.png, validate=True)[:24]
    except (binascii.Error, ValueError) as error:
        raise BadArtifact(f"picture: png is not in base64: {error}") from error
    if head[:8] != PNG or (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) != size:
        raise BadArtifact(f"picture: png is no PNG image of {made.width} x {made.height}")
    return made


def _refuse(constant: str) -> None:
    raise BadArtifact(f"a record holds {constant}; numbers must be finite")


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
