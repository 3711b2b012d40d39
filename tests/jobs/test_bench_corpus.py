"""bench_corpus: the same folder as bench.run writes, measured by workers; it resumes, and refuses another benchmark."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import CORPUS, model_of, wordpiece

import whichtoken as wt
from whichtoken.bench import folder as files
from whichtoken.cli.run import main
from whichtoken.errors import UsageError
from whichtoken.jobs import measuring
from whichtoken.jobs.work import Engine, OnReceipt, Range, Work, Worker
from whichtoken.render import report

TEXTS = [f"{text} {'slow ' * n}film" for n, text in enumerate(CORPUS * 4)]
METHODS = "attcat,gradient-x-input,random"
PROTOCOL = wt.bench.protocol(metrics=("aopc",), orders=("morf",), perturbations=("delete",), min_tokens=3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are measured in this process, the last first; figures take a second each."""

    def run(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        worker = Worker(work)
        for part in reversed(parts):
            on_receipt(worker(lambda p=part: work.read(*p), part).check())  # type: ignore[misc]

    monkeypatch.setattr(measuring, "run_parts", run)
    monkeypatch.setattr(files, "_write_figures", lambda *_: None)
    monkeypatch.setattr(report, "curves_png", lambda *_: b"")


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:9]) + "\n")
    (tmp_path / "b.csv").write_text("text\n" + "\n".join(f'"{text}"' for text in TEXTS[9:]) + "\n\u200b\n")
    return str(tmp_path / "[ab].*")


def results(folder: Path) -> dict[str, Any]:
    """The parts of a benchmark, without times."""
    parts = {path.name: json.loads(path.read_text("utf-8")) for path in sorted((folder / "parts").iterdir())}
    for part in parts.values():
        del part["sha256"]
        for record in part["inputs"]:
            for method in record["methods"].values():
                del method["seconds"]
    return parts


def test_the_parts_are_those_of_a_benchmark_in_one_process(data: str, model: str, tmp_path: Path) -> None:
    said: list[str] = []
    table = wt.jobs.bench_corpus(data, tmp_path / "out", model, METHODS, PROTOCOL, Engine(say=said.append))
    alone = wt.bench.run(model, TEXTS, METHODS, protocol=PROTOCOL, out=tmp_path / "alone")
    parts = results(tmp_path / "out")
    assert len(parts) > 1
    assert parts == results(tmp_path / "alone")
    assert [line.cells["aopc delete morf tenths"] for line in table.lines] == [
        line.cells["aopc delete morf tenths"] for line in alone.lines
    ]
    assert wt.bench.read_table(tmp_path / "out") == table
    assert [line.partition(";")[0] for line in said] == ["1 rows cannot be used and are left out"]


def test_an_interrupted_benchmark_resumes_and_another_is_refused(
    data: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        Worker(work)(lambda: work.read(*parts[0]), parts[0]).check()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "run_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            wt.jobs.bench_corpus(data, tmp_path / "out", model, METHODS, PROTOCOL)
    (kept,) = (tmp_path / "out" / "parts").iterdir()
    before = kept.stat().st_mtime_ns
    done: list[int] = []
    engine = Engine(show=lambda progress: done.append(progress.kept + progress.done))
    wt.jobs.bench_corpus(data, tmp_path / "out", model, METHODS, PROTOCOL, engine)
    assert kept.stat().st_mtime_ns == before
    assert done[-1] == len(TEXTS)
    with pytest.raises(UsageError, match="holds another benchmark"):
        wt.jobs.bench_corpus(data, tmp_path / "out", model, "attcat", PROTOCOL)


def test_the_command(data: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["corpus", "bench", "--data", data, "--model", model, "--method", "attcat,random", "--metrics", "aopc"]
    with pytest.raises(SystemExit) as ending:
        main([*call, "--min-tokens", "3", "--sample", "6", "--out", str(tmp_path / "out")])
    assert ending.value.code == 0
    shown = capsys.readouterr()
    assert "attcat" in shown.out
    assert f"written to {tmp_path / 'out'}: " in shown.err
