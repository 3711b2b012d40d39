"""Read rows from csv, tsv, jsonl, parquet and txt files, one by one, so that a file need not fit in memory. No torch.

Nothing is guessed: a quote that is never closed, two columns of one name, or a row with too many cells is an error.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from whichtoken.boundary import while_reading
from whichtoken.errors import BadInput, UsageError

LONGEST = 10_000_000  # characters of a line, and of a cell of several lines
ROWS_AT_ONCE = 1000  # rows of a parquet file that are decoded together
PARQUET_BUFFER = 2**20  # bytes of a column that are read at once, however large its row group is

Row = tuple[int, Mapping[str, Any]]
Record = tuple[int, list[str]]  # the cells of a row, and its first line

_PLAIN_CELL = re.compile(r"[^,\r\n]*")
_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # a surrogate, alone or in a pair


def read_file_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file, each with its line or row number; BadInput names the file and the line."""
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".csv": lambda path: _name_cells(_split_csv(read_lines(path, newline=""), str(path)), str(path)),
        ".tsv": lambda path: _name_cells(_split_tsv(read_lines(path, newline="")), str(path)),
        ".jsonl": _read_json_lines,
        ".parquet": _read_parquet,
        ".txt": _read_texts,
    }
    if path.suffix.lower() not in readers:
        raise BadInput(f"{path}: cannot tell what kind of file it is; known extensions are {', '.join(readers)}")
    with while_reading(path, BadInput):
        check_file(path)
        yield from readers[path.suffix.lower()](path)


def check_file(path: Path) -> None:
    """Raise BadInput for a folder, a pipe or a device: reading one may never end, and many files are read twice."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder; give a file")
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is a pipe or a device; give a file")
    if not path.is_file():
        raise BadInput(f"there is no file {path}")


def read_lines(path: Path, newline: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file, numbered from 1; `newline` as in `open`. BadInput names an invalid line."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline) as lines:
        yield from enumerate(decode_lines(lines, str(path)), 1)


def decode_lines(lines: TextIO, name: str) -> Iterator[str]:
    """Yield lines of a stream opened with errors="surrogateescape"; BadInput has the number of an invalid line."""
    for number, line in enumerate(iter(lambda: lines.readline(LONGEST + 1), ""), 1):
        if len(line) > LONGEST:
            raise BadInput(f"{name}, line {number} has more than {LONGEST:,} characters; is this a text file?")
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raw = line.encode("utf-8", "surrogateescape").strip()
            raise BadInput(f"{name}, line {number} is not UTF-8: {raw!r:.60}; save the file as UTF-8") from error
        if "\0" in line:
            raise BadInput(f"{name}, line {number} has a zero byte: this is not a text file in UTF-8")
        yield line


def check_unicode(parsed: Any, source: str) -> None:
    """Raise UnicodeEncodeError if parsed JSON contains half of a surrogate pair, which no tokenizer accepts."""
    if _HALF_OF_A_PAIR.search(source):
        json.dumps(parsed, ensure_ascii=False).encode()


def refuse_repeated(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dictionary; raise BadInput if a name occurs twice."""
    listed = list(pairs)
    _check_names([name for name, _ in listed])
    return dict(listed)


def _check_names(names: Sequence[str]) -> None:
    """Raise BadInput if two columns have the same name. There may be several without a name: nobody requests them."""
    seen = set[str]()
    for name in names:
        if name and name in seen:
            raise BadInput(f"two columns have the name {name!r:.40}; rename one")
        seen.add(name)


def _name_cells(records: Iterator[Record], name: str) -> Iterator[Row]:
    """Yield rows by column name; the first record has the names."""
    first_line, header = next(records, (1, []))
    with while_reading(f"{name}, line {first_line}", BadInput):
        _check_names(header)
    for number, cells in records:
        if len(cells) != len(header):
            raise BadInput(
                f"{name}, line {number}: expected {len(header)} columns, as in the header, found {len(cells)}"
            )
        yield number, dict(zip(header, cells, strict=True))


