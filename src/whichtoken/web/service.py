"""Service: everything that a running server holds, and how it ends."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Semaphore
from time import monotonic
from typing import Any, TypeVar

from whichtoken.models import Subject
from whichtoken.models.cancelling import Cancelled, watched_by
from whichtoken.records import Attribution
from whichtoken.web.benchmarks import StoredBenchmark
from whichtoken.web.counters import Counters, Labels
from whichtoken.web.facts import info_reply
from whichtoken.web.lanes import Lane, over_time
from whichtoken.web.limits import Limits, Refusal
from whichtoken.web.replies import InfoReply
from whichtoken.web.served import Served, find_model, serve_subjects

_T = TypeVar("_T")
GRACE = 10.0  # seconds for the last passes of cancelled jobs


@dataclass(frozen=True, eq=False)
class Service:
    """The models with their lanes, the folders that were opened at the start, and what was counted."""

    models: Mapping[str, Served]
    lanes: Mapping[str, Lane]
    places: Semaphore  # for clicks, running and waiting, of all models
    limits: Limits
    counters: Counters
    info: InfoReply
    benchmark: StoredBenchmark | None = None
    corpus: str | None = field(default=None, repr=False)  # a page
    drawing: Lock = field(default_factory=Lock, repr=False)  # matplotlib draws one figure at a time
    stopping: Event = field(default_factory=Event)

    def model(self, name: str) -> Served:
        return find_model(self.models, name)

    def of_record(self, record: Attribution) -> Served | None:
        """Return the model that a record explains, if it is served here."""
        same = (model for model in self.models.values() if record.identity.fits(model.subject.identity()))
        return next(same, None)

    @contextmanager
    def place_of_click(self) -> Iterator[None]:
        """Hold one of the places for clicks; raise a Refusal if none is free."""
        if not self.places.acquire(blocking=False):
            raise Refusal(
                429, "TooManyClicks", f"{self.limits.clicks} clicks are being worked on or wait; try again in a moment"
            )
        try:
            yield
        finally:
            self.places.release()

    def watch_click(self, has_left: Event, work: Callable[..., _T], *parts: Any) -> _T:
        """Do the work of a click, unless its caller has left, the server is to end, or the time of a job is over."""
        started = monotonic()

        def before_pass() -> None:
            self.check_running()
            if has_left.is_set():
                raise Cancelled
            if monotonic() - started > self.limits.job_seconds:
                raise over_time(self.limits.job_seconds)

        before_pass()  # it may have waited long
        with watched_by(before_pass):
            return work(*parts)

    @property
    def n_jobs(self) -> int:
        return sum(map(len, self.lanes.values()))

    def check_running(self) -> None:
        if self.stopping.is_set():
            raise Refusal(503, "Stopping", "this server is stopping; start it again")

    def check_health(self) -> None:
        """Raise a Refusal if the server is stopping, or a model can no longer work on jobs."""
        self.check_running()
        for lane in self.lanes.values():
            lane.check_alive()

    def check_free(self) -> None:
        """Raise a Refusal if no further job is accepted now."""
        self.check_running()
        if self.n_jobs >= self.limits.jobs:
            raise Refusal(
                429, "TooManyJobs", f"{self.limits.jobs} jobs are already running or waiting; try again in a moment"
            )

    def cancel(self, job: str) -> None:
        for lane in self.lanes.values():
            if (ticket := lane.find(job)) is not None:
                lane.cancel(ticket)
                return
        raise Refusal(404, "NotFound", "there is no such job; it may have ended")

    def stop(self) -> None:
        """End all jobs; new ones are refused."""
        self.stopping.set()
        for seconds in (0.0, GRACE):  # tell all of them first
            for lane in self.lanes.values():
                lane.close(seconds)
        for model in self.models.values():
            model.clicks.shutdown(wait=True, cancel_futures=True)

    def gauges(self) -> dict[str, tuple[str, Mapping[Labels, float]]]:
        jobs: dict[Labels, float] = {(("model", name),): float(len(lane)) for name, lane in self.lanes.items()}
        return {"whichtoken_jobs": ("Jobs that run or wait, by model.", jobs)}


def make_service(
    subjects: Iterable[Subject],
    limits: Limits | None = None,
    benchmark: StoredBenchmark | None = None,
    corpus: str | None = None,
) -> Service:
    """Start the threads of a server for these models."""
    limits, counters = limits or Limits(), Counters()
    models = serve_subjects(list(subjects))
    lanes = {name: Lane(name, limits.job_seconds, counters) for name in models}
    info = info_reply(models.values(), limits, benchmark=benchmark is not None, corpus=corpus is not None)
    places = Semaphore(limits.clicks)
    return Service(models, lanes, places, limits, counters, info, benchmark, corpus)
