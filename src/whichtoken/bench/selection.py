"""Which methods a benchmark runs unless told otherwise."""

from whichtoken.core.registry import method, method_names
from whichtoken.core.trace import Ask, Method
from whichtoken.tasks import Task


def default_methods(task: Task, curves: bool = True) -> list[str]:
    """What the model can run, controls included, without what asks it very often. `curves`: parts will be removed."""
    built = {name: method(name) for name in method_names()}
    found = [name for name, one in built.items() if not is_expensive(one) and task.can_run(one) is None]
    return found if curves else [name for name in found if not _only_for_curves(built[name])]


def is_expensive(built: Method) -> bool:
    """Integrated gradients and TIS: dozens of passes, or hundreds of texts with tokens taken out."""
    asks = built.needs.asks
    return Ask.REMOVALS in asks or (Ask.PASSES in asks and Ask.HEADS not in asks)


def _only_for_curves(built: Method) -> bool:
    """A control of the search on deletions, which says nothing where nothing is deleted."""
    return Ask.DELETIONS in built.needs.asks and Ask.REFERENCES not in built.needs.asks
