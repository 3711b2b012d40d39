"""The options that every command with a model has: --device, --dtype, --revision and --batch-size."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.test_trust import commands, words_of
from tests.models.test_loading import Folder
from tests.tiny import model_of

import whichtoken as wt
from whichtoken.cli.run import main

OPTIONS = ("--device", "--dtype", "--revision", "--batch-size")
CORPORA = ("corpus explain", "corpus bench")  # their workers open the model
COMMANDS = ("explain", "compare", "bench", "model", "references build", "heads build")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Folder(tmp_path).path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts.txt").write_text("It is a slow film.\nthe plot was rare\n")
    return tmp_path / "texts.txt"


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ending:
        main([str(word) for word in words])
    shown = capsys.readouterr()
    code: Any = ending.value.code
    return code, shown.out, shown.err


def test_every_command_that_opens_a_model_has_the_options() -> None:
    for name, command in commands().items():
        found = {option for parameter in command.params for option in parameter.opts if option in OPTIONS}
        has_all = name in (*COMMANDS, *CORPORA)
        assert found == ({*OPTIONS} - {"--revision"} if name == "serve" else {*OPTIONS} if has_all else set()), name


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_reach_the_model(
    command: str, folder: Path, texts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def note(name: Any, **settings: Any) -> Any:
        asked.append(settings)
        raise wt.WhichTokenError("enough")

    monkeypatch.setattr("whichtoken.models.load", note)
    values = ["--device", "cpu", "--dtype", "float64", "--revision", "v1", "--batch-size", "3"]
    assert "enough" in run(capsys, *words_of(command, folder, texts), *values)[2]
    run(capsys, *words_of(command, folder, texts))
    keys = ("device", "dtype", "revision", "batch_size")
    assert [tuple(settings[key] for key in keys) for settings in asked] == [
        ("cpu", "float64", "v1", 3),
        (None, "float32", None, None),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "cuda"], "device='cuda' is not allowed; it must be one that torch finds here: cpu"),
        (["--dtype", "float8"], "dtype='float8' is not allowed; it must be one of float16, bfloat16, float32"),
        (["--batch-size", "0"], "batch_size=0 is not allowed; it must be a whole number, at least 1"),
        (["--revision", "v1"], "revision='v1' is not allowed; it must be None for the model that comes with"),
    ],
)
def test_wrong_values_are_refused_in_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", "slow", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_the_precision_is_used_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "in torch.float64" in run(capsys, "model", folder, "--dtype", "float64")[1]
    assert "in torch.float32" in run(capsys, "model", folder)[1]
    model_of("bert").to(torch.bfloat16).save_pretrained(folder)
    assert "in torch.bfloat16" in run(capsys, "model", folder, "--dtype", "auto")[1]


def test_the_batch_size_changes_no_result(
    folder: Path, texts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    forward = wt.Subject.forward

    def watch(self: wt.Subject, batch: Any) -> Any:
        rows.append(len(batch.ids))
        return forward(self, batch)

    monkeypatch.setattr(wt.Subject, "forward", watch)
    words = ["explain", "--file", texts, "--model", folder, "--method", "attcat", "--format", "json"]
    words += ["--dtype", "float64"]
    whole, parts = (json.loads(run(capsys, *words, *more)[1]) for more in ([], ["--batch-size", "1"]))
    assert rows == [2, 1, 1]
    for one, other in zip(whole, parts, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], rel=1e-9)


@pytest.mark.slow
def test_a_benchmark_stores_the_precision_and_not_the_batch_size(
    folder: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["bench", "--data", texts, "--model", folder, "--methods", "attcat", "--metrics", "aopc", "--out", out]
    words += ["--min-tokens", "1", "--no-controls"]
    assert run(capsys, *words, "--dtype", "float64", "--batch-size", "2")[0] == 0
    spec = json.loads((out / "spec.json").read_text())
    assert spec["dtype"] == "float64"
    assert "batch" not in json.dumps(spec).replace(str(tmp_path), "")
    assert run(capsys, *words, "--dtype", "float64")[0] == 0
    code, _, err = run(capsys, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "dtype" in err


def test_a_model_of_another_kind_is_named_without_a_report_before_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path).path
    model_of("bert").float().bert.save_pretrained(folder)
    capfd.readouterr()
    with pytest.raises(SystemExit) as ending:
        main(["explain", "slow", "--model", str(folder)])
    shown = capfd.readouterr()
    assert (ending.value.code, shown.out, shown.err.count("\n")) == (3, "", 1)
    assert "is an embedding model (BertModel) without a classification head" in shown.err
