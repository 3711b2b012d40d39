"""Head masks as JSON files and strings. No torch."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.decode import decode_record, parse_json, read_json
from whichtoken.errors import BadArtifact, BadSetting
from whichtoken.heads.mask import HeadMask

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
    try:
        return _decode_mask(document)
    except BadArtifact as error:
        raise BadArtifact(f"{where}: {error}") from error


def to_json(mask: HeadMask) -> str:
    """Return the mask as JSON with one field per line."""
    fields = {"record": "HeadMask", "schema": SCHEMA, **asdict(mask)}
    lines = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False, allow_nan=False)}" for k, v in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> HeadMask:
    return _decode_mask(parse_json(text, "the JSON of one HeadMask"))


def _decode_mask(document: Any) -> HeadMask:
    mask = decode_record(HeadMask, document, SCHEMA)
    grids: dict[str, Any] = {"syntactic": mask.syntactic, "positional": mask.positional, "added": mask.added}
    shape = (len(mask.syntactic), len(mask.syntactic[0]) if mask.syntactic else 0)
    if mask.statistics is not None:
        grids |= {"offsets": mask.statistics.offsets, "offset_shares": mask.statistics.offset_shares}
        grids |= {f"shares of {r.name}": r.shares for r in mask.statistics.relations}
    for name, grid in grids.items():
        if 0 in shape or len(grid) != shape[0] or any(len(row) != shape[1] for row in grid):
            raise BadArtifact(f"HeadMask: {name} must have one value for each of {shape[0]} x {shape[1]} heads")
    return mask
