"""The methods that a benchmark runs by default."""

from typing import Literal

from whichtoken.core.registry import method, method_names
from whichtoken.core.trace import Ask, Method
from whichtoken.tasks import Task

Effort = Literal["quick", "recommended", "full"]


def default_methods(task: Task, curves: bool = True, effort: Effort = "recommended") -> list[str]:
    """Return every supported method except the most expensive ones, controls included. `curves`: parts are removed.

    A quick benchmark leaves out every method that runs the model dozens of times for one input.
    """
    built = {name: method(name) for name in method_names()}
    leave_out = is_slow if effort == "quick" else is_expensive
    names = [name for name, chosen in built.items() if not leave_out(chosen) and task.can_run(chosen) is None]
    return names if curves else [name for name in names if not _only_for_curves(built[name])]


def is_expensive(built: Method) -> bool:
    """Whether a method needs dozens of passes (integrated gradients) or hundreds of removals (TIS).

    A method that asks for answers has a budget, in which its passes count.
    """
    asks = built.needs.asks
    return Ask.REMOVALS in asks or (Ask.PASSES in asks and not asks & {Ask.HEADS, Ask.ANSWERS})


def is_slow(built: Method) -> bool:
    """Whether a method takes about as long as removing parts does: an expensive one, or one that searches."""
    return is_expensive(built) or built.tuned_on_deletion


def _only_for_curves(built: Method) -> bool:
    """Whether a method is only a control for tuning on deletion, meaningless where nothing is deleted."""
    return Ask.DELETIONS in built.needs.asks and Ask.REFERENCES not in built.needs.asks
