"""Logit cache: what picks read from the logits of a sequence; each sequence is evaluated once."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from whichtoken.core.picks import Picks
from whichtoken.core.rows import Row, Rows
from whichtoken.errors import NotFinite
from whichtoken.models.subject import Subject

LOGITS_PER_BATCH = 2**25  # 128 MB in float32


@dataclass
class EvaluationCount:
    """How many sequences were requested, and how many of them the model had to evaluate."""

    asked: int = 0
    evaluated: int = 0


@dataclass(frozen=True)
class LogitCache:
    """A cache shared by methods, classes, orders and metrics that evaluate the same inputs. Create one per few inputs.

    It stores only what is picked of each sequence, because all logits of every token may not fit in memory.
    """

    subject: Subject
    tally: EvaluationCount = field(default_factory=EvaluationCount, compare=False)
    _known: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", self.subject.with_twin())

    def probability(self, rows: Rows, picks: Picks) -> Tensor:
        """Return the probability of each row, in float64; `picks` are of as many rows.

        Probabilities near 1 differ less than float32 can tell apart, so a choice between them would depend on rounding.
        """
        if not rows:
            return torch.empty(0, dtype=_wide(self.subject.device), device=self.subject.device)
        return picks.tracked(torch.stack(self.read(rows, picks)).to(_wide(self.subject.device)))

    def log_odds(self, rows: Rows, picks: Picks) -> Tensor:
        """Return the log-odds, or the predicted value, of each row, in float64; there must be at least one row."""
        return picks.log_odds(torch.stack(self.read(rows, picks)))

    def read(self, rows: Rows, picks: Picks) -> list[Tensor]:
        """Return what is read of each row; half precision is widened, as too coarse for differences."""
        self.tally.asked += len(rows)
        (keys,) = self.fill([(rows, picks)])
        return [self._known[key] for key in keys]

    def fill(self, requests: Sequence[tuple[Rows, Picks]]) -> list[list[Hashable]]:
        """Evaluate rows of several inputs in the same batches, and return the key of each row of each request.

        Each row is read once for its key and, if it has to be evaluated, once for its batch; none is kept.
        """
        keys: list[list[Hashable]] = []
        new: dict[Hashable, _NewRow] = {}
        for number, (rows, picks) in enumerate(requests):
            keys.append([])
            for place in range(len(rows)):
                row = self._row(rows, place)
                keys[-1].append(key := (row.key, picks.key(place)))
                if key not in self._known:
                    image = None if row.image is None else tuple(row.image.pixels.shape)
                    new.setdefault(key, _NewRow(number, place, len(row), image, row.tail))
        self.tally.evaluated += len(new)
        for same_size in _group_by_size(new):
            fits = self._fits(max(new[key].tail for key in same_size))
            for group in self.subject.batches([new[key].length for key in same_size], fits):
                self._evaluate([same_size[i] for i in group], new, requests)
        return keys

    def _fits(self, tail: int) -> Callable[[int, int], bool]:
        """Return whether a batch may have some size; the logits of a whole vocabulary limit it, too."""
        words = tail * self.subject.n_logits
        return lambda rows, longest: self.subject.fits(rows, longest) and rows * words <= LOGITS_PER_BATCH

    def _evaluate(
        self, keys: Sequence[Hashable], new: "Mapping[Hashable, _NewRow]", requests: Sequence[tuple[Rows, Picks]]
    ) -> None:
        rows = [self._row(requests[new[key].request][0], new[key].place) for key in keys]
        logits = self.subject.logits(self.subject.batch(rows))
        if not logits.isfinite().all():
            raise NotFinite(f"{self.subject.title} gives NaN or infinite logits for an input with parts removed")
        for request in dict.fromkeys(new[key].request for key in keys):
            members = [i for i, key in enumerate(keys) if new[key].request == request]
            places = torch.tensor([new[keys[i]].place for i in members], device=logits.device)
            read = requests[request][1].rows(places).read(_widen(logits[members]))
            self._known.update((keys[i], of_row) for i, of_row in zip(members, read, strict=True))

    def _row(self, rows: Rows, place: int) -> Row:
        """Return a row; if nothing precedes its answer, or it is empty, with a first token that a model can read."""
        row = rows[place]
        if len(row) > row.tail:
            return row
        start = self.subject.empty_row
        ids, types, special = (getattr(start, name) + getattr(row, name) for name in ("ids", "types", "special"))
        return replace(row, ids=ids, types=types, special=special)


@dataclass(frozen=True)
class _NewRow:
    """A row that is not known: of which request, at which place, how long, the size of its image, if it has
    one, and how many tokens its answer has."""

    request: int
    place: int
    length: int
    image: tuple[int, ...] | None
    tail: int


def _group_by_size(new: Mapping[Hashable, _NewRow]) -> list[list[Hashable]]:
    """Group images of the same size, which can be stacked; texts form one group, because they are padded."""
    sizes: dict[tuple[int, ...] | None, list[Hashable]] = {}
    for key, row in new.items():
        sizes.setdefault(row.image, []).append(key)
    return list(sizes.values())


def _wide(device: torch.device) -> torch.dtype:
    """Return float64; Apple's GPUs have no such type."""
    return torch.float32 if device.type == "mps" else torch.float64


def _widen(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
