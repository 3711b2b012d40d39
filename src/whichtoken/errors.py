"""The exceptions that whichtoken raises on purpose.

WhichTokenError
 + UsageError (ValueError)   the caller can fix it
 |   + UnknownName           a method, preset, label or setting that does not exist; suggests the nearest
 |   + BadSetting            a setting outside its allowed values
 |   + BadInput              an input that cannot be explained: which one and why
 |   + NoReferences          a method needs reference texts, and the subject has none
 |   + NoHeads               a method needs a head mask, and the subject has none
 + UnsupportedModel          the model cannot be read: unknown architecture, no head, no attention
 |   + RuleGap               a rule set of relevance propagation has no rule for an operation of the model
 + LibraryMismatch           a reference library or head mask made for another model or revision, or for other layers
 + NotFinite                 NaN or infinity: which method, which input
 + BadArtifact               a file or record that does not have the expected form
 + ShardFailed               a job over a corpus ended before all its parts were finished
 + UndeclaredSite            a method read a tensor that it did not declare in `needs`
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

LONGEST = 900  # characters of a message; names and values in it may come from a hostile file


def show(value: object, width: int = 200) -> str:
    """Return a value as an error message shows it: cut to `width`, and safe for nesting or digits without end."""
    try:
        return f"{value!r:.{width}}"
    except (RecursionError, ValueError):
        return f"{name_type(value)} too large to show"


def name_type(value: object) -> str:
    """Return the type of a value for a message: "a list", "an int"."""
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


class WhichTokenError(Exception):
    """Root of the tree: catch this to catch all of whichtoken's own errors."""

    exit_code: ClassVar[int] = 1  # of the command line

    def __init__(self, message: str = "", *, index: int | None = None, place: str = "") -> None:
        """`index` is the position, from 0, of the input that the error is about; `place` is the name to show for it.
        The message then follows that name: "has no words", or ": the context does not contain the answer".
        """
        super().__init__(message)
        self.message, self.index, self.place = message, index, place

    def __str__(self) -> str:
        place = self.place or ("" if self.index is None else f"input {self.index}")
        return _one_line(self.message_for(place) if place else self.message)

    def message_for(self, place: str) -> str:
        """Return the message with `place` as the name of the input."""
        return f"{place}{'' if self.message.startswith(':') else ' '}{self.message}"


def _one_line(message: str) -> str:
    """Escape what is not printable, and leave out the middle of an over-long message."""
    if not message.isprintable():
        message = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    return message if len(message) <= LONGEST else f"{message[: LONGEST * 2 // 3]} [...] {message[-LONGEST // 4 :]}"


class UsageError(WhichTokenError, ValueError):
    """The call was wrong; the message says how to fix it."""

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
        super().__init__(f"{setting}={show(value)} is not allowed; it must be {allowed}")


class BadInput(UsageError):
    """An input that cannot be explained."""


class NoReferences(UsageError):
    """The method contrasts with reference texts, and the subject has none."""

    def __init__(self, model: str) -> None:
        self.model = model
        super().__init__(
            f"this method contrasts with reference texts, but {model} has none. Build them once from texts similar to "
            "those it was trained on: subject = subject.with_references(wt.references.build(subject, texts)); or pass "
            "texts: wt.method('contrast-cat', references=texts)"
        )


class NoHeads(UsageError):
    """The method propagates through chosen heads only, and the subject has no head mask."""

    def __init__(self, model: str) -> None:
        self.model = model
        super().__init__(
            f"this method propagates through chosen heads only, but {model} has no head mask. Build it once: "
            "whichtoken heads build --conllu FILE --out heads.json, then --heads heads.json; or subject = "
            "subject.with_heads(wt.heads.build(subject, sentences))"
        )


class UnsupportedModel(WhichTokenError):
    """A model that whichtoken cannot read correctly and therefore refuses."""

    exit_code: ClassVar[int] = 3


class RuleGap(UnsupportedModel):
    """Relevance would pass through an operation without a rule, where the plain gradient would give wrong scores."""

    def __init__(self, rules: str, operation: str, module: str) -> None:
        super().__init__(
            f"rule set {rules} has no rule for {operation!r} in {module}, so relevance would be lost or invented; "
            "use a method without relevance propagation, or add a rule in whichtoken/lrp/rulesets.py"
        )


class LibraryMismatch(WhichTokenError):
    """A reference library or a head mask that does not belong to the model."""


class NotFinite(WhichTokenError):
    """A computation gave NaN or infinity."""


class BadArtifact(WhichTokenError):
    """A stored record or file that does not have the expected form."""


class ShardFailed(WhichTokenError):
    """A job over a corpus that cannot finish; its finished parts are kept."""

    exit_code: ClassVar[int] = 4


class UndeclaredSite(WhichTokenError):
    """A method read a tensor of its trace that it did not declare."""
