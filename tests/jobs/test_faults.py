"""What goes wrong from outside: a full disk, a folder that may not be written, blocks that were changed."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from pyarrow import parquet
from tests.tiny import CORPUS, FATAL, model_of, panicking_tokenizer, wordpiece

import whichtoken as wt
from whichtoken._explain import explain_each
from whichtoken.atomic_write import open_whole, writing
from whichtoken.data.examples import TextExample
from whichtoken.errors import BadArtifact, ShardFailed, UsageError
from whichtoken.jobs import _corpus, explaining, files, shards
from whichtoken.jobs.shards import read_info
from whichtoken.jobs.work import Engine, OnReceipt, Range, Work, Worker


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "x.txt").write_text("\n".join(CORPUS * 2) + "\n")
    return str(tmp_path / "x.txt")


def run_here(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
    worker = Worker(work)
    for part in parts:
        on_receipt(worker(lambda p=part: work.read(*p), part).check())  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_corpus, "run_parts", run_here)


def explain(data: str, out: Path, model: str, rows_per_part: int = 4) -> wt.jobs.CorpusManifest:
    return wt.jobs.explain_corpus(data, out, model, "attcat", wt.jobs.ExplainOptions(rows_per_part=rows_per_part))


def test_a_full_disk_ends_the_job_and_keeps_what_is_finished(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    @contextmanager
    def fill_up(path: Path, **options: bool) -> Iterator[IO[bytes]]:
        with open_whole(path, **options) as file:
            if path.name == "000008-000011.parquet":
                file.write(b"PAR1")
                with writing(path):
                    raise OSError(errno.ENOSPC, "No space left on device")
            yield file

    with monkeypatch.context() as patch:
        patch.setattr(shards, "open_whole", fill_up)
        message = r"000008-000011\.parquet cannot be written: No space left on device$"
        with pytest.raises(UsageError, match=message):
            explain(data, out, model)
    finished = {path.name: read_info(path).sha256 for path in sorted((out / "shards").iterdir())}
    assert list(finished) == ["000000-000003.parquet", "000004-000007.parquet"]
    assert not (out / "manifest.json").exists()
    manifest = explain(data, out, model)
    assert dict(manifest.shards[:2]) == finished
    assert manifest.n_explained == 12


def test_blocks_that_were_changed_are_not_explained(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change_first(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        blocks = sorted((tmp_path / "out" / ".blocks").glob("*.parquet"))
        shutil.copy(blocks[1], blocks[0])
        run_here(engine, work, parts, on_receipt)

    monkeypatch.setattr(_corpus, "run_parts", change_first)
    with pytest.raises(BadArtifact, match="does not hold the rows that were written there"):
        explain(data, tmp_path / "out", model)


def fail_for(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[str], bool], error: Exception) -> None:
    """Let the model's code raise an error that names no row, if a batch has a bad text."""

    def explain(subject: wt.Subject, examples: list[TextExample], *args: Any, **options: Any) -> Any:
        if any(is_bad(example.texts[0]) for example in examples):
            raise error
        return explain_each(subject, examples, *args, **options)

    monkeypatch.setattr(explaining, "explain_each", explain)


