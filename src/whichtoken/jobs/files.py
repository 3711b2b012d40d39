"""The texts of a corpus: many files of rows, cut into blocks that each become one part of the job. No torch.

Files of every kind are read once, by the driver, which writes blocks of checked rows. Workers read only their blocks,
so that a part is a function of its block alone, whatever the engine and whatever kind of file the rows came from.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from glob import glob, has_magic
from itertools import islice
from math import isfinite, isnan
from pathlib import Path
from time import monotonic
from typing import Any

from whichtoken.atomic_write import clear_abandoned, open_whole, write_whole
from whichtoken.boundary import while_reading
from whichtoken.data.examples import Columns, TextExample, check_texts, read_rows
from whichtoken.data.sources import KINDS, BadRow, DataFile, expand_path
from whichtoken.decode import decode, read_json
from whichtoken.errors import BadArtifact, BadInput, BadSetting, UsageError
from whichtoken.flat import check_parquet
from whichtoken.jobs.parts import PartFiles, hash_content

BLOCKS, INDEX = ".blocks", "index.json"  # hidden: an unfinished job's own files
SCHEMA = 1
FIX = "delete the folder of blocks and run again"
SAY_EVERY = 30.0  # seconds


@dataclass(frozen=True)
class CorpusFiles:
    """The files of a corpus and their columns, as requested."""

    patterns: tuple[str, ...]  # paths, or patterns such as "reviews/*.parquet"
    columns: tuple[str, ...] = ()  # of the text, or of the two texts of a pair; (): the usual names
    label: str | None = None
    id: str | None = None
    keep: tuple[str, ...] = ()
    delimiter: str | None = None
    input_format: str | None = None
    outside: str | None = None  # patterns match no file in this folder: that of the job itself

    @classmethod
    def of(cls, files: "CorpusFiles | str | Path | Iterable[str | Path]", out: Path) -> "CorpusFiles":
        """Return the files of a job that writes to `out`, which may lie below the folder of its data."""
        if not isinstance(files, CorpusFiles):
            files = cls((str(files),) if isinstance(files, str | Path) else tuple(map(str, files)))
        return replace(files, outside=str(out.resolve()))

    def __post_init__(self) -> None:
        if not self.patterns:
            raise BadInput("there are no files; give paths, or patterns such as 'reviews/*.parquet'")
        if self.input_format not in (None, *KINDS):
            raise BadSetting("input_format", self.input_format, f"one of {', '.join(KINDS)}")

    def find(self) -> list[Path]:
        """Return the files in the order of their names, each once; BadInput if a pattern matches none."""
        found: dict[Path, None] = {}
        for pattern in self.patterns:
            path = expand_path(pattern)
            is_name = path.exists() or not has_magic(str(path))  # a file may be called "reviews [1].csv"
            matched = [path] if is_name else self._match(path)
            if path.is_dir():
                raise BadInput(f"{pattern} is a folder; give its files by a pattern such as '{path / '*.parquet'}'")
            if not matched or not all(match.exists() for match in matched):
                kind = "file is named" if is_name else "file matches"
                raise BadInput(f"no {kind} {pattern}; give paths, or patterns such as 'reviews/*.parquet'")
            found |= dict.fromkeys(matched)
        return list(found)

    def _match(self, pattern: Path) -> list[Path]:
        files = (path for path in sorted(map(Path, glob(str(pattern), recursive=True))) if not path.is_dir())
        own = None if self.outside is None else Path(self.outside)
        return [path for path in files if own is None or own not in path.resolve().parents]

    def make_absolute(self) -> "CorpusFiles":
        """Return the same files for workers that run in another folder."""
        return replace(self, patterns=tuple(str(expand_path(pattern).absolute()) for pattern in self.patterns))

    @property
    def names(self) -> Columns:
        return Columns(self.columns or None, self.label, self.id, self.keep)


@dataclass(frozen=True)
class BlockRow:
    """One row of a corpus: its texts and what is known about it, or the reason why it cannot be used."""

    row: int  # in the corpus, from 0: unique
    file: str
    line: int  # in the file, as in messages
    texts: tuple[str, ...] = ()
    label: Any = None
    id: str | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    def example(self, label_is_given: bool) -> TextExample:
        where = f"{self.file}, row {self.line}"
        return TextExample(self.texts, self.label, where, self.row, self.id, self.columns, label_is_given)


@dataclass(frozen=True)
class BlockIndex:
    """Where the blocks of a corpus begin and end, what they hold, and from which files they were read."""

    stamp: dict[str, Any]  # files with size and time of change, columns and rows per block
    digest: str  # of all rows
    n_rows: int
    n_unusable: int
    ranges: tuple[tuple[int, int], ...]
    hashes: tuple[str, ...]


def block_files(folder: Path) -> PartFiles:
    return PartFiles(folder / BLOCKS, ".parquet", "a corpus", FIX)


def make_stamp(files: CorpusFiles, rows_per_part: int) -> dict[str, Any]:
    """Return what shows, without reading the files, whether blocks are still those of the files."""
    if rows_per_part < 1:
        raise BadSetting("rows_per_part", rows_per_part, "at least 1")
    states = [(path, path.stat()) for path in files.find()]
    listed = [[str(path), state.st_size, state.st_mtime_ns] for path, state in states]
    return json.loads(json.dumps({"files": listed, "rows_per_part": rows_per_part, **asdict(files)}))  # type: ignore[no-any-return]


def read_index(folder: Path, stamp: dict[str, Any]) -> BlockIndex | None:
    """Return the index of blocks that were made before from the same files; None if there are none."""
    path = folder / BLOCKS / INDEX
    if not path.is_file():
        return None
    stored = read_json(path)
    if not isinstance(stored, dict) or stored.pop("schema", None) != SCHEMA:
        return None
    try:
        index = decode(BlockIndex, stored)
    except BadArtifact:  # the blocks are made again
        return None
    return index if index.stamp == stamp else None


def write_blocks(
    files: CorpusFiles, folder: Path, rows_per_part: int, say: Callable[[str], None] = lambda line: None
) -> BlockIndex:
    """Read every row once, check it, and write blocks; the index comes last. BadInput if no row can be used.

    `say` is told every half minute how many rows were read.
    """
    check_parquet()
    stamp, into = make_stamp(files, rows_per_part), block_files(folder)
    try:
        into.folder.mkdir(parents=True, exist_ok=True)
        clear_abandoned(into.folder)
        (into.folder / INDEX).unlink(missing_ok=True)  # of blocks that are overwritten
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    rows, ranges, hashes, n_unusable, first_problem = read_corpus(files), [], [], 0, ""
    said = monotonic()
    while block := list(islice(rows, rows_per_part)):
        first, last = block[0].row, block[-1].row
        problems = [f"{row.file}, row {row.line}: {row.problem}" for row in block if row.problem is not None]
        n_unusable, first_problem = n_unusable + len(problems), first_problem or "".join(problems[:1])
        _write_block(block, into.path(first, last))
        ranges.append((first, last))
        hashes.append(_hash_block(block))
        if monotonic() - said >= SAY_EVERY:
            said = monotonic()
            say(f"{last + 1:,} rows read")
    n_rows = ranges[-1][1] + 1 if ranges else 0
    if n_unusable == n_rows:
        why = (
            f"none of the {n_rows:,} rows can be used; the first is {first_problem}" if n_rows else "there are no rows"
        )
        raise BadInput(f"{', '.join(files.patterns):.100}: {why}")
    digest = hashlib.sha256("".join(hashes).encode()).hexdigest()
    index = BlockIndex(stamp, digest, n_rows, n_unusable, tuple(ranges), tuple(hashes))
    write_whole(into.folder / INDEX, json.dumps({"schema": SCHEMA, **asdict(index)}))
    return index


def read_corpus(files: CorpusFiles) -> Iterator[BlockRow]:
    """Yield every row of every file in order; rows that cannot be used carry the reason."""
    number = 0
    for path in files.find():
        bad: list[BadRow] = []
        file = DataFile(path, files.input_format, files.delimiter, bad.append)
        for example in read_rows(file, files.names):
            yield from _unusable(bad, str(path), number)
            number += len(bad)
            bad.clear()
            yield _check_row(example, str(path), number)
            number += 1
        yield from _unusable(bad, str(path), number)
        number += len(bad)


def _check_row(example: TextExample, file: str, number: int) -> BlockRow:
    line = -1 if example.row is None else example.row
    try:
        check_texts(example.texts, example.where)
    except BadInput as error:
        return BlockRow(number, file, line, id=example.id, problem=BadRow(line, example.where, error).reason)
    return BlockRow(number, file, line, example.texts, _as_plain(example.label), example.id, dict(example.columns))


def _unusable(bad: Sequence[BadRow], file: str, number: int) -> Iterator[BlockRow]:
    for place, row in enumerate(bad, number):
        yield BlockRow(place, file, -1 if row.row is None else row.row, problem=row.reason)


def _as_plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    if isinstance(value, float) and not isfinite(value):
        return None if isnan(value) else str(value)  # NaN is how pandas writes a missing label
    return value if isinstance(value, str | int | float | None) else str(value)


def _write_block(rows: Sequence[BlockRow], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    packed = [
        {
            "row": row.row,
            "file": row.file,
            "line": row.line,
            "texts": list(row.texts),
            "label": json.dumps(row.label),
            "id": row.id,
            "columns": json.dumps(row.columns, ensure_ascii=False),
            "problem": row.problem,
        }
        for row in rows
    ]
    texts = pa.list_(pa.string())
    types = {"row": pa.int64(), "line": pa.int64(), "texts": texts}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in packed[0]])
    with open_whole(path, tidy=False) as file:
        parquet.write_table(pa.Table.from_pylist(packed, schema), file, compression="zstd")


def read_block_table(path: Path) -> Any:
    """Return a block as an Arrow table."""
    from pyarrow import parquet

    if not path.is_file():
        raise BadArtifact(
            f"there is no file {path} here; on a cluster, --out must be a folder that every node can reach"
        )
    with while_reading(path):
        return parquet.read_table(path, partitioning=None)


def parse_block(table: Any, expected_hash: str, path: object) -> list[BlockRow]:
    """Return the rows of a block; BadArtifact if they are not those that the index describes."""
    with while_reading(path):
        rows = [
            BlockRow(
                **{
                    **packed,
                    "texts": tuple(packed["texts"]),
                    "label": json.loads(packed["label"]),
                    "columns": json.loads(packed["columns"]),
                }
            )
            for packed in table.to_pylist()
        ]
    if _hash_block(rows) != expected_hash:
        raise BadArtifact(f"{path} does not hold the rows that were written there; {FIX}")
    return rows


def _hash_block(rows: Sequence[BlockRow]) -> str:
    return hash_content(
        [(r.row, r.file, r.line, r.texts, r.label, r.id, r.columns, r.problem) for r in rows]  # asdict copies deeply
    )
