"""A corpus job and a benchmark that are killed with SIGKILL at ten random moments, and started again each time."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from tests.tiny import CORPUS, model_of, wordpiece

from whichtoken.bench.folder import read_table
from whichtoken.jobs.shards import read_shard

N_KILLS = 10
N_ROWS = 112
LIMIT = 1800  # seconds that a job may take, on a busy machine
PAUSE = 0.4  # seconds, the longest time between the part that is waited for and the kill


def read_measured(path: Path) -> Any:
    """A part of a benchmark, without times and without the hash, which covers them."""
    part = json.loads(path.read_text("utf-8"))
    del part["sha256"]
    for record in part["inputs"]:
        for method in record["methods"].values():
            del method["seconds"]
    return part


def read_summary(out: Path) -> Any:
    """What a finished corpus job holds besides its shards."""
    return json.loads((out / "manifest.json").read_text("utf-8")), parquet.read_table(out / "failures.parquet")


def read_results(out: Path) -> Any:
    """What a finished benchmark holds besides its parts, without times."""
    lines = [
        (line.method, {name: cell for name, cell in line.cells.items() if name != "seconds"})
        for line in sorted(read_table(out).lines, key=lambda line: line.method)
    ]
    return lines, parquet.read_table(out / "results.parquet").drop_columns(["seconds"])


@dataclass(frozen=True)
class Kind:
    """A kind of job: its options, the folder of its parts, and how these and the rest of its folder are read."""

    options: Sequence[str]
    parts: str
    read_part: Callable[[Path], Any]
    read_rest: Callable[[Path], Any]

    def read_parts(self, out: Path) -> dict[str, Any]:
        return {path.name: self.read_part(path) for path in find_parts(out / self.parts)}


KINDS = {
    "explain": Kind(
        ("--method", "posterior,attcat", "--rows-per-part", "8"),
        "shards",
        read_shard,  # checks the hash
        read_summary,
    ),
    "bench": Kind(
        ("--method", "posterior,attcat,random", "--metrics", "aopc", "--min-tokens", "3"),
        "parts",
        read_measured,
        read_results,
    ),
}


def find_parts(folder: Path) -> list[Path]:
    """The finished parts; those that are being written have names that begin with a dot."""
    return sorted(path for path in folder.glob("*") if not path.name.startswith("."))


def date_parts(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in find_parts(folder)}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, texts, and what undisturbed jobs of the local engine write."""
    folder = tmp_path_factory.mktemp("job")
    model_of("bert").float().save_pretrained(folder / "model")
    wordpiece().save_pretrained(folder / "model")
    lines = [f"{CORPUS[i % len(CORPUS)]} {'slow ' * (i % 7)}film number {i}\n" for i in range(N_ROWS)]
    (folder / "x.txt").write_text("".join(lines))
    for kind in KINDS:
        subprocess.run(command(kind, "local", folder, folder / kind), check=True, timeout=LIMIT, capture_output=True)
    return folder


def command(kind: str, engine: str, folder: Path, out: Path) -> list[str]:
    data = ["--data", str(folder / "x.txt"), "--model", str(folder / "model"), "--out", str(out)]
    run = [sys.executable, "-m", "whichtoken", "corpus", kind, *data, *KINDS[kind].options]
    return [*run, "--engine", engine, "--workers", "2"]


def run_and_kill(call: Sequence[str], parts: Path, n_parts: int, pause: float, everything: bool) -> bool:
    """Start a job, kill it a while after so many parts are there, and return whether it was still running.

    `everything`: kill its workers, too, which otherwise end by themselves.
    """
    job = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + LIMIT
        while len(find_parts(parts)) < n_parts and job.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(pause)
    finally:
        was_running = job.poll() is None
        if was_running:
            (os.killpg if everything else os.kill)(job.pid, signal.SIGKILL)
            job.wait()
    return was_running


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_job_that_is_killed_ten_times_ends_with_the_same_result(
    engine: str, name: str, job: Path, tmp_path: Path
) -> None:
    """From before its first part to after its last one; all parts are right after each kill, and none is done again."""
    drawn, kind, out = random.Random(f"{engine} {name}"), KINDS[name], tmp_path / "out"
    call, expected = command(name, engine, job, out), kind.read_parts(job / name)
    assert len(expected) > N_KILLS / 2
    kept: dict[str, int] = {}
    n_killed = 0
    for n_parts in sorted(drawn.choices(range(len(expected) + 1), k=N_KILLS)):
        moment = (n_parts, drawn.uniform(0, PAUSE), drawn.random() < 0.5)
        n_killed += run_and_kill(call, out / kind.parts, *moment)
        dates = date_parts(out / kind.parts)
        assert {part: dates[part] for part in kept} == kept, moment
        found = kind.read_parts(out)
        assert not [part for part in found if found[part] != expected[part]], moment
        print(f"{engine} {name}: {moment}, {n_killed} kills, {len(found)} of {len(expected)} parts", flush=True)
        kept = date_parts(out / kind.parts)
    again = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert again.returncode == 0, again.stderr[-2000:]
    assert kind.read_parts(out) == expected
    assert kind.read_rest(out) == kind.read_rest(job / name)
    assert n_killed > N_KILLS / 2  # the last runs may end before they are killed
