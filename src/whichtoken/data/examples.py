"""Read examples from csv, tsv, jsonl, parquet or txt files, Hugging Face datasets, or any iterable of texts.

Files are read row by row, so a corpus need not fit in memory. No torch.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from whichtoken.boundary import while_reading
from whichtoken.data.files import read_file_rows
from whichtoken.errors import BadInput, name_type

TEXTS = (
    ("text",),
    ("sentence",),
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "context"),
)
LABELS = ("label", "labels")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")  # extensions read from a folder
BUFFER = 100_000  # rows that are shuffled together

_T = TypeVar("_T")


@dataclass(frozen=True)
class TextExample:
    """One text or pair of texts, with its label if it has one: an index or a name, as in the source."""

    texts: tuple[str, ...]
    label: object = None
    where: str = field(default="", compare=False)  # file and row or line, for error messages


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; None: the usual names."""

    texts: tuple[str, ...] | None = None
    label: str | None = None


def read_examples(source: Any, labels: Any = None, columns: str | Sequence[str] | None = None) -> Iterator[TextExample]:
    """Read texts from `source`: a path, or an iterable of strings, pairs of strings or rows (a Hugging Face dataset).

    `labels`: one label per text, or the name of a column. `columns`: the text column, or the two columns of pairs.
    """
    for name, value in (("labels", labels), ("columns", columns)):
        if value is not None and not isinstance(value, Iterable):
            raise BadInput(f"{name} is {value!r:.40}; expected the name of a column, or a list")
    text_columns = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    names = Columns(text_columns, labels if isinstance(labels, str) else None)
    is_file = isinstance(source, str | Path)
    rows = read_file_rows(expand_path(source)) if is_file else enumerate(_check_iterable(source))
    examples = _parse_rows(rows, names, f"{source}, " if is_file else "")
    return examples if labels is None or isinstance(labels, str) else _attach_labels(examples, labels)


@dataclass(frozen=True)
class ImageExample:
    """One image, with its label if it has one."""

    image: Any
    label: object = None
    where: str = field(default="", compare=False)


def read_images(source: Any, labels: Any = None, columns: Sequence[str] | None = None) -> Iterator[ImageExample]:
    """Read images from `source`: a folder, a file that lists paths, or a list of images.

    In a folder, the name of a subfolder is the label of its images. A csv, tsv, jsonl or parquet file has a column of
    paths, relative to the file. `labels`: one label per image, or the name of a column. `columns`: the column of paths;
    the default is `image`.
    """
    if not isinstance(source, str | Path):
        image_labels = [None] * len(source) if labels is None else list(labels)
        if len(image_labels) != len(source):
            raise BadInput(f"{len(source)} images and {len(image_labels)} labels; give the same number of each")
        pairs = enumerate(zip(source, image_labels, strict=True))
        yield from (ImageExample(image, label, f"image {number}") for number, (image, label) in pairs)
        return
    path = expand_path(source)
    if path.is_dir():
        for file in sorted(entry for entry in path.rglob("*") if entry.suffix.lower() in IMAGES):
            yield ImageExample(file, None if file.parent == path else file.parent.name, str(file))
        return
    column, requested = (columns or ["image"])[0], labels if isinstance(labels, str) else None
    for number, row in read_file_rows(path):
        where = f"{path}, row {number}"
        label = requested or next((name for name in LABELS if name in row), None)
        for name in (column, *([] if label is None else [label])):
            if name not in row:
                raise BadInput(f"{where}: no column {name!r}; the columns are {', '.join(map(str, row))}")
        yield ImageExample(path.parent / str(row[column]), None if label is None else row[label], where)


def expand_path(source: str | Path) -> Path:
    """Return the path with `~` expanded; BadInput if there is no such home."""
    with while_reading(source, BadInput):
        return Path(source).expanduser()


def check_texts(texts: Any, where: str, index: int | None = None) -> tuple[str, ...]:
    """Return one or two non-empty texts, or raise BadInput, which says where and why."""
    checked = _as_texts(texts, where, index)
    for text in checked:
        if not text.strip():
            raise BadInput(f"has an empty text, {text!r:.20}; remove it", index=index, place=where)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            fix = "decode it with errors='replace'"
            raise BadInput(f"is not valid Unicode ({error}); {fix}", index=index, place=where) from error
    return checked


def shuffle(items: Iterable[_T], seed: int, buffer: int) -> Iterator[_T]:
    """Yield the items in a random order. Beyond `buffer` items, the order is only locally random, to bound memory."""
    generator, buffered = random.Random(seed), list[_T]()
    for item in items:
        if len(buffered) < buffer:
            buffered.append(item)
            continue
        drawn = generator.randrange(buffer)
        yield buffered[drawn]
        buffered[drawn] = item
    generator.shuffle(buffered)
    yield from buffered


def count_examples(source: Any) -> int | None:
    """Return the number of examples, or None if only reading them would tell."""
    try:
        return None if isinstance(source, str | Path) else len(source)
    except TypeError:
        return None


def _check_iterable(source: Any) -> Iterable[Any]:
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        keys = ": " + ", ".join(map(str, source)) if isinstance(source, Mapping) else ""
        raise BadInput(
            f"texts is {name_type(source)}{keys}; expected a file, a list of texts or pairs, or rows such as one split "
            "of a dataset"
        )
    return source


def _parse_rows(rows: Iterable[tuple[int, Any]], columns: Columns, place: str) -> Iterator[TextExample]:
    for number, row in rows:
        where = f"{place}row {number}"
        with while_reading(where, BadInput):
            example = _parse_row(row, columns, where)
        yield example


def _parse_row(row: Any, columns: Columns, where: str) -> TextExample:
    if isinstance(row, Mapping):
        return _parse_columns(row, columns, where)
    if columns.texts or columns.label:
        requested = ", ".join(name for name in (*(columns.texts or ()), columns.label) if name)
        raise BadInput(f"{where} is {row!r:.40}, which has no columns; requested columns: {requested}")
    return TextExample(_as_texts(row, where), where=where)


def _parse_columns(row: Mapping[str, Any], columns: Columns, where: str) -> TextExample:
    usual = next((names for names in TEXTS if all(name in row for name in names)), None)
    names = columns.texts or usual
    known = ", ".join(str(name) for name in row)
    if names is None:
        raise BadInput(f"{where}: no usual text column; choose one (columns=, --column); the columns are {known}")
    label = columns.label or next((name for name in LABELS if name in row), None)
    for name in (*names, *([] if label is None else [label])):
        if name not in row:
            raise BadInput(f"{where}: no column {name!r}; the columns are {known}")
    return TextExample(
        _as_texts(tuple(row[name] for name in names), where), None if label is None else row[label], where
    )


def _as_texts(value: Any, where: str, index: int | None = None) -> tuple[str, ...]:
    texts = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"is {value!r:.80}; expected a text, or a pair of texts", index=index, place=where)
    return texts


def _attach_labels(examples: Iterator[TextExample], labels: Iterable[Any]) -> Iterator[TextExample]:
    rest = iter(labels)
    missing = object()
    for number, example in enumerate(examples):
        label = next(rest, missing)
        if label is missing:
            raise BadInput(f"there are more texts than the {number} labels; give the same number of each")
        yield replace(example, label=label)
    if next(rest, missing) is not missing:
        raise BadInput("there are more labels than texts; give the same number of each")
