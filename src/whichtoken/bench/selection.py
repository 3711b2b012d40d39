"""Which methods a model can run, and which of them a benchmark runs unless told otherwise."""

from whichtoken.core.registry import method, method_names
from whichtoken.core.trace import Ask, Method
from whichtoken.models import Subject


def usual_methods(subject: Subject) -> list[str]:
    """What the model can run, controls included, without what asks it very often."""
    return [name for name in method_names() if not _dear(method(name)) and able(subject, method(name))]


def able(subject: Subject, built: Method) -> bool:
    return not any(lacks(subject, built, what) for what in (Ask.REFERENCES, Ask.HEADS))


def lacks(subject: Subject, built: Method, what: str) -> bool:
    """Whether the method asks for references, or heads, and finds none."""
    return what in built.needs.asks and getattr(subject, what) is None and built.settings.get(what) is None


def _dear(built: Method) -> bool:
    """Integrated gradients and TIS: dozens of passes, or hundreds of texts with tokens taken out."""
    asks = built.needs.asks
    return Ask.REMOVALS in asks or (Ask.PASSES in asks and Ask.HEADS not in asks)
