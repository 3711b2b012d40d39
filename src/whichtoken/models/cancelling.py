"""Ending work in other threads: each pass of a model first checks whether its work was cancelled."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

_cancelled: ContextVar[Event | None] = ContextVar("whichtoken_cancelled", default=None)


class Cancelled(Exception):
    """Raised by a pass whose work was cancelled."""


@contextmanager
def cancelled_by(event: Event) -> Iterator[None]:
    """Let passes in this block end as soon as the event is set."""
    token = _cancelled.set(event)
    try:
        yield
    finally:
        _cancelled.reset(token)


def check_cancelled() -> None:
    event = _cancelled.get()
    if event is not None and event.is_set():
        raise Cancelled
