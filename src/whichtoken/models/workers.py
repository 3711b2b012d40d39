"""Work on all cores: one thread per core, each with a twin of the model and a single thread of torch.

The matrix products of a small model are too small to be divided among cores; whole batches are not.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from queue import SimpleQueue
from threading import Barrier, Event
from typing import TypeVar

import torch

from whichtoken.models.cancelling import Cancelled, cancelled_by, check_cancelled
from whichtoken.models.subject import Subject
from whichtoken.models.twin import has_hooks, make_twin

_State = TypeVar("_State")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def count_workers(subject: Subject, n_items: int) -> int:
    """Return how many threads can share this much work.

    It is one if the model is on a GPU, if torch may use one only, if hooks of the user would be called by several
    threads, and if automatic mixed precision is on, which is a setting of the calling thread.
    """
    if subject.device.type != "cpu" or torch.is_autocast_enabled("cpu") or has_hooks(subject.model):
        return 1
    return max(1, min(torch.get_num_threads(), n_items))


def copy_twin(subject: Subject) -> Subject:
    """Return a subject on another twin of the same model, for another thread."""
    twin = subject.with_twin()
    return replace(twin, model=make_twin(twin.model))


def map_on_cores(
    work: Callable[[_State, _Item], _Result], states: Sequence[_State], items: Sequence[_Item]
) -> Generator[tuple[int, _Result], None, None]:
    """Yield the number and the result of each item as soon as it is there. `states`: what each thread works with.

    With one state, the work is done here, in order. After an error, and if the caller takes no more results, the other
    threads end with their next pass; of several errors, that of the first item is raised.
    """
    if len(states) == 1:
        yield from ((number, work(states[0], item)) for number, item in enumerate(items))
        return
    free, ready, cancelled = SimpleQueue[_State](), Barrier(len(states) + 1), Event()
    for state in states:
        free.put(state)

    def run(item: _Item) -> _Result:
        state = free.get()
        try:
            with cancelled_by(cancelled):
                check_cancelled()
                return work(state, item)
        except BaseException:
            cancelled.set()
            raise
        finally:
            free.put(state)

    with ThreadPoolExecutor(len(states), "whichtoken", _use_one_thread, (ready,)) as pool:
        waiting = {pool.submit(copy_context().run, run, item): number for number, item in enumerate(items)}
        try:
            _reset_threads(ready)
            yield from _take_results(waiting)
        finally:
            cancelled.set()
            for future in waiting:
                future.cancel()
    _raise_first_error(waiting)


def _take_results(waiting: dict[Future[_Result], int]) -> Iterator[tuple[int, _Result]]:
    """Take each result out of `waiting` as soon as it is there, until an error."""
    while waiting:
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        if any(future.exception() is not None for future in done):
            return
        for future in sorted(done, key=waiting.__getitem__):
            yield waiting.pop(future), future.result()


def _raise_first_error(waiting: dict[Future[_Result], int]) -> None:
    """Raise the first error; Cancelled only if nothing else ended the work, so that the caller's own work ends, too."""
    failed = [future for future in sorted(waiting, key=waiting.__getitem__) if not future.cancelled()]
    errors = [error for future in failed if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Cancelled)):
        raise error


def _use_one_thread(ready: Barrier) -> None:
    """Let torch use one thread in this thread. Torch remembers the number for new threads, too: see below."""
    torch.get_num_threads()  # torch sets the number for a new thread at the first call that needs it: not later
    torch.set_num_threads(1)
    ready.wait()


def _reset_threads(ready: Barrier) -> None:
    """Wait for the threads to start; then let torch use as many threads in threads to come as in this one."""
    n_threads = torch.get_num_threads()
    ready.wait()
    torch.set_num_threads(n_threads)
