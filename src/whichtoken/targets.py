"""Which scalar of the model's output is explained, and the probability that goes with it."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float, Int
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


def as_target(target: Any) -> Target:
    """The short forms that `explain(target=...)` accepts."""
    if target is None:
        return Predicted()
    if isinstance(target, Predicted | Class | Contrast):
        return target
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