def test_rows_for_which_the_model_fails_are_found_and_listed(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = CORPUS[1]
    expected = [number for number, text in enumerate(CORPUS * 2) if text == bad]
    fail_for(monkeypatch, lambda text: text == bad, RuntimeError("sizes 3 and 4 differ"))
    manifest = explain(data, tmp_path / "out", model)
    failures = parquet.read_table(tmp_path / "out" / "failures.parquet").to_pylist()
    assert [failed["row"] for failed in failures] == expected
    assert {failed["reason"] for failed in failures} == {"the model fails: sizes 3 and 4 differ"}
    assert (manifest.n_failed, manifest.n_explained) == (len(expected), 12 - len(expected))


def test_rows_on_which_the_tokenizer_panics_are_listed(model: str, tmp_path: Path) -> None:
    brittle, data = tmp_path / "brittle", tmp_path / "x.txt"
    shutil.copytree(model, brittle)
    panicking_tokenizer().save_pretrained(brittle)
    data.write_text("\n".join([*CORPUS[:3], FATAL, *CORPUS[3:], FATAL]) + "\n")
    manifest = explain(str(data), tmp_path / "out", str(brittle))
    assert (manifest.n_explained, manifest.n_failed) == (len(CORPUS), 2)
    failures = parquet.read_table(tmp_path / "out" / "failures.parquet").to_pylist()
    assert [failed["row"] for failed in failures] == [3, len(CORPUS) + 1]
    assert {failed["reason"][:22] for failed in failures} == {"the tokenizer fails on"}


def test_a_model_that_fails_for_every_row_ends_the_job(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_for(monkeypatch, lambda text: True, RuntimeError("no such operator"))
    with pytest.raises(ShardFailed, match="the model fails for every row: no such operator"):
        explain(data, tmp_path / "out", model, rows_per_part=12)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_small_part_of_rows_that_fail_does_not_end_the_job(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = (CORPUS * 2)[4:8]
    fail_for(monkeypatch, lambda text: text in bad, RuntimeError("sizes 3 and 4 differ"))
    assert explain(data, tmp_path / "out", model).n_failed >= 4


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        MemoryError("no memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_errors_of_the_machine_are_not_blamed_on_rows(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_for(monkeypatch, lambda text: text == CORPUS[1], error)
    with pytest.raises(ShardFailed, match="cannot be done"):
        explain(data, tmp_path / "out", model)


def test_a_mistaken_command_that_is_interrupted_does_not_harm_the_job(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of an unfinished job were overwritten with other rows; they are read again."""
    out, other = tmp_path / "out", tmp_path / "other.txt"
    other.write_text("\n".join(reversed(CORPUS * 2)) + "\n")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_corpus, "run_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            explain(data, out, model)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_whole", stop)  # the index is written after the blocks
        with pytest.raises(KeyboardInterrupt):
            explain(str(other), out, model)
    assert explain(data, out, model).n_explained == 12


def test_writing_a_part_does_not_list_the_folder(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many parts, it would take longer than the parts; what killed workers left is removed once, at the start."""
    cleared: list[Path] = []
    monkeypatch.setattr("whichtoken.atomic_write.clear_abandoned", cleared.append)
    explain(data, tmp_path / "out", model)
    assert not [folder for folder in cleared if folder.name == "shards"]
    assert len([folder for folder in cleared if folder.name == ".blocks"]) == 1  # for the index


COMMANDS = {
    "explain": ("explain", "--method", "attcat", "--rows-per-part", "2"),
    "bench": ("bench", "--methods", "attcat", "--quick"),
}


@pytest.mark.slow  # processes that import torch
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("event", ["worker", "part"])
def test_ctrl_c_is_one_line_and_leaves_no_process(
    command: str, event: str, data: str, model: str, tmp_path: Path
) -> None:
    """A terminal sends it to all processes of the job: while workers start, and when they have finished a part."""
    Path(data).write_text("\n".join(CORPUS * 500) + "\n")
    out = tmp_path / "out"
    words = ["--data", data, "--model", model, "--workers", "2", "--out", str(out)]
    job = subprocess.Popen(
        [sys.executable, "-m", "whichtoken", "corpus", *COMMANDS[command], *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    whole = psutil.Process(job.pid)
    while job.poll() is None:
        folder = out / ("shards" if command == "explain" else "parts")
        if list(folder.glob("*.*")) if event == "part" else len(whole.children()) > 1:  # one child is not a worker
            break
        with suppress(subprocess.TimeoutExpired):
            job.wait(0.02)
    os.killpg(job.pid, signal.SIGINT)
    _, err = job.communicate(timeout=120)  # ends when no process has the pipe any more
    assert job.returncode == 130, err
    lines = [line for line in err.splitlines() if " rows" not in line]  # without those of progress
    assert lines == ["whichtoken: interrupted"]


@pytest.mark.slow
def test_a_small_disk(data: str, model: str, tmp_path: Path) -> None:
    """A disk of 64 kB, mounted in a namespace of its own: first too small for the shards, then large enough."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("this user cannot mount a disk")
    Path(data).write_text("\n".join(CORPUS * 20) + "\n")
    disk = tmp_path / "disk"
    disk.mkdir()
    explain_command = (
        f"{sys.executable} -m whichtoken corpus explain --data {data} --model {model} --method attcat "
        f"--rows-per-part 8 --workers 1 --out {disk}/out"
    )
    script = f"""
    mount -t tmpfs -o size=64k tmpfs {disk} || exit 77
    {explain_command}; echo "code $?"; ls {disk}/out/shards | wc -l
    mount -o remount,size=4m {disk}
    {explain_command}; echo "code $?"; ls {disk}/out/shards | wc -l
    """
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this user cannot mount a disk")
    first, kept, second, n_shards = done.stdout.split("\n")[:4]
    assert first in ("code 2", "code 1"), done.stderr
    assert "cannot be written: No space left on device" in done.stderr
    assert int(kept) < 15
    assert (second, n_shards) == ("code 0", "15"), done.stderr
