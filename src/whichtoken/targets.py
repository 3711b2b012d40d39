"""Targets: which part of a model's output is explained, as users specify it and as records store it. No torch."""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

from whichtoken.errors import BadSetting, UnknownName


@dataclass(frozen=True)
class Predicted:
    """What the model predicts for each input."""


@dataclass(frozen=True)
class Class:
    """One class, by index or label name; records store the index."""

    label: int | str


@dataclass(frozen=True)
class Contrast:
    """Why `label` rather than `rather_than`: the difference between their logits."""

    label: int | str
    rather_than: int | str


Part = Literal["both", "sum", "start", "end"]


@dataclass(frozen=True)
class Span:
    """An answer to a question: tokens `start` to `end` of the input, or (None) the answer that the model predicts.

    `part`: "both" adds the maps of the start and the end, as the papers do; "sum" is one map, for the sum of the
    two logits; "start" and "end" are the map of one logit. `free`: each end of the predicted answer is chosen
    independently, anywhere in the input, as in the papers' code; otherwise the end follows the start closely, and both
    lie in the context. In a record, positions refer to the record's tokens.
    """

    start: int | None = None
    end: int | None = None
    part: Part = "both"
    free: bool = False

    def __post_init__(self) -> None:
        if self.part not in get_args(Part):
            raise BadSetting("part", self.part, f"one of {', '.join(get_args(Part))}")
        if (self.start is None) != (self.end is None):
            raise BadSetting("target", self, "a span with both ends, or with neither (the model's own answer)")
        for position in (self.start, self.end):
            if isinstance(position, bool) or not isinstance(position, SupportsIndex | None):
                raise BadSetting("target", self, "a span of token indices, counted from 0")


@dataclass(frozen=True)
class TokenLabels:
    """The labels of some tokens, for models that label every token: one label for each token, by index or name.

    `rather_than`: labels to contrast them with, one for each token, or none. As a target, positions are counted from
    the beginning of the whole input; in a record, they refer to the record's tokens, and labels are indices.
    """

    tokens: tuple[int, ...]
    labels: tuple[int | str, ...]
    rather_than: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        for position in self.tokens:
            if isinstance(position, bool) or not isinstance(position, int):
                raise BadSetting("target", self, "token positions, counted from 0")
        if not self.tokens or list(self.tokens) != sorted(set(self.tokens)):
            raise BadSetting("target", self, "at least one token, in ascending order")
        if len(self.labels) != len(self.tokens) or len(self.rather_than) not in (0, len(self.tokens)):
            raise BadSetting("target", self, "one label for each token, and one or none to contrast it with")


Scale = Literal["logit", "logprob"]
RowLevel = Literal["answer", "sentence", "token"]  # what each row of a map is about
SourceLevel = Literal["token", "word", "sentence", "document"]  # what each column of a map is about


@dataclass(frozen=True)
class AnswerTokens:
    """Tokens that a language model generates, as records store them.

    `tokens`: their positions in the record's tokens; each is predicted at the position before it. `ids`: the tokens, as
    ids of the vocabulary. `rather_than`: the ids that they are contrasted with, one for each, or none. `scale`: the
    scalar that is differentiated is the sum of their logits, or of their log-probabilities.
    """

    tokens: tuple[int, ...]
    ids: tuple[int, ...]
    rather_than: tuple[int, ...] = ()
    scale: Scale = "logit"


@dataclass(frozen=True)
class Generation:
    """How an answer is generated: at most `tokens` of them; greedily, unless there is a temperature above 0.

    `top_p`: draw only among the most likely tokens that together have this probability. The same seed draws the same
    answer.
    """

    tokens: int = 32
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        whole = [isinstance(x, int) and not isinstance(x, bool) for x in (self.tokens, self.seed)]
        if not whole[0] or self.tokens < 1:
            raise BadSetting("generate", self.tokens, "a number of tokens, at least 1, or Generation(...)")
        if not whole[1] or self.seed < 0:
            raise BadSetting("seed", self.seed, "a whole number, at least 0")
        if not isinstance(self.temperature, int | float) or not 0 <= self.temperature < inf:
            raise BadSetting("temperature", self.temperature, "0 for the most likely tokens, or a number above 0")
        if not isinstance(self.top_p, int | float) or not 0 < self.top_p <= 1:
            raise BadSetting("top_p", self.top_p, "above 0 and at most 1")