def _split_tsv(lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
    """Split lines at tabs; quotes are plain text, as in GLUE's files. Empty lines are skipped."""
    for number, line in lines:
        if content := line.rstrip("\r\n"):
            yield number, content.split("\t")


def _split_csv(lines: Iterator[tuple[int, str]], name: str) -> Iterator[Record]:
    """Split lines at commas outside quotes. Empty lines are skipped.

    The `csv` module has one limit of the length of a cell for the whole process, and does not say where a quote that is
    never closed was opened.
    """
    for number, line in lines:
        if '"' in line:
            yield number, _split_quoted(number, line, lines, name)
        elif content := line.rstrip("\r\n"):
            yield number, content.split(",")


def _split_quoted(number: int, line: str, lines: Iterator[tuple[int, str]], name: str) -> list[str]:
    """Return the cells of one record, which may continue on the next lines."""
    cells, at = list[str](), 0
    while True:
        if line.startswith('"', at):
            cell, number, line, at = _read_quoted(number, line, at + 1, lines, name)
            if line[at : at + 1] not in (",", "\r", "\n", ""):
                raise BadInput(
                    f"{name}, line {number}: {line[at : at + 20]!r} follows a closing quote; expected a comma or the "
                    "end of the line; write a quote inside a quoted text twice"
                )
        else:
            cell = line[at : (at := _PLAIN_CELL.match(line, at).end())]  # type: ignore[union-attr]  # may be empty
        cells.append(cell)
        if not line.startswith(",", at):
            return cells
        at += 1


def _read_quoted(
    number: int, line: str, at: int, lines: Iterator[tuple[int, str]], name: str
) -> tuple[str, int, str, int]:
    """Return a quoted cell, the number and text of the line where it ends, and the place after its closing quote."""
    opened, pieces, length = number, list[str](), 0
    while True:
        end = line.find('"', at)
        pieces.append(line[at:] if end < 0 else line[at:end])
        length += len(pieces[-1])
        if length > LONGEST:
            raise BadInput(
                f"{name}, line {opened}: a quoted text has more than {LONGEST:,} characters; is its quote closed?"
            )
        if end < 0:
            number, line = next(lines, (number, ""))
            at = 0
            if not line:
                raise BadInput(f"{name}, line {opened}: a quote is opened here and never closed")
        elif line.startswith('"', end + 1):
            pieces.append('"')
            at = end + 2
        else:
            return "".join(pieces), number, line, end + 1


def _read_json_lines(path: Path) -> Iterator[Row]:
    for number, line in read_lines(path):
        if line.strip():
            yield number, _parse_json_row(line, f"{path}, line {number}")


def _parse_json_row(line: str, where: str) -> Mapping[str, Any]:
    with while_reading(where, BadInput):
        try:
            row = json.loads(line, object_pairs_hook=refuse_repeated)
        except json.JSONDecodeError as error:
            raise BadInput(f"{where} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise BadInput(f"{where} is {line[:40]!r}; expected an object with named columns")
        check_unicode(row, line)
        return row


def _read_texts(path: Path) -> Iterator[Row]:
    """Yield the text of each line; empty lines are skipped."""
    for number, line in read_lines(path):
        if line.strip():
            yield number, {"text": line.strip()}


def _read_parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("reading parquet needs pyarrow: pip install 'whichtoken[parquet]'") from error
    number = 0
    with parquet.ParquetFile(path, buffer_size=PARQUET_BUFFER, pre_buffer=False) as file:
        _check_names(file.schema_arrow.names)
        for batch in file.iter_batches(ROWS_AT_ONCE, use_threads=False):
            with while_reading(f"{path}, rows {number} to {number + batch.num_rows - 1}", BadInput):
                rows = batch.to_pylist()
            yield from enumerate(rows, number)
            number += len(rows)
