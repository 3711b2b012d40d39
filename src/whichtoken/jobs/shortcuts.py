"""Candidates for shortcuts: words with much influence on a label and little meaning of their own. No torch."""

import re
import unicodedata
from collections.abc import Iterable

from whichtoken.summaries import ShortcutCandidate, WordEffect

LEAST = 0.1  # the lower bound of a mean share, from which an influence counts as high
PLACED = 0.9  # share of its texts in which a word stands at the same end
CAPITALISED = 0.8
FORMATTING = "br div span href src http https www html com amp nbsp quot lt gt li ul td tr url"
# Words without a meaning that decides; negations, and words that contrast, are not among them.
FUNCTION_WORDS = (
    "a an the of to in on at by for from with as is are was were be been being am do does did has have had it its "
    "this that these those there here he she they them his her their we us our you your i me my and or so than then "
    "if when while who whom which what will would can could shall should may might must"
)
NOT_LATIN_WORD = re.compile(r"[b-df-hj-np-tv-xz]{2,}|[b-hj-z]")  # no vowel, or a single letter that is no word


def find_shortcuts(effects: Iterable[WordEffect], cased: bool) -> list[ShortcutCandidate]:
    """Return the words that may be shortcuts, in the order given. `cased`: most texts are not all in lower case."""
    candidates = [ShortcutCandidate(effect, kinds_of(effect, cased)) for effect in effects if effect.low >= LEAST]
    return [candidate for candidate in candidates if candidate.kinds]


def kinds_of(effect: WordEffect, cased: bool = True) -> tuple[str, ...]:
    """Return the reasons why a word may be a shortcut; none for an ordinary word."""
    word = effect.word
    letters = any(character.isalpha() for character in word)
    digits = any(character.isdigit() for character in word)
    formatting = word in FORMATTING.split() or (letters and bool(re.search(r"[<>@#_/\\=]|^&", word)))
    kinds = {
        "punctuation or symbol": not letters and not digits,
        "number": digits and sum(character.isalpha() for character in word) <= 2,
        "formatting": formatting,
        "function word": word in FUNCTION_WORDS.split(),
        "not a word": not formatting and (bool(NOT_LATIN_WORD.fullmatch(word)) or _is_odd(word)),
        "name": cased and letters and effect.capitalised >= CAPITALISED,
        "at the start of its texts": effect.at_start >= PLACED,
        "at the end of its texts": effect.at_end >= PLACED,
    }
    return tuple(kind for kind, holds in kinds.items() if holds)


def _is_odd(word: str) -> bool:
    """Return whether a word contains control characters, private ones or the sign for undecodable text."""
    return any(
        unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn") or character == "\ufffd" for character in word
    )
