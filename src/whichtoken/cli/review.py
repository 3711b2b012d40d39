"""How many words `explain --top` removes, and which outputs show what remains."""

from typing import TYPE_CHECKING

from whichtoken.cli.outputs import Sink
from whichtoken.errors import UsageError

if TYPE_CHECKING:
    from whichtoken.models import Subject

DEFAULT = 3  # words, on review pages


def check_top(top: int | None, sink: Sink) -> None:
    """Raise UsageError if the output would not contain what --top measures."""
    if top and sink.kind not in ("json", "jsonl") and not sink.is_review:
        raise UsageError(
            f"--top {top} is stored in json and jsonl and shown on a page of several texts; add --out NAME.jsonl, or "
            "give --file and --out NAME.html"
        )


def choose_top(top: int | None, sink: Sink, subject: "Subject", layers: bool) -> int:
    """Return how many words to remove: as requested, or the default of a review page of texts that have words."""
    from whichtoken.tasks import task_for
    from whichtoken.top_words import LEVEL

    if top is not None:
        return top
    return DEFAULT if sink.is_review and not layers and LEVEL in task_for(subject).levels else 0
