"""The Ray engine: Ray Data reads blocks in tasks and hands them to a pool of actors that hold the model.

The only file that imports ray. Each part is one block, and an actor writes its file under a name that follows from its
rows: a part that is done twice, because an actor or a node died, is written twice with the same content.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import Any

from whichtoken.boundary import describe_failure
from whichtoken.errors import ShardFailed, UsageError, WhichTokenError
from whichtoken.jobs.local import count_cpus
from whichtoken.jobs.work import Engine, OnReceipt, Range, Receipt, Work, Worker, report_error

FIRST, LAST = "whichtoken_first", "whichtoken_last"  # columns that name the part of a block
LARGEST_BLOCK = 2**31  # bytes: a part is never split
LOOPBACK = "127.0.0.1"
READING = 0.5  # CPUs of a reading task
PATIENCE = 180.0  # seconds without a finished part and without a CPU for reading tasks, before the user is told


def run_on_ray(engine: Engine, work: Work, parts: Sequence[Range], on_receipt: OnReceipt) -> None:
    """Do the parts on a Ray cluster: a running one, or one on this machine that ends with the job."""
    if find_spec("ray") is None:
        raise UsageError("the engine ray needs Ray: pip install 'whichtoken[ray]'; or use the engine local")
    with _connect(engine) as ray:
        workers = min(_count_workers(engine, ray.cluster_resources()), len(parts))
        if engine.workers is None:
            engine.say(f"Ray has room for {workers} worker{'s' * (workers != 1)}")
        finished = _Finished()
        with _watch(engine, finished, ray):
            try:
                for receipt in _stream(engine, work, parts, workers):
                    finished.add()
                    on_receipt(receipt.check())
            except WhichTokenError:
                raise
            except Exception as error:  # Ray raises exceptions of its own
                kept = "finished parts are kept: run the same command again"
                raise ShardFailed(f"Ray ended the job: {describe_failure(error)}; {kept}") from error


def _stream(engine: Engine, work: Work, parts: Sequence[Range], workers: int) -> Iterator[Receipt]:
    """Yield the receipt of each part as it is finished."""
    from ray import data

    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = LARGEST_BLOCK
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised, too
    ranges = data.from_items([{"first": a, "last": b} for a, b in parts], override_num_blocks=len(parts))
    # Half a CPU: with the same resources as the actors, Ray would let them read, and they would wait for it.
    blocks = ranges.map_batches(partial(_read_block, work), batch_size=None, batch_format="pyarrow", num_cpus=READING)
    receipts = blocks.map_batches(
        RayWorker,
        fn_constructor_args=(work, _make_counter(), engine.retries),
        compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=2),
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=1,
        num_gpus=engine.gpus_per_worker or None,
    )
    for batch in receipts.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from (Receipt(**row) for row in batch.to_pylist())


def _read_block(work: Work, ranges: Any) -> Any:
    """Return the rows of one part, with the part's bounds in two more columns; or a receipt, if they cannot be read.

    Runs in a reading task.
    """
    import pyarrow as pa

    (named,) = ranges.to_pylist()
    part = (named["first"], named["last"])
    try:
        table = work.read(*part)
    except Exception as error:  # of which Ray would show the traceback
        return pa.Table.from_pylist([asdict(report_error(error, part))])
    for name, value in zip((FIRST, LAST), part, strict=True):
        table = table.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), len(table)))
    return table


class RayWorker:
    """An actor that holds the model and does the parts that it is given."""

    def __init__(self, work: Work, starts: Any, retries: int) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.worker = Worker(work)
        self.starts, self.retries = starts, retries

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        if FIRST not in table.column_names:  # it could not be read
            return table
        part = (table.column(FIRST)[0].as_py(), table.column(LAST)[0].as_py())
        deaths = self._count_deaths(part)
        if deaths > self.retries:
            receipt = report_error(ShardFailed(describe_deaths(part, deaths)), part)
        else:
            receipt = self.worker(lambda: table.drop_columns([FIRST, LAST]), part)
        return pa.Table.from_pylist([asdict(receipt)])

    def _count_deaths(self, part: Range) -> int:
        """Return how many workers started this part before and did not finish it."""
        import ray

        return int(ray.get(self.starts.add.remote(part))) - 1


class StartCounter:
    """Counts how often each part is started, because Ray Data repeats a part that kills its worker without end."""

    def __init__(self) -> None:
        self.counts = Counter[Range]()

    def add(self, part: Range) -> int:
        self.counts[part] += 1
        return self.counts[part]


def _make_counter() -> Any:
    """Return a counter for all workers; if its node dies, it starts again at 0."""
    import ray

    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(StartCounter).remote()


def describe_deaths(part: Range, deaths: int) -> str:
    return (
        f"workers died {deaths} times while they did rows {part[0]:,} to {part[1]:,}; is there enough memory? Finished "
        "parts are kept: run the same command again, with fewer workers or a smaller batch size"
    )


@contextmanager
def _connect(engine: Engine) -> Iterator[Any]:
    """Yield ray, connected to a cluster. A connection that was there before stays."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns about arguments that Ray Data itself passes
    if LOOPBACK in (engine.ray_address or LOOPBACK):  # Ray would replace it by this machine's address in its network
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        yield ray
        return
    # More logical CPUs than actors, so that reading tasks have one.
    n_cpus = (engine.workers or count_cpus()) + 1
    own = {"address": "local", "num_cpus": n_cpus, "_node_ip_address": LOOPBACK, "include_dashboard": False}
    arguments = own if engine.ray_address is None else {"address": engine.ray_address}
    try:
        connection = ray.init(log_to_driver=False, logging_level=logging.ERROR, **arguments)
    except Exception as error:  # of many kinds: no cluster, another version of Ray or Python
        raise UsageError(
            f"cannot connect to Ray at {engine.ray_address or 'this machine'}: {describe_failure(error)}; is a cluster "
            "running there, with the same versions of Ray and Python?"
        ) from error
    try:
        if dashboard := getattr(connection, "dashboard_url", None):
            engine.say(f"Ray's dashboard: {dashboard}")
        yield ray
    finally:
        ray.shutdown()


