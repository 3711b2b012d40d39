"""Parsed sentences: the words of a text, their spans, and what each depends on. No torch."""

from dataclasses import dataclass

from whichtoken.errors import BadInput
from whichtoken.words import Span


@dataclass(frozen=True)
class Parsed:
    """A syntactic word. Words that are written as one (French "du") share a span."""

    span: Span  # characters of the sentence's text
    head: int | None  # index of the word it depends on; None for a root
    relation: str  # to that word, in Universal Dependencies: "nsubj", "nsubj:pass"


@dataclass(frozen=True)
class Sentence:
    """A parsed sentence, or any parsed text that the model reads as one input."""

    text: str
    words: tuple[Parsed, ...]
    where: str = ""  # file and line, for error messages

    def __post_init__(self) -> None:
        for number, word in enumerate(self.words, 1):
            start, end = word.span
            if not 0 <= start < end <= len(self.text):
                raise BadInput(
                    f"{self.where or 'sentence'}: word {number} is at characters {start} to {end}, but the text "
                    f"has {len(self.text)}"
                )
            if word.head is not None and not (0 <= word.head < len(self.words) and word.head != number - 1):
                raise BadInput(
                    f"{self.where or 'sentence'}: word {number} depends on word {word.head + 1}; it must be another "
                    f"of its {len(self.words)}"
                )
