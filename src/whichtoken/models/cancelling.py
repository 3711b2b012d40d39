"""End and watch work in other threads: each pass of a model first calls the function that watches the work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

_watchers: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("whichtoken_watchers", default=())


class Cancelled(Exception):
    """Raised by a pass whose work was cancelled."""


@contextmanager
def watched_by(watcher: Callable[[], None]) -> Iterator[None]:
    """Call the watcher before each pass of this block, also in the threads that it starts; it may raise Cancelled."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


@contextmanager
def cancelled_by(event: Event) -> Iterator[None]:
    """Let passes in this block end as soon as the event is set."""

    def check() -> None:
        if event.is_set():
            raise Cancelled

    with watched_by(check):
        yield


def check_cancelled() -> None:
    for watcher in _watchers.get():
        watcher()
