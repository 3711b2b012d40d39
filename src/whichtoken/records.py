"""The records that the library returns: Attribution and Curve, frozen data that convert to and from JSON. No torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from whichtoken.answers import (
    AnswerRow,
    GeneratedAnswer,
    PromptTokens,
    SegmentShare,
    SourceMatrix,
    find_row,
    make_matrix,
    share_segments,
)
from whichtoken.boundary import is_utf8
from whichtoken.decode import check_plain, decode_record, parse_json
from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.identity import Identity
from whichtoken.record_checks import check_attribution, check_curve
from whichtoken.targets import AnswerTokens, SourceLevel, Target
from whichtoken.trust import Confidence, Interaction, Removal
from whichtoken.words import Span, Word, words_of

if TYPE_CHECKING:
    from PIL.Image import Image

SCHEMA = 3  # incremented when a field changes its meaning
OPTIONAL = (  # fields that are written only if they differ from their default
    "picture",
    "value",
    "n_unknown",
    "control_tokens",
    "predicted",
    "source",
    "removals",
    "name",
    "confidence",
    "generated",
    "processor",
)
NEWER = ("predicted", "interactions")  # fields of `Confidence` that are written only if they are neither None nor empty
How = Literal["bilinear", "patch"]  # how scores of patches are drawn: interpolated, or patch by patch
# What a model's output is read as. That of a regression model is a value, and so is the log-probability of an answer.
Reading = Literal["probability", "value"]


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
class Prediction:
    """The label that the model predicts, whatever label is explained."""

    label: str
    probability: float


@dataclass(frozen=True)
class Source:
    """Where an input comes from: its row in a file or data set, and what that row says about it."""

    row: int | None = None  # as in error messages: the line of a text file, else counted from 0
    id: str | None = None
    gold: str | None = None  # the gold label, under the model's name for it
    columns: Mapping[str, Any] = field(default_factory=dict)  # other columns that were kept


@dataclass(frozen=True, repr=False)
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
    tuned_on_deletion: bool  # the method used outputs without some words, by which it may be evaluated
    model: str
    revision: str  # see Identity
    n_cut: int  # content tokens truncated at the model's length limit
    n_windows: int  # windows that the scores are averaged over
    details: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[tuple[float, ...], ...] = ()  # if requested: per-layer terms of a method that sums over layers
    seconds: float = field(default=0.0, compare=False)  # share of the shared passes plus the method's own time
    # Forward passes and perturbed inputs that the method would have needed on its own; the mean over its batch.
    evaluations: float = field(default=0.0, compare=False)
    picture: Picture | None = None
    value: float | None = None  # what a regression model predicts, or the log-probability of an answer
    n_unknown: int = 0  # content tokens that the tokenizer does not know
    predicted: Prediction | None = None  # of models that predict one of several labels
    source: Source | None = None  # if known
    # The name that the method was requested by, such as "attcat@repo", if it is not its own name.
    name: str = field(default="", compare=False)
    removals: tuple[Removal, ...] = ()  # if requested: without the strongest word, the two strongest, and so on
    confidence: Confidence | None = None  # of methods that know how sure they are
    generated: GeneratedAnswer | None = None  # of language models: the answer, and the maps of its parts
    processor: str = ""  # see Identity
    control_tokens: tuple[str, ...] = ()  # special tokens, such as [SEP], that the texts contain and the model obeys

    def __repr__(self) -> str:
        output = f"{self.probability:.1%}" if self.value is None else f"{self.value:.4g}"
        return f"<Attribution: {self.name or self.method}, {self.label} {output}, {len(self.tokens)} tokens>"

    @property
    def identity(self) -> Identity:
        return Identity(self.revision, self.processor)

    @property
    def correct(self) -> bool | None:
        """Whether the model predicts the gold label; None if either is unknown."""
        gold = None if self.source is None else self.source.gold
        return None if gold is None or self.predicted is None else self.predicted.label == gold

    @property
    def reading(self) -> Reading:
        return "probability" if self.value is None else "value"

    @property
    def output(self) -> float:
        """The probability, or the predicted value of a regression model."""
        output = self.probability if self.value is None else self.value
        assert output is not None, "a record has one of the two"
        return output

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """The units (words) that act together, strongest first; empty if the method does not look for interactions.

        Only those whose interval excludes 0. `units` are positions in `tokens`; a negative `effect` means that removing
        them together changes the output by less than the sum of their own effects.
        """
        return () if self.confidence is None else self.confidence.interactions

    def words(self) -> tuple[Word, ...]:
        """Return the words as slices of the texts; token scores are summed, and special tokens left out.

        If the record has `confidence`, words have bounds: `low` and `high`.
        """
        words = self._words(self.scores)
        if self.confidence is None:
            return words
        low, high = self._words(self.confidence.low), self._words(self.confidence.high)
        return tuple(replace(w, low=a.score, high=b.score) for w, a, b in zip(words, low, high, strict=True))

    def _words(self, scores: Sequence[float]) -> tuple[Word, ...]:
        return words_of(self.texts, self.spans, self.sequences, self.word_ids, scores)

    @property
    def matrix(self) -> SourceMatrix:
        """The map of an answer: its parts (as `rows` of `explain`) x parts of the prompt (as `sources`)."""
        return self.matrix_of(self._answer().source_level)

    def matrix_of(self, sources: SourceLevel) -> SourceMatrix:
        """Return the map of an answer with other parts of the prompt: "token", "word", "sentence" or "document"."""
        return make_matrix(self._prompt_tokens(), self._answer(), sources)

    def answer(self) -> AnswerRow:
        """Return the map of the whole answer of a language model."""
        generated, target = self._answer(), self.target
        assert isinstance(target, AnswerTokens), "the target of an answer"
        whole = self.texts[1] if len(target.tokens) > 1 or not generated.foil else generated.rows[0].text
        return AnswerRow(whole, target.tokens, self.scores, self.output, self.confidence)

    def row(self, text: str) -> AnswerRow:
        """Return the map of the part of the answer that contains a text: of its tokens or sentences, or of the answer,
        as `rows` of `explain` says. If it lies in several, they are added.
        """
        found = find_row(self._prompt_tokens(), self._answer(), text)
        if found is None:
            raise UnknownName("part of the answer", text, [row.text for row in self._answer().rows])
        return found

    def segments(self) -> tuple[SegmentShare, ...]:
        """Return what each role, document and sentence of the prompt contributes to each part of the answer."""
        return share_segments(self._prompt_tokens(), self._answer())

    def _answer(self) -> GeneratedAnswer:
        if self.generated is None:
            raise UsageError("this attribution does not explain an answer of a language model; use scores or words()")
        return self.generated

    def _prompt_tokens(self) -> PromptTokens:
        return PromptTokens(self.texts, self.spans, self.sequences, self.word_ids)

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
        check_attribution(record)
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
    tuned_on_deletion: bool = False  # the method evaluated inputs with parts removed to compute its scores
    seconds: float = field(default=0.0, compare=False)
    value: tuple[float, ...] = ()  # what a regression model predicts at each step
    processor: str = ""  # see Identity

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
        check_curve(record)
        return record


def _to_json(record: Attribution | Curve) -> str:
    values = {"record": type(record).__name__, "schema": SCHEMA, **asdict(record, dict_factory=_drop_newer)}
    for optional in fields(record):
        if optional.name in OPTIONAL and values.get(optional.name) == optional.default:
            values.pop(optional.name, None)  # so that older versions can read the records of texts and of classifiers
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    if not is_utf8(text):
        check_plain(json.loads(text))  # says which field
    return text


def _drop_newer(values: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass without those that older versions refuse, unless they say something."""
    return {name: value for name, value in values if name not in NEWER or value not in (None, ())}
