"""Head masks as JSON files, and as strings. No torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from whichtoken.atomic_write import write_whole
from whichtoken.errors import BadArtifact, BadSetting
from whichtoken.heads.mask import HeadMask, HeadStatistics, Relation
from whichtoken.heads.rule import HeadRule
from whichtoken.settings import has_type

SCHEMA = 1  # raised when a field changes its meaning

_T = TypeVar("_T")


def save_heads(mask: HeadMask, path: str | Path) -> Path:
    """Written whole or not at all."""
    if not isinstance(mask, HeadMask):
        raise BadSetting("mask", type(mask).__name__, "a HeadMask; the path comes second")
    return write_whole(path, to_json(mask))


def read_heads(path: str | Path) -> HeadMask:
    """Any head mask, whatever its model; `load_heads` also checks that it fits."""
    if not isinstance(path, str | Path):
        raise BadSetting("path", type(path).__name__, "the path of a stored head mask")
    where = Path(path).expanduser()
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "not UTF-8") or error
        raise BadArtifact(f"{where} cannot be read: {reason}") from error
    try:
        return from_json(text)
    except BadArtifact as error:
        raise BadArtifact(f"{where}: {error}") from error


def to_json(mask: HeadMask) -> str:
    """One field on each line."""
    made = {"record": "HeadMask", "schema": SCHEMA, **asdict(mask)}
    lines = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False, allow_nan=False)}" for k, v in made.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> HeadMask:
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadArtifact(f"expected the JSON of one HeadMask, found {text[:40]!r}: {error}") from error
    made = (found.pop("record", None), found.pop("schema", None)) if isinstance(found, dict) else (None, None)
    if made != ("HeadMask", SCHEMA):
        raise BadArtifact(f"expected a HeadMask of schema {SCHEMA}, found {made[0]} of schema {made[1]}")
    mask = _made(HeadMask, found, {"rule": _rule, "statistics": _statistics})
    grids: dict[str, Any] = {"syntactic": mask.syntactic, "positional": mask.positional, "added": mask.added}
    shape = (len(mask.syntactic), len(mask.syntactic[0]) if mask.syntactic else 0)
    if mask.statistics is not None:
        grids |= {"offsets": mask.statistics.offsets, "offset_shares": mask.statistics.offset_shares}
        grids |= {f"shares of {r.name}": r.shares for r in mask.statistics.relations}
    for name, grid in grids.items():
        if 0 in shape or len(grid) != shape[0] or any(len(row) != shape[1] for row in grid):
            raise BadArtifact(f"HeadMask: {name} has not one value for each of {shape[0]} x {shape[1]} heads")
    return mask


def _rule(found: Any) -> HeadRule:
    return _made(HeadRule, found)


def _statistics(found: Any) -> HeadStatistics | None:
    return None if found is None else _made(HeadStatistics, found, {"relations": _relations})


def _relations(found: Any) -> tuple[Relation, ...]:
    if not isinstance(found, list):
        raise BadArtifact(f"HeadStatistics: relations is {found!r:.60}, expected a list")
    return tuple(_made(Relation, one) for one in found)


def _made(cls: type[_T], found: Any, parts: Mapping[str, Any] | None = None) -> _T:
    """`parts`: how fields are read that are not plain values."""
    hints = get_type_hints(cls)
    if not isinstance(found, dict) or set(found) != set(hints):
        wrong = sorted(set(found) ^ set(hints)) if isinstance(found, dict) else f"in {found!r:.60}"
        raise BadArtifact(f"{cls.__name__}: fields {wrong} are missing or not known")
    values = {name: (parts or {}).get(name, _frozen)(value) for name, value in found.items()}
    for name, value in values.items():
        if not has_type(value, hints[name]):
            raise BadArtifact(f"{cls.__name__}: {name} is {value!r:.60}, expected {hints[name]}")
    return cls(**values)


def _refuse(constant: str) -> None:
    raise BadArtifact(f"a HeadMask holds {constant}; numbers must be finite")


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
