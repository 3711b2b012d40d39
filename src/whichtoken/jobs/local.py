"""The local engine: a pool of worker processes on this machine, each with its own copy of the model.

This module imports neither torch nor numpy, so that a new process can limit their threads before it loads them.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice

from tqdm import tqdm

from whichtoken.errors import ShardFailed
from whichtoken.jobs.work import Engine, OnReceipt, Range, Receipt, Work, Worker

AHEAD = 2  # parts per worker that wait in its queue

_worker: Worker | None = None  # of this process


def count_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def plan_workers(engine: Engine, n_parts: int) -> int | None:
    """Return the number of workers that a job will have; None if only the cluster knows."""
    if engine.name == "ray" and engine.workers is None:
        return None
    return min(engine.workers or count_cpus(), max(n_parts, 1))


def run_locally(engine: Engine, work: Work, parts: Sequence[Range], on_receipt: OnReceipt) -> None:
    """Do the parts on worker processes. If one is killed, the pool is started again with the parts that are left."""
    workers = min(engine.workers or count_cpus(), len(parts))
    left, deaths = dict.fromkeys(parts), 0
    while left:
        before = len(left)
        try:
            _run_pool(work, workers, left, on_receipt)
        except BrokenProcessPool as error:
            deaths = 1 if len(left) < before else deaths + 1
            if deaths > engine.retries:
                never = len(left) == len(parts)
                guard = " A script must start the job under `if __name__ == '__main__':`." if never else ""
                raise ShardFailed(
                    f"worker processes died {deaths} times in a row without finishing a part; is there enough memory? "
                    "Finished parts are kept: run the same command again, with fewer workers or a smaller batch size."
                    + guard
                ) from error
            engine.say(f"a worker process died; {len(left):,} parts are left, started again")


def _run_pool(work: Work, workers: int, left: dict[Range, None], on_receipt: OnReceipt) -> None:
    """Do the parts that are left, removing each when it is finished."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, context, initializer=_open_work, initargs=(pickle.dumps(work),))
    waiting = iter(list(left))
    running: dict[Future[Receipt], Range] = {}
    try:
        while True:
            with _delaying_ctrl_c():  # a pool that is interrupted while it starts a process cannot be shut down
                for part in islice(waiting, AHEAD * workers - len(running)):
                    running[pool.submit(_do, *part)] = part
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                receipt = future.result().check()
                del left[running.pop(future)]
                on_receipt(receipt)
    except BaseException:  # Ctrl-C, too: the parts that workers are at would delay the end, and are done again
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        for part in reversed(running.values()):  # last next time, the first of them at the end: it may be deadly
            left[part] = left.pop(part, None)
        raise
    finally:
        with _delaying_ctrl_c():
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _delaying_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C do what it does after the block. Processes that are started in it never notice Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    # Other threads may receive it all the same. But processes inherit this mask, and not the handler.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)  # None if it was not set by Python
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _open_work(packed: bytes) -> None:
    """Prepare a worker process: one thread, so that a part does not depend on the number of CPUs.

    `packed`: the work, pickled by the job's process, so that reading it, which loads torch, comes last.
    """
    global _worker  # noqa: PLW0603  # a process has one
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tqdm.set_lock(threading.RLock())  # its own, between processes, would be left behind where this one is terminated
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job's process, which ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = Worker(pickle.loads(packed))


def _end_with_parent() -> None:
    """End this process when the job's process was killed and could not end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(first: int, last: int) -> Receipt:
    assert _worker is not None, "the initializer made it"
    work = _worker.work
    return _worker(lambda: work.read(first, last), (first, last))
