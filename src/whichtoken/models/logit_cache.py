"""Logit cache: what objectives read from the logits of a sequence; each sequence is evaluated once."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whichtoken.core.objectives import Objective
from whichtoken.core.rows import Row, Rows
from whichtoken.errors import NotFinite
from whichtoken.models.encoding import batches
from whichtoken.models.subject import Subject


@dataclass
class EvaluationCount:
    """How many sequences were requested, and how many of them the model had to evaluate."""

    asked: int = 0
    evaluated: int = 0


@dataclass(frozen=True)
class LogitCache:
    """A cache shared by methods, classes, orders and metrics that evaluate the same inputs. Create one per few inputs.

    It stores only what the objective reads from each sequence, because all logits of every token may not fit in memory.
    """

    subject: Subject
    tally: EvaluationCount = field(default_factory=EvaluationCount, compare=False)
    _known: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", self.subject.with_twin())

    def probability(self, rows: Rows, objective: Objective) -> Tensor:
        """Return the probability of each row, in float64; `objective` is resolved for as many rows.

        Probabilities near 1 differ less than float32 can tell apart, so a choice between them would depend on rounding.
        """
        if not rows:
            return torch.empty(0, dtype=_wide(self.subject.device), device=self.subject.device)
        return objective.probability(torch.stack(self.read(rows, objective)).to(_wide(self.subject.device)))

    def log_odds(self, rows: Rows, objective: Objective) -> Tensor:
        """Return the log-odds, or the predicted value, of each row, in float64; there must be at least one row."""
        return objective.log_odds(torch.stack(self.read(rows, objective)))

    def read(self, rows: Rows, objective: Objective) -> list[Tensor]:
        """Return what the objective reads from each row; half precision is widened, as too coarse for differences.

        Each row is read once for its key and, if it has to be evaluated, once for its batch; none is kept.
        """
        keys, lengths = list[Hashable](), list[int]()
        for i in range(len(rows)):
            row = self._row(rows, i)
            keys.append((row.key, objective.cache_key(i)))
            lengths.append(len(row))
        first: dict[Hashable, int] = {}
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        new = [i for key, i in first.items() if key not in self._known]
        self.tally.asked += len(rows)
        self.tally.evaluated += len(new)
        for group in batches([lengths[i] for i in new], self.subject.fits):
            indices = [new[i] for i in group]
            logits = self.subject.logits(self.subject.batch([self._row(rows, i) for i in indices]))
            if not logits.isfinite().all():
                raise NotFinite(f"{self.subject.title} gives NaN or infinite logits for an input with parts removed")
            of_group = objective.rows(torch.tensor(indices, device=logits.device))
            read = of_group.read(_widen(logits))
            self._known.update((keys[i], of_row) for i, of_row in zip(indices, read, strict=True))
        return [self._known[key] for key in keys]

    def _row(self, rows: Rows, place: int) -> Row:
        row = rows[place]
        return row if len(row) else self.subject.empty_row


def _wide(device: torch.device) -> torch.dtype:
    """Return float64; Apple's GPUs have no such type."""
    return torch.float32 if device.type == "mps" else torch.float64


def _widen(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
