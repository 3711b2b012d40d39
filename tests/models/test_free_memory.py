"""How much memory is free, by the files of Linux: of the machine, and of the control groups of a container."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from whichtoken.models.memory import available_bytes, read_free_bytes

MACHINE = {"proc/meminfo": "MemTotal:       9000 kB\nMemFree:   10 kB\nMemAvailable:   8000 kB\n"}
FREE = 8000 * 1024
V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


def group(folder: str, limit: object, used: int, reclaimable: int = 0) -> dict[str, str]:
    """The files of a group of version 2."""
    stat = f"anon 7\nfile 900000\ninactive_file {reclaimable}\nactive_file 5\n"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


def old_group(folder: str, limit: object, used: int, reclaimable: int = 0) -> dict[str, str]:
    stat = f"inactive_file 1\ntotal_inactive_file {reclaimable}\n"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


def own(*lines: str) -> dict[str, str]:
    return {"proc/self/cgroup": "".join(f"{line}\n" for line in lines)}


CASES: dict[str, tuple[Mapping[str, str], int | None]] = {
    "nothing": ({}, None),
    "no groups": (MACHINE, FREE),
    "a limit": ({**MACHINE, **own("0::/"), **group(V2, 5000, 2000)}, 3000),
    "cached files": ({**MACHINE, **own("0::/"), **group(V2, 5000, 4000, 1500)}, 2500),
    "more cache than use": ({**MACHINE, **own("0::/"), **group(V2, 5000, 1000, 1500)}, 5000),
    "over the limit": ({**MACHINE, **own("0::/"), **group(V2, 5000, 6000)}, 0),
    "limit without machine": ({**own("0::/"), **group(V2, 5000, 2000)}, 3000),
    "limit above the machine": ({**MACHINE, **own("0::/"), **group(V2, 10**9, 2000)}, FREE),
    "max": ({**MACHINE, **own("0::/a"), **group(f"{V2}/a", "max", 2000)}, FREE),
    "own group": (
        {**MACHINE, **own("0::/a/b"), **group(f"{V2}/a", 9000, 0), **group(f"{V2}/a/b", 5000, 0)},
        5000,
    ),
    "parent": ({**MACHINE, **own("0::/a/b"), **group(f"{V2}/a", 4000, 0), **group(f"{V2}/a/b", 5000, 0)}, 4000),
    "another group": ({**MACHINE, **own("0::/a"), **group(f"{V2}/b", 4000, 0)}, FREE),
    "path of the host": ({**MACHINE, **own("0::/docker/x"), **group(V2, 4000, 0)}, 4000),
    "no usage": ({**MACHINE, **own("0::/"), f"{V2}/memory.max": "5000\n"}, FREE),
    "nonsense": ({**MACHINE, **own("x", "", "0::"), f"{V2}/memory.max": "-1 \x00", f"{V2}/memory.current": "1"}, FREE),
    "version 1": (
        {**MACHINE, **own("3:cpu:/a", "7:hugetlb,memory:/a"), **old_group(f"{V1}/a", 5000, 4000, 1500)},
        2500,
    ),
    "version 1 in docker": ({**MACHINE, **own("7:memory:/docker/x"), **old_group(V1, 5000, 4000)}, 1000),
    "version 1 without limit": ({**own("7:memory:/"), **old_group(V1, 9223372036854771712, 4000)}, None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_smallest_limit_counts(name: str, tmp_path: Path) -> None:
    files, free = CASES[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert read_free_bytes(tmp_path) == free


def test_unreadable_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_bytes(b"MemAvailable: \xff kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / V2 / "memory.max").mkdir(parents=True)
    assert read_free_bytes(tmp_path) is None


def test_this_machine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichtoken.models.memory.read_free_bytes", lambda root: 7 if root == Path("/") else None)
    assert available_bytes(torch.device("cpu")) == 7
