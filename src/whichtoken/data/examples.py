"""Read examples from csv, tsv, jsonl, parquet or txt files, Hugging Face datasets, or any iterable of texts.

Files are read row by row, so a corpus need not fit in memory. No torch.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from whichtoken.boundary import while_reading
from whichtoken.data.files import read_file_rows
from whichtoken.data.sources import BadRow, DataFile, as_file
from whichtoken.errors import BadInput, name_type

TEXTS = (
    ("text", "text_pair"),
    ("text",),
    ("sentence",),
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "context"),
)
LABELS = ("label", "labels")
IDS = ("id", "idx", "guid")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")  # extensions read from a folder
BUFFER = 100_000  # rows that are shuffled together

_T = TypeVar("_T")


@dataclass(frozen=True)
class TextExample:
    """One text or pair of texts, with its label if it has one: an index or a name, as in the source."""

    texts: tuple[str, ...]
    label: object = None
    where: str = field(default="", compare=False)  # file and row or line, for error messages
    row: int | None = field(default=None, compare=False)  # the line of a text file; else counted from 0
    id: str | None = field(default=None, compare=False)
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False)  # other columns that are kept
    label_is_given: bool = field(default=False, compare=False)  # not just found in a column with a usual name

    @property
    def item(self) -> tuple[str, ...]:
        return self.texts


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; None: the usual names."""

    texts: tuple[str, ...] | None = None
    label: str | None = None
    id: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def requested(self) -> list[str]:
        return [name for name in (*(self.texts or ()), self.label, self.id, *self.keep) if name]

    def find(self, known: Sequence[str], where: str) -> "Columns":
        """Return the columns with every usual name that is among the known ones; BadInput if one is missing."""
        listed = ", ".join(map(str, known))
        usual = {str(name).strip().casefold(): name for name in reversed(known)}  # "Text" and " text", too
        pairs = (tuple(usual.get(name) for name in names) for names in TEXTS)
        texts = self.texts or next((names for names in pairs if None not in names), None)
        if texts is None:
            raise BadInput(
                f"{where}: no column has a usual name for texts; choose one (columns=, --column), or call it 'text'; "
                f"the columns are {listed}"
            )
        label = self.label or next((usual[name] for name in LABELS if name in usual), None)
        named = self.id or next((usual[name] for name in IDS if name in usual), None)
        found = Columns(texts, label, named, self.keep)  # type: ignore[arg-type]  # none of them is None
        for name in found.requested:
            if name not in known:
                raise BadInput(f"{where}: no column {name!r}; the columns are {listed}")
        return found

    def choose(self, known: Sequence[str]) -> Sequence[str]:
        """Return the columns of a file that have to be read; all of them if one is missing, for its error message."""
        try:
            return list(dict.fromkeys(self.find(known, "").requested))
        except BadInput:
            return known


def read_examples(
    source: Any,
    labels: Any = None,
    columns: str | Sequence[str] | None = None,
    *,
    id: str | None = None,  # noqa: A002  # the name of the column, too
    keep: Sequence[str] = (),
    delimiter: str | None = None,
) -> Iterator[TextExample]:
    """Read texts from `source`: a path, or an iterable of strings, pairs of strings or rows (a Hugging Face dataset).

    `labels`: one label per text, or the name of a column. `columns`: the text column, or the two columns of pairs.
    `id`: the column that names a row. `keep`: further columns that results of `explain` carry along. Usual names are
    recognised: `text`, `sentence` and those of pairs; `label`, `labels`; `id`, `idx`, `guid`. `delimiter`: of a csv
    file, such as ";" or "tab"; without it, found from the first rows.
    """
    for name, value in (("labels", labels), ("columns", columns), ("keep", keep)):
        if value is not None and not isinstance(value, Iterable):
            raise BadInput(f"{name} is {value!r:.40}; expected the name of a column, or a list")
    text_columns = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    names = Columns(text_columns, labels if isinstance(labels, str) else None, id, kept)
    file = as_file(source)
    if file is not None and delimiter is not None:
        file = replace(file, delimiter=delimiter)
    if file is None and delimiter is not None:
        raise BadInput(f"delimiter={delimiter!r} is for csv files, and texts is a {type(source).__name__}")
    examples = read_rows(_check_iterable(source) if file is None else file, names)
    return examples if labels is None or isinstance(labels, str) else _attach_labels(examples, labels)


def read_rows(source: DataFile | Iterable[Any], columns: Columns) -> Iterator[TextExample]:
    """Read the columns from a file or an iterable of rows."""
    file = source if isinstance(source, DataFile) else None
    rows = enumerate(source) if not isinstance(source, DataFile) else read_file_rows(source, columns.choose)
    return _parse_rows(rows, columns, file)


