"""Parts of a job: each is a pure function of its rows, named after them, written whole, and hashed. No torch.

Benchmarks and corpus jobs share this. A killed job loses only the parts that it was working on; the same job, started
again in the same folder, keeps the finished parts and ends with the same content.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import clear_abandoned, write_whole
from whichtoken.decode import read_json
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.identity import UNCHECKED

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]

LOCK = ".whichtoken-lock"


@dataclass(frozen=True)
class PartFiles:
    """The finished parts in a folder, one file each, named by the numbers of its first and last row."""

    folder: Path
    ending: str  # ".json" or ".parquet"
    kind: str  # what they are parts of: "a benchmark"
    fix: str  # what to do about a damaged part

    def path(self, first: int, last: int) -> Path:
        return self.folder / f"{first:06d}-{last:06d}{self.ending}"

    def paths(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"*{self.ending}") if not path.name.startswith("."))

    def longest(self, first: int, last: int) -> tuple[int, Path] | None:
        """Return the longest part that starts at `first` and ends by `last`, as its last row and its file."""
        ends = {end: path for path in self.paths() for start, end in [self.read_range(path)] if start == first}
        fitting = [end for end in ends if end <= last]
        return (max(fitting), ends[max(fitting)]) if fitting else None

    def check_known(self, known: Collection[tuple[int, int]]) -> None:
        """Raise BadArtifact if the folder holds a part that is none of the job's."""
        for path in self.paths():
            if self.read_range(path) not in known:
                raise BadArtifact(f"{path} is not a part of this job; move it elsewhere")

    def read_range(self, path: Path) -> tuple[int, int]:
        """Return the first and last number in the name of a part."""
        name = re.fullmatch(rf"([0-9]{{6,12}})-([0-9]{{6,12}}){re.escape(self.ending)}", path.name)
        first, last = map(int, name.groups()) if name else (1, 0)
        if last < first:
            example = f"000000-000015{self.ending}"
            raise BadArtifact(f"{path} is not a part of {self.kind}: parts are named like {example}; {self.fix}")
        return first, last


def hash_content(content: Any) -> str:
    """Return a hash of plain data, independent of the layout of its JSON; ValueError if a number is not finite."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def seal(content: Mapping[str, Any]) -> str:
    """Return the JSON of a part with the hash of its content; ValueError if a number is not finite."""
    return json.dumps({"sha256": hash_content(content), **content}, ensure_ascii=False, allow_nan=False)


def unseal(stored: Any) -> tuple[Any, str | None]:
    """Return the content of a sealed part, and the hash that it claims to have, if any."""
    claimed = stored.pop("sha256", None) if isinstance(stored, dict) else None
    return stored, claimed


def check_hash(path: Path, claimed: str | None, found: str, fix: str) -> None:
    """Raise BadArtifact unless a part still has the content that it was saved with."""
    if claimed is None:
        rerun = f"delete the folder {path.parent} and run again"
        raise BadArtifact(f"{path} has no sha256: an older version wrote it, or it was changed; {rerun}")
    if claimed != found:
        raise BadArtifact(f"{path} was changed after it was saved: its content does not match its sha256; {fix}")


@dataclass(frozen=True)
class Claim:
    """What a job wants to do in a folder: its specification, and entries that may differ when it is resumed."""

    file: str  # that holds the specification
    schema: int
    kind: str  # "benchmark", "corpus job"
    parts: str  # the folder of its parts
    spec: Mapping[str, Any]
    size: Mapping[str, Any]

    def take(self, folder: Path) -> None:
        """Start the job in the folder, or resume it if the specification is the same; UsageError if it differs."""
        self.check(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({**self._requested(), **self.size}, indent=1, ensure_ascii=False)
            write_whole(folder / self.file, text + "\n")
            (folder / self.parts).mkdir(exist_ok=True)
            clear_abandoned(folder / self.parts)
        except OSError as error:
            raise UsageError(f"{folder} cannot be created: {error.strerror or error}") from error

    def check(self, folder: Path) -> None:
        """Raise UsageError if the folder holds another job, or other files."""
        where = folder / self.file
        if where.exists():
            self._compare(read_spec(where, self.kind, self.schema), self._requested(), folder)
        elif folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file; give the name of a folder")
        elif folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise UsageError(f"{folder} holds other files; choose an empty or new folder")

    def _requested(self) -> dict[str, Any]:
        """Return the specification as JSON gives it back."""
        requested: dict[str, Any] = json.loads(json.dumps({"schema": self.schema, **self.spec}))
        return requested

    def _compare(self, stored: Mapping[str, Any], requested: Mapping[str, Any], folder: Path) -> None:
        size = self.size
        differing = [k for k in sorted(requested.keys() | stored.keys() - size) if stored.get(k) != requested.get(k)]
        if "processor" in requested and "processor" not in stored:
            raise UsageError(
                f"{folder} holds a {self.kind} {UNCHECKED}, so it cannot be resumed; choose another folder"
            )
        if differing:
            changes = "; ".join(f"{k} was {stored.get(k)!r:.60}, now {requested.get(k)!r:.60}" for k in differing)
            raise UsageError(f"{folder} holds another {self.kind} ({changes}); choose another folder")


def read_spec(path: Path, kind: str, schema: int) -> dict[str, Any]:
    spec = read_json(path)
    if not isinstance(spec, dict) or spec.get("schema") != schema:
        raise BadArtifact(f"{path} is not a {kind} specification of schema {schema}")
    return spec


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a folder; the lock ends with its process. UsageError if another holds it."""
    if fcntl is None:
        yield
        return
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another process is working in {folder}; wait for it, or choose another folder"
            ) from error
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        with suppress(OSError):
            os.close(lock)
