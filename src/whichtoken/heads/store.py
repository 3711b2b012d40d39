"""Head masks as JSON files and strings. No torch."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.boundary import while_reading
from whichtoken.checks import check_count_fields, check_counts, check_shares, require
from whichtoken.decode import decode_record, parse_json, read_json
from whichtoken.errors import BadArtifact, BadSetting
from whichtoken.heads.mask import HeadMask, HeadStatistics
from whichtoken.heads.rule import HeadRule
from whichtoken.identity import add_missing
from whichtoken.settings import check_settings

SCHEMA = 1  # increased when the meaning of a field changes


def save(mask: HeadMask, path: str | Path) -> Path:
    """Write a mask to a JSON file, atomically."""
    if not isinstance(mask, HeadMask):
        raise BadSetting("mask", type(mask).__name__, "a HeadMask; the path comes second")
    return write_whole(path, to_json(mask))


def read(path: str | Path) -> HeadMask:
    """Read a head mask of any model; `heads.load` also checks the model."""
    if not isinstance(path, str | Path):
        raise BadSetting("path", type(path).__name__, "the path of a stored head mask")
    where = Path(path).expanduser()
    document = read_json(where)
    with while_reading(where):
        return _decode_mask(document)


def to_json(mask: HeadMask) -> str:
    """Return the mask as JSON with one field per line."""
    fields = {"record": "HeadMask", "schema": SCHEMA, **asdict(mask)}
    lines = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False, allow_nan=False)}" for k, v in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> HeadMask:
    return _decode_mask(parse_json(text, "the JSON of one HeadMask"))


def _decode_mask(document: Any) -> HeadMask:
    mask = decode_record(HeadMask, add_missing(document), SCHEMA)
    with while_reading("HeadMask"):
        check_settings(HeadRule, "HeadMask: rule", vars(mask.rule))
        _check_grids(mask)
        if mask.statistics is not None:
            _check_statistics(mask.statistics)
    return mask


def _check_grids(mask: HeadMask) -> None:
    grids: dict[str, Any] = {"syntactic": mask.syntactic, "positional": mask.positional, "added": mask.added}
    shape = (len(mask.syntactic), len(mask.syntactic[0]) if mask.syntactic else 0)
    if mask.statistics is not None:
        grids |= {"offsets": mask.statistics.offsets, "offset_shares": mask.statistics.offset_shares}
        grids |= {f"shares of {r.name}": r.shares for r in mask.statistics.relations}
    for name, grid in grids.items():
        if 0 in shape or len(grid) != shape[0] or any(len(row) != shape[1] for row in grid):
            raise BadArtifact(f"HeadMask: {name} must have one value for each of {shape[0]} x {shape[1]} heads")
    for name in ("syntactic", "positional"):
        for row in grids[name]:
            check_counts(f"HeadMask: {name}", row)


def _check_statistics(statistics: HeadStatistics) -> None:
    counts = ("n_sentences", "n_cut", "n_empty", "n_words", "n_unaligned", "n_tokens")
    check_count_fields("HeadMask: statistics", {name: getattr(statistics, name) for name in counts})
    for row in statistics.offset_shares:
        check_shares("HeadMask: offset_shares", row)
    for relation in statistics.relations:
        name = f"HeadMask: {relation.name}"
        check_count_fields(name, {"n_found": relation.n_found, "n_measured": relation.n_measured})
        require(relation.n_measured <= relation.n_found, f"{name}: more occurrences were measured than found")
        check_shares(f"{name}: position_share", [relation.position_share])
        for row in relation.shares:
            check_shares(f"{name}: shares", row)
