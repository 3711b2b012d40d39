"""Objectives: the quantity that is explained, resolved for each row of a batch."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.targets import Class, Contrast, Target

SATURATED = 1e-6  # probabilities closer to 0 or 1 have no reliable log-odds in float32


@runtime_checkable
class Objective(Protocol):
    """A scalar to differentiate, a probability (or a predicted value) to track, and the positions both are read from.

    Only the methods without a body are required; the others have defaults for objectives that read a pooled position.
    The first axis of logits is the batch; the task defines the others.
    """

    def scalar(self, logits: Tensor) -> Float[Tensor, " batch"]:
        """Return what is differentiated."""
        ...

    def probability(self, read: Tensor) -> Float[Tensor, " batch"]:
        """Return what is tracked while tokens are removed, computed from what `read` keeps of the logits.

        It is a probability, unless the task's reading is "value".
        """
        ...

    def readout(self, batch: Any) -> Float[Tensor, "batch token"]:
        """Return the weights of the positions that the objective is read from; they sum to 1."""
        ...

    def rows(self, index: Int[Tensor, " n"]) -> "Objective":
        """Return the objective of some rows, which may repeat."""
        ...

    def target(self, row: int) -> Target:
        """Return the target of a row as stored in records."""
        ...

    def log_odds(self, read: Tensor) -> Float[Tensor, " batch"]:
        """Return what is tracked on a scale on which the effects of parts roughly add up, in float64.

        These are the log-odds of a probability, or the predicted value itself.
        """
        return self.probability(read.to(torch.float64)).logit(eps=SATURATED)

    def read(self, logits: Tensor) -> Tensor:
        """Return what `probability` needs of the logits: what the logit cache stores for a sequence."""
        return logits

    def cache_key(self, row: int) -> Hashable:
        """Return a key of what `read` keeps: objectives with equal keys share cache entries."""
        return None

    def after_removal(self, kept: Bool[Tensor, "batch token"]) -> "Objective":
        """Return the objective after tokens were removed and the others moved up."""
        return self

    def anchors(self, batch: Any) -> Bool[Tensor, "batch token"]:
        """Return the tokens that cannot be removed, because the objective is read from them."""
        return torch.zeros_like(batch.mask)

    def terms(self) -> Sequence[tuple[float, "Objective"]]:
        """Return signed parts whose relevance is propagated separately."""
        return ((1.0, self),)

    def label(self, batch: Any) -> Int[Tensor, " batch"]:
        """Return the class whose references each row is contrasted with."""
        return torch.zeros(len(batch.ids), dtype=torch.long, device=batch.ids.device)

    def span(self) -> Int[Tensor, "batch 2"] | None:
        """Return the first and last token of the answer, or of the labelled words, that the objective is read from."""
        return None


class Link(StrEnum):
    """How the head's logits are read: as probabilities, or as the predicted values themselves."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"  # single-logit and multi-label heads
    VALUE = "value"  # regression heads

    def apply(self, logits: Float[Tensor, "batch label"]) -> Float[Tensor, "batch label"]:
        """Return the probabilities, or the values."""
        if self is Link.VALUE:
            return logits
        return logits.softmax(-1) if self is Link.SOFTMAX else logits.sigmoid()


@dataclass(frozen=True)
class ClassObjective(Objective):
    """logit[toward] (- logit[against]), with the corresponding probability or value."""

    toward: Int[Tensor, " batch"]
    against: Int[Tensor, " batch"] | None
    link: Link
    pooled: Callable[[Any], Tensor]  # maps a batch to the weights of the positions that the head reads

    def scalar(self, logits: Tensor) -> Float[Tensor, " batch"]:
        toward = _pick_label(logits, self.toward)
        return toward if self.against is None else toward - _pick_label(logits, self.against)

    def probability(self, read: Tensor) -> Float[Tensor, " batch"]:
        """Return the probability of the class; for a contrast, of the first class if only those two were possible.
        For a regression head, return the value.
        """
        if self.against is not None:
            return self.scalar(read).sigmoid()
        return _pick_label(self.link.apply(read), self.toward)

    def log_odds(self, read: Tensor) -> Float[Tensor, " batch"]:
        """Return the log-odds from the logits, so that they are exact however certain the model is."""
        wide = read.to(torch.float64)
        if self.against is not None or self.link is not Link.SOFTMAX:
            return self.scalar(wide)
        others = wide.scatter(1, self.toward[:, None], -torch.inf).logsumexp(-1)
        return self.scalar(wide) - others

    def readout(self, batch: Any) -> Float[Tensor, "batch token"]:
        return self.pooled(batch)

    def rows(self, index: Int[Tensor, " n"]) -> "ClassObjective":
        against = None if self.against is None else self.against[index]
        return ClassObjective(self.toward[index], against, self.link, self.pooled)

    def target(self, row: int) -> Target:
        toward = int(self.toward[row])
        return Class(toward) if self.against is None else Contrast(toward, int(self.against[row]))

    def terms(self) -> Sequence[tuple[float, Objective]]:
        """Separate the classes: rules that conserve relevance would scale a contrast that sums to 0 to nothing."""
        if self.against is None:
            return ((1.0, self),)
        toward, against = (ClassObjective(c, None, self.link, self.pooled) for c in (self.toward, self.against))
        return ((1.0, toward), (-1.0, against))

    def label(self, batch: Any) -> Int[Tensor, " batch"]:
        return self.toward


@dataclass(frozen=True)
class Anything(Objective):
    """A placeholder for passes that only read values, where it does not matter what is explained."""

    def scalar(self, logits: Tensor) -> Float[Tensor, " batch"]:
        return logits.flatten(1).sum(-1)

    def probability(self, read: Tensor) -> Float[Tensor, " batch"]:
        return torch.ones_like(self.scalar(read))

    def readout(self, batch: Any) -> Float[Tensor, "batch token"]:
        return torch.zeros(batch.ids.shape, device=batch.ids.device)

    def rows(self, index: Int[Tensor, " n"]) -> "Anything":
        return self

    def target(self, row: int) -> Target:
        return Class(0)


def anything(logits: Tensor) -> Anything:
    return Anything()


def log_odds_of(log_probability: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Return log-odds in float64; probabilities very close to 1 are cut, because float32 cannot tell them from 1."""
    logs = log_probability.to(torch.float64).clamp(max=math.log1p(-SATURATED))
    return logs - torch.log(-torch.expm1(logs))


def probability_of(objective: Objective, logits: Tensor) -> Float[Tensor, " batch"]:
    return objective.probability(objective.read(logits))


def _pick_label(values: Float[Tensor, "batch label"], label: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    return values.gather(1, label[:, None])[:, 0]
