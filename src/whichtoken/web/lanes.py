"""Jobs wait in the lane of their model, whose only thread works on one at a time.

A job reports results as soon as it has them. Before each pass of the model, it checks whether it was cancelled and
whether its time is up.
"""

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from threading import Condition, Event, Lock, Thread
from time import monotonic
from typing import Any

from whichtoken.errors import WhichTokenError
from whichtoken.models.cancelling import Cancelled, watched_by
from whichtoken.web.counters import Counters
from whichtoken.web.failures import describe_error, note_unexpected
from whichtoken.web.limits import Refusal

BETWEEN = 0.25  # seconds between two reports of progress
LAST = ("done", "error", "cancelled")  # the events that end a job


@dataclass(frozen=True, eq=False)
class Ticket:
    """A job: its work, and where its events go. `send` may be called by any thread."""

    kind: str
    work: "Callable[[Report], None]" = field(repr=False)
    send: Callable[[str, Any], None] = field(repr=False)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    asked: float = field(default_factory=monotonic)
    cancelled: Event = field(default_factory=Event)


@dataclass(eq=False)
class Report:
    """How a running job tells what it does. Threads that share its work share this."""

    ticket: Ticket
    seconds: float  # until it has to be finished
    started: float = field(default_factory=monotonic)
    passes: int = 0
    _progress: tuple[int, int, str] = (0, 0, "")
    _shown: float = 0.0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def event(self, name: str, reply: Any) -> None:
        self.ticket.send(name, reply)

    def progress(self, done: int, of: int, what: str = "") -> None:
        """Tell how much is done; sent with the next pass, at most a few times a second."""
        self._progress = (done, of, what)

    def before_pass(self) -> None:
        """Count a pass; raise Cancelled or a Refusal if it is to be the last."""
        with self._lock:
            self.passes += 1
            now = monotonic()
            shows = now - self._shown >= BETWEEN
            self._shown = now if shows else self._shown
        if self.ticket.cancelled.is_set():
            raise Cancelled
        if now - self.started > self.seconds:
            raise over_time(self.seconds)
        if shows:
            done, of, what = self._progress
            seconds = round(now - self.started, 2)
            self.event("progress", {"done": done, "of": of, "what": what, "passes": self.passes, "seconds": seconds})


def over_time(seconds: float) -> Refusal:
    return Refusal(408, "TimeLimit", f"this took over {seconds:g} s; ask for less, or choose faster methods")


class Lane:
    """The queue of one model, and the thread that works on it."""

    def __init__(self, name: str, seconds: float, counters: Counters) -> None:
        self._seconds, self._counters = seconds, counters
        self._waiting: deque[Ticket] = deque()
        self._told: dict[str, int] = {}  # the position that each waiting job was told last
        self._running: Ticket | None = None
        self._name, self._changed, self._closed, self._died = name, Condition(), False, False
        self._thread = Thread(target=self._loop, name=f"jobs-{name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting) + (self._running is not None)

    def check_alive(self) -> None:
        """Raise a Refusal if the thread has ended by an error, so that no job of this model would ever end."""
        if self._died or not (self._closed or self._thread.is_alive()):
            raise self._refusal()

    def _refusal(self) -> Refusal:
        return Refusal(
            503, "LaneDied", f"the worker for jobs of {self._name} has ended by an error; restart the server"
        )

    def submit(self, ticket: Ticket) -> None:
        with self._changed:
            self.check_alive()
            if self._closed:
                raise Refusal(503, "Stopping", "this server is stopping; start it again")
            self._waiting.append(ticket)
            self._tell(ticket, len(self._waiting) - 1 + (self._running is not None))
            self._changed.notify()

    def cancel(self, ticket: Ticket) -> None:
        """End a job: at once if it waits, with its next pass if it runs."""
        ticket.cancelled.set()
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self._end(ticket, "cancelled", {})
                self._tell_all()

    def find(self, job: str) -> Ticket | None:
        with self._changed:
            known = [*self._waiting, *([self._running] if self._running is not None else [])]
        return next((ticket for ticket in known if ticket.id == job), None)

    def close(self, seconds: float) -> None:
        """End all jobs, and wait for the thread for so long."""
        with self._changed:
            self._closed = True
            known = [*self._waiting, *([self._running] if self._running is not None else [])]
            self._changed.notify()
        for ticket in known:
            self.cancel(ticket)
        self._thread.join(seconds)

    def _loop(self) -> None:
        try:
            while self._work_on_next():
                pass
        except BaseException as error:  # nothing but the end of the process is expected here
            note_unexpected(error, self._counters)
            self._give_up()

    def _work_on_next(self) -> bool:
        """Wait for a job and work on it; return whether there may be another."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return False
            ticket = self._running = self._waiting.popleft()
            self._tell_all()
        self._work(ticket)
        return True

    def _give_up(self) -> None:
        """End all jobs, because nothing will work on them."""
        with self._changed:
            self._died = True
            known = [*([self._running] if self._running is not None else []), *self._waiting]
            self._waiting.clear()
        for ticket in known:
            self._end(ticket, "error", asdict(describe_error(self._refusal())))

    def _work(self, ticket: Ticket) -> None:
        report = Report(ticket, self._seconds)
        ending: tuple[str, Any] = ("cancelled", {})
        if not ticket.cancelled.is_set():
            ticket.send("started", {"job": ticket.id, "waited": round(report.started - ticket.asked, 3)})
            try:
                with watched_by(report.before_pass):
                    ticket.work(report)
                ending = "done", {"seconds": round(monotonic() - report.started, 3)}
            except Cancelled:
                pass
            except WhichTokenError as error:
                ending = "error", asdict(describe_error(error))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # such as a panic of Rust code, after which the next job may do well
                ending = "error", asdict(note_unexpected(error, self._counters))
        self._counters.add("whichtoken_job_seconds_total", monotonic() - report.started, kind=ticket.kind)
        self._counters.add("whichtoken_passes_total", report.passes)
        self._end(ticket, *ending)

    def _end(self, ticket: Ticket, name: str, reply: Any) -> None:
        with self._changed:
            self._told.pop(ticket.id, None)
            if ticket is self._running:  # before its last event: whoever has that finds the lane free
                self._running = None
        self._counters.add("whichtoken_jobs_total", kind=ticket.kind, ended=name)
        ticket.send(name, reply)

    def _tell_all(self) -> None:
        for place, ticket in enumerate(self._waiting):
            self._tell(ticket, place + (self._running is not None))

    def _tell(self, ticket: Ticket, position: int) -> None:
        if self._told.get(ticket.id) == position:
            return
        self._told[ticket.id] = position
        ticket.send("queued", {"job": ticket.id, "position": position})
