"""The methods that a benchmark runs by default."""

from whichtoken.core.registry import method, method_names
from whichtoken.core.trace import Ask, Method
from whichtoken.tasks import Task


def default_methods(task: Task, curves: bool = True) -> list[str]:
    """Return every supported method except the most expensive ones, controls included. `curves`: parts are removed."""
    built = {name: method(name) for name in method_names()}
    names = [name for name, chosen in built.items() if not is_expensive(chosen) and task.can_run(chosen) is None]
    return names if curves else [name for name in names if not _only_for_curves(built[name])]


def is_expensive(built: Method) -> bool:
    """Whether a method needs dozens of passes (integrated gradients) or hundreds of removals (TIS)."""
    asks = built.needs.asks
    return Ask.REMOVALS in asks or (Ask.PASSES in asks and Ask.HEADS not in asks)


def _only_for_curves(built: Method) -> bool:
    """Whether a method is only a control for tuning on deletion, meaningless where nothing is deleted."""
    return Ask.DELETIONS in built.needs.asks and Ask.REFERENCES not in built.needs.asks