@dataclass(frozen=True)
class AnswerRequest:
    """What is explained about the answer to a prompt.

    `generation`: how it is generated, where no continuation is given. `rows`: the map of the whole answer, or also of
    each of its sentences or tokens. `sources`: what the map's columns are. `foil`: a text to contrast the answer with.
    """

    generation: Generation | None = None
    rows: RowLevel = "answer"
    sources: SourceLevel = "word"
    foil: str | None = None
    scale: Scale = "logit"

    def __post_init__(self) -> None:
        for name, known in (("rows", RowLevel), ("sources", SourceLevel)):
            if getattr(self, name) not in get_args(known):
                raise BadSetting(name, getattr(self, name), f"one of {', '.join(get_args(known))}")
        if self.scale not in get_args(Scale):
            raise BadSetting("target", self.scale, "'logit', 'logprob' or None (logit)")
        if self.foil is not None and (not isinstance(self.foil, str) or not self.foil.strip()):
            raise BadSetting("foil", self.foil, "a text that the model could have said instead")
        if self.foil is not None and self.rows != "answer":
            raise BadSetting(
                "rows", self.rows, "'answer' with a foil, which is contrasted with one token of the answer"
            )


# As stored in a record, so never Predicted.
Target: TypeAlias = Class | Contrast | Span | TokenLabels | AnswerTokens


def label_index(label: Any, labels: Sequence[str]) -> int:
    """Return the index of a label given by name (exact, else ignoring case), as any integer type, or as digits."""
    if isinstance(label, str):
        same = [name for name in labels if name == label] or [n for n in labels if n.casefold() == label.casefold()]
        if same:
            return labels.index(same[0])
        if shared := [name for i, name in enumerate(labels) if name == f"{label} ({i})"]:
            raise BadSetting("target", label, f"the name of one label, but {len(shared)} share it: {', '.join(shared)}")
        if not label.isdecimal() or len(label) > 9:  # Python refuses to convert thousands of digits
            raise UnknownName("label", label, labels)
        label = int(label)  # as typed on a command line or in a file
    try:
        index = -1 if isinstance(label, bool) else operator.index(label)
    except TypeError:
        raise BadSetting("target", label, "None, a label index or name, Class(...) or Contrast(...)") from None
    if not 0 <= index < len(labels):
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(labels))
        raise BadSetting("target", label, f"one of the model's {len(labels)} labels: {listed}")
    return index


def clean_gold(label: Any, labels: Sequence[str]) -> Any:
    """Return a gold label as data sets have it, ready for `label_index`; None if it is missing, NaN, empty or -1.

    Spaces around a name are removed; digits, booleans and whole numbers as floats become integers.
    """
    if isinstance(label, str):
        label = label.strip()
        if label not in labels and re.fullmatch(r"-?[0-9]{1,9}(\.0+)?", label):  # pandas writes 1.0 if some are missing
            label = int(float(label))
    if isinstance(label, bool) or (isinstance(label, float) and label.is_integer()):
        label = int(label)
    is_nan = isinstance(label, float) and isnan(label)  # how pandas writes that it is missing
    return None if label is None or is_nan or label in ("", -1) else label


def label_of(target: Class | Contrast, labels: Sequence[str]) -> str:
    """Return the target as shown to users."""
    name = labels[label_index(target.label, labels)]
    if isinstance(target, Contrast):
        return f"{name} rather than {labels[label_index(target.rather_than, labels)]}"
    return name
