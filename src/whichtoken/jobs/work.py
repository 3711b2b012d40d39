"""What every engine runs: work that is opened once by each worker and then done part by part. No torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from whichtoken import errors
from whichtoken.boundary import describe_failure
from whichtoken.errors import BadSetting, ShardFailed, WhichTokenError

Range: TypeAlias = tuple[int, int]  # the first and last row of a part
OWN = ("BadArtifact", "BadInput", "LibraryMismatch", "NotFinite", "ShardFailed", "UnsupportedModel", "UsageError")


@dataclass(frozen=True)
class Receipt:
    """What a worker reports about a finished part; its content is in its file."""

    first: int
    last: int
    n_results: int = 0
    n_failed: int = 0
    n_tokens: int = 0
    error: str = ""  # why the part could not be done; no other part can be expected to work
    kind: str = ""  # of that error

    @property
    def n_rows(self) -> int:
        return self.last - self.first + 1

    def check(self) -> "Receipt":
        """Return the receipt; raise its error, if it has one."""
        if self.error:
            raise getattr(errors, self.kind if self.kind in OWN else "ShardFailed")(self.error)
        return self


DoPart: TypeAlias = Callable[[Any, Range], Receipt]  # of the rows of a part, as `Work.read` returns them


class Work(Protocol):
    """A job, described so that it can be sent to a worker."""

    def read(self, first: int, last: int) -> Any:
        """Return the rows of a part as an Arrow table. It needs no model, so that it can be done elsewhere."""
        ...

    def open(self) -> DoPart:
        """Load the model and return the function that does one part and writes its file. Each worker calls it once."""
        ...


@dataclass
class Worker:
    """Does parts in one process; the model is loaded for the first of them.

    Errors are reported as data: not all exceptions survive the way to another process.
    """

    work: Work
    opened: DoPart | None = None

    def __call__(self, rows: Callable[[], Any], part: Range) -> Receipt:
        try:
            if self.opened is None:
                self.opened = self.work.open()
            return self.opened(rows(), part)
        except Exception as error:  # whatever it is, it must reach the driver
            return report_error(error, part)


def report_error(error: Exception, part: Range) -> Receipt:
    """Return the receipt of a part that could not be done."""
    if isinstance(error, WhichTokenError):
        kind = next((parent.__name__ for parent in type(error).__mro__ if parent.__name__ in OWN), "")
        return Receipt(*part, error=str(error), kind=kind)
    where = f"rows {part[0]:,} to {part[1]:,}"
    return Receipt(*part, error=f"{where} cannot be done: {describe_failure(error)}", kind=ShardFailed.__name__)


@dataclass(frozen=True)
class Engine:
    """Where the parts of a job are done."""

    name: str = "local"  # worker processes on this machine; or "ray"
    workers: int | None = None  # None: as many as there are CPUs; for Ray, one less, so that reading tasks have one
    gpus_per_worker: float = 0.0  # may be a fraction, if several workers share one
    ray_address: str | None = None  # of a running cluster: "auto", "ray://..."; None: a local one for this job
    retries: int = 3  # how often a worker may die before a part is finished
    say: Callable[[str], None] = field(default=lambda line: None, compare=False)  # told what a user should know
    show: Callable[[Any], None] = field(default=lambda progress: None, compare=False)  # told how far the job is

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise BadSetting("engine", self.name, "'local' or 'ray'")
        if self.workers is not None and self.workers < 1:
            raise BadSetting("workers", self.workers, "at least 1")
        if not self.gpus_per_worker >= 0:
            raise BadSetting("gpus_per_worker", self.gpus_per_worker, "at least 0")
        if self.name == "local" and self.ray_address is not None:
            raise BadSetting("ray_address", self.ray_address, "None, or the engine 'ray'")
        if self.name == "local" and self.gpus_per_worker:
            raise BadSetting("gpus_per_worker", self.gpus_per_worker, "0, or the engine 'ray'; choose a device instead")


OnReceipt: TypeAlias = Callable[[Receipt], None]  # called for each finished part; may raise, which ends the job


def run_parts(engine: Engine, work: Work, parts: Sequence[Range], on_receipt: OnReceipt) -> None:
    """Do the parts on the engine, in any order."""
    if not parts:
        return
    if engine.name == "ray":
        from whichtoken.jobs.ray import run_on_ray as run
    else:
        from whichtoken.jobs.local import run_locally as run
    run(engine, work, parts, on_receipt)
