"""Answers: what a model says of sequences, without gradients, each asked once whoever asks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.errors import NotFinite
from whichtoken.models.encoding import Row, batches
from whichtoken.models.subject import Subject
from whichtoken.models.tasks import Task


@dataclass
class Tally:
    """How many sequences were asked for, and how many of them the model had to read."""

    asked: int = 0
    evaluated: int = 0


@dataclass(frozen=True)
class Answers:
    """Logits of sequences, kept; so that methods, classes, orders and metrics share them. Make one for a few texts."""

    subject: Subject
    tally: Tally = field(default_factory=Tally, compare=False)
    _known: dict[Row, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", self.subject.twinned())

    def __call__(self, rows: Sequence[Row]) -> Float[Tensor, "n label"]:
        """Of a classifier."""
        if not rows:
            config = self.subject.model.config
            return _wide(torch.empty(0, config.num_labels, dtype=self.subject.model.dtype, device=self.subject.device))
        return torch.stack(self.each(rows))

    def each(self, rows: Sequence[Row]) -> list[Float[Tensor, "*label"]]:
        """In batches of similar length; half precision is widened, as it is too coarse for differences."""
        new = list(dict.fromkeys(row for row in rows if row not in self._known))
        self.tally.asked += len(rows)
        self.tally.evaluated += len(new)
        for group in batches([len(row.ids) for row in new], self.subject.fits):
            logits = self.subject.logits(self.subject.batch([new[i] for i in group]))
            if not logits.isfinite().all():
                raise NotFinite(f"{self.subject.title} gives NaN or infinite logits for a shortened text")
            asks = self.subject.task is Task.QUESTIONS
            for i, found in zip(group, _wide(logits), strict=True):
                self._known[new[i]] = found[:, : len(new[i].ids)] if asks else found
        return [self._known[row] for row in rows]


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