@dataclass(frozen=True)
class ImageExample:
    """One image, with its label if it has one."""

    image: Any
    label: object = None
    where: str = field(default="", compare=False)
    row: int | None = field(default=None, compare=False)  # of a file that lists images
    label_is_given: bool = field(default=False, compare=False)  # as in TextExample

    @property
    def item(self) -> Any:
        return self.image


def read_images(source: Any, labels: Any = None, columns: Sequence[str] | None = None) -> Iterator[ImageExample]:
    """Read images from `source`: a folder, a file that lists paths, or a list of images.

    In a folder, the name of a subfolder is the label of its images. A csv, tsv, jsonl or parquet file has a column of
    paths, relative to the file. `labels`: one label per image, or the name of a column. `columns`: the column of paths;
    the default is `image`.
    """
    listing = as_file(source)
    if listing is None:
        image_labels = [None] * len(source) if labels is None else list(labels)
        if len(image_labels) != len(source):
            raise BadInput(f"{len(source)} images and {len(image_labels)} labels; give the same number of each")
        pairs = enumerate(zip(source, image_labels, strict=True))
        given = labels is not None
        for number, (image, label) in pairs:
            yield ImageExample(image, label, f"image {number}", label_is_given=given)
        return
    path = listing.path
    if path.is_dir():
        for file in sorted(entry for entry in path.rglob("*") if entry.suffix.lower() in IMAGES):
            yield ImageExample(file, None if file.parent == path else file.parent.name, str(file))
        return
    column, requested = (columns or ["image"])[0], labels if isinstance(labels, str) else None
    for number, row in read_file_rows(listing):
        where = f"{listing}, row {number}"
        label = requested or next((name for name in LABELS if name in row), None)
        for name in (column, *([] if label is None else [label])):
            if name not in row:
                raise BadInput(f"{where}: no column {name!r}; the columns are {', '.join(map(str, row))}")
        image, gold = path.parent / str(row[column]), None if label is None else row[label]
        yield ImageExample(image, gold, where, number, requested is not None)


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


def as_rows(source: Any) -> Any:
    """Return a pandas frame as a list of rows, which are dictionaries; anything else as it is."""
    is_frame = hasattr(source, "columns") and callable(getattr(source, "to_dict", None))
    return source.to_dict("records") if is_frame else source


def count_examples(source: Any) -> int | None:
    """Return the number of examples, or None if only reading them would tell."""
    try:
        return None if isinstance(source, str | Path) else len(source)
    except TypeError:
        return None


def _check_iterable(source: Any) -> Iterable[Any]:
    source = as_rows(source)
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        keys = ": " + ", ".join(map(str, source)) if isinstance(source, Mapping) else ""
        raise BadInput(
            f"texts is {name_type(source)}{keys}; expected a file, a list of texts or pairs, or rows such as one split "
            "of a dataset"
        )
    return source


def _parse_rows(rows: Iterable[tuple[int, Any]], columns: Columns, file: DataFile | None) -> Iterator[TextExample]:
    found = None
    for number, row in rows:
        where = f"row {number}" if file is None else f"{file}, row {number}"
        if file is not None and file.has_header and found is None:
            found = columns.find(list(row), where)
        try:
            with while_reading(where, BadInput):
                example = _parse_row(row, found or columns, where, number)
        except BadInput as error:
            if file is None:
                raise
            file.on_bad_row(BadRow(number, where, error, row))
        else:
            yield replace(example, label_is_given=True) if columns.label else example


def _parse_row(row: Any, columns: Columns, where: str, number: int) -> TextExample:
    if isinstance(row, TextExample):
        return row
    if isinstance(row, Mapping):
        return parse_mapping(row, columns, where, number)
    if columns.requested:
        requested = ", ".join(columns.requested)
        raise BadInput(f"{where} is {row!r:.40}, which has no columns; requested columns: {requested}")
    return TextExample(_as_texts(row, where), where=where, row=number)


def parse_mapping(row: Mapping[str, Any], columns: Columns, where: str, number: int) -> TextExample:
    """Return the example of a row with named columns."""
    found = columns.find(list(row), where)
    identity = None if found.id is None else row[found.id]
    return TextExample(
        _as_texts(tuple(row[name] for name in found.texts or ()), where),
        None if found.label is None else row[found.label],
        where,
        number,
        None if identity in (None, "") else str(identity),
        {name: _plain(row[name]) for name in found.keep},
    )


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: as it is, else a Python number or a text for it."""
    value = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    if isinstance(value, float):
        return value if isfinite(value) else None
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return str(value)


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
        yield replace(example, label=label, label_is_given=True)
    if next(rest, missing) is not missing:
        raise BadInput("there are more labels than texts; give the same number of each")
