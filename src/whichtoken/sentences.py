"""Sentences: where they begin and end in a text, by the rules of the package sentencex for its language. No torch."""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from whichtoken.words import Span

LINE_BREAK = re.compile(r"\n|<br\s*/?>")
QUOTES = (("“", "”"), ('"', '"'), ("«", "»"), ("„", "“"), ("\u2018", "\u2019"), ("「", "」"), ("『", "』"))
CLOSING = "".join(close for _, close in QUOTES) + "'\u203a)]}\uff09》*_`"
QUOTATION = re.compile("|".join([*(f"{a}[^{a}{b}]*{b}" for a, b in QUOTES), r"(?<!\w)'[^']*'(?!\w)"]))
LONGEST_CALL = 5_000  # characters: the package's time can grow with their square
# By the first word of the Unicode names of its letters. Languages that are missing here are split by English rules,
# which know the marks that end sentences in all scripts.
LANGUAGES_BY_SCRIPT = {
    "ARABIC": "ar",
    "ARMENIAN": "hy",
    "BENGALI": "bn",
    "CJK": "ja",
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "ETHIOPIC": "am",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HIRAGANA": "ja",
    "KANNADA": "kn",
    "KATAKANA": "ja",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "TAMIL": "ta",
    "TELUGU": "te",
}
# Frequent words tell languages in Latin script apart; which of them it is matters for abbreviations only.
FREQUENT_WORDS = {
    "en": "the of and is to that it for he she with this are you",
    "de": "der die das und ist nicht ein eine im den mit auf für am er sie wir von zu",
    "es": "el la los las y es una en con por que no se lo un del al",
    "fr": "le la les des et est une dans pour pas que il elle ne un du au",
}


def split_sentences(text: str) -> list[Span]:
    """Return the spans of a text's sentences, in order, without the white space around them.

    A line break ends a sentence; `<br>` is one, too, and belongs to none. Empty if nothing in the text is visible.
    """
    language, spans = detect_language(text), list[Span]()
    breaks = [(0, 0), *(match.span() for match in LINE_BREAK.finditer(text)), (len(text), len(text))]
    for (_, start), (end, _) in pairwise(breaks):
        line = text[start:end]
        starts = _choose_starts(line, _find_starts(line, language)) if line.strip() else []
        borders = [0, *starts, len(line)]
        for first, last in pairwise(borders):
            if visible := line[first:last].strip():
                at = start + line.index(visible, first)
                spans.append((at, at + len(visible)))
    return spans


def sentence_groups(
    texts: Sequence[str], spans: Sequence[Span | None], sequences: Sequence[int | None]
) -> tuple[tuple[int, ...], ...]:
    """Return the positions of each sentence's tokens, in reading order. Special tokens belong to no sentence."""
    starts = [[start for start, _ in split_sentences(text)][1:] for text in texts]
    groups: dict[tuple[int, int], list[int]] = {}
    for position, (sequence, span) in enumerate(zip(sequences, spans, strict=True)):
        if sequence is not None and span:
            part = texts[sequence][slice(*span)]
            blank = len(part) - len(part.lstrip()) if part.strip() else 0  # GPT-2's tokens begin with spaces
            first = span[0] + blank
            groups.setdefault((sequence, bisect_right(starts[sequence], first)), []).append(position)
    return tuple(tuple(groups[key]) for key in sorted(groups))


def detect_language(text: str) -> str:
    """Return the language whose rules split a text: by the script of most of its letters, and in Latin script by
    frequent words; English if there are none.
    """
    scripts = Counter[str]()
    for character, count in Counter(text).items():
        if character.isalpha():
            scripts[unicodedata.name(character, "").partition(" ")[0]] += count
    script = max(scripts, key=lambda name: scripts[name], default="LATIN")
    if script != "LATIN":
        return LANGUAGES_BY_SCRIPT.get(script, "en")
    words = Counter(re.findall(r"\w+", text.lower()))
    counts = {name: sum(words[word] for word in frequent.split()) for name, frequent in FREQUENT_WORDS.items()}
    return max(counts, key=lambda name: counts[name])  # of equal counts, the first


def _find_starts(line: str, language: str) -> set[int]:
    """Return where sentences begin, except the first; also inside quotations, which the package leaves whole."""
    plain = _normalise(line)
    found = set(_ask_package(plain, language))
    if language in FREQUENT_WORDS and language != "en":  # Dr., Mr. and initials occur in all of them
        found &= set(_ask_package(plain, "en"))
    starts = {start for start in (_skip_closing(line, place) for place in found) if _may_start(line, start)}
    for quotation in QUOTATION.finditer(line):
        first, last = quotation.start() + 1, quotation.end() - 1
        starts |= {first + start for start in _find_starts(line[first:last], language)}
    return starts


def _skip_closing(line: str, start: int) -> int:
    """Return the place after quotation marks and brackets that close what ends here."""
    while start < len(line) and line[start] in CLOSING and not line[start - 1].isspace():
        start += 1
    return start


def _may_start(line: str, start: int) -> bool:
    """Return whether a sentence may start here: in example.Com and U.S.A, no white space follows the full stop."""
    last = start - 1
    while last and line[last] in CLOSING:
        last -= 1
    return line[last] not in ".!?" or line[start : start + 1].isspace()


def _normalise(line: str) -> str:
    """Return a line of the same length that the package reads as intended.

    Some white space beyond ASCII makes it panic; it does not end sentences at "…", nor at "!!!" before "I".
    """
    spaced = re.sub(r"\s", " ", line)
    dotted = re.sub(r"(?<=\S)…(?=\s)", ".", spaced)
    return re.sub(r"[.!?]{2,}", _shorten_run, dotted)


def _shorten_run(run: re.Match[str]) -> str:
    last = max(run[0].rfind("!"), run[0].rfind("?"), 0)
    return "x" * last + run[0][last:]


def _ask_package(line: str, language: str) -> Iterator[int]:
    """Yield where sentences begin, except the first."""
    from sentencex import get_sentence_boundaries

    at = 0
    while at < len(line):
        starts = [found["start_index"] for found in get_sentence_boundaries(language, line[at : at + LONGEST_CALL])]
        yield from (at + start for start in starts[1:])
        is_last = at + LONGEST_CALL >= len(line)
        at = len(line) if is_last else at + (starts[-1] or LONGEST_CALL)


def _choose_starts(line: str, starts: set[int]) -> list[int]:
    """Leave out starts of what is no sentence: signs without letters join what precedes them, numbers what follows."""
    chosen, ordered = [0], [*sorted(starts), len(line)]
    for start, end in pairwise(ordered):
        if any(map(str.isalpha, line[chosen[-1] : start])) and any(map(str.isalnum, line[start:end])):
            chosen.append(start)
    return chosen[1:]
