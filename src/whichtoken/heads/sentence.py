"""Parsed sentences: the words of a text, where they stand in it, and what each depends on. No torch."""

from dataclasses import dataclass

from whichtoken.errors import BadInput
from whichtoken.words import Span


@dataclass(frozen=True)
class Parsed:
    """A syntactic word. Words that are written as one (French "du") have one span."""

    span: Span  # characters of the sentence's text
    head: int | None  # which word it depends on, counted from 0; None for a root
    relation: str  # to that word, as in Universal Dependencies: "nsubj", "nsubj:pass"


@dataclass(frozen=True)
class Sentence:
    """One sentence, or whatever a model is to read as one text."""

    text: str
    words: tuple[Parsed, ...]
    where: str = ""  # it was found: for errors

    def __post_init__(self) -> None:
        for number, word in enumerate(self.words, 1):
            start, end = word.span
            if not 0 <= start < end <= len(self.text):
                raise BadInput(
                    f"{self.where or 'sentence'}: word {number} stands at characters {start} to {end}, but the text "
                    f"has {len(self.text)}"
                )
            if word.head is not None and not (0 <= word.head < len(self.words) and word.head != number - 1):
                raise BadInput(
                    f"{self.where or 'sentence'}: word {number} depends on word {word.head + 1}; it must be another "
                    f"of its {len(self.words)}"
                )
