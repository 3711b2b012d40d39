"""The manifest of a finished corpus job. No torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.boundary import while_reading
from whichtoken.decode import decode_record, read_json
from whichtoken.errors import UsageError
from whichtoken.jobs.shards import MANIFEST, SCHEMA


@dataclass(frozen=True)
class CorpusManifest:
    """A finished job: its specification, what made it, and what it holds."""

    version: str  # of whichtoken
    spec_sha256: str
    spec: Mapping[str, Any]
    model: str
    revision: str  # see Identity; the specification has both fields
    n_rows: int
    n_explained: int
    n_failed: int
    n_results: int
    n_tokens: int
    shards: tuple[tuple[str, str], ...]  # name, hash of the content


def write_manifest(folder: Path, manifest: CorpusManifest) -> None:
    document = {"record": "CorpusManifest", "schema": SCHEMA, **asdict(manifest)}
    write_whole(folder / MANIFEST, json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def read_manifest(folder: str | Path) -> CorpusManifest:
    """Return the manifest of a finished job."""
    path = Path(folder).expanduser() / MANIFEST
    if not path.is_file():
        raise UsageError(f"there is no finished corpus job in {folder}; run whichtoken corpus explain --out {folder}")
    with while_reading(path):
        return decode_record(CorpusManifest, read_json(path), SCHEMA)
