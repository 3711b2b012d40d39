"""Return freed memory to the operating system, so that a long run takes no more of it than its largest batch."""

import ctypes
from collections.abc import Callable
from functools import cache


def return_freed_memory() -> None:
    """Return free pages of the heap, if the C library is glibc; call it after work with large tensors.

    After the first large tensor is freed, glibc takes tensors of up to 32 MB from its heap, and it returns only the top
    of that. Batches of varying lengths leave gaps of varying sizes, all of them resident, and a benchmark grew to a
    multiple of what it used. (Fixing the size from which a tensor gets pages of its own, M_MMAP_THRESHOLD, would also
    help, but it doubles the time of a pass.)
    """
    trim = find_malloc_trim()
    if trim is not None:
        trim(0)


@cache
def find_malloc_trim() -> Callable[[int], int] | None:
    """Return a function of glibc; None if the C library is another one."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows, None is not a library
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim
