"""CoNLL-U files, the format of the Universal Dependencies treebanks, as parsed sentences. No torch.

Relations stay as they are written: `nsubj:pass`, the subject of a passive, is not `nsubj`, the subject of the paper.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whichtoken.data.examples import decoded
from whichtoken.errors import BadInput
from whichtoken.heads.sentence import Parsed, Sentence
from whichtoken.words import Span

COLUMNS = 10
_TEXT = re.compile(r"#\s*text\s*=\s?(.*)")  # not `# text_en = ...`, a translation
_WORD, _RANGE, _EMPTY = re.compile(r"[1-9]\d*"), re.compile(r"([1-9]\d*)-([1-9]\d*)"), re.compile(r"\d+\.[1-9]\d*")


def read_conllu(*paths: str | Path) -> Iterator[Sentence]:
    """The sentences of one or more files, read as they are asked for. BadInput names the file and the line."""
    for path in paths:
        if not isinstance(path, str | Path):
            raise BadInput(f"a {type(path).__name__} is no path; give CoNLL-U files: read_conllu('dev.conllu')")
        if not Path(path).expanduser().is_file():
            raise BadInput(f"there is no file {path}")
    return (sentence for path in paths for sentence in _sentences(Path(path).expanduser()))


@dataclass(frozen=True)
class _Word:
    form: str
    head: str
    relation: str
    line: int


@dataclass(frozen=True)
class _Surface:
    """What stands in the text: one word, or several that are written as one."""

    form: str
    first: int  # of its words, counted from 1
    last: int
    space_after: bool
    line: int


@dataclass
class _Open:
    """A sentence while its lines are read."""

    line: int
    text: str | None = None
    words: list[_Word] = field(default_factory=list)
    surfaces: list[_Surface] = field(default_factory=list)


def _sentences(path: Path) -> Iterator[Sentence]:
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:  # which also reads \r\n as \n
            found = False
            for block in _blocks(decoded(lines, str(path))):
                sentence = _sentence(path, block)
                if sentence is not None:
                    found = True
                    yield sentence
            if not found:
                raise BadInput(f"{path} has no sentence in CoNLL-U format")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


def _blocks(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines, parted by empty ones."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            block.append((number, line.rstrip("\n")))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _sentence(path: Path, block: Sequence[tuple[int, str]]) -> Sentence | None:
    """None for a block of comments."""
    found = _Open(block[0][0])
    for number, line in block:
        if line.startswith("#"):
            if said := _TEXT.fullmatch(line):
                found.text = said[1]
        else:
            _read_line(f"{path}, line {number}", number, line, found)
    if not found.words:
        if found.surfaces:
            raise BadInput(f"{path}, line {found.line}: this sentence has no words")
        return None
    last = found.surfaces[-1]
    if last.last > len(found.words):
        raise BadInput(f"{path}, line {last.line}: words {last.first} to {last.last} are not all there")
    text = _spelled(found.surfaces) if found.text is None else found.text
    spans = [span for surface in _placed(path, text, found.surfaces) for span in _parts(*surface, found.words)]
    words = tuple(
        Parsed(span, _head(path, word, len(found.words)), word.relation)
        for span, word in zip(spans, found.words, strict=True)
    )
    return Sentence(text, words, f"{path}, line {found.line}")


def _read_line(where: str, number: int, line: str, found: _Open) -> None:
    cells = line.split("\t")
    if len(cells) != COLUMNS:
        raise BadInput(f"{where} has {len(cells)} columns parted by tabs; CoNLL-U has {COLUMNS}: {line!r:.60}")
    place, form = cells[0], cells[1]
    if _EMPTY.fullmatch(place):
        return  # a word that is not written, of the enhanced dependencies
    if not form.strip():
        raise BadInput(f"{where}: word {place} has no form")
    n_words, covered = len(found.words), found.surfaces[-1].last if found.surfaces else 0
    space_after = "SpaceAfter=No" not in cells[9].split("|")
    if several := _RANGE.fullmatch(place):
        first, last = int(several[1]), int(several[2])
        if first != n_words + 1 or first <= covered or last < first:
            raise BadInput(f"{where}: words {place} are not the ones that follow word {n_words}")
        found.surfaces.append(_Surface(form, first, last, space_after, number))
        return
    if not _WORD.fullmatch(place) or int(place) != n_words + 1:
        raise BadInput(f"{where}: found word {place!r}, expected word {n_words + 1}")
    found.words.append(_Word(form, cells[6], cells[7], number))
    if n_words + 1 > covered:
        found.surfaces.append(_Surface(form, n_words + 1, n_words + 1, space_after, number))


def _head(path: Path, word: _Word, n_words: int) -> int | None:
    if not re.fullmatch(r"\d+", word.head) or int(word.head) > n_words:
        raise BadInput(f"{path}, line {word.line}: head {word.head!r} is none of the words, 0 to {n_words}")
    return int(word.head) - 1 if int(word.head) else None


def _spelled(surfaces: Sequence[_Surface]) -> str:
    return "".join(surface.form + " " * surface.space_after for surface in surfaces).rstrip()


def _placed(path: Path, text: str, surfaces: Sequence[_Surface]) -> Iterator[tuple[_Surface, int]]:
    """Each with where it starts: the next in the text, but for white space."""
    at = 0
    for surface in surfaces:
        while text[at : at + 1].isspace() and not text.startswith(surface.form, at):
            at += 1
        if not text.startswith(surface.form, at):
            raise BadInput(
                f"{path}, line {surface.line}: the text goes on with {text[at : at + 20]!r}, not with {surface.form!r}"
            )
        yield surface, at
        at += len(surface.form)


def _parts(surface: _Surface, start: int, words: Sequence[_Word]) -> list[Span]:
    """Of each word: its own part where the parts make up what is written ("don't"), else the whole ("du")."""
    inside = words[surface.first - 1 : surface.last]
    if "".join(word.form for word in inside) != surface.form:
        return [(start, start + len(surface.form))] * len(inside)
    spans = []
    for word in inside:
        spans.append((start, start + len(word.form)))
        start += len(word.form)
    return spans
