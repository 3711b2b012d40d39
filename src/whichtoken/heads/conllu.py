"""Reading CoNLL-U files, the format of the Universal Dependencies treebanks, as parsed sentences. No torch.

Relations are kept as written: `nsubj:pass`, the subject of a passive, is not `nsubj`, the relation used in the paper.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whichtoken.boundary import while_reading
from whichtoken.data.files import check_file, read_lines
from whichtoken.errors import BadInput, name_type
from whichtoken.heads.sentence import Parsed, Sentence
from whichtoken.words import Span

COLUMNS = 10
_TEXT = re.compile(r"#\s*text\s*=\s?(.*)")  # not `# text_en = ...`, a translation
# At most 9 digits, because Python refuses to convert thousands of them.
_WORD, _HEAD = re.compile(r"[1-9]\d{0,8}", re.ASCII), re.compile(r"\d{1,9}", re.ASCII)
_RANGE, _EMPTY = re.compile(r"([1-9]\d{0,8})-([1-9]\d{0,8})", re.ASCII), re.compile(r"\d+\.[1-9]\d*")


def read_conllu(*paths: str | Path) -> Iterator[Sentence]:
    """Yield the sentences of one or more files, reading lazily. BadInput names the file and the line."""
    for path in paths:
        if not isinstance(path, str | Path):
            raise BadInput(f"{name_type(path)} is not a path; give CoNLL-U files: read_conllu('dev.conllu')")
        with while_reading(path, BadInput):
            check_file(Path(path).expanduser())
    return (sentence for path in paths for sentence in _sentences(Path(path).expanduser()))


@dataclass(frozen=True)
class _Word:
    form: str
    head: str
    relation: str
    line: int


@dataclass(frozen=True)
class _Surface:
    """A token as written in the text: one word, or several words written as one."""

    form: str
    first: int  # first word, counted from 1
    last: int
    space_after: bool
    line: int


@dataclass
class _Open:
    """A sentence whose lines are being read."""

    line: int
    text: str | None = None
    words: list[_Word] = field(default_factory=list)
    surfaces: list[_Surface] = field(default_factory=list)


def _sentences(path: Path) -> Iterator[Sentence]:
    any_sentence = False
    with while_reading(path, BadInput):
        for block in _blocks(read_lines(path)):
            sentence = _parse_block(path, block)
            if sentence is not None:
                any_sentence = True
                yield sentence
    if not any_sentence:
        raise BadInput(f"{path} has no sentence in CoNLL-U format")


def _blocks(lines: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Yield blocks of numbered lines, separated by empty lines."""
    block: list[tuple[int, str]] = []
    for number, line in lines:
        if line.strip():
            block.append((number, line.rstrip("\n")))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _parse_block(path: Path, block: Sequence[tuple[int, str]]) -> Sentence | None:
    """Parse one sentence; None for a block of comments."""
    sentence = _Open(block[0][0])
    for number, line in block:
        if line.startswith("#"):
            if comment := _TEXT.fullmatch(line):
                sentence.text = comment[1]
        else:
            _read_line(f"{path}, line {number}", number, line, sentence)
    if not sentence.words:
        if sentence.surfaces:
            raise BadInput(f"{path}, line {sentence.line}: this sentence has no words")
        return None
    last_surface = sentence.surfaces[-1]
    if last_surface.last > len(sentence.words):
        raise BadInput(
            f"{path}, line {last_surface.line}: words {last_surface.first} to {last_surface.last} are not all present"
        )
    text = _join_surfaces(sentence.surfaces) if sentence.text is None else sentence.text
    spans = [
        span
        for surface in _locate_surfaces(path, text, sentence.surfaces)
        for span in _word_spans(*surface, sentence.words)
    ]
    words = tuple(
        Parsed(span, _head(path, word, len(sentence.words)), word.relation)
        for span, word in zip(spans, sentence.words, strict=True)
    )
    return Sentence(text, words, f"{path}, line {sentence.line}")


def _read_line(where: str, number: int, line: str, sentence: _Open) -> None:
    cells = line.split("\t")
    if len(cells) != COLUMNS:
        raise BadInput(f"{where} has {len(cells)} tab-separated columns; CoNLL-U has {COLUMNS}: {line!r:.60}")
    word_id, form = cells[0], cells[1]
    if _EMPTY.fullmatch(word_id):
        return  # an empty node of the enhanced dependencies
    if not form.strip():
        raise BadInput(f"{where}: word {word_id} has no form")
    n_words, covered = len(sentence.words), sentence.surfaces[-1].last if sentence.surfaces else 0
    space_after = "SpaceAfter=No" not in cells[9].split("|")
    if several := _RANGE.fullmatch(word_id):
        first, last = int(several[1]), int(several[2])
        if first != n_words + 1 or first <= covered or last < first:
            raise BadInput(f"{where}: words {word_id} do not follow word {n_words}")
        sentence.surfaces.append(_Surface(form, first, last, space_after, number))
        return
    if not _WORD.fullmatch(word_id) or int(word_id) != n_words + 1:
        raise BadInput(f"{where}: found word {word_id!r}, expected word {n_words + 1}")
    sentence.words.append(_Word(form, cells[6], cells[7], number))
    if n_words + 1 > covered:
        sentence.surfaces.append(_Surface(form, n_words + 1, n_words + 1, space_after, number))


def _head(path: Path, word: _Word, n_words: int) -> int | None:
    if not _HEAD.fullmatch(word.head) or int(word.head) > n_words:
        raise BadInput(f"{path}, line {word.line}: head {word.head!r} is not one of the words, 0 to {n_words}")
    return int(word.head) - 1 if int(word.head) else None


def _join_surfaces(surfaces: Sequence[_Surface]) -> str:
    return "".join(surface.form + " " * surface.space_after for surface in surfaces).rstrip()


def _locate_surfaces(path: Path, text: str, surfaces: Sequence[_Surface]) -> Iterator[tuple[_Surface, int]]:
    """Yield each surface with its start in the text; they follow each other, apart from white space."""
    at = 0
    for surface in surfaces:
        while text[at : at + 1].isspace() and not text.startswith(surface.form, at):
            at += 1
        if not text.startswith(surface.form, at):
            raise BadInput(
                f"{path}, line {surface.line}: the text continues with {text[at : at + 20]!r}, not with "
                f"{surface.form!r}"
            )
        yield surface, at
        at += len(surface.form)


def _word_spans(surface: _Surface, start: int, words: Sequence[_Word]) -> list[Span]:
    """Return each word's own span if the words spell the surface ("don't"), else the whole span for all ("du")."""
    inside = words[surface.first - 1 : surface.last]
    if "".join(word.form for word in inside) != surface.form:
        return [(start, start + len(surface.form))] * len(inside)
    spans = []
    for word in inside:
        spans.append((start, start + len(word.form)))
        start += len(word.form)
    return spans