def _count_workers(engine: Engine, resources: dict[str, float]) -> int:
    """Return the number of actors; UsageError if reading tasks would starve, or GPUs are missing."""
    cpus, gpus = int(resources.get("CPU", 0)), resources.get("GPU", 0.0)
    most = cpus - 1
    if engine.gpus_per_worker:
        most = min(most, int(gpus / engine.gpus_per_worker))
    workers = engine.workers or most
    needed = (workers or 1) * engine.gpus_per_worker
    if needed > gpus:
        fix = "use fewer workers" if gpus >= engine.gpus_per_worker else "add GPUs, or leave out --gpus-per-worker"
        named = f"{workers or 1} worker{'s need' if workers > 1 else ' needs'}"
        raise UsageError(f"{named} {needed:g} GPUs, and the cluster has {gpus:g}; {fix}")
    if workers < 1 or workers > cpus - 1:
        fix = f"use --workers {cpus - 1}" if cpus > 1 else "give the cluster more"
        raise UsageError(
            f"{workers} workers would take every CPU of the cluster, which has {cpus}, and the tasks that read rows "
            f"would starve: they need one CPU; {fix}"
        )
    return workers


@dataclass
class _Finished:
    """When the last part was finished, or reading tasks could last run."""

    last: float = 0.0

    def __post_init__(self) -> None:
        self.add()

    def add(self) -> None:
        self.last = monotonic()


@contextmanager
def _watch(engine: Engine, finished: _Finished, ray: Any) -> Iterator[None]:
    """Tell the user, once, if no part is finished for a while and no CPU of the cluster is free."""
    end = threading.Event()

    def look() -> None:
        while not end.wait(PATIENCE / 12):
            line = describe_starvation(ray.available_resources())
            if not line:
                finished.add()
            elif monotonic() - finished.last > PATIENCE:
                engine.say(line)
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        end.set()
        watcher.join()


def describe_starvation(available: dict[str, float]) -> str:
    """Return what to say if no part is finished: nothing if reading tasks can run."""
    if available.get("CPU", 0.0) >= READING:
        return ""
    return (
        f"no part was finished for {PATIENCE:.0f} s, and no CPU of the cluster is free: actors or other jobs have "
        "taken all, and the tasks that read rows wait for one; use fewer --workers, or add CPUs"
    )
