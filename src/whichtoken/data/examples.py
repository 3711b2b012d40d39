"""Examples from files and data sets: csv, tsv, jsonl, parquet, txt, Hugging Face datasets, or any iterable of texts.

Read row by row, so that a corpus need not fit in memory. No torch.
"""

import csv
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from whichtoken.errors import BadInput, UsageError

TEXTS = (
    ("text",),
    ("sentence",),
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "context"),
)
LABELS = ("label", "labels")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")  # files of a folder that are read
BUFFER = 100_000  # rows that are shuffled together

_T = TypeVar("_T")


@dataclass(frozen=True)
class TextExample:
    """One text or pair, and its label if it has one, as it was found: an index or a name."""

    texts: tuple[str, ...]
    label: object = None
    where: str = field(default="", compare=False)  # it was found: the file, and the row or line


@dataclass(frozen=True)
class Columns:
    """Where in a row to find what. None: the usual names are looked for."""

    texts: tuple[str, ...] | None = None
    label: str | None = None


def read_examples(source: Any, labels: Any = None, columns: str | Sequence[str] | None = None) -> Iterator[TextExample]:
    """`source`: a path; or an iterable of strings, pairs of strings or rows (as of a Hugging Face dataset).

    `labels`: as many as there are texts, or the name of a column. `columns`: the column of texts, or the two of pairs.
    """
    for name, value in (("labels", labels), ("columns", columns)):
        if value is not None and not isinstance(value, Iterable):
            raise BadInput(f"{name} is {value!r:.40}; expected the name of a column, or a list")
    named = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    wanted = Columns(named, labels if isinstance(labels, str) else None)
    rows = file_rows(Path(source).expanduser()) if isinstance(source, str | Path) else enumerate(_iterable(source))
    place = f"{source}, " if isinstance(source, str | Path) else ""
    found = _examples(rows, wanted, place)
    return found if labels is None or isinstance(labels, str) else _with_labels(found, labels)


@dataclass(frozen=True)
class ImageExample:
    """One image, and its label if it has one."""

    image: Any
    label: object = None
    where: str = field(default="", compare=False)


def read_images(source: Any, labels: Any = None, columns: Sequence[str] | None = None) -> Iterator[ImageExample]:
    """`source`: a folder of image files, whose label is the name of the folder that they lie in, if that is not
    `source` itself; a csv, tsv, jsonl or parquet file with a column of paths, relative to it; or a list of images.

    `labels`: as many labels, or the name of a column. `columns`: the column of paths; by default `image`.
    """
    if not isinstance(source, str | Path):
        given = [None] * len(source) if labels is None else list(labels)
        if len(given) != len(source):
            raise BadInput(f"{len(source)} images and {len(given)} labels; give as many of each")
        pairs = enumerate(zip(source, given, strict=True))
        yield from (ImageExample(image, label, f"image {number}") for number, (image, label) in pairs)
        return
    path = Path(source).expanduser()
    if path.is_dir():
        for file in sorted(found for found in path.rglob("*") if found.suffix.lower() in IMAGES):
            yield ImageExample(file, None if file.parent == path else file.parent.name, str(file))
        return
    column, label = (columns or ["image"])[0], labels if isinstance(labels, str) else None
    for number, row in file_rows(path):
        where = f"{path}, row {number}"
        named = label or next((name for name in LABELS if name in row), None)
        for name in (column, *([] if named is None else [named])):
            if name not in row:
                raise BadInput(f"{where}: no column {name!r}; there are {', '.join(map(str, row))}")
        yield ImageExample(path.parent / str(row[column]), None if named is None else row[named], where)


def check_texts(texts: Any, where: str, index: int | None = None) -> tuple[str, ...]:
    """One or two texts with something in them, or BadInput that says which one is wrong and why."""
    checked = _checked(texts, where, index)
    for text in checked:
        if not text.strip():
            raise BadInput(f"has an empty text, {text!r:.20}; remove it", index=index, place=where)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            fix = "decode it with errors='replace'"
            raise BadInput(f"is not valid Unicode ({error}); {fix}", index=index, place=where) from error
    return checked


def shuffled(items: Iterable[_T], seed: int, buffer: int) -> Iterator[_T]:
    """In an order drawn from the seed. Beyond `buffer` items the order is only locally random, as memory is bounded."""
    source, held = random.Random(seed), list[_T]()
    for item in items:
        if len(held) < buffer:
            held.append(item)
            continue
        chosen = source.randrange(buffer)
        yield held[chosen]
        held[chosen] = item
    source.shuffle(held)
    yield from held


