"""wt.load: a model's files are data. Nothing in them is run unless the caller says so, and what is missing is named."""

import ast
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers.dynamic_module_utils
from tests.tiny import image_model_of, model_of, wordpiece
from transformers import ViTImageProcessor

import whichtoken as wt
from whichtoken.errors import BadSetting, UnsupportedModel, UsageError

CODE = """
from pathlib import Path
Path({mark!r}).touch()
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, ViTImageProcessor
class OwnConfig(BertConfig):
    model_type = {model_type!r}
class OwnModel(BertForSequenceClassification):
    config_class = OwnConfig
class OwnTokenizer(BertTokenizer):
    pass
class OwnProcessor(ViTImageProcessor):
    pass
"""
OWN_MODEL = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnModel"}
OWN_TOKENIZER = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
OWN_PROCESSOR = {"image_processor_type": "OwnProcessor", "auto_map": {"AutoImageProcessor": "own.OwnProcessor"}}


class Folder:
    """A model folder with a Python file that leaves a mark if it is run."""

    def __init__(self, place: Path, model_type: str = "bert") -> None:
        self.path, self.mark = place / "model", place / "the code ran"
        model_of("bert").float().save_pretrained(self.path)
        wordpiece().save_pretrained(self.path)
        (self.path / "own.py").write_text(CODE.format(mark=str(self.mark), model_type=model_type))
        if model_type != "bert":
            self.change("config.json", {"model_type": model_type})

    def change(self, name: str, changes: Mapping[str, Any]) -> "Folder":
        """Change settings in a JSON file; None removes one."""
        settings = {**json.loads((self.path / name).read_text()), **changes}
        left = {key: value for key, value in settings.items() if value is not None}
        (self.path / name).write_text(json.dumps(left))
        return self


@pytest.fixture(autouse=True)
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What transformers asks on the terminal; the answer is always yes."""
    asked: list[str] = []

    def agree(question: str = "") -> str:
        asked.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return asked


def unknown_type(place: Path) -> Folder:
    return Folder(place, "secret").change("config.json", {"auto_map": OWN_MODEL})


def no_type(place: Path) -> Folder:
    return Folder(place).change("config.json", {"model_type": None, "auto_map": OWN_MODEL})


def own_tokenizer(place: Path) -> Folder:
    return Folder(place).change("tokenizer_config.json", OWN_TOKENIZER)


def own_tokenizer_in_a_list(place: Path) -> Folder:
    return Folder(place).change("tokenizer_config.json", {**OWN_TOKENIZER, "auto_map": ["own.OwnTokenizer", None]})


def own_processor(place: Path) -> Folder:
    folder = Folder(place)
    image_model_of("vit").float().save_pretrained(folder.path)
    ViTImageProcessor(size={"height": 12, "width": 12}).save_pretrained(folder.path)
    return folder.change("preprocessor_config.json", OWN_PROCESSOR)


OWN_CODE = [unknown_type, no_type, own_tokenizer, own_tokenizer_in_a_list, own_processor]


@pytest.mark.parametrize("make", OWN_CODE)
def test_a_folder_that_needs_its_own_code_is_refused_before_any_of_it_runs(
    make: Callable[[Path], Folder], tmp_path: Path, questions: list[str]
) -> None:
    folder = make(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"Python code of its own .* trust_remote_code=True") as caught:
        wt.load(folder.path)
    assert "\n" not in str(caught.value)
    assert not folder.mark.exists()
    assert not questions


def test_a_folder_of_a_known_type_is_read_by_the_class_of_transformers(tmp_path: Path, questions: list[str]) -> None:
    folder = Folder(tmp_path).change("config.json", {"auto_map": OWN_MODEL})
    folder.change("tokenizer_config.json", {"auto_map": OWN_TOKENIZER["auto_map"]})
    subject = wt.load(folder.path)
    assert type(subject.model) is transformers.BertForSequenceClassification
    assert wt.explain(subject, ["slow"], ["gae"])
    assert not folder.mark.exists()
    assert not questions


def test_its_code_runs_for_those_who_trust_it(tmp_path: Path, questions: list[str]) -> None:
    folder = Folder(tmp_path).change("config.json", {"auto_map": OWN_MODEL})
    subject = wt.load(folder.path, trust_remote_code=True)
    assert type(subject.model).__name__ == "OwnModel"
    assert folder.mark.exists()
    assert wt.explain(subject, ["slow"], ["gae"])
    assert not questions


def test_code_of_an_unknown_architecture_does_not_help(tmp_path: Path) -> None:
    folder = unknown_type(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"model type 'secret'; supported are albert, bert"):
        wt.load(folder.path, trust_remote_code=True)


def test_trust_is_true_or_false(tmp_path: Path) -> None:
    """A text such as "no" would count as true."""
    with pytest.raises(BadSetting, match="trust_remote_code='no' is not allowed; it must be True or False"):
        wt.load(Folder(tmp_path).path, trust_remote_code="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_attention_code_from_the_hub_is_refused(key: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path).change("config.json", {key: "somebody/kernel"})
    with pytest.raises(UnsupportedModel, match=r"attention code of somebody/kernel .* config.json"):
        wt.load(folder.path)


class Payload:
    """Unpickling this makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_that_would_run_code_are_refused(zipped: bool, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (folder.path / "model.safetensors").unlink()
    weights = {**model_of("bert").float().state_dict(), "more": Payload(folder.mark)}
    torch.save(weights, folder.path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UnsupportedModel, match=r"more than tensors .* safetensors") as caught:
        wt.load(folder.path)
    assert "weights_only" not in str(caught.value)  # torch's advice is to run the code
    assert not folder.mark.exists()


def test_weights_in_a_bin_file_are_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (folder.path / "model.safetensors").unlink()
    torch.save(model_of("bert").float().state_dict(), folder.path / "pytorch_model.bin")
    assert wt.explain(wt.load(folder.path), ["slow"], ["gae"])


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "xlm-roberta"])
def test_a_folder_without_a_tokenizer_is_refused(kind: str, tmp_path: Path) -> None:
    model_of(kind).float().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"no tokenizer\.json .* tokenizer\.save_pretrained") as caught:
        wt.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_tokenizer_without_a_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match=r"BertTokenizer knows no tokens except special tokens .* vocab\.txt"):
        wt.Subject(model_of("bert"), transformers.BertTokenizer())


