"""Targets: what of a model's output is explained, as users ask for it and as records say it. No torch."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

from whichtoken.errors import BadSetting, UnknownName


@dataclass(frozen=True)
class Predicted:
    """What the model predicts, for each input its own."""


@dataclass(frozen=True)
class Class:
    """One class, by index or by label name; in a record, by index."""

    label: int | str


@dataclass(frozen=True)
class Contrast:
    """Why `label` rather than `rather_than`: the difference of their logits."""

    label: int | str
    rather_than: int | str


Part = Literal["both", "sum", "start", "end"]


@dataclass(frozen=True)
class Span:
    """An answer to a question: from token `start` to token `end` of the input; None: where the model puts it.

    `part`: "both", a map for the start and one for the end, added up, as the papers do it; "sum", one map of the sum of
    the two logits; "start" or "end", of that logit alone. `free`: of the model's answer, each end by itself, anywhere
    in the input, as the papers' code has it; else start comes before end, near it, and both lie in the context.
    In a record, tokens are counted in the record.
    """

    start: int | None = None
    end: int | None = None
    part: Part = "both"
    free: bool = False

    def __post_init__(self) -> None:
        if self.part not in get_args(Part):
            raise BadSetting("part", self.part, f"one of {', '.join(get_args(Part))}")
        if (self.start is None) != (self.end is None):
            raise BadSetting("target", self, "a span with both ends, or with none: the model's own answer")
        for place in (self.start, self.end):
            if isinstance(place, bool) or not isinstance(place, SupportsIndex | None):
                raise BadSetting("target", self, "a span of tokens by their numbers, from 0")


Target: TypeAlias = Class | Contrast | Span  # of a record: resolved


def label_index(label: Any, labels: Sequence[str]) -> int:
    """By name (upper and lower case alike, if need be), or by any integer: numpy's, torch's, or in digits."""
    if isinstance(label, str):
        same = [name for name in labels if name == label] or [n for n in labels if n.casefold() == label.casefold()]
        if same:
            return labels.index(same[0])
        if not label.isdecimal():
            raise UnknownName("label", label, labels)
        label = int(label)  # as a command line or a file has it
    try:
        index = -1 if isinstance(label, bool) else operator.index(label)
    except TypeError:
        raise BadSetting("target", label, "None, a label index or name, Class(...) or Contrast(...)") from None
    if not 0 <= index < len(labels):
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(labels))
        raise BadSetting("target", label, f"one of the model's {len(labels)} labels: {listed}")
    return index


def label_of(target: Class | Contrast, labels: Sequence[str]) -> str:
    """As people read it."""
    name = labels[label_index(target.label, labels)]
    if isinstance(target, Contrast):
        return f"{name} rather than {labels[label_index(target.rather_than, labels)]}"
    return name