def count_examples(source: Any) -> int | None:
    """How many there are, where that is known without reading."""
    try:
        return None if isinstance(source, str | Path) else len(source)
    except TypeError:
        return None


def _iterable(source: Any) -> Iterable[Any]:
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        keys = ": " + ", ".join(map(str, source)) if isinstance(source, Mapping) else ""
        raise BadInput(
            f"texts is a {type(source).__name__}{keys}; expected a file, a list of texts or pairs, or rows such as one "
            "split of a data set"
        )
    return source


def _examples(rows: Iterable[tuple[int, Any]], columns: Columns, place: str) -> Iterator[TextExample]:
    for number, row in rows:
        where = f"{place}row {number}"
        if isinstance(row, Mapping):
            yield _from_row(row, columns, where)
            continue
        if columns.texts or columns.label:
            named = ", ".join(name for name in (*(columns.texts or ()), columns.label) if name)
            raise BadInput(f"{where} is {row!r:.40}, which has no columns; columns {named} were asked for")
        yield TextExample(_checked(row, where), where=where)


def _from_row(row: Mapping[str, Any], columns: Columns, where: str) -> TextExample:
    usual = next((names for names in TEXTS if all(name in row for name in names)), None)
    names = columns.texts or usual
    known = ", ".join(str(name) for name in row)
    if names is None:
        raise BadInput(f"{where}: none of the usual columns of texts; name it (columns, --column); there are {known}")
    label = columns.label or next((name for name in LABELS if name in row), None)
    for name in (*names, *([] if label is None else [label])):
        if name not in row:
            raise BadInput(f"{where}: no column {name!r}; there are {known}")
    return TextExample(
        _checked(tuple(row[name] for name in names), where), None if label is None else row[label], where
    )


def _checked(found: Any, where: str, index: int | None = None) -> tuple[str, ...]:
    texts = tuple(found) if isinstance(found, tuple | list) else (found,)
    if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"is {found!r:.80}; expected a text, or a pair of texts", index=index, place=where)
    return texts


def _with_labels(examples: Iterator[TextExample], labels: Iterable[Any]) -> Iterator[TextExample]:
    rest = iter(labels)
    missing = object()
    for number, example in enumerate(examples):
        label = next(rest, missing)
        if label is missing:
            raise BadInput(f"there are {number} labels, and more texts than that; give as many of each")
        yield replace(example, label=label)
    if next(rest, missing) is not missing:
        raise BadInput("there are more labels than texts; give as many of each")


def file_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a file, each with its line or number."""
    readers: dict[str, Callable[[Path], Iterator[tuple[int, Mapping[str, Any]]]]] = {
        ".csv": lambda path: _delimited(path, ",", csv.QUOTE_MINIMAL),
        ".tsv": lambda path: _delimited(path, "\t", csv.QUOTE_NONE),  # GLUE's files have quotes that mean nothing
        ".jsonl": _json_lines,
        ".parquet": _parquet,
        ".txt": _lines,
    }
    if path.suffix.lower() not in readers:
        raise BadInput(f"{path}: cannot tell what kind of file it is; known are {', '.join(readers)}")
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    try:
        yield from readers[path.suffix.lower()](path)
    except (OSError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


def _delimited(path: Path, delimiter: str, quoting: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.DictReader(decoded(lines, str(path)), delimiter=delimiter, quoting=quoting)
        for row in reader:
            if None in row or None in row.values():
                wanted = len(reader.fieldnames or ())
                raise BadInput(f"{path}, line {reader.line_num}: not {wanted} columns, as the header has")
            yield reader.line_num, row


def _json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        for number, line in enumerate(decoded(lines, str(path)), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise BadInput(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {number} is {line[:40]!r}; expected an object with named columns")
            yield number, row


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """A text on each line; empty lines are left out."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        for number, line in enumerate(decoded(lines, str(path)), 1):
            if line.strip():
                yield number, {"text": line.strip()}


def decoded(lines: Iterable[str], name: str) -> Iterator[str]:
    """Lines that were read with errors="surrogateescape", so that a bad one can be named."""
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise BadInput(f"{name}, line {number} has a zero byte: this is no text file")
        if any("\udc80" <= character <= "\udcff" for character in line):
            found = line.encode("utf-8", "surrogateescape").strip()
            raise BadInput(f"{name}, line {number} is not UTF-8: {found!r:.60}; save the file as UTF-8")
        yield line


def _parquet(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise UsageError("reading parquet needs pyarrow: pip install 'whichtoken[parquet]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
            yield from enumerate(rows)
    except ArrowException as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
