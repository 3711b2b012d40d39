"""The option --trust-remote-code: every command that opens a model has it, and nothing else switches it on."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers.dynamic_module_utils
import typer
from tests.models.test_loading import Folder, unknown_type

from whichtoken.cli.app import app
from whichtoken.cli.run import main

OPTION = "--trust-remote-code"


def commands() -> dict[str, Any]:
    """Every command by its words."""
    top = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    below = {f"{name} {sub}": c for name, group in top.items() for sub, c in getattr(group, "commands", {}).items()}
    return {name: command for name, command in (top | below).items() if not hasattr(command, "commands")}


def test_every_command_that_opens_a_model_has_the_option() -> None:
    opening = {
        name
        for name, command in commands().items()
        if name in ("model", "serve") or any("--model" in parameter.opts for parameter in command.params)
    }
    corpora = {"corpus explain", "corpus bench"}
    assert opening == {"explain", "compare", "bench", "model", "serve", "references build", "heads build", *corpora}
    for name, command in commands().items():
        flags = [p for p in command.params if OPTION in p.opts]
        assert len(flags) == (name in opening), name
        assert all(flag.default is False and not flag.envvar for flag in flags)


def words_of(command: str, folder: Path, texts: Path) -> list[str]:
    after = {
        "explain": ["slow"],
        "compare": ["slow"],
        "bench": ["--data", str(texts)],
        "references build": [str(texts), "--out", str(texts.parent / "library")],
        "heads build": ["--conllu", str(texts), "--out", str(texts.parent / "heads.json")],
    }
    model = [str(folder)] if command == "model" else ["--model", str(folder)]
    return [*command.split(), *after.get(command, []), *model]


@pytest.mark.parametrize("command", ["explain", "compare", "bench", "model", "references build", "heads build"])
def test_code_of_a_model_runs_only_with_the_option(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder, texts = unknown_type(tmp_path), tmp_path / "texts.txt"
    texts.write_text("slow\n")
    words = words_of(command, folder.path, texts)
    capsys.readouterr()
    for extra, ran, said in ((), False, "--trust-remote-code"), ((OPTION,), True, "model type 'secret'"):
        with pytest.raises(SystemExit) as ending:
            main([*words, *extra])
        shown = capsys.readouterr()
        assert ending.value.code == 3
        assert (shown.err.count("\n"), shown.out) == (1, "")
        assert said in shown.err
        assert folder.mark.exists() is ran


def test_a_stored_benchmark_does_not_say_that_code_was_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a file from somebody else cannot switch it on."""
    origins: list[dict[str, Any]] = []

    def note(call: Any, *_: Any) -> Any:
        origins.append(call.origin())
        raise typer.Exit(0)

    monkeypatch.setattr("whichtoken.cli.bench.benchmark", note)
    folder, texts = Folder(tmp_path), tmp_path / "texts.txt"
    texts.write_text("slow\n")
    with pytest.raises(SystemExit):
        main([*words_of("bench", folder.path, texts), OPTION])
    assert len(origins) == 1
    assert "trust" not in json.dumps(origins).replace(str(tmp_path), "")