def test_a_tokenizer_of_a_larger_vocabulary_is_refused() -> None:
    """Also for a text whose tokens the model happens to have."""
    subject = wt.Subject(model_of("bert", vocab_size=40), wordpiece())
    with pytest.raises(UsageError, match=rf"has {len(wordpiece())} tokens, .* embeddings for 40; use the tokenizer"):
        wt.explain(subject, ["a"])


def test_a_token_that_the_model_has_no_embedding_for_is_refused() -> None:
    """Tokens added later do no harm until a text has one."""
    tokenizer = wordpiece.__wrapped__()
    n_known = len(tokenizer)
    tokenizer.add_tokens(["whichtoken"])
    subject = wt.Subject(model_of("bert"), tokenizer)
    assert wt.explain(subject, ["slow"], ["gae"])
    with pytest.raises(UsageError, match=rf"input 1: token 'whichtoken' has id {n_known}, .* embeddings for {n_known}"):
        wt.explain(subject, ["slow", "slow whichtoken"], ["gae"])


def test_every_call_that_loads_says_that_no_code_may_run() -> None:
    """Without the argument, transformers asks on the terminal."""
    root = Path(__file__).parents[2]
    for path in (p for folder in ("src", "training", "benchmarks") for p in (root / folder).rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "from_pretrained":
                assert "trust_remote_code" in {keyword.arg for keyword in call.keywords}, f"{path}:{call.lineno}"


def test_special_tokens_without_an_embedding_replace_no_words() -> None:
    """As in a Llama whose tokenizer got a padding token and whose embeddings were not resized."""
    tokenizer = wordpiece.__wrapped__()
    tokenizer.add_special_tokens({"pad_token": "<new pad>", "mask_token": "<new mask>"})
    model = model_of("bert")
    model.config.pad_token_id = None
    subject = wt.Subject(model, tokenizer)
    results = [item["gae"] for item in wt.explain(subject, ["slow", "the film was slow"], ["gae"])]
    assert results[0].scores == pytest.approx(wt.explain(subject, ["slow"], ["gae"])[0]["gae"].scores)
    for name in "mask", "pad":
        with pytest.raises(UnsupportedModel, match=f"no {name} token"):
            wt.degrade(subject, results, name)
