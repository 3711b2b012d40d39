"""Functions shared by commands: load a model, report unsupported methods, print messages."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from whichtoken.atomic_write import restore_folder
from whichtoken.boundary import while_reading
from whichtoken.errors import UsageError
from whichtoken.render.rows import visible

if TYPE_CHECKING:
    from whichtoken.models import Subject
    from whichtoken.tasks import Reason

NO_HEADS = (
    "no head qualifies: Mask-LRP then passes relevance through residual connections only, and its scores are all 0, "
    "or all equal if the model uses mean pooling (only with preset paper: by default, heads are read before the mask); "
    "lower thresholds (-o syntactic=... -o positional=...) or another corpus may help"
)


@dataclass(frozen=True)
class Opening:
    """How a model is opened: the options that every command with a model has."""

    trust: bool = False
    device: str | None = None
    dtype: str = "float32"
    revision: str | None = None
    batch_size: int | None = None
    reading: str | None = None
    special_tokens: str = "control"


def say(line: str) -> None:
    """Print to standard error, so that pipes carry only results."""
    print(f"whichtoken: {line}", file=sys.stderr)


def say_written(out: Path | None) -> None:
    """Say which file was written, if any."""
    if out is not None:
        say(f"written to {visible(str(out))}")


def open_subject(
    model: str | None,
    references: Path | None = None,
    heads: Path | None = None,
    opening: Opening | None = None,
) -> "Subject":
    how = opening or Opening()
    with while_reading(references or heads or "", UsageError):
        if references is not None:
            restore_folder(references)
        if references is not None and not references.is_dir():
            raise UsageError(f"there is no folder {references}; create it with whichtoken references build")
        if heads is not None and not heads.is_file():
            raise UsageError(f"there is no file {heads}; create it with whichtoken heads build")
    with Console(stderr=True).status(Text(visible(f"loading {model or 'the default model'}"))):  # on a terminal only
        from whichtoken.models import load

        checked: Any = (how.reading, how.special_tokens)  # by load and Subject
        return load(
            model,
            revision=how.revision,
            dtype=how.dtype,
            device=how.device,
            references=references,
            heads=heads,
            trust_remote_code=how.trust,
            reading=checked[0],
            batch_size=how.batch_size,
            special_tokens=checked[1],
        )


def keep_supported(subject: "Subject", methods: Sequence[Any]) -> list[Any]:
    """Return the methods that the model supports, and report the others."""
    unsupported = unsupported_methods(subject, methods)
    for reason, group in unsupported.items():
        listed = ", ".join(method.label for method in group)
        say(f"left out, because {reason.why}: {listed}{f' ({reason.fix})' if reason.fix else ''}")
    skipped = [method for group in unsupported.values() for method in group]
    return [method for method in methods if method not in skipped]


def unsupported_methods(subject: "Subject", methods: Sequence[Any]) -> "dict[Reason, list[Any]]":
    """Return the methods that the model does not support, by reason."""
    from whichtoken.tasks import task_for

    task, by_reason = task_for(subject), dict[Any, list[Any]]()
    for method in methods:
        reason = task.can_run(method)
        if reason is not None:
            by_reason.setdefault(reason, []).append(method)
    return by_reason
