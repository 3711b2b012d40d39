"""How far a job has got: rows done, rate, time left, workers, failures. No torch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from whichtoken.errors import ShardFailed
from whichtoken.jobs.work import Receipt


@dataclass
class JobProgress:
    """Counts what workers report; `kept` rows were finished by an earlier run and do not count for the rate."""

    n_rows: int
    kept: int = 0
    workers: int | None = 1  # None: as many as the cluster has room for
    max_failures: int | None = None
    show: Callable[["JobProgress"], None] = lambda progress: None  # called after every part
    done: int = 0
    failed: int = 0
    tokens: int = 0
    results: int = 0
    started: float = field(default_factory=monotonic)

    def __call__(self, receipt: Receipt) -> None:
        self.done += receipt.n_rows
        self.failed += receipt.n_failed
        self.tokens += receipt.n_tokens
        self.results += receipt.n_results
        self.show(self)
        self.check_failures()

    def check_failures(self) -> None:
        """Raise ShardFailed if more rows failed than the job allows."""
        if self.max_failures is not None and self.failed > self.max_failures:
            raise ShardFailed(
                f"{self.failed:,} rows failed, and --max-failures allows {self.max_failures:,}; finished parts are "
                "kept, and failures.parquet lists the rows: raise the limit and run again, or correct the rows and "
                "choose another folder"
            )

    @property
    def seconds(self) -> float:
        return monotonic() - self.started

    @property
    def rate(self) -> float:
        """Rows per second in this run."""
        return self.done / max(self.seconds, 1e-9)

    def describe(self) -> str:
        finished = self.kept + self.done
        left = (self.n_rows - finished) / self.rate if self.done else 0.0
        parts = [
            f"{finished:,} of {self.n_rows:,} rows",
            f"{self.rate:,.1f} rows/s" if self.done else "",
            f"{format_time(left)} left" if self.done and finished < self.n_rows else "",
            "" if self.workers is None else f"{self.workers} worker{'s' * (self.workers != 1)}",
            f"{self.failed:,} failed",
        ]
        return ", ".join(part for part in parts if part)


def format_time(seconds: float) -> str:
    """Return a duration as "45 s", "12 min" or "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
