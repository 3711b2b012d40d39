"""Work on several cores: the same results as on one, errors of the first item, and an end when nobody waits."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.tiny import WORDS, with_references

import whichtoken as wt
from whichtoken.models import count_workers, map_on_cores
from whichtoken.models.cancelling import Cancelled, check_cancelled

SubjectOf = Callable[..., wt.Subject]
TEXTS = [" ".join(WORDS[: 3 + number % 5]) for number in range(12)]


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_have_their_numbers_and_each_thread_its_own_state() -> None:
    meeting, used = threading.Barrier(2), set()

    def work(state: str, item: int) -> int:
        if item < 2:
            meeting.wait(10)  # both threads are at work at the same time
        used.add((state, threading.get_ident()))
        return item * item

    found = dict(map_on_cores(work, ["a", "b"], range(6)))
    assert found == {n: n * n for n in range(6)}
    assert {state for state, _ in used} == {"a", "b"}
    assert threading.get_ident() not in {thread for _, thread in used}


def test_the_error_of_the_first_item_is_raised_and_nothing_more_is_begun() -> None:
    meeting, begun = threading.Barrier(2), []

    def work(state: int, item: int) -> None:
        begun.append(item)
        meeting.wait(10)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        list(map_on_cores(work, [1, 2], range(9)))
    assert sorted(begun) == [0, 1]


def test_passes_end_when_nobody_takes_further_results() -> None:
    started, ended = threading.Event(), []

    def work(state: int, item: int) -> int:
        if item == 0:
            started.wait(10)
            return 0
        started.set()
        try:
            while True:
                check_cancelled()
        except Cancelled:
            ended.append(item)
            raise

    results = map_on_cores(work, [1, 2], range(2))
    assert next(results) == (0, 0)
    results.close()
    assert ended == [1]


@pytest.mark.usefixtures("_two_threads")
def test_threads_use_one_thread_of_torch_each_and_the_caller_keeps_its_own() -> None:
    inside = [n for _, n in map_on_cores(lambda state, item: torch.get_num_threads(), [1, 2], range(4))]
    assert inside == [1] * 4
    assert torch.get_num_threads() == 2
    late: list[int] = []
    thread = threading.Thread(target=lambda: late.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert late == [2]


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("method", ["attcat", "posterior", "contrast-cat", "attn-lrp", "integrated-gradients"])
def test_two_threads_explain_as_one_does(method: str, subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, used = with_references(subject_of("bert")), set()
    monkeypatch.setattr("whichtoken.scoring.TOKENS_PER_BATCH", 24)
    monkeypatch.setattr("whichtoken.scoring.SLOW_TOKENS", 24)
    torch.set_num_threads(1)
    alone = wt.explain(subject, TEXTS, method)
    torch.set_num_threads(2)
    original = wt.Subject.forward

    def forward(self: wt.Subject, batch: object) -> object:
        used.add(threading.get_ident())
        return original(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(wt.Subject, "forward", forward)
    together = wt.explain(subject, TEXTS, method)
    assert len(used - {threading.get_ident()}) == 2
    assert [r[method].scores for r in together] == [r[method].scores for r in alone]


@pytest.mark.usefixtures("_two_threads")
def test_a_benchmark_on_two_threads_equals_one_on_one(subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, how = subject_of("bert"), wt.bench.protocol(metrics=("aopc",), min_tokens=1)
    monkeypatch.setattr("whichtoken.bench._run.INPUTS_AT_ONCE", 3)
    tables = []
    for n_threads in (1, 2):
        torch.set_num_threads(n_threads)
        table = wt.bench.run(subject, TEXTS, ["attcat", "leave-one-out"], protocol=how)
        tables.append({line.method: {k: c for k, c in line.cells.items() if k != "seconds"} for line in table.lines})
    for name, cells in tables[0].items():
        assert {k: c.mean for k, c in cells.items()} == pytest.approx({k: c.mean for k, c in tables[1][name].items()})


@pytest.mark.usefixtures("_two_threads")
def test_a_benchmark_on_two_threads_saves_parts_that_one_thread_reads(
    subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subject, how = subject_of("bert"), wt.bench.protocol(metrics=("aopc",), min_tokens=1)
    monkeypatch.setattr("whichtoken.bench._run.INPUTS_AT_ONCE", 3)
    table = wt.bench.run(subject, TEXTS, ["attcat"], protocol=how, out=tmp_path / "bench")
    torch.set_num_threads(1)
    monkeypatch.setattr("whichtoken.bench._run.measure", None)  # nothing is left to measure
    again = wt.bench.run(subject, TEXTS, ["attcat"], protocol=how, out=tmp_path / "bench")
    assert [line.cells for line in again.lines] == [line.cells for line in table.lines]


@pytest.mark.usefixtures("_two_threads")
def test_a_part_that_cannot_be_saved_ends_all_workers(
    subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subject, how = subject_of("bert"), wt.bench.protocol(metrics=("aopc",), min_tokens=1)
    monkeypatch.setattr("whichtoken.bench._run.INPUTS_AT_ONCE", 1)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("whichtoken.bench.folder.Folder.save_part", fail)
    with pytest.raises(OSError, match="the disk is full") as caught:
        wt.bench.run(subject, TEXTS, ["attcat"], protocol=how, out=tmp_path / "bench")
    assert caught.traceback  # keeps the frames of the error alive
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("whichtoken")]


@pytest.mark.usefixtures("_two_threads")
def test_hooks_of_the_user_and_mixed_precision_keep_the_work_in_the_calling_thread(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    assert count_workers(subject, 5) == 2
    assert count_workers(subject, 1) == 1
    with torch.autocast("cpu"):
        assert count_workers(subject, 5) == 1
    with subject.model.register_forward_hook(lambda *_: None):
        assert count_workers(subject.with_twin(), 5) == 1
