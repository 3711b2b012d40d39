"""Which scalar of the model's output is explained, and the probability that goes with it."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, SupportsIndex, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.errors import BadSetting, UnknownName


@dataclass(frozen=True)
class Predicted:
    """The class with the highest logit, for each input its own."""


@dataclass(frozen=True)
class Class:
    """One class, by index or by label name."""

    label: SupportsIndex | str


@dataclass(frozen=True)
class Contrast:
    """Why `label` rather than `rather_than`: the difference of their logits."""

    label: SupportsIndex | str
    rather_than: SupportsIndex | str


Target = Predicted | Class | Contrast

LONGEST_ANSWER = 30  # tokens
Part = Literal["both", "sum", "start", "end"]


@dataclass(frozen=True)
class Span:
    """An answer to a question: from token `start` to token `end` of the input; None: where the model puts it.

    `part`: "both", a map for the start and one for the end, added up, as the papers do it; "sum", one map of the sum of
    the two logits; "start" or "end", of that logit alone. `free`: of the model's answer, each end by itself, anywhere
    in the input, as the papers' code has it; else start comes before end, near it, and both lie in the context.
    """

    start: SupportsIndex | None = None
    end: SupportsIndex | None = None
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


class Link(StrEnum):
    """How the head's logits become probabilities."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"  # single-logit and multi-label heads

    def probabilities(self, logits: Float[Tensor, "batch label"]) -> Float[Tensor, "batch label"]:
        return logits.softmax(-1) if self is Link.SOFTMAX else logits.sigmoid()


@dataclass(frozen=True)
class Goal:
    """A target resolved for a batch: explain logit[toward] (- logit[against])."""

    toward: Int[Tensor, " batch"]
    against: Int[Tensor, " batch"] | None = None

    def scalar(self, logits: Float[Tensor, "batch label"]) -> Float[Tensor, " batch"]:
        toward = logits.gather(1, self.toward[:, None])[:, 0]
        return toward if self.against is None else toward - logits.gather(1, self.against[:, None])[:, 0]

    def probability(self, logits: Float[Tensor, "batch label"], link: Link) -> Float[Tensor, " batch"]:
        """Of the class; for a contrast, of the first class when only the two are possible."""
        if self.against is not None:
            return self.scalar(logits).sigmoid()
        return self.scalar(link.probabilities(logits))

    def rows(self, index: Int[Tensor, " n"]) -> "Goal":
        return Goal(self.toward[index], None if self.against is None else self.against[index])

    def named(self, row: int, labels: Sequence[str]) -> str:
        toward = labels[int(self.toward[row])]
        return toward if self.against is None else f"{toward} rather than {labels[int(self.against[row])]}"


@dataclass(frozen=True)
class SpanGoal:
    """An answer resolved for a batch of questions: explain the logits of its two ends, or one of them.

    Logits are of starts and of ends, for each token: batch 2 token.
    """

    start: Int[Tensor, " batch"]
    end: Int[Tensor, " batch"]
    part: Literal["sum", "start", "end"]

    @property
    def toward(self) -> Int[Tensor, " batch"]:
        """There is one class: the answer."""
        return torch.zeros_like(self.start)

    @property
    def against(self) -> None:
        return None

    def scalar(self, logits: Float[Tensor, "batch 2 token"]) -> Float[Tensor, " batch"]:
        ends = [logits[:, side].gather(1, place[:, None])[:, 0] for side, place in self._ends]
        return torch.stack(ends).sum(0)

    def probability(self, logits: Float[Tensor, "batch 2 token"], link: Link) -> Float[Tensor, " batch"]:
        """That the answer starts, or ends, there; of both, their product."""
        return self.scalar(logits.log_softmax(-1)).exp()

    def rows(self, index: Int[Tensor, " n"]) -> "SpanGoal":
        return SpanGoal(self.start[index], self.end[index], self.part)

    def readout(self, n_tokens: int) -> Float[Tensor, "batch token"]:
        """Which positions the explained logits are read from."""
        ends = torch.stack([torch.nn.functional.one_hot(place, n_tokens) for _, place in self._ends])
        return ends.to(torch.float64).mean(0)

    @property
    def _ends(self) -> list[tuple[int, Tensor]]:
        both = [(0, self.start), (1, self.end)]
        return both if self.part == "sum" else [both[0 if self.part == "start" else 1]]


AnyGoal = Goal | SpanGoal


def any_goal(logits: Tensor) -> AnyGoal:
    """Where it does not matter what is explained."""
    if logits.dim() == 2:
        return Goal(logits.argmax(-1))
    first = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    return SpanGoal(first, first, "sum")


def best_span(
    logits: Float[Tensor, "batch 2 token"], context: Bool[Tensor, "batch token"]
) -> tuple[Int[Tensor, "batch 2"], Float[Tensor, " batch"]]:
    """Of each row, the start and end with the highest sum of logits, start first, in the context; and that sum."""
    n = logits.shape[-1]
    pairs = logits[:, 0, :, None] + logits[:, 1, None, :]
    near = torch.ones(n, n, dtype=torch.bool, device=logits.device).triu().tril(LONGEST_ANSWER - 1)
    allowed = near & context[:, :, None] & context[:, None, :]
    best = pairs.masked_fill(~allowed, -torch.inf).flatten(1).max(-1)
    return torch.stack([best.indices // n, best.indices % n], -1), best.values


def as_span(target: Any) -> Span | str:
    """What is explained of a question: the model's answer (None), another one by its text, or a Span."""
    if target is None or isinstance(target, Predicted):
        return Span()
    if isinstance(target, Span | str):
        return target
    raise BadSetting("target", target, "None for the model's answer, the text of an answer, or Span(start, end)")


def as_target(target: Any) -> Target:
    """The short forms that `explain(target=...)` accepts."""
    if target is None:
        return Predicted()
    if isinstance(target, Predicted | Class | Contrast):
        return target
    if isinstance(target, Span):
        raise BadSetting("target", target, "a class: a Span is an answer, and this model does not answer questions")
    return Class(target)  # what is neither index nor name is refused by label_index


def check_target(target: Target, labels: Sequence[str]) -> None:
    """Raise now rather than after the first pass."""
    if isinstance(target, Class):
        label_index(target.label, labels)
    elif isinstance(target, Contrast):
        pair = label_index(target.label, labels), label_index(target.rather_than, labels)
        if pair[0] == pair[1]:
            raise BadSetting("target", target, "a contrast of two different labels")


def resolve(target: Target, logits: Float[Tensor, "batch label"], labels: Sequence[str]) -> Goal:
    if isinstance(target, Predicted):
        return Goal(logits.argmax(-1))

    def all_rows(label: SupportsIndex | str) -> Tensor:
        return torch.full((len(logits),), label_index(label, labels), device=logits.device)

    if isinstance(target, Contrast):
        return Goal(all_rows(target.label), all_rows(target.rather_than))
    return Goal(all_rows(target.label))


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
