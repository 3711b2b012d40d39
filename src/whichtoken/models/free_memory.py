"""How much memory is free: on the device, on the machine, and within the memory limits of a container."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import torch

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
