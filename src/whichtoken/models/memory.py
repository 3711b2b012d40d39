"""Memory: how much a pass needs, how much is free, and what to do if there is too little.

For a long input, the graph of a backward pass is too large to keep: relevance needs the attention matrices of every
block. Where a method only reads what lies between blocks, each block is recomputed when the backward pass reaches it.
A batch that does not fit is halved. Freed memory is returned to the operating system, so that a long run takes little
more of it than its largest batch.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from mmap import PAGESIZE
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from whichtoken.core.trace import Ask, Needs, Site
from whichtoken.lrp import ReappliedRules

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject

BETWEEN_BLOCKS = frozenset({Site.EMBEDDINGS, Site.HIDDEN})
LARGE = 2**30  # bytes of a graph that is not kept if it need not be
MATRICES = 6  # attention matrices of one block that are in memory at once, forward or backward


def estimate_graph(subject: "Subject", rows: int, tokens: int, fused: bool) -> int:
    """Return the size in bytes of the graph of a pass. `fused`: attention matrices are not computed."""
    config = subject.model.config
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    of_token = 12 * config.hidden_size + 4 * inner
    matrices = 0 if fused else 2 * config.num_attention_heads * tokens
    return int(subject.n_layers * rows * tokens * (of_token + matrices) * subject.model.dtype.itemsize)


def estimate_bytes(subject: "Subject", needs: Needs, tokens: int) -> int:
    """Return about how many bytes a method's passes over one row need, besides the model."""
    config = subject.model.config
    matrices = config.num_attention_heads * tokens**2 * subject.model.dtype.itemsize
    # Values and gradients are one set each; the graph that gradients need holds another.
    sets = (Site.ATTENTION in needs.values) + 2 * (Site.ATTENTION in needs.grads)
    unfused = bool(sets or needs.relevance or needs.view.hides) or subject.own_attention == "eager"
    sites = needs.values | needs.grads | {site for _, site in needs.relevance}
    differentiated = bool(needs.grads or needs.relevance or Ask.PASSES in needs.asks)
    graph = estimate_graph(subject, 1, tokens, not unfused) if differentiated else 0
    if sites <= BETWEEN_BLOCKS:
        graph = min(graph, max(LARGE, graph // subject.n_layers))
    between = subject.n_layers * tokens * config.hidden_size * subject.model.dtype.itemsize
    return int(sets * subject.n_layers * matrices + MATRICES * matrices * unfused + graph + between)


@contextmanager
def forget_inside(subject: "Subject") -> Iterator[None]:
    """Let the blocks of a twin forget what they compute in a forward pass; backward, they compute it again."""
    with ExitStack() as stack:
        for block in subject.blocks:
            # On the module itself, so that hooks on the block run once, in the forward pass.
            block.forward = partial(
                checkpoint,
                block.forward,
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=lambda: (nullcontext(), ReappliedRules()),
            )
            stack.callback(delattr, block, "forward")
        yield


@contextmanager
def compute_again() -> Iterator[None]:
    """Compute blocks whole, and not only up to the last tensor that is needed, so that the hooks after it fire, too."""
    with set_checkpoint_early_stop(False):
        yield


# How much memory is free: on the device, on the machine, and within the memory limits of a container.

NO_LIMIT = 2**60  # bytes; cgroup v1 writes a number near 2**63 where there is no limit


class GroupFiles(NamedTuple):
    """Where one version of Linux's control groups keeps the memory limit and the usage of a group."""

    folder: str
    limit: str
    used: str
    reclaimable: str  # field of memory.stat: cached files that are dropped when memory is needed


V2 = GroupFiles("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
V1 = GroupFiles("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(device: torch.device) -> int | None:
    """Return how much memory is free; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return read_free_bytes(Path("/"))


def read_free_bytes(root: Path) -> int | None:
    """Return how many bytes a process can still use, by Linux's files under `root`; None if they do not say.

    This is the smallest of what is free on the machine, in the process's control group and in the groups around it.
    """
    kilobytes = _read_field(root / "proc/meminfo", "MemAvailable:")
    free = [None if kilobytes is None else 1024 * kilobytes]
    free += [_read_group(folder, files) for folder, files in _find_groups(root)]
    return min((found for found in free if found is not None), default=None)


def _find_groups(root: Path) -> Iterator[tuple[Path, GroupFiles]]:
    """Yield the folders of the process's groups, from the outermost to its own.

    In a container, the outermost may be the process's own group, and the path of the latter may not exist.
    """
    for line in _read_lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        files = V1 if controllers else V2
        folder = root / files.folder
        yield folder, files
        for name in PurePosixPath(path).parts[1:]:
            folder /= name
            yield folder, files


def _read_group(folder: Path, files: GroupFiles) -> int | None:
    """Return how many bytes are left until a group's limit; None if it has none, or does not say."""
    limit, used = (_read_number(folder / name) for name in (files.limit, files.used))
    if limit is None or used is None or limit >= NO_LIMIT:
        return None
    reclaimable = _read_field(folder / "memory.stat", files.reclaimable) or 0
    return max(limit - max(used - reclaimable, 0), 0)


def _read_number(file: Path) -> int | None:
    """Return the number in a file; None if there is none, such as in "max"."""
    return next((int(line) for line in _read_lines(file) if line.isdecimal()), None)


def _read_field(file: Path, name: str) -> int | None:
    """Return the number after a name in a file of names and numbers; None if there is none."""
    fields = (line.split() for line in _read_lines(file))
    return next(
        (int(parts[1]) for parts in fields if parts[:1] == [name] and parts[1:2] and parts[1].isdecimal()), None
    )


def _read_lines(file: Path) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):
        return []


# Return freed memory to the operating system.

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


# Halve a batch that does not fit, instead of failing.

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
