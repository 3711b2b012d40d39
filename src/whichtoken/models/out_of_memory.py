"""Halve a batch that does not fit in memory, instead of failing."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from whichtoken.models.freed_memory import return_freed_memory

# How torch says it in errors that have no type of their own: on Linux, on Windows, on Apple's GPUs.
MESSAGES = ("can't allocate memory", "not enough memory", "MPS backend out of memory")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in MESSAGES)


def halve_if_needed(work: Callable[[Sequence[_Item]], list[_Result]], items: Sequence[_Item]) -> list[_Result]:
    """Return what `work` makes of all items together; if memory runs out, what it makes of each half, and so on.

    The error is raised if a single item is too large.
    """
    try:
        return work(items)
    except (RuntimeError, MemoryError) as error:
        if len(items) <= 1 or not is_out_of_memory(error):
            raise
    # Not inside the `except` block: there, the error's traceback would keep the tensors of the failed pass alive.
    return_freed_memory()
    half = len(items) // 2
    return [*halve_if_needed(work, items[:half]), *halve_if_needed(work, items[half:])]
