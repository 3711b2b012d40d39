"""Read rows from csv, tsv, jsonl, parquet and txt files, one by one, so that a file need not fit in memory. No torch.

Nothing is guessed: a quote that is never closed, two columns of one name, or a row with too many cells is an error.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from whichtoken.boundary import while_reading
from whichtoken.data.sources import DELIMITERS, KINDS, BadRow, DataFile
from whichtoken.errors import BadInput, UsageError

LONGEST = 10_000_000  # characters of a line, and of a cell of several lines
ROWS_AT_ONCE = 1000  # rows of a parquet file that are decoded together
PARQUET_BUFFER = 2**20  # bytes of a column that are read at once, however large its row group is

Row = tuple[int, Mapping[str, Any]]
Record = tuple[int, list[str]]  # the cells of a row, and its first line
Choose = Callable[[Sequence[str]], Sequence[str]]  # which columns of a file are read

SAMPLED = 30  # rows from which the delimiter of a csv file is found

_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # a surrogate, alone or in a pair


def read_file_rows(source: Path | DataFile, choose: Choose | None = None) -> Iterator[Row]:
    """Yield the rows of a file, each with its line or row number; BadInput names the file and the line.

    `choose` selects columns of a parquet file, so that others need not be readable; other files are read whole.
    """
    file = source if isinstance(source, DataFile) else DataFile(source)
    kind = file.kind_of_rows
    if kind is None and file.path.is_dir():
        raise BadInput(f"{file} is a folder; give a file")
    if kind is None:
        known = ", ".join(f".{name}" for name in KINDS)
        hint = "on the command line, --input-format names it"
        raise BadInput(f"{file}: cannot tell what kind of file it is; known extensions are {known}; {hint}")
    readers: dict[str, Callable[[], Iterator[Row]]] = {
        "csv": lambda: _read_csv(file),
        "tsv": lambda: _name_cells(_split_tsv(read_lines(file.path, "", str(file))), file),
        "jsonl": lambda: _read_json_lines(file),
        "parquet": lambda: _read_parquet(file, choose),
        "txt": lambda: _read_texts(file),
    }
    with while_reading(file, BadInput):
        check_file(file.path)
        yield from readers[kind]()


def check_file(path: Path) -> None:
    """Raise BadInput for a folder, a pipe or a device: reading one may never end, and many files are read twice."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder; give a file")
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is a pipe or a device; give a file")
    if not path.is_file():
        raise BadInput(f"there is no file {path}")


def read_lines(path: Path, newline: str | None = None, name: str = "") -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file, numbered from 1; `newline` as in `open`. BadInput names an invalid line."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline) as lines:
        yield from enumerate(decode_lines(lines, name or str(path)), 1)


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


def _name_cells(records: Iterator[Record], file: DataFile) -> Iterator[Row]:
    """Yield rows by column name; the first record has the names."""
    first_line, header = next(records, (1, []))
    with while_reading(f"{file}, line {first_line}", BadInput):
        _check_names(header)
    for number, cells in records:
        if len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True))
            continue
        where = f"{file}, line {number}"
        expected = f"{len(header)} column{'s' * (len(header) != 1)}, as in the header"
        fix = "put a text that contains the delimiter in quotes" if len(cells) > len(header) else "complete the row"
        error = BadInput(f"{where}: expected {expected}, found {len(cells)}; {fix}")
        file.on_bad_row(BadRow(number, where, error, cells))


def _read_csv(file: DataFile) -> Iterator[Row]:
    delimiter = file.delimiter or find_delimiter(file)
    return _name_cells(_split_csv(read_lines(file.path, "", str(file)), str(file), delimiter), file)


@dataclass(frozen=True)
class _Split:
    """The first rows of a file, split by one delimiter."""

    n_columns: int  # of the header; 0 if it cannot be split
    n_rows: int
    n_fitting: int  # rows with as many cells as the header
    whole: bool  # no error ended the sample

    @property
    def fits(self) -> bool:
        return self.n_columns > 1 and self.whole and 2 * self.n_fitting > self.n_rows


def find_delimiter(file: DataFile) -> str:
    """Return the delimiter that splits the header and most of the first rows into as many cells, outside quotes.

    A header without any of the known delimiters is one column. BadInput if several fit.
    """
    headers = {delimiter: _split_sample(file, delimiter, 0) for delimiter in DELIMITERS}
    possible = [delimiter for delimiter, header in headers.items() if header.n_columns > 1]
    if len(possible) < 1 or possible == [","]:
        return ","
    splits = {delimiter: _split_sample(file, delimiter, SAMPLED) for delimiter in possible}
    fitting = [delimiter for delimiter, split in splits.items() if split.fits]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:  # the rows decide nothing: they are damaged, or there are none
        likely = [delimiter for delimiter, split in splits.items() if split.n_fitting or not split.n_rows]
        if len(likely) <= 1 or not any(split.n_rows for split in splits.values()):
            return likely[0] if likely else ","
        fitting = likely
    names = " and ".join(DELIMITERS[delimiter] for delimiter in fitting)
    raise BadInput(
        f"{file}: its columns could be separated by {names}; choose one: --delimiter {DELIMITERS[fitting[0]]} "
        f"(in Python: delimiter={fitting[0]!r})"
    )


def _split_sample(file: DataFile, delimiter: str, n_rows: int) -> _Split:
    """Split the header and the first `n_rows` rows."""
    counts, whole = list[int](), True
    try:
        records = _split_csv(read_lines(file.path, "", str(file)), str(file), delimiter)
        for _, cells in islice(records, 1 + n_rows):
            counts.append(len(cells))
    except BadInput:  # as is usual with the wrong delimiter; with the right one, reading says what is wrong
        whole = False
    if not counts:
        return _Split(0, 0, 0, whole)
    return _Split(counts[0], len(counts) - 1, counts[1:].count(counts[0]), whole)


def _split_tsv(lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
    """Split lines at tabs; quotes are plain text, as in GLUE's files. Empty lines are skipped."""
    for number, line in lines:
        if content := line.rstrip("\r\n"):
            yield number, content.split("\t")


def _split_csv(lines: Iterator[tuple[int, str]], name: str, delimiter: str = ",") -> Iterator[Record]:
    """Split lines at delimiters outside quotes. Empty lines are skipped.

    The `csv` module has one limit of the length of a cell for the whole process, and does not say where a quote that is
    never closed was opened.
    """
    for number, line in lines:
        if '"' in line:
            yield number, _split_quoted((number, line), lines, name, delimiter)
        elif content := line.rstrip("\r\n"):
            yield number, content.split(delimiter)


@cache
def _plain_cell(delimiter: str) -> re.Pattern[str]:
    return re.compile(rf"[^{re.escape(delimiter)}\r\n]*")


def _split_quoted(first: tuple[int, str], lines: Iterator[tuple[int, str]], name: str, delimiter: str) -> list[str]:
    """Return the cells of one record, which may continue on the next lines."""
    (number, line), cells, at, plain = first, list[str](), 0, _plain_cell(delimiter)
    while True:
        if line.startswith('"', at):
            cell, number, line, at = _read_quoted(number, line, at + 1, lines, name)
            if line[at : at + 1] not in (delimiter, "\r", "\n", ""):
                expected = f"a {DELIMITERS.get(delimiter, repr(delimiter))} or the end of the line"
                raise BadInput(
                    f"{name}, line {number}: {line[at : at + 20]!r} follows a closing quote; expected {expected}; "
                    "write a quote inside a quoted text twice"
                )
        else:
            cell = line[at : (at := plain.match(line, at).end())]  # type: ignore[union-attr]  # may be empty
        cells.append(cell)
        if not line.startswith(delimiter, at):
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


def _read_json_lines(file: DataFile) -> Iterator[Row]:
    for number, line in read_lines(file.path, name=str(file)):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row = _parse_json_row(line, where)
        except BadInput as error:
            file.on_bad_row(BadRow(number, where, error, line.rstrip("\r\n")))
        else:
            yield number, row


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


def _read_texts(file: DataFile) -> Iterator[Row]:
    """Yield the text of each line; empty lines are skipped."""
    for number, line in read_lines(file.path, name=str(file)):
        if line.strip():
            yield number, {"text": line.strip()}


def _read_parquet(file: DataFile, choose: Choose | None) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("reading parquet needs pyarrow: pip install 'whichtoken[parquet]'") from error
    number = 0
    with parquet.ParquetFile(file.path, buffer_size=PARQUET_BUFFER, pre_buffer=False) as opened:
        names = opened.schema_arrow.names
        _check_names(names)
        chosen = None if choose is None else list(choose(names))
        for batch in opened.iter_batches(ROWS_AT_ONCE, columns=chosen, use_threads=False):
            with while_reading(f"{file}, rows {number} to {number + batch.num_rows - 1}", BadInput):
                rows = batch.to_pylist()
            yield from enumerate(rows, number)
            number += len(rows)
