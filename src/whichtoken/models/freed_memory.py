"""Return freed memory to the operating system, so that a long run takes little more of it than its largest batch."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from mmap import PAGESIZE
from pathlib import Path

STATUS = Path("/proc/self/statm")  # of Linux: sizes in pages, the second one resident
SLACK = 1.05  # times the memory of the largest batch may be resident
KEPT = 2**28  # bytes that may stay resident after a call: the next one need not wait for the system to clear them


@dataclass
class _Watch:
    """What is known about the memory of this process. Threads share it: at worst, one trim is too many or too late."""

    allowed: float = 0.0  # pages
    is_clean: bool = True  # nothing that was freed was resident before the last batch
    returned: int = 0  # pages that were resident after the last trim


_watch = _Watch()


def return_freed_memory() -> None:
    """Return all free pages of the heap, if the C library is glibc; call it after work with large tensors."""
    trim = find_malloc_trim()
    if trim is not None:
        trim(0)
        _watch.is_clean, _watch.returned = True, _resident_pages() or 0


def return_memory_after_call() -> None:
    """Return free pages of the heap if the process has grown much since the last time; call it at the end of a call.

    The system has to clear fresh pages, which would slow down calls for one text.
    """
    resident = _resident_pages()
    _watch.returned = min(_watch.returned, resident or 0)  # the user may have deleted a model meanwhile
    if resident is None or (resident - _watch.returned) * PAGESIZE > KEPT:
        return_freed_memory()


def bound_freed_memory() -> None:
    """Return free pages of the heap if there are many; call it after each of many batches.

    After the first large tensor is freed, glibc takes tensors of up to 32 MB from its heap, and it returns only the top
    of that. Batches of varying lengths leave gaps of varying sizes, all of them resident, and a benchmark grew to a
    multiple of what it used. Returning the gaps after every batch, or pages of its own for each tensor
    (M_MMAP_THRESHOLD), makes a pass slower by 10 to 100 %, since fresh pages have to be cleared. So what a batch needs
    on a clean heap is measured, and gaps are returned once they add a twentieth to that.
    """
    resident = _resident_pages()
    if resident is None or (not _watch.is_clean and resident > _watch.allowed):
        return_freed_memory()
    elif _watch.is_clean:
        _watch.allowed, _watch.is_clean = max(_watch.allowed, SLACK * resident), False


def _resident_pages() -> int | None:
    """Return the size of this process in memory; None if the system is not Linux."""
    try:
        return int(STATUS.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None


@cache
def find_malloc_trim() -> Callable[[int], int] | None:
    """Return a function of glibc; None if the C library is another one."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows, None is not a library
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim
