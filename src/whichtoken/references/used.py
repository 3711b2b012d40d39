"""Which references a method used, from the details of its record: what it contrasted with, and what survived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whichtoken.records import Attribution
from whichtoken.references.library import Reference, ReferenceLibrary
from whichtoken.targets import Class, Contrast


@dataclass(frozen=True)
class UsedReference:
    """A reference, whether its map is one of those that were averaged, and the drop that decided it."""

    reference: Reference
    survived: bool
    drop: float | None


def used_references(library: ReferenceLibrary | None, record: Attribution) -> list[UsedReference]:
    """Return the references of a record, survivors first; none if it has no references, or those of another library.

    Details may come from a file, with anything in them.
    """
    details: Mapping[str, Any] = record.details
    if library is None or details.get("library") != library.digest or not isinstance(record.target, Class | Contrast):
        return []
    label, numbers = record.target.label, details.get("references")
    if not isinstance(label, int) or not 0 <= label < len(library.references) or not isinstance(numbers, list | tuple):
        return []
    stored = library.references[label]
    drops = details.get("drops")
    kept = _kept_places(record, numbers)
    used = [
        UsedReference(stored[number], place in kept, _number_at(drops, place))
        for place, number in enumerate(numbers)
        if _are_counts([number]) and number < len(stored)
    ]
    return sorted(used, key=lambda one: (not one.survived, -(one.drop or 0.0)))


def _kept_places(record: Attribution, numbers: Sequence[Any]) -> set[int]:
    """Return the places of the references whose maps were averaged: the survivors, or if none reached the threshold,
    what the method falls back to; without refinement, all.
    """
    survivors, drops = record.details.get("survivors"), record.details.get("drops")
    if isinstance(survivors, list | tuple) and survivors and _are_counts(survivors):
        return set(survivors)
    known = [_number_at(drops, place) for place in range(len(numbers))]
    best = max((drop for drop in known if drop is not None), default=None)
    if best is None or record.settings.get("fallback") != "best":
        return set(range(len(numbers)))
    return {place for place, drop in enumerate(known) if drop == best}


def _are_counts(values: Any) -> bool:
    return all(isinstance(value, int) and value >= 0 for value in values)


def _number_at(values: Any, place: int) -> float | None:
    found = values[place] if isinstance(values, list | tuple) and place < len(values) else None
    return float(found) if isinstance(found, int | float) else None
