"""Folders whose files are damaged, or describe another model than their weights, are refused at once, in one line."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tests.tiny import CORPUS, image_model_of, model_of, wordpiece
from transformers import ViTImageProcessor

import whichtoken as wt
from whichtoken.errors import BadSetting, UnsupportedModel, UsageError

Change = Callable[[Path], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model_of("bert").float().save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    return tmp_path


def change(name: str, settings: Mapping[str, Any]) -> Change:
    """Change settings in a JSON file; None removes one."""

    def apply(folder: Path) -> None:
        changed = {**json.loads((folder / name).read_text()), **settings}
        (folder / name).write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))

    return apply


def configure(**settings: Any) -> Change:
    return change("config.json", settings)


def write(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def cut(name: str, size: int) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def reshape(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"] = weights["classifier.weight"][:2].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


AGAIN = r"; correct it, or save the model again: model\.save_pretrained\(folder\)$"
DAMAGED: dict[str, tuple[Change, str]] = {
    "cut": (cut("config.json", 200), rf"config\.json: expected JSON, found .* line 9 column 12 .*{AGAIN}"),
    "empty": (write("config.json", ""), rf"config\.json: expected JSON, found ''.*{AGAIN}"),
    "null": (write("config.json", "null"), rf"holds null; expected an object with the settings of a model{AGAIN}"),
    "list": (write("config.json", "[]"), rf"holds \[\]; expected an object with the settings of a model{AGAIN}"),
    "nothing": (write("config.json", "{}"), rf"its config\.json: .*`model_type` key.*{AGAIN}"),
    "no type": (configure(model_type=None), rf"its config\.json: .*`model_type` key.*{AGAIN}"),
    "type": (configure(model_type=["bert"]), rf"has model_type \['bert'\]; expected a name, such as \"bert\"{AGAIN}"),
    "layers as text": (configure(num_hidden_layers="3"), rf"'num_hidden_layers' expected int, got str.*{AGAIN}"),
    "activation": (configure(hidden_act="nope"), rf"its config\.json: KeyError 'nope'{AGAIN}"),
    "heads": (configure(num_attention_heads=5), rf"hidden size \(24\) is not a multiple .*{AGAIN}"),
    "names as list": (configure(id2label=["a", "b", "c"]), r"has id2label=\['a', 'b', 'c'\]; expected an object"),
    "numbers of names": (
        configure(id2label={"0": "a", "2": "b", "5": "c"}),
        r"has no name for label 1, but names for 0, 2, 5; expected 0 to 2",
    ),
    "no layers": (configure(num_hidden_layers=0), r"has num_hidden_layers=0; expected 1 to"),
    "too many layers": (
        configure(num_hidden_layers=10**9),
        rf"num_hidden_layers=1000000000; expected 1 to 100; its weights are 57 tensors{AGAIN}",
    ),
    "too many nested": (configure(text_config={"n_layer": 10**9}), r"has n_layer=1000000000; expected 1 to 100;"),
    "too many labels": (configure(num_labels=10**9, id2label=None), r"num_labels=1000000000; expected 0 to 100,000"),
    "too wide": (
        configure(hidden_size=60_000),
        r"describes a model of [\d,]{13,} numbers, but its weights have [\d,]{6} bytes",
    ),
    "too many positions": (configure(max_position_embeddings=10**9), r"describes a model of 26,000,\d+,\d+ numbers"),
    "more layers": (
        configure(num_hidden_layers=5),
        r"no weights for bert\.encoder\.layer\.3\.\S+, \S+, \S+ and 29 others; .* correct config\.json",
    ),
    "vocabulary": (
        configure(vocab_size=10),
        rf"shape of bert\.embeddings\.word_embeddings\.weight is \(\d+, 24\), and by config\.json \(10, 24\){AGAIN}",
    ),
    "head": (reshape, rf"the shape of classifier\.weight is \(2, 24\), and by config\.json \(3, 24\){AGAIN}"),
    "weights": (cut("model.safetensors", 5000), r"its weights: .*header.*; save or download them again"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"its weights: .*; save or download them"),
    "tokenizer": (cut("tokenizer.json", 300), r"its processor: .*line \d+.*; save the one used in training there"),
    "no vocabulary": (write("tokenizer.json", "{}"), r"its processor: KeyError 'added_tokens'; save the one used"),
    "class": (change("tokenizer_config.json", {"tokenizer_class": 3}), r"its processor: .*; save the one used"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_refused_in_one_line_that_says_what_to_do(name: str, folder: Path) -> None:
    damage, message = DAMAGED[name]
    assert wt.load(folder).n_layers == 3
    damage(folder)
    with pytest.raises((UsageError, UnsupportedModel), match=message) as caught:
        wt.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_kinds_of_models_that_are_supported_are_listed_for_one_that_is_unknown(folder: Path) -> None:
    configure(model_type="nothing")(folder)
    with pytest.raises(UnsupportedModel, match=r"has model type 'nothing'; supported are albert, bert"):
        wt.load(folder)


def test_layers_that_share_their_weights_may_be_more_than_these(tmp_path: Path) -> None:
    model_of("albert", num_hidden_layers=40).float().save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    assert len(load_file(tmp_path / "model.safetensors")) < wt.load(tmp_path).n_layers


def test_labels_of_one_name_are_told_apart_by_their_numbers(folder: Path) -> None:
    """Two classes of ImageNet are called crane, so such a model is not refused."""
    configure(id2label={"0": "crane", "1": "bird", "2": "crane"})(folder)
    subject = wt.load(folder)
    assert subject.labels == ("crane (0)", "bird", "crane (2)")
    for target, index in (("crane (2)", 2), (2, 2), ("bird", 1)):
        record = wt.explain(subject, CORPUS[0], ["gradient-x-input"], target=target)[0]["gradient-x-input"]
        assert (record.target, record.label) == (wt.Class(index), subject.labels[index])
    with pytest.raises(
        BadSetting, match=r"target='crane' .* name of one label, but 2 share it: crane \(0\), crane \(2\)"
    ):
        wt.explain(subject, CORPUS[0], ["gradient-x-input"], target="crane")
    examples = [wt.data.TextExample((CORPUS[0],), label) for label in (0, 2)]
    records = [result["attcat"] for result in wt.explain(subject, examples, ["attcat"])]
    assert sum(bool(record.correct) for record in records) == (records[0].predicted.label != "bird")  # type: ignore[union-attr]
    model = image_model_of("vit")
    model.config.id2label = dict.fromkeys(model.config.id2label, "")
    names = wt.Subject(model, ViTImageProcessor(size={"height": 12, "width": 12})).labels
    assert len(set(names)) == len(names)
