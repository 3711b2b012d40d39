"""Everything whichtoken raises on purpose.

WhichTokenError
 + UsageError (ValueError)   the caller can fix it
 |   + UnknownName           a method, preset, label or setting that does not exist; suggests the nearest
 |   + BadSetting            a setting outside its allowed values
 |   + BadInput              a text that cannot be explained: which one and why
 |   + NoReferences          a method contrasts with reference texts, and there are none
 |   + NoHeads               a method propagates through chosen heads only, and none were chosen
 + UnsupportedModel          the model cannot be read: no architecture row, no head, no attention
 |   + RuleGap               a rule set of relevance propagation has no rule for an operation of the model
 + LibraryMismatch           a reference library or head mask that was made for another model, revision or layers
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

    def __init__(self, message: str = "", *, index: int | None = None, place: str = "") -> None:
        """`index`: of the input that the error is about, counted from 0. `place`: what to call that input. A message
        about an input continues its name: "has no words", or ": the context does not hold the answer".
        """
        super().__init__(message)
        self.message, self.index, self.place = message, index, place

    def __str__(self) -> str:
        place = self.place or ("" if self.index is None else f"input {self.index}")
        return self.named(place) if place else self.message

    def named(self, place: str) -> str:
        """The message, with the input called as the reader knows it."""
        return f"{place}{'' if self.message.startswith(':') else ' '}{self.message}"


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
            "it was trained on: subject = subject.with_references(wt.references.build(subject, texts)); or pass "
            "texts: wt.method('contrast-cat', references=texts)"
        )


class NoHeads(UsageError):
    """A method that propagates through chosen heads only was asked for, and the subject has no head mask."""

    def __init__(self, model: str) -> None:
        self.model = model
        super().__init__(
            f"this method propagates through chosen heads only, and {model} has no head mask. Make it once: "
            "whichtoken heads build --conllu FILE --out heads.json, then --heads heads.json; or subject = "
            "subject.with_heads(wt.heads.build(subject, sentences))"
        )


class UnsupportedModel(WhichTokenError):
    """A model whichtoken cannot read correctly, so does not read at all."""

    exit_code: ClassVar[int] = 3


class RuleGap(UnsupportedModel):
    """An operation that relevance would go through has no rule, and its gradient would be a wrong answer."""

    def __init__(self, rules: str, operation: str, module: str) -> None:
        super().__init__(
            f"rule set {rules} has no rule for {operation!r} in {module}, where relevance would be lost or made up; "
            "use a method without relevance propagation, or add a rule in whichtoken/lrp/rulesets.py"
        )


class LibraryMismatch(WhichTokenError):
    """A reference library or a head mask that does not belong to the model."""


class NotFinite(WhichTokenError):
    """A computation gave NaN or infinity."""


class BadArtifact(WhichTokenError):
    """A stored record or file that does not have the expected form."""


class UndeclaredSite(WhichTokenError):
    """A method asked its trace for something it had not declared."""
