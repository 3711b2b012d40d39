"""Benchmarks and the command line with a model that predicts a value."""

import csv
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow import parquet
from tests.tiny import CORPUS, model_of, wordpiece

import whichtoken as wt
from whichtoken.bench.auto import best_method
from whichtoken.cli.run import main
from whichtoken.errors import BadSetting, UsageError
from whichtoken.metrics.curves import aopc
from whichtoken.records import Reading

METHODS = ["attcat", "random"]
TEXTS = [text for text in CORPUS if len(text) > 25]


@cache
def subject(**config: Any) -> wt.Subject:
    model = model_of("bert", labels=1, id2label={0: "LABEL_0"}, **{"problem_type": "regression", **config})
    return wt.Subject(model, wordpiece(), name="tiny")


def small(**settings: Any) -> Any:
    return wt.bench.protocol(**{"perturbations": ("delete",), "orders": ("morf",), **settings})


def test_a_benchmark_measures_the_change_of_the_value(tmp_path: Path) -> None:
    how = small(metrics=("aopc", "log-odds", "auc", "normalised-aopc", "comprehensiveness", "kendall", "signs"))
    table = wt.bench.run(subject(), TEXTS, METHODS, protocol=how, out=tmp_path / "out")
    expected = []
    for text in TEXTS:
        (curve,) = wt.degrade(subject(), [wt.explain(subject(), [text], ["attcat"])[0]["attcat"]])
        expected.append(aopc(curve))
    (line,) = (line for line in table.lines if line.method == "attcat")
    assert line.cells["aopc delete morf tenths"].mean == pytest.approx(sum(expected) / len(expected))
    assert 0 <= line.cells["normalised-aopc delete morf tenths"].mean <= 1
    assert {column.metric for column in table.columns} == {
        *("aopc", "auc", "normalised-aopc", "comprehensiveness", "seconds", "evaluations")
    }
    abouts = {column.metric: column.about for column in table.columns}
    assert abouts["aopc"] == "mean drop of the predicted value over the steps"
    assert not any("probability" in about for about in abouts.values())
    facts = dict(table.facts)
    assert facts["output"] == "LABEL_0: regression, the change of the predicted value"
    assert "class" not in facts
    assert table.reading == "value"
    assert (
        "Left out, because they need probabilities or classes and this model predicts a value: "
        "log-odds, kendall, signs." in table.notes
    )
    assert {trend.metric for trend in table.trends} == {"aopc"}
    rows = parquet.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert "probability" not in rows[0]
    assert len(rows[0]["value"]) == 10
    assert wt.bench.read_table(tmp_path / "out") == table
    again = wt.bench.run(subject(), TEXTS, METHODS, protocol=how, out=tmp_path / "out")  # from the saved parts
    assert again.lines == table.lines


def test_folders_of_classifiers_are_written_as_before_and_are_of_one_reading(tmp_path: Path) -> None:
    one, how = subject(problem_type=None), small(metrics=("aopc",))
    wt.bench.run(one, TEXTS, METHODS, protocol=how, out=tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "table.json").read_text())
    assert "reading" not in stored
    assert wt.bench.read_table(tmp_path / "out").reading == "probability"
    with pytest.raises(UsageError, match=r"holds another benchmark \(reading was None, now 'value'\)"):
        wt.bench.run(replace(one, reading="value"), TEXTS, METHODS, protocol=how, out=tmp_path / "out")
    with pytest.raises(UsageError, match=r"out measures a probability, but tiny is read as a value"):
        best_method(replace(one, reading="value"), TEXTS, tmp_path / "out")


def test_pooled_areas_are_of_drops_only() -> None:
    how = wt.bench.protocol("contrast-cat", min_tokens=9)
    table = wt.bench.run(subject(), TEXTS, METHODS, protocol=how)
    pooled = [column.name for column in table.columns if column.metric == "pooled-auc"]
    assert pooled == ["pooled-auc delete morf ninths aopc", "pooled-auc delete lerf ninths aopc"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "gold"}, "target='gold' is not allowed; it must be 'predicted': gold values are not classes"),
        ({"min_probability": 0.5}, "min_probability=0.5 is not allowed; it must be 0: tiny predicts a value"),
        (
            {"metrics": ("log-odds", "kendall", "signs")},
            "it must be metrics of predicted values, such as aopc: tiny predicts",
        ),
    ],
)
def test_what_values_do_not_have_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=re.escape(message)):
        wt.bench.run(subject(), TEXTS, METHODS, labels=[0.5] * len(TEXTS), protocol=small(**settings))


