"""Names of models on the hub: what is not there, or cannot be reached, is said at once and in one line."""

import socket
from pathlib import Path
from typing import Any, NoReturn

import httpx2
import pytest
from huggingface_hub import constants, errors
from tests.tiny import model_of, wordpiece

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.errors import UsageError
from whichtoken.models import hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def lookups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that were looked up. No host is found, as without a network."""
    found: list[str] = []

    def fail(host: str, *_: Any, **__: Any) -> NoReturn:
        found.append(host)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"slept for {seconds} s"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return found


def fill_cache(place: Path, name: str, revision: str = "main") -> None:
    """Store a model as huggingface_hub does after a download."""
    folder = place / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / revision).write_text(COMMIT)
    files = folder / "snapshots" / COMMIT
    model_of("bert").float().save_pretrained(files)
    wordpiece().save_pretrained(files)


def response(error: type[Any], status: int = 404) -> Any:
    request = httpx2.Request("HEAD", "https://huggingface.co/someone/model")
    return error("not there", response=httpx2.Response(status, request=request))


def test_a_name_that_is_nowhere_is_refused_after_one_attempt(
    lookups: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        wt.load("someone/model")
    message = str(caught.value)
    assert message.startswith("'someone/model' is neither a folder here nor in the local cache (")
    assert "huggingface.co cannot be reached" in message
    assert message.endswith("check the name and the connection, or give the folder of a downloaded model")
    assert len(lookups) <= 2  # the other one: huggingface_hub, about itself, once in a process
    assert capfd.readouterr() == ("", "")


def test_the_command_line_says_it_in_one_line(
    lookups: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ending:
        main(["explain", "slow", "--model", "nowhere"])
    shown = capfd.readouterr()
    assert (ending.value.code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert "'nowhere' is neither a folder here" in shown.err
    assert len(lookups) <= 2


def test_a_model_in_the_cache_is_read_without_the_hub(lookups: list[str], tmp_path: Path) -> None:
    fill_cache(tmp_path, "someone/model")
    subject = wt.load("someone/model")
    assert len(lookups) <= 2  # and then no more
    assert subject.title == "someone/model"
    assert subject.fingerprint() == wt.load(tmp_path / "hub/models--someone--model/snapshots" / COMMIT).fingerprint()
    found = wt.explain("someone/model", "slow", "gae")[0]["gae"]
    assert (found.model, found.revision) == ("someone/model", subject.fingerprint())


def test_a_revision_in_the_cache(tmp_path: Path) -> None:
    fill_cache(tmp_path, "someone/model", "old")
    for revision in ("old", COMMIT):
        assert wt.load("someone/model", revision=revision).n_layers == 3
    with pytest.raises(
        UsageError, match=r"'someone/model' at revision 'new' is neither .*; check the name, the revision"
    ):
        wt.load("someone/model", revision="new")


def test_offline_mode_makes_no_attempt(lookups: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fill_cache(tmp_path, "someone/model")
    assert wt.load("someone/model").n_layers == 3
    with pytest.raises(
        UsageError, match=r"nor in the local cache .*HF_HUB_OFFLINE is set; unset it, or give the folder"
    ):
        wt.load("someone/other")
    assert not lookups


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (response(errors.RepositoryNotFoundError), "huggingface.co has no such model, or it is private"),
        (response(errors.GatedRepoError, 403), "gated.*hf auth login"),
        (response(errors.RevisionNotFoundError), "huggingface.co has no revision 'v9' of it"),
        (response(errors.RemoteEntryNotFoundError), "huggingface.co has it, but without config.json"),
        (response(errors.HfHubHTTPError, 500), "huggingface.co answers with an error, 500"),
        (httpx2.ConnectTimeout("slow"), "huggingface.co cannot be reached"),
        (httpx2.ProxyError("no"), "huggingface.co cannot be reached"),
    ],
)
def test_what_the_hub_says_is_said(error: Exception, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(hub, "get_hf_file_metadata", fail)
    with pytest.raises(UsageError, match=said) as caught:
        wt.load("someone/model", revision="v9")
    assert "\n" not in str(caught.value)


def test_a_reachable_hub_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The download itself is left to huggingface_hub."""
    asked: list[dict[str, Any]] = []

    def note(name: Any, **settings: Any) -> NoReturn:
        asked.append({"name": name, **settings})
        raise OSError("enough")

    monkeypatch.setattr(hub, "get_hf_file_metadata", lambda *_, **__: None)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", note)
    with pytest.raises(UsageError, match="cannot load 'someone/model' as a classifier with its tokenizer: enough"):
        wt.load("someone/model", revision="v9")
    assert asked == [{"name": "someone/model", "revision": "v9", "trust_remote_code": False}]


@pytest.mark.parametrize("name", ["a b", "a/b/c", "model!", "-x", "a" * 200, "a\0b"])
def test_what_cannot_be_a_name_is_not_looked_for_on_the_hub(name: str, lookups: list[str]) -> None:
    with pytest.raises(UsageError, match="is neither a folder here nor a possible name on the hub"):
        wt.load(name)
    assert not lookups


@pytest.mark.parametrize("name", ["sentimant", "./sentimant", "models/sentimant", "sentiment/"])
def test_a_folder_with_a_similar_name_is_suggested(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path if name != "models/sentimant" else tmp_path / "models"
    (where / "sentiments").mkdir(parents=True)
    (where / "sentiment.txt").touch()
    monkeypatch.chdir(tmp_path)
    expected = "models/sentiments" if where != tmp_path else "sentiments"
    with pytest.raises(UsageError, match=f"did you mean the folder '?{expected}'?"):
        wt.load(name)


def test_an_adapter_on_the_hub_is_read_from_the_cache(tmp_path: Path) -> None:
    import peft
    import torch

    fill_cache(tmp_path, "someone/base")
    torch.manual_seed(1)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], init_lora_weights=False)
    adapted = peft.get_peft_model(model_of("bert").float(), config).eval()
    adapted.peft_config["default"].base_model_name_or_path = "someone/base"
    folder = tmp_path / "hub" / "models--someone--adapter"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    adapted.save_pretrained(str(folder / "snapshots" / COMMIT), save_embedding_layers=False)
    subject = wt.load("someone/adapter")
    assert subject.title == "someone/adapter"
    with torch.no_grad():
        expected = adapted(**wordpiece()("slow", return_tensors="pt")).logits.softmax(-1)
    found = wt.explain(subject, "slow", "gae")[0]["gae"]
    assert found.probability == pytest.approx(float(expected.max()), rel=1e-5)


def test_a_folder_that_holds_a_model_one_level_below_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no config\.json, so it is not the folder of a model$"):
        wt.load(tmp_path)
    (tmp_path / "checkpoint-12").mkdir()
    (tmp_path / "checkpoint-12" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"did you mean .*checkpoint-12"):
        wt.load(tmp_path)
