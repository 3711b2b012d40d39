"""Everything whichtoken raises on purpose.

WhichTokenError
 + UsageError (ValueError)   the caller can fix it
 |   + UnknownName           a method, preset, label or setting that does not exist; suggests the nearest
 |   + BadSetting            a setting outside its allowed values
 |   + BadInput              a text that cannot be explained: which one and why
 |   + NoReferences          a method contrasts with reference texts, and there are none
 + UnsupportedModel          the model cannot be read: no architecture row, no head, no attention
 + LibraryMismatch           a reference library that was made for another model, revision or layers
 + NotFinite                 NaN or infinity: which method, which input
 + BadArtifact               a file or record that is not what it should be
 + UndeclaredSite            a method read a tensor that it did not declare in `needs`
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class WhichTokenError(Exception):
    """Root of the tree: catch this to catch all of whichtoken's own errors."""

    exit_code: ClassVar[int] = 1  # of the command line


class UsageError(WhichTokenError, ValueError):
    """The call was wrong; the message says how to put it right."""

    exit_code: ClassVar[int] = 2


class UnknownName(UsageError):
    """A name that does not exist."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = list(known)
        nearest = get_close_matches(str(name).lower(), [n.lower() for n in names], n=1, cutoff=0.5)
        hint = next((f"; did you mean {n!r}?" for n in names if nearest == [n.lower()]), ";")
        super().__init__(f"unknown {kind} {name!r}{hint} known: {', '.join(names) or 'none'}")


class BadSetting(UsageError):
    """A setting whose value is not allowed."""

    def __init__(self, setting: str, value: object, allowed: str) -> None:
        super().__init__(f"{setting}={value!r} is not allowed; it must be {allowed}")


class BadInput(UsageError):
    """An input that cannot be explained."""


class NoReferences(UsageError):
    """A method that contrasts with reference texts was asked for, and the subject has none."""

    def __init__(self, model: str) -> None:
        self.model = model
        super().__init__(
            f"this method contrasts with reference texts, and {model} has none. Make them once from texts like those "
            "it was trained on: subject = subject.with_references(wt.build_references(subject, texts)); or pass "
            "texts: wt.method('contrast-cat', references=texts)"
        )


class UnsupportedModel(WhichTokenError):
    """A model whichtoken cannot read correctly, so does not read at all."""

    exit_code: ClassVar[int] = 3


class LibraryMismatch(WhichTokenError):
    """A reference library that does not belong to the model."""


class NotFinite(WhichTokenError):
    """A computation gave NaN or infinity."""


class BadArtifact(WhichTokenError):
    """A stored record or file that does not have the expected form."""


class UndeclaredSite(WhichTokenError):
    """A method asked its trace for something it had not declared."""
