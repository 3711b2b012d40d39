"""A new task is one file: explain, degrade, bench, pictures and the command line work with it."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tasks.predicted_length import PredictedLength
from tests.tiny import CORPUS, KINDS, model_of, wordpiece

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.tasks import register, task, task_for

TEXT = "The film was slow, but the music was touching."


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register(PredictedLength)
    yield
    task._tasks.remove(PredictedLength)


def model() -> Any:
    return model_of("bert", labels=1, problem_type="regression")


@cache
def subject() -> wt.Subject:
    return wt.Subject(model(), KINDS["bert"].tokenizer(), name="length")


def value(ids: list[int]) -> float:
    with torch.no_grad():
        return float(subject().model(torch.tensor([ids])).logits.sigmoid())


def test_the_file_is_short() -> None:
    lines = (Path(__file__).parent / "predicted_length.py").read_text().splitlines()
    assert len(lines) < 80


def test_only_its_own_models_have_the_task() -> None:
    assert isinstance(task_for(subject()), PredictedLength)
    assert not isinstance(task_for(wt.Subject(model_of("bert"), wordpiece())), PredictedLength)


def test_explain_gives_scores_of_its_scalar() -> None:
    found = wt.explain(subject(), [TEXT, "very slow film"], ["gradient-x-input", "random"])
    record = found[0]["gradient-x-input"]
    assert (record.label, record.target) == ("length", wt.Class(0))
    ids = wordpiece()(TEXT)["input_ids"]
    assert record.probability == pytest.approx(value(ids), rel=1e-9)
    embedded = subject().model.bert.embeddings(torch.tensor([ids])).detach().requires_grad_()
    mask = torch.ones(1, 1, 1, len(ids), dtype=torch.bool)
    hidden = subject().model.bert.encoder(embedded, attention_mask=mask).last_hidden_state
    output = subject().model.classifier(subject().model.bert.pooler(hidden))
    (gradient,) = torch.autograd.grad(output[0, 0], embedded)
    assert record.scores == pytest.approx((gradient * embedded).sum(-1)[0].tolist(), rel=1e-9)


def test_degrade_removes_its_words() -> None:
    record = wt.explain(subject(), [TEXT], ["attcat"])[0]["attcat"]
    (curve,) = wt.degrade(subject(), [record])
    ids = wordpiece()(TEXT)["input_ids"]
    ranked = sorted(range(1, len(ids) - 1), key=lambda i: -record.scores[i])
    for step, p in enumerate(curve.probability):
        gone = ranked[: round(step / 10 * len(ranked))]
        assert p == pytest.approx(value([x for i, x in enumerate(ids) if i not in gone]), rel=1e-9)


def test_bench_measures_methods_on_it(tmp_path: Path) -> None:
    how = wt.bench.protocol(metrics=("aopc",), orders=("morf",))  # below, the command line measures all
    table = wt.bench.run(subject(), CORPUS, ["attcat", "random"], protocol=how, out=tmp_path / "bench")
    assert {line.method for line in table.lines} == {"attcat", "random"}
    assert "aopc delete morf tenths" in table.lines[0].cells
    assert (tmp_path / "bench" / "report.html").is_file()


def test_pictures_show_it(tmp_path: Path) -> None:
    result = wt.explain(subject(), [TEXT], ["attcat", "random"])
    assert "length" in wt.plot.to_html(result, tmp_path / "page.html")
    wt.plot.methods(result[0], tmp_path / "figure.png")
    assert wt.Attribution.from_json(result[0]["attcat"].to_json()) == result[0]["attcat"]


def test_the_command_line_takes_such_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model().float().save_pretrained(tmp_path / "model")
    wordpiece().save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text(CORPUS[0])
    chosen = ["--model", str(tmp_path / "model")]

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*words])
        assert ended.value.code == 0
        return capsys.readouterr().out

    assert json.loads(run("explain", TEXT, *chosen, "--method", "attcat", "--format", "json"))[0]["label"] == "length"
    assert "deletion" in run("compare", TEXT, *chosen, "--methods", "attcat,random")
    assert "AOPC" in run("bench", "--data", str(tmp_path / "texts.txt"), *chosen, "--methods", "attcat")
    assert "methods" in run("model", str(tmp_path / "model"))
