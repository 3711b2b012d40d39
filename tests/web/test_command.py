"""The command `serve`: what it refuses, and what it says."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import image_model_of, model_of, with_references, wordpiece
from transformers import ViTImageProcessorPil

import whichtoken as wt
from whichtoken.cli.run import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models")
    for name, labels in (("first", 3), ("second", 2)):
        model_of("bert", labels=labels).save_pretrained(where / name)
        wordpiece().save_pretrained(where / name)
        library = with_references(wt.load(where / name, dtype="float64")).references
        assert library is not None
        wt.references.save(library, where / f"{name}-references")
    return where


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been served."""
    calls: list[Any] = []

    def listen(service: Any, access: Any, port: socket.socket, ready: Callable[[], None]) -> None:
        ready()
        calls.append((service, access))

    monkeypatch.setattr("whichtoken.web.serving.serve", listen)
    return calls


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ending:
        main(["serve", *words])
    return int(ending.value.code or 0)


def test_models_get_the_references_that_were_built_for_them(
    folder: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    libraries = [word for name in ("second", "first") for word in ("--references", str(folder / f"{name}-references"))]
    models = [str(folder / "first"), str(folder / "second")]
    assert run(*models, "--dtype", "float64", *libraries, "--port", "8099", "--limit", "csv_rows=7") == 0
    ((service, access),) = started
    assert list(service.models) == ["first", "second"]
    for model in service.models.values():
        assert model.subject.references.revision == model.subject.fingerprint()
    assert service.limits.csv_rows == 7
    assert (access.host, access.token) == ("127.0.0.1", None)
    assert "open http://127.0.0.1:8099/ " in capsys.readouterr().err
    service.stop()


def test_a_new_token_is_printed_once(folder: Path, started: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            str(folder / "first"),
            "--host",
            "0.0.0.0",
            "--port",
            "8097",
            "--token",
            "new",
            "--allow-host",
            "explain.example",
        )
        == 0
    )
    ((service, access),) = started
    assert len(access.token) >= 24
    assert capsys.readouterr().err.count(access.token) == 1
    assert access.knows("explain.example")
    service.stop()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "a token is needed: --token new"),
        (["--token", "short"], "give at least 16"),
        (["--limit", "csv_rows=0"], "at least 1"),
        (["--limit", "rows=1"], "unknown setting of the limits 'rows'"),
        (["--limit", "csv_rows"], "setting=value"),
        (["no/such/model"], "no/such/model"),
        (["--references", "no/such/folder"], "no/such/folder"),
        (["--benchmark", "no/such/folder"], "there is no finished benchmark"),
        (["--data", "no/such/file"], "--data holds the texts of --benchmark"),
        (["--corpus-method", "gae"], "--corpus-method chooses a method of --corpus, which is missing"),
        (["--corpus", "no/such/folder"], "there is no finished corpus job in no/such/folder"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    words: list[str], said: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:  # other tests may use the usual port at the same time
        port = str(free.getsockname()[1])
    assert run(*words, "--port", port) != 0
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
    assert not started


def test_a_port_that_is_taken_is_said_before_a_model_is_loaded(
    started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run("no/such/model", "--port", str(taken.getsockname()[1])) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert not started


def test_the_bundled_model_can_be_named_among_others(folder: Path, started: list[Any]) -> None:
    assert run("whichtoken-default", str(folder / "first"), "--port", "8098") == 0
    ((service, _),) = started
    assert list(service.models) == ["whichtoken-default", "first"]
    service.stop()


def test_special_tokens_are_read_as_text_by_the_models_of_texts(
    folder: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    image_model_of("vit").save_pretrained(folder / "images")
    ViTImageProcessorPil(size={"height": 12, "width": 12}).save_pretrained(folder / "images")
    asked = ["--special-tokens", "text", "--port", "8096"]
    assert run(str(folder / "images"), str(folder / "first"), *asked) == 0
    ((service, _),) = started
    read = {name: model.subject.special_tokens for name, model in service.models.items()}
    assert read == {"images": "control", "first": "text"}
    service.stop()
    assert run(str(folder / "images"), *asked) == 2
    assert "special_tokens='text' is not allowed" in capsys.readouterr().err


def test_without_its_packages_it_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("whichtoken.cli.serve.find_spec", lambda name: None)
    assert run() == 2
    assert "pip install 'whichtoken[web]'" in capsys.readouterr().err


def test_help_imports_neither_torch_nor_fastapi() -> None:
    code = (
        "import sys; from whichtoken.cli.app import app\n"
        "try: app(['serve', '--help'], standalone_mode=False)\n"
        "finally: sys.exit(bool({'torch', 'fastapi', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "--references" in done.stdout
