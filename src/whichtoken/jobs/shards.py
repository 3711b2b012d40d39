"""Shards: the explanations of one part of a corpus as a Parquet file that describes itself. No torch.

docs/scaling.md documents the columns. A shard also lists the rows of its part that failed, so that a part is one file.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import open_whole
from whichtoken.boundary import while_reading
from whichtoken.checks import require
from whichtoken.decode import decode, parse_json
from whichtoken.errors import BadArtifact
from whichtoken.flat import check_parquet, name_kept
from whichtoken.jobs.parts import PartFiles, check_hash, hash_content
from whichtoken.records import Attribution

SCHEMA = 1  # increased when a column changes its name, type or meaning
SHARDS, FAILURES, MANIFEST = "shards", "failures.parquet", "manifest.json"
AT_ONCE = 256  # results that are Python objects at a time
KEY = b"whichtoken"  # of the description in the file's metadata
FIX = "delete this file and run again, and these rows are explained again"
# The columns and their types. Kept columns follow, as texts.
COLUMNS = {
    "row": "int64",  # in the corpus, from 0: files in order, rows in order
    "file": "string",
    "line": "int64",  # in the file: the line of a text file, else counted from 0
    "id": "string",
    "text_hash": "string",  # the first 16 hexadecimal digits of the SHA-256 of the texts, joined by a zero byte
    "texts": "list<string>",  # one or two; null if texts are not stored
    "gold": "string",
    "result": "int32",  # number of the result of this row, from 0: a text may have several entities
    "label": "string",  # what is explained
    "probability": "float64",  # of the label
    "value": "float64",  # of a regression model
    "predicted": "string",
    "correct": "bool",
    "n_tokens": "int32",  # that the model read, special tokens included
    "n_cut": "int32",
    "method": "string",
    "words": "list<string>",
    "text_of_word": "list<int32>",  # 0, or 1 for words of the second text
    "starts": "list<int32>",  # characters in that text
    "ends": "list<int32>",
    "scores": "list<float32>",
    "low": "list<float32>",  # bounds of the scores; null for methods without them
    "high": "list<float32>",
    "additivity": "float64",
    "settings_hash": "string",  # of method and settings, as in the manifest
}
LISTS = ("words", "text_of_word", "starts", "ends", "scores")  # of a result, of the same length
KNOWN = ("row", "result", "label", "method", *LISTS)  # columns in which nothing is null
FAILURE_COLUMNS = {"row": "int64", "file": "string", "line": "int64", "id": "string", "reason": "string"}


@dataclass(frozen=True)
class FailedRow:
    """A row that could not be explained, and why."""

    row: int
    file: str
    line: int
    id: str | None
    reason: str


@dataclass(frozen=True)
class ShardInfo:
    """What a shard says about itself."""

    schema: int
    version: str  # of whichtoken
    spec: str  # hash of the job's specification
    first: int  # row
    last: int
    n_results: int
    n_tokens: int  # of all explained texts
    failures: tuple[FailedRow, ...]
    sha256: str  # of the content


@dataclass(frozen=True)
class ShardStamp:
    """What is the same for every shard of a job."""

    version: str
    spec: str
    keep: tuple[str, ...] = ()
    keeps_text: bool = True
    settings: Mapping[str, str] | None = None  # hashes by method


def shard_files(folder: Path) -> PartFiles:
    return PartFiles(folder / SHARDS, ".parquet", "a corpus job", FIX)


def hash_settings(method: str, settings: Mapping[str, Any]) -> str:
    return hash_content({"method": method, "settings": settings})[:16]


def hash_texts(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def shard_schema(keep: Iterable[str] = ()) -> Any:
    import pyarrow as pa

    kept = [(name, "string") for name in name_kept(tuple(keep), COLUMNS).values()]
    return pa.schema([pa.field(name, _arrow_type(kind)) for name, kind in [*COLUMNS.items(), *kept]])


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    if kind.startswith("list<"):
        return pa.list_(pa.field("element", pa.type_for_alias(kind[5:-1])))
    return pa.type_for_alias(kind)


def describe_result(record: Attribution, number: int, method: str, stamp: ShardStamp) -> dict[str, Any]:
    """Return the row of one attribution. Times are left out, so that a part is a function of its rows."""
    words, source = record.words(), record.source
    bounded = record.confidence is not None
    columns = {} if source is None else source.columns
    return {
        "text_hash": hash_texts(record.texts),
        "texts": list(record.texts) if stamp.keeps_text else None,
        "gold": None if source is None else source.gold,
        "result": number,
        "label": record.label,
        "probability": record.probability,
        "value": record.value,
        "predicted": None if record.predicted is None else record.predicted.label,
        "correct": record.correct,
        "n_tokens": len(record.tokens),
        "n_cut": record.n_cut,
        "method": method,
        "words": [word.text for word in words],
        "text_of_word": [word.sequence for word in words],
        "starts": [word.span[0] for word in words],
        "ends": [word.span[1] for word in words],
        "scores": [word.score for word in words],
        "low": [word.low for word in words] if bounded else None,
        "high": [word.high for word in words] if bounded else None,
        "additivity": None if record.confidence is None else record.confidence.additivity,
        "settings_hash": (stamp.settings or {}).get(method),
        **{column: _as_text(columns.get(name)) for name, column in name_kept(stamp.keep, COLUMNS).items()},
    }


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def make_table(rows: Iterable[Mapping[str, Any]], keep: Iterable[str] = ()) -> Any:
    """Return an Arrow table in the order of the corpus; Python objects of only some rows are in memory at a time."""
    import pyarrow as pa
    from pyarrow import compute

    schema, rest = shard_schema(keep), iter(rows)
    tables = [schema.empty_table()]
    while some := list(islice(rest, AT_ONCE)):
        tables.append(pa.Table.from_pylist(some, schema))
    table = pa.concat_tables(tables)
    return table.take(compute.sort_indices(table, [("row", "ascending")]))  # stable: results and methods keep theirs


def write_shard(path: Path, table: Any, failures: Sequence[FailedRow], stamp: ShardStamp, n_tokens: int) -> ShardInfo:
    """Write the results of one part, whole; the first and last row are in the name of the file."""
    check_parquet()
    from pyarrow import parquet

    first, last = PartFiles(path.parent, path.suffix, "a corpus job", FIX).read_range(path)
    listed = tuple(sorted(failures, key=lambda failed: failed.row))
    content = _hash_shard(table, listed)
    info = ShardInfo(SCHEMA, stamp.version, stamp.spec, first, last, table.num_rows, n_tokens, listed, content)
    described = table.replace_schema_metadata({KEY: json.dumps(asdict(info), ensure_ascii=False)})
    with open_whole(path, tidy=False) as file:
        parquet.write_table(described, file, compression="zstd")
    return info


def read_info(path: Path, spec: str | None = None) -> ShardInfo:
    """Return what a shard says about itself, without reading its rows; BadArtifact unless it is of this job."""
    from pyarrow import parquet

    with while_reading(path):
        info = _parse_info((parquet.read_schema(path).metadata or {}).get(KEY), path)
    return _check_info(info, path, spec)


def read_shard(path: Path, spec: str | None = None) -> tuple[Any, ShardInfo]:
    """Return a shard as an Arrow table; BadArtifact unless it is whole, as it was written, and of this job.

    Its results must be possible, too: whoever changes a shard can change its hash.
    """
    from pyarrow import parquet

    with while_reading(path):
        table = parquet.read_table(path, partitioning=None)
        info = _parse_info((table.schema.metadata or {}).get(KEY), path)
        found = _hash_shard(table, info.failures)
    check_hash(path, info.sha256, found, FIX)
    _check_info(info, path, spec)
    with while_reading(path):
        _check_results(table, info)
    return table, info


def _check_info(info: ShardInfo, path: Path, spec: str | None) -> ShardInfo:
    if spec is not None and info.spec != spec:
        raise BadArtifact(f"{path} belongs to another job; {FIX}")
    named = PartFiles(path.parent, path.suffix, "a corpus job", FIX).read_range(path)
    if named != (info.first, info.last):
        raise BadArtifact(f"{path} holds rows {info.first} to {info.last}, which is not what its name says; {FIX}")
    return info


def _check_results(table: Any, info: ShardInfo) -> None:
    """Raise BadArtifact unless the results can be those of the shard's rows, each once."""
    from pyarrow import compute

    def require_all(holds: Any, problem: str) -> None:
        require(compute.all(holds).as_py() is not False, f"{problem}; {FIX}")

    for field in shard_schema():
        found = table.schema.field(field.name).type
        require(found == field.type, f"{field.name} is {found}; expected {field.type}; {FIX}")
    columns = {name: table.column(name).combine_chunks() for name in COLUMNS}
    lists = {name: columns[name].flatten() for name in LISTS}
    for name in KNOWN:
        missing = columns[name].null_count + (lists[name].null_count if name in LISTS else 0)
        require(not missing, f"{name} is missing in some results; {FIX}")
    lengths = {name: compute.list_value_length(columns[name]) for name in LISTS}
    for name in LISTS[1:]:
        require_all(compute.equal(lengths[name], lengths["words"]), f"words and {name} have different lengths")
    for name, values in (("scores", lists["scores"]), *((name, columns[name]) for name in ("probability", "value"))):
        require_all(compute.is_finite(values), f"{name} is NaN or infinite in some results")
    texts = lists["text_of_word"]
    require_all(compute.equal(texts, compute.bit_wise_and(texts, 1)), "text_of_word is neither 0 nor 1 in some results")
    rows = columns["row"]
    inside = compute.and_(compute.greater_equal(rows, info.first), compute.less_equal(rows, info.last))
    require_all(inside, "it has results of rows that are not in its name")
    keys = ["row", "result", "method"]
    n_results = table.select(keys).group_by(keys).aggregate([]).num_rows
    require(n_results == table.num_rows, f"it has some results more than once; {FIX}")


