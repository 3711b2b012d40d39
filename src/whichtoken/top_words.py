"""`remove_top` measures what remains of an output without the words that support it most."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import index

import numpy as np
import torch

from whichtoken.core.picks import Picks
from whichtoken.core.rows import Row
from whichtoken.errors import BadSetting
from whichtoken.models import LogitCache
from whichtoken.records import Attribution
from whichtoken.tasks import Opened, Task
from whichtoken.trust import Removal

LEVEL = "word"


@dataclass(frozen=True)
class _Shortened:
    """What remains of one record's input without its strongest word, the two strongest, and so on."""

    tokens: Sequence[tuple[int, ...]]  # that are removed
    rows: Sequence[Row]
    picks: Picks  # of these rows


def check_count(task: Task, count: int) -> int:
    """Return how many words to remove; BadSetting if that is no such number, or the inputs have no words."""
    try:
        number = -1 if isinstance(count, bool) else index(count)
    except TypeError:
        number = -1
    if number < 0:
        raise BadSetting("remove_top", count, "a number of words, or 0 for none")
    if number and LEVEL not in task.levels:
        raise BadSetting("remove_top", count, f"0: {task.unit}s have no words that can be removed")
    return number


def remove_top(task: Task, records: Sequence[Attribution], count: int) -> list[Attribution]:
    """Return the records with `removals`: without the strongest word, the two strongest, up to `count`.

    Only words that support the label, or raise the value, are removed, so there may be fewer steps, or none. The
    remainders of all records are evaluated together, in batches of similar length, and equal ones once. A record that
    is a mean over windows stays as it is, because no single pass read its input.
    """
    opened: dict[Hashable, Opened] = {}
    wanted: list[_Shortened | None] = []
    for record in records:
        key = (record.texts, record.tokens, record.target)
        if record.n_windows == 1 and key not in opened:
            opened[key] = task.reopen(record)
        wanted.append(_remove(task, record, opened[key], count) if key in opened else None)
    cache = LogitCache(task.subject)
    _evaluate(cache, [remainders for remainders in wanted if remainders is not None])
    return [_record(cache, *pair) for pair in zip(records, wanted, strict=True)]


def _remove(task: Task, record: Attribution, opened: Opened, count: int) -> _Shortened | None:
    """Return the rows that remain, or None if no word supports the label. Ties are broken by position."""
    units = sorted(task.units(record, LEVEL), key=lambda unit: -unit.score)
    strongest = [unit for unit in units if unit.score > 0][:count]
    if not strongest:
        return None
    kept, how = np.ones((len(strongest), opened.n_elements), dtype=bool), task.removal(None)
    for step, unit in enumerate(strongest):
        kept[step:, list(unit.elements)] = False
    picks = opened.picks.rows(torch.zeros(len(kept), dtype=torch.long, device=task.subject.device))
    if how.shortens:
        picks = picks.after_removal(torch.from_numpy(kept).to(task.subject.device))
    removed = [tuple(np.flatnonzero(~pattern).tolist()) for pattern in kept]
    return _Shortened(removed, [how(opened.row, pattern) for pattern in kept], picks)


def _evaluate(cache: LogitCache, wanted: Sequence[_Shortened]) -> None:
    """Fill the cache. Rows of which the same is read are batched together: for classifiers, all of them."""
    alike: dict[Hashable, list[tuple[_Shortened, int]]] = {}
    for remainders in wanted:
        for place in range(len(remainders.rows)):
            alike.setdefault(remainders.picks.key(place), []).append((remainders, place))
    for places in alike.values():
        remainders, place = places[0]
        repeated = torch.full((len(places),), place, device=cache.subject.device)
        cache.read([some.rows[i] for some, i in places], remainders.picks.rows(repeated))


def _record(cache: LogitCache, record: Attribution, remainders: _Shortened | None) -> Attribution:
    if remainders is None:
        return record
    outputs = cache.probability(remainders.rows, remainders.picks).tolist()
    return replace(record, removals=tuple(map(Removal, remainders.tokens, outputs)))
