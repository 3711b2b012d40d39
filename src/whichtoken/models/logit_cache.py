"""Logit cache: what objectives read from sequences, without gradients; each sequence is evaluated once."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whichtoken.core.objectives import Objective
from whichtoken.core.rows import Row
from whichtoken.errors import NotFinite
from whichtoken.models.encoding import batches
from whichtoken.models.subject import Subject


@dataclass
class EvaluationCount:
    """How many sequences were asked for, and how many of them the model had to read."""

    asked: int = 0
    evaluated: int = 0


@dataclass(frozen=True)
class LogitCache:
    """Shared by methods, classes, orders and metrics that ask about the same inputs. Make one for a few inputs.

    Of each sequence it keeps what its objective reads, not its logits: a vocabulary for every token would not fit.
    """

    subject: Subject
    tally: EvaluationCount = field(default_factory=EvaluationCount, compare=False)
    _known: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", self.subject.twinned())

    def probability(self, rows: Sequence[Row], objective: Objective) -> Tensor:
        """Of each row, with `objective` resolved for as many rows."""
        if not rows:
            return _wide(torch.empty(0, dtype=self.subject.model.dtype, device=self.subject.device))
        return objective.probability(torch.stack(self.read(rows, objective)))

    def read(self, rows: Sequence[Row], objective: Objective) -> list[Tensor]:
        """In batches of similar length; half precision is widened, as it is too coarse for differences."""
        rows = [row if len(row) else self.subject.nothing for row in rows]
        keys = [(row.key, objective.cache_key(i)) for i, row in enumerate(rows)]
        first: dict[Hashable, int] = {}
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        new = [i for key, i in first.items() if key not in self._known]
        self.tally.asked += len(rows)
        self.tally.evaluated += len(new)
        for group in batches([len(rows[i]) for i in new], self.subject.fits):
            places = [new[i] for i in group]
            logits = self.subject.logits(self.subject.batch([rows[i] for i in places]))
            if not logits.isfinite().all():
                raise NotFinite(f"{self.subject.title} gives NaN or infinite logits for an input with parts removed")
            of_group = objective.rows(torch.tensor(places, device=logits.device))
            read = of_group.read(_wide(logits))
            self._known.update((keys[i], of_row) for i, of_row in zip(places, read, strict=True))
        return [self._known[key] for key in keys]


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