def _parse_info(described: bytes | None, path: Path) -> ShardInfo:
    if described is None:
        raise BadArtifact(f"{path} is not a shard of a corpus job; {FIX}")
    parsed = parse_json(described.decode())
    if not isinstance(parsed, dict) or parsed.get("schema") != SCHEMA:
        raise BadArtifact(f"{path} is not a shard of schema {SCHEMA}; {FIX}")
    return decode(ShardInfo, parsed)


def write_failures(path: Path, failures: Sequence[FailedRow]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in FAILURE_COLUMNS.items()])
    with open_whole(path) as file:
        parquet.write_table(
            pa.Table.from_pylist([asdict(failed) for failed in failures], schema), file, compression="zstd"
        )


def _hash_shard(table: Any, failures: Sequence[FailedRow]) -> str:
    digest = hashlib.sha256(hash_content([asdict(failed) for failed in failures]).encode())
    for name in table.column_names:
        digest.update(name.encode() + b"\0")
        _update(digest, table.column(name).combine_chunks())
    return digest.hexdigest()


def _update(digest: Any, array: Any) -> None:
    """Add the values of an Arrow array to a hash; how they lie in memory does not matter."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_list(array.type):
        digest.update(_bytes(compute.list_value_length(array).fill_null(-1)))
        _update(digest, array.flatten())
    elif pa.types.is_string(array.type):
        digest.update(_bytes(compute.binary_length(array).fill_null(-1)))
        present = array.drop_null()
        _, offsets, values = present.buffers()
        if len(present) and values is not None:
            ends = np.frombuffer(offsets, np.int32)[present.offset : present.offset + len(present) + 1]
            digest.update(values[int(ends[0]) : int(ends[-1])])
    else:
        plain = array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array
        digest.update(_bytes(array.is_null().cast(pa.int8())))
        digest.update(_bytes(plain.fill_null(0)))


def _bytes(array: Any) -> bytes:
    return array.to_numpy(zero_copy_only=False).tobytes()  # type: ignore[no-any-return]
