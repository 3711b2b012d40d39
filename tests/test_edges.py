"""Edges that once ended in a traceback or a wrong message: closed streams, long names, odd configurations."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import model_of, wordpiece

import whichtoken as wt
from whichtoken import atomic_write
from whichtoken.boundary import describe_failure
from whichtoken.cli.run import main
from whichtoken.errors import UsageError
from whichtoken.models import fingerprint

SubjectOf = Callable[..., wt.Subject]


@pytest.mark.parametrize(("command", "code"), [("methods >&-", 0), ("explain - <&-", 2)])
def test_a_closed_stream_is_no_traceback(command: str, code: int) -> None:
    call = f"{sys.executable} -m whichtoken {command}"
    done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_character_that_the_terminal_lacks_is_named_with_the_fix() -> None:
    with pytest.raises(UnicodeEncodeError) as raised:
        "positivo é".encode("ascii")
    assert describe_failure(raised.value) == "its encoding, ascii, has no 'é'; set PYTHONIOENCODING=utf-8"
    with pytest.raises(UnicodeEncodeError) as half:
        "\ud83d".encode()
    assert "half of a surrogate pair" in describe_failure(half.value)


@pytest.mark.parametrize("option", ["--out {}.html", "--references {}", "--heads {}", "--file {}.csv"])
def test_a_name_that_is_too_long_is_one_line(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = option.format("a" * 300).split()
    with pytest.raises(SystemExit) as ending:
        main(["explain", *(["slow"] if words[0] != "--file" else []), *words])
    assert ending.value.code == 2
    assert "name too long" in capsys.readouterr().err


def test_padding_without_an_embedding_is_not_used() -> None:
    """`tokenizer.add_special_tokens` without `resize_token_embeddings`, as many do."""
    tokenizer = copy.deepcopy(wordpiece())  # others use it, too
    tokenizer.add_special_tokens({"pad_token": "[NEWPAD]"})
    model = model_of("gpt2", vocab_size=tokenizer.pad_token_id)
    model.config.pad_token_id = tokenizer.pad_token_id
    subject = wt.Subject(model, tokenizer)
    texts = ["slow", "a rare and very slow film"]
    together = [result["attcat"].scores for result in wt.explain(subject, texts, ["attcat"])]
    alone = [wt.explain(subject, [text], ["attcat"])[0]["attcat"].scores for text in texts]
    assert together == alone


@pytest.mark.filterwarnings("ignore")  # torch deprecates its quantisation
def test_a_quantised_model_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    quantise: Any = torch.ao.quantization.quantize_dynamic
    model = quantise(model_of("bert").float(), {torch.nn.Linear})
    calls: list[Any] = []
    honest = fingerprint._content_hash

    def count(model: Any) -> str:
        calls.append(model)
        return honest(model)

    monkeypatch.setattr(fingerprint, "_content_hash", count)
    assert fingerprint.fingerprint(model) == fingerprint.fingerprint(model)
    assert len(calls) == 1


@pytest.mark.parametrize(("file", "changes", "message"), [
    ("config.json", {"sentence_transformers": "x"}, None),
    ("tokenizer_config.json", {"model_max_length": "x"}, "model_max_length"),
    ("tokenizer_config.json", {"model_input_names": 5}, "model_input_names"),
])  # fmt: skip
def test_an_odd_configuration_is_no_traceback(
    tmp_path: Path, file: str, changes: dict[str, Any], message: str | None
) -> None:
    for part in (model_of("bert", labels=1).float(), wordpiece()):
        part.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / file).read_text(encoding="utf-8"))
    (tmp_path / file).write_text(json.dumps({**stored, **changes}), encoding="utf-8")
    if message is None:
        assert wt.explain(wt.load(tmp_path), ["slow"], ["attcat"])[0]["attcat"].probability is not None
        return
    with pytest.raises(UsageError, match=message):
        wt.explain(wt.load(tmp_path), ["slow"], ["attcat"])


def test_a_folder_taken_for_abandoned_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, tries = os.open, list[Path]()

    def lose_the_first(path: Path, flags: int) -> int:
        tries.append(path)
        if len(tries) == 1:
            path.rmdir()  # as another process would, that clears what it takes for abandoned
        return honest(path, flags)

    monkeypatch.setattr(os, "open", lose_the_first)
    made, lock = atomic_write._make_locked(tmp_path / "lib", ".new", folder=True)
    assert made.is_dir()
    assert len(tries) == 2
    os.close(lock)


def test_a_broken_spacy_pipeline_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"spaCy pipeline .* cannot be loaded"):
        wt.heads.parse_texts(["A man sleeps."], str(tmp_path))
