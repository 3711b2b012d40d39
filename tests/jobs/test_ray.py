"""The Ray engine: the same shards as the local engine's, whoever dies on the way. All on 127.0.0.1."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.jobs.small_work import SmallWork
from tests.tiny import CORPUS, model_of, wordpiece

from whichtoken.errors import BadArtifact, UsageError
from whichtoken.identity import Identity
from whichtoken.jobs.explaining import ExplainWork, ModelChoice
from whichtoken.jobs.ray import FIRST, LAST, RayWorker, _connect, _count_workers, _read_block, describe_starvation
from whichtoken.jobs.shards import ShardStamp, read_shard
from whichtoken.jobs.work import Engine, Receipt

N_ROWS = 24
LIMIT = 900  # seconds that a job may take, on a busy machine


def test_workers_leave_a_cpu_for_reading_tasks() -> None:
    assert _count_workers(Engine("ray"), {"CPU": 4.0}) == 3
    assert _count_workers(Engine("ray", workers=2), {"CPU": 4.0}) == 2
    assert _count_workers(Engine("ray", gpus_per_worker=0.5), {"CPU": 16.0, "GPU": 2.0}) == 4
    for workers in (4, 5):
        with pytest.raises(UsageError, match=rf"{workers} workers would take every CPU .* starve.*use --workers 3"):
            _count_workers(Engine("ray", workers=workers), {"CPU": 4.0})
    with pytest.raises(UsageError, match=r"5 workers need 2\.5 GPUs, and the cluster has 2; use fewer workers"):
        _count_workers(Engine("ray", workers=5, gpus_per_worker=0.5), {"CPU": 16.0, "GPU": 2.0})
    with pytest.raises(UsageError, match=r"1 worker needs 0\.5 GPUs, and the cluster has 0; add GPUs, or leave out"):
        _count_workers(Engine("ray", gpus_per_worker=0.5), {"CPU": 16.0})


def test_a_job_that_does_not_move_because_no_cpu_is_free_says_so() -> None:
    assert describe_starvation({"CPU": 1.0}) == ""
    assert describe_starvation({"CPU": 0.5}) == ""
    for starving in ({}, {"CPU": 0.25}):
        assert "no CPU of the cluster is free" in describe_starvation(starving)


def test_rows_that_cannot_be_read_are_reported_in_one_line(tmp_path: Path) -> None:
    ranges, missing = pa.table({"first": [3], "last": [5]}), str(tmp_path / "missing")
    work = ExplainWork(ModelChoice(), Identity("", ""), {}, missing, {}, ShardStamp("0", ""))
    assert _read_block(SmallWork(missing), ranges).to_pylist()[-1] == {"row": 5, FIRST: 3, LAST: 5}
    (reported,) = RayWorker(work, None, 3)(_read_block(work, ranges)).to_pylist()
    with pytest.raises(BadArtifact, match=r"000003-000005\.parquet here; on a cluster, --out must be") as raised:
        Receipt(**reported).check()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("address", "value"), [(None, "0"), ("127.0.0.1:6379", "0"), ("ray://head:10001", None)])
def test_a_cluster_of_its_own_is_on_this_machine_alone(
    address: str | None, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this variable, Ray replaces 127.0.0.1 by the machine's address, where anybody can run code."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    with _connect(Engine("ray", ray_address=address)):
        assert os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") == value


@pytest.mark.slow
def test_a_part_that_kills_its_workers_ends_the_job(tmp_path: Path) -> None:
    script = Path(__file__).parent / "deadly_on_ray.py"
    call = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert "nodes: ['127.0.0.1']\n" in done.stdout, done.stderr[-2000:]
    assert "ShardFailed: workers died 2 times while they did rows 3 to 5; is there enough memory?" in done.stdout
    assert len(list(tmp_path.glob("death-*"))) == 2


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, texts, and the result of the local engine."""
    folder = tmp_path_factory.mktemp("job")
    model_of("bert").float().save_pretrained(folder / "model")
    wordpiece().save_pretrained(folder / "model")
    lines = [f"{CORPUS[i % len(CORPUS)]} {'slow ' * (i % 7)}film number {i}\n" for i in range(N_ROWS)]
    (folder / "x.txt").write_text("".join(lines))
    subprocess.run([*command(folder, folder / "local"), "--workers", "2"], check=True, timeout=LIMIT)
    return folder


def command(folder: Path, out: Path) -> list[str]:
    words = ["corpus", "explain", "--data", str(folder / "x.txt"), "--model", str(folder / "model")]
    return [
        sys.executable,
        "-m",
        "whichtoken",
        *words,
        "--method",
        "posterior",
        "--rows-per-part",
        "2",
        "--out",
        str(out),
    ]


def check_same(out: Path, local: Path) -> None:
    """Each row is there exactly once, and everything equals what the local engine wrote."""
    paths = sorted((out / "shards").iterdir())
    assert [path.name for path in paths] == [path.name for path in sorted((local / "shards").iterdir())]
    rows = [row for path in paths for row in read_shard(path)[0].column("row").to_pylist()]
    assert rows == list(range(N_ROWS))
    for path in paths:
        assert parquet.read_table(path).equals(parquet.read_table(local / "shards" / path.name)), path.name
    assert (out / "manifest.json").read_text() == (local / "manifest.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["node", "worker"])
def test_a_killed_node_or_worker_loses_nothing(victim: str, job: Path, tmp_path: Path) -> None:
    script = Path(__file__).parent / "on_ray.py"
    call = [sys.executable, str(script), str(job / "x.txt"), str(job / "model"), str(tmp_path / "out"), victim]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"killed a {victim}\n" in done.stdout
    assert f"{N_ROWS} rows explained\n" in done.stdout
    check_same(tmp_path / "out", job / "local")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "local"])
def test_a_killed_driver_is_started_again(engine: str, job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call = [*command(job, out), "--engine", engine, "--workers", "2"]
    first = subprocess.Popen(call, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LIMIT
        while len(list((out / "shards").glob("*.parquet"))) < 3:
            assert first.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert not (out / "manifest.json").exists()
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "shards").glob("*.parquet")}
    assert 3 <= len(kept) < N_ROWS / 2
    subprocess.run(call, check=True, timeout=LIMIT)
    assert {name: (out / "shards" / name).stat().st_mtime_ns for name in kept} == kept
    check_same(out, job / "local")
