"""Engines: every part is done, whatever dies; errors of a part are errors of the job."""

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.small_work import SmallWork

from whichtoken.errors import BadInput, BadSetting, ShardFailed
from whichtoken.jobs.progress import JobProgress, format_time
from whichtoken.jobs.work import Engine, Receipt, Worker, run_parts

PARTS = [(0, 2), (3, 5), (6, 8), (9, 9)]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if "-" in path.name and path.name[0].isdigit()}


WHOLE = {"0-2": "0 1 2\n", "3-5": "3 4 5\n", "6-8": "6 7 8\n", "9-9": "9\n"}


def test_worker_processes_do_every_part_once_even_if_one_is_killed(tmp_path: Path) -> None:
    said, receipts = list[str](), list[Receipt]()
    engine = Engine("local", workers=2, say=said.append)
    run_parts(engine, SmallWork(str(tmp_path), deadly=6, deaths=1), PARTS, receipts.append)
    assert sorted((receipt.first, receipt.last) for receipt in receipts) == PARTS
    finished = contents(tmp_path)
    assert {name: text.splitlines(keepends=True)[0] for name, text in finished.items()} == WHOLE
    assert len(said) == 1
    assert said[0].startswith("a worker process died; ")


def test_a_part_that_kills_every_worker_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(ShardFailed, match=r"died 2 times in a row without finishing .* __name__"):
        run_parts(Engine(workers=1, retries=1), SmallWork(str(tmp_path), 0, 9), PARTS[:1], lambda _: None)
    assert contents(tmp_path) == {}


def test_a_part_that_kills_every_worker_comes_last(tmp_path: Path) -> None:
    """At the front, it would end every pool after the few parts that other workers finish meanwhile."""
    parts = [(3 * i, 3 * i + 2) for i in range(8)]
    with pytest.raises(ShardFailed, match="died 2 times in a row without finishing a part"):
        run_parts(Engine(workers=1, retries=1), SmallWork(str(tmp_path), 3, 9), parts, lambda _: None)
    assert len(contents(tmp_path)) == 7
    assert len(list(tmp_path.glob("death-*"))) <= 5


def test_an_error_of_a_part_is_the_error_of_the_job(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^input 3 has no words$"):
        run_parts(Engine(workers=1), SmallWork(str(tmp_path), wrong=3), PARTS, lambda _: None)
    assert contents(tmp_path)["0-2"] == WHOLE["0-2"]


def test_deaths_count_only_until_a_part_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a million parts may lose many workers, one now and then."""

    def finish_one_and_die(work: Any, workers: int, left: dict[Any, None], on_receipt: Any) -> None:
        if (0, 2) in left and len(left) == 1:
            raise BrokenProcessPool  # without any progress
        del left[next(part for part in left if part != (0, 2))]
        raise BrokenProcessPool

    monkeypatch.setattr("whichtoken.jobs.local._run_pool", finish_one_and_die)
    said = list[str]()
    parts = [*PARTS, *((i, i) for i in range(10, 20))]
    run_parts(Engine(retries=1, say=said.append), SmallWork(str(tmp_path)), parts[1:], lambda _: None)
    assert len(said) == 13
    with pytest.raises(ShardFailed, match="died 2 times in a row"):
        run_parts(Engine(retries=1), SmallWork(str(tmp_path)), parts[:2], lambda _: None)


def test_ctrl_c_while_a_worker_starts_waits_until_the_pool_can_be_shut_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[int] = []

    class Pool(ProcessPoolExecutor):
        def submit(self, *args: Any, **more: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            future = super().submit(*args, **more)
            finished.append(len(finished))
            return future

        def shutdown(self, *args: Any, **more: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            super().shutdown(*args, **more)
            finished.append(-1)

    monkeypatch.setattr("whichtoken.jobs.local.ProcessPoolExecutor", Pool)
    before, others = signal.getsignal(signal.SIGINT), set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt):
        run_parts(Engine(workers=1), SmallWork(str(tmp_path)), PARTS, lambda _: None)
    assert finished == [0, 1, -1]
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert set(multiprocessing.active_children()) <= others


def test_a_worker_reports_errors_as_data(tmp_path: Path) -> None:
    worker = Worker(SmallWork(str(tmp_path), wrong=0, odd=3))
    wrong, odd, right = (worker(lambda p=part: worker.work.read(*p), part) for part in PARTS[:3])  # type: ignore[misc]
    assert (wrong.kind, wrong.error) == ("BadInput", "input 0 has no words")
    with pytest.raises(ShardFailed, match=r"rows 3 to 5 cannot be done: .*nothing to divide"):
        odd.check()
    assert right.check() is right
    assert right.n_rows == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "dask"}, "engine='dask' is not allowed; it must be 'local' or 'ray'"),
        ({"workers": 0}, "workers=0"),
        ({"gpus_per_worker": 0.5}, "gpus_per_worker=0.5 .* the engine 'ray'"),
        ({"name": "ray", "gpus_per_worker": -1.0}, "at least 0"),
        ({"ray_address": "auto"}, "ray_address='auto' .* the engine 'ray'"),
    ],
)
def test_engines_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        Engine(**settings)  # type: ignore[arg-type]


def test_progress_says_rows_rate_time_left_workers_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("whichtoken.jobs.progress.monotonic", lambda: now[0])
    progress = JobProgress(1000, kept=400, workers=2, max_failures=3, started=100.0)
    now[0] = 110.0
    progress(Receipt(400, 499, n_failed=2))
    assert progress.describe() == "500 of 1,000 rows, 10.0 rows/s, 50 s left, 2 workers, 2 failed"
    with pytest.raises(ShardFailed, match="4 rows failed, and --max-failures allows 3; finished parts are kept"):
        progress(Receipt(500, 599, n_failed=2))
    assert [format_time(seconds) for seconds in (89, 120, 5400 * 2)] == ["89 s", "2 min", "3.0 h"]