def test_the_scale_of_values_does_not_matter() -> None:
    """Bounds that differ by less than the rounding of a probability are bounds, if all values are that small."""
    tiny = wt.Subject(model_of("bert", labels=1, problem_type="regression"), wordpiece(), name="tiny")
    with torch.no_grad():
        for parameter in tiny.model.classifier.parameters():
            parameter.mul_(1e-8)
    how = small(metrics=("normalised-aopc",))
    found = [wt.bench.run(one, TEXTS[:2], METHODS, protocol=how).lines for one in (subject(), tiny)]
    means = [[line.cells["normalised-aopc delete morf tenths"].mean for line in lines] for lines in found]
    assert means[1] == pytest.approx(means[0], rel=1e-6)


def test_several_outputs_are_refused() -> None:
    two = wt.Subject(model_of("bert", labels=2, problem_type="regression"), wordpiece(), name="two")
    with pytest.raises(UsageError, match=r"two predicts 2 values, and a benchmark measures one; use wt.degrade"):
        wt.bench.run(two, TEXTS, METHODS)


def test_the_best_method_is_stored_for_each_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("whichtoken.bench._run.default_methods", lambda *_, **__: METHODS)
    one = subject(problem_type=None)
    readings: list[Reading] = ["value", "probability"]
    for reading in readings:
        assert "in a small benchmark" in best_method(replace(one, reading=reading), TEXTS[:1]).why
        assert "in a stored benchmark" in best_method(replace(one, reading=reading), TEXTS[:1]).why


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models")
    for name, problem in (("regression", "regression"), ("cross", None)):
        made = model_of("bert", labels=1, id2label={0: "LABEL_0"}, problem_type=problem)
        made.float().save_pretrained(where / name)
        wordpiece().save_pretrained(where / name)
    with (where / "scores.csv").open("w") as file:
        csv.writer(file).writerows([("text", "label"), *((text, 0.25) for text in TEXTS)])
    return where


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    found = capsys.readouterr()
    assert (ended.value.code or 0) == code, found.err
    return " ".join((found.err if code else found.out).split())


def test_the_command_line_shows_values(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--model", str(folder / "regression")]
    saved = tmp_path / "x.jsonl"
    assert re.search(r"LABEL_0 -?[\d.]+ \(", run(capsys, "explain", TEXTS[0], *chosen, "--method", "attcat"))
    run(capsys, "explain", TEXTS[0], *chosen, "--method", "attcat", "--out", str(saved))
    assert re.search(r"LABEL_0 -?[\d.]+ \(", run(capsys, "show", str(saved)))
    out = run(capsys, "compare", TEXTS[0], *chosen, "--methods", "attcat,random")
    assert "deletion: mean drop of the predicted value when 10, 20 .. 90 %" in out
    (first, _) = json.loads(run(capsys, "compare", TEXTS[0], *chosen, "--methods", "attcat,random", "--format", "json"))
    assert set(first["metrics"]) == {"aopc", "auc"}
    data = ["--data", str(folder / "scores.csv"), "--methods", "attcat", "--perturbation", "delete"]
    out = run(capsys, "bench", *chosen, *data, "--metrics", "aopc,log-odds")
    assert "output: LABEL_0: regression, the change of the predicted value" in out
    assert "log-odds," not in out
    err = run(capsys, "bench", *chosen, *data, "--metrics", "aopc,log-odds", "--fail-under", "log-odds=1", code=2)
    assert "unknown metric of --fail-under 'log-odds'" in err


def test_the_command_line_says_how_an_output_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    regression, cross = str(folder / "regression"), str(folder / "cross")
    out = run(capsys, "model", regression)
    assert "outputs 0 LABEL_0" in out
    assert "reading the value itself, because its problem type is regression" in out
    assert "probabilities" not in out.partition("methods")[0]
    out = run(capsys, "model", cross)
    assert "probabilities sigmoid of the logit, by default; --reading value explains the logit itself" in out
    out = run(capsys, "model", cross, "--reading", "value")
    assert "reading the value itself, as requested" in out
    words = ["explain", TEXTS[0], "--model", cross, "--method", "attcat", "--format", "json"]
    assert json.loads(run(capsys, *words))[0]["probability"] is not None
    assert json.loads(run(capsys, *words, "--reading", "value"))[0]["value"] is not None
    chosen = ["--model", cross, "--reading", "value"]
    assert "predicted value" in run(capsys, "compare", TEXTS[0], *chosen, "--methods", "attcat")
    data = ["--data", str(folder / "scores.csv"), "--methods", "attcat", "--perturbation", "delete"]
    assert "output: LABEL_0: regression" in run(capsys, "bench", *chosen, *data, "--metrics", "aopc")
    assert "it must be None, 'probability' or 'value'" in run(capsys, "model", cross, "--reading", "logit", code=2)
