"""Read texts that are split into words, with a tag for each word if there are any, as in CoNLL data sets. No torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from whichtoken.boundary import while_reading
from whichtoken.data.examples import TextExample, read_examples
from whichtoken.data.files import read_file_rows
from whichtoken.data.sources import BadRow, as_file
from whichtoken.errors import BadInput

WORDS, TAGS = ("tokens", "words"), ("ner_tags", "tags", "pos_tags", "upos")  # usual names of columns


@dataclass(frozen=True)
class TaggedExample:
    """The words of a text, and a tag for each, an index or a name as in the source."""

    words: tuple[str, ...]
    tags: tuple[Any, ...] | None = None
    where: str = field(default="", compare=False)  # file and row, for error messages


def read_tagged(
    source: Any, tags: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[TaggedExample | TextExample]:
    """Read rows with a column of words (`tokens` or `words`) and perhaps one of tags; other rows are read as texts.

    `source`: a jsonl or parquet file, or rows, such as those of a Hugging Face data set. `tags`, `columns`: the names
    of the column of tags, and of that of the words or the text. The first row decides for all.
    """
    file = as_file(source)
    rows = enumerate(source) if file is None else read_file_rows(file)
    first = next(rows, None)
    if first is None:
        return
    if find_words(first[1], columns) is None:
        items = (row for _, row in chain([first], rows)) if file is None else source
        yield from read_examples(items, None, columns)
        return
    for number, row in chain([first], rows):
        where = f"row {number}" if file is None else f"{file}, row {number}"
        try:
            with while_reading(where, BadInput):
                example = _parse_row(row, tags, columns, where)
        except BadInput as error:
            if file is None:
                raise
            file.on_bad_row(BadRow(number, where, error, row))
        else:
            yield example


def word_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the characters of each word in the text that is made of the words and single spaces."""
    spans, start = list[tuple[int, int]](), 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def find_words(row: Any, columns: Sequence[str] | None = None) -> Any:
    """Return the words of a row; None if it has none."""
    if isinstance(row, list):
        return row
    if not isinstance(row, Mapping):
        return None
    return next((row[name] for name in columns or WORDS if isinstance(row.get(name), list | tuple)), None)


def _parse_row(row: Any, tags: str | None, columns: Sequence[str] | None, where: str) -> TaggedExample:
    words = find_words(row, columns)
    if words is None or not all(isinstance(word, str) and word.strip() for word in words):
        raise BadInput(f"{where} is {row!r:.60}; expected a list of words, as in the rows before it")
    named = row if isinstance(row, Mapping) else {}
    if tags is not None and tags not in named:
        raise BadInput(f"{where}: no column {tags!r}; the columns are {', '.join(map(str, named))}")
    column = tags or next((name for name in TAGS if name in named), None)
    if column is None:
        return TaggedExample(tuple(words), None, where)
    of_words = named[column]
    if not isinstance(of_words, list | tuple) or len(of_words) != len(words):
        count = len(of_words) if isinstance(of_words, list | tuple) else "no list of"
        raise BadInput(f"{where}: {len(words)} words and {count} tags in {column}; give one tag for each word")
    return TaggedExample(tuple(words), tuple(of_words), where)
