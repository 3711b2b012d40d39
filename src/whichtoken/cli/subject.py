"""What several commands do with a model: load it, say which methods it cannot run, talk to the user."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from whichtoken.errors import UsageError
from whichtoken.render.rows import visible

if TYPE_CHECKING:
    from whichtoken.models import Subject
    from whichtoken.tasks import Reason

NO_HEADS = (
    "no head qualifies: Mask-LRP then passes relevance through residual connections only, and its scores will all be "
    "0, or the same where a model reads a mean (but for preset repo, which reads heads before the mask); "
    "lower thresholds (-o syntactic=... -o positional=...) or another corpus may help"
)


def say(line: str) -> None:
    """To people, not to pipes."""
    print(f"whichtoken: {line}", file=sys.stderr)


def open_subject(model: str | None, references: Path | None, heads: Path | None = None) -> "Subject":
    if references is not None and not references.is_dir():
        raise UsageError(f"there is no folder {references}; whichtoken references build makes it")
    if heads is not None and not heads.is_file():
        raise UsageError(f"there is no file {heads}; whichtoken heads build makes it")
    with Console(stderr=True).status(Text(visible(f"loading {model or 'the default model'}"))):  # on a terminal only
        from whichtoken.models import load

        return load(model, references=references, heads=heads)


def runnable(subject: "Subject", methods: Sequence[Any]) -> list[Any]:
    """Those that the model can run; which ones it cannot is said."""
    for reason, without in refused(subject, methods).items():
        listed = ", ".join(method.label for method in without)
        say(f"left out, because {reason.why}: {listed}{f' ({reason.fix})' if reason.fix else ''}")
    lost = [method for without in refused(subject, methods).values() for method in without]
    return [method for method in methods if method not in lost]


def refused(subject: "Subject", methods: Sequence[Any]) -> "dict[Reason, list[Any]]":
    """Methods that the model cannot run, by the reason."""
    from whichtoken.tasks import task_for

    task, found = task_for(subject), dict[Any, list[Any]]()
    for method in methods:
        reason = task.can_run(method)
        if reason is not None:
            found.setdefault(reason, []).append(method)
    return found
