"""Models with adapters (LoRA and its relatives, of peft) are explained with the adapters that are active."""

import copy
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from tests.tiny import KINDS, image_model_of, images, model_of, wordpiece
from transformers import AutoModelForMaskedLM, BertConfig, BertForPreTraining, BertForSequenceClassification

import whichtoken as wt
from whichtoken.errors import UnsupportedModel, UsageError

TEXTS = ["It is a very slow film.", "touching"]
METHODS = ["attcat", "gae", "attn-lrp", "full-lrp", wt.method("integrated-gradients", steps=4), "alti"]
LAYERS = {
    "albert": ["query", "ffn"],
    "bert": ["query", "value", "dense"],
    "deberta-v2": ["query_proj", "value_proj", "dense"],
    "gpt2": ["c_attn", "c_proj"],
    "llama": ["q_proj", "v_proj", "up_proj"],
    "modernbert": ["Wqkv", "Wo"],
}


QUICK = ("bert", "gpt2")


def train(adapted: Any, kind: str = "bert", seed: int = 0) -> Any:
    """A few steps, so that adapters and the head differ from what they started as."""
    torch.manual_seed(seed)
    ids = KINDS[kind].tokenizer()(TEXTS[0], return_tensors="pt")["input_ids"]
    optimizer = torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], lr=0.05)
    for label in (0, 1, 0):
        adapted(input_ids=ids, labels=torch.tensor([label])).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return adapted.eval()


def adapt(kind: str = "bert", **settings: Any) -> Any:
    """A trained LoRA model in eval mode."""
    torch.manual_seed(1)
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=4, target_modules=LAYERS[kind], fan_in_fan_out=kind == "gpt2", **settings
    )
    return train(peft.get_peft_model(model_of(kind), config).double(), kind)


def scores(model: Any, kind: str = "bert", methods: Sequence[Any] = METHODS) -> list[list[float]]:
    results = wt.explain((model, KINDS[kind].tokenizer()), TEXTS, methods)
    return [list(record.scores) for result in results for record in result.values()]


def logits(model: Any, kind: str = "bert") -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([model(**KINDS[kind].tokenizer()(text, return_tensors="pt")).logits for text in TEXTS])


def state(model: Any) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in LAYERS]
)
def test_scores_are_those_of_the_merged_model(kind: str) -> None:
    adapted = adapt(kind)
    merged = copy.deepcopy(adapted).merge_and_unload()
    before = state(adapted)
    assert not torch.allclose(logits(adapted, kind), logits(model_of(kind), kind), rtol=1e-2)
    assert torch.allclose(logits(adapted, kind), logits(merged, kind), rtol=1e-12)
    for one, other in zip(scores(adapted, kind), scores(merged, kind), strict=True):
        assert one == pytest.approx(other, rel=1e-7, abs=1e-10)
    after = state(adapted)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert not any(getattr(module, "merged", False) for module in adapted.modules())


def test_the_prediction_is_that_of_the_adapted_model() -> None:
    adapted = adapt()
    results = wt.explain(wt.Subject(adapted, wordpiece()), TEXTS, ["gae"])
    for result, row in zip(results, logits(adapted).softmax(-1), strict=True):
        assert result["gae"].probability == pytest.approx(float(row.max()), rel=1e-12)
        assert result["gae"].target == wt.Class(int(row.argmax()))


@pytest.mark.parametrize(
    "settings", [{"use_dora": True}, {"lora_bias": True}, {"use_rslora": True, "lora_dropout": 0.5}]
)
def test_variants_of_lora(settings: dict[str, Any]) -> None:
    adapted = adapt(**settings)
    merged = copy.deepcopy(adapted).merge_and_unload()
    for one, other in zip(scores(adapted), scores(merged), strict=True):
        assert one == pytest.approx(other, rel=1e-7, abs=1e-10)


def test_another_kind_of_adapter() -> None:
    config = peft.IA3Config(task_type="SEQ_CLS", target_modules=["query", "output.dense"], feedforward_modules=[])
    adapted = train(peft.get_peft_model(model_of("bert"), config).double())
    merged = copy.deepcopy(adapted).merge_and_unload()
    for one, other in zip(scores(adapted), scores(merged), strict=True):
        assert one == pytest.approx(other, rel=1e-7, abs=1e-10)


def test_disabled_adapters_are_not_explained() -> None:
    adapted = adapt()
    subject = wt.Subject(adapted, wordpiece())
    with_adapter = subject.fingerprint()
    with adapted.disable_adapter():
        assert subject.fingerprint() != with_adapter
        assert scores(adapted) == scores(model_of("bert"))
    assert subject.fingerprint() == with_adapter
    assert scores(adapted) != scores(model_of("bert"))


def test_the_active_one_of_several_adapters_is_explained() -> None:
    adapted = adapt()
    first = scores(adapted, methods=["attcat"])
    adapted.add_adapter("second", peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["key"]))
    adapted.double().set_adapter("second")
    train(adapted, seed=3)
    second = scores(adapted, methods=["attcat"])
    assert second != first
    merged = copy.deepcopy(adapted).merge_and_unload()
    assert [pytest.approx(row, rel=1e-9) for row in scores(merged, methods=["attcat"])] == second
    adapted.set_adapter("default")
    assert scores(adapted, methods=["attcat"]) == first


def test_an_adapter_that_its_owner_merged() -> None:
    adapted = adapt()
    before = scores(adapted, methods=["attcat"])
    adapted.merge_adapter()
    for one, other in zip(scores(adapted, methods=["attcat"]), before, strict=True):
        assert one == pytest.approx(other, rel=1e-9)
    with adapted.disable_adapter():  # its layers are still merged, and undo that when they are called
        for one, other in zip(scores(adapted), scores(model_of("bert")), strict=True):
            assert one == pytest.approx(other, rel=1e-7, abs=1e-10)
        assert any(getattr(module, "merged", False) for module in adapted.modules())


def test_the_fingerprint_follows_the_scale_of_an_adapter() -> None:
    subject = wt.Subject(adapt(), wordpiece())
    before = subject.fingerprint()
    layer = next(module for module in subject.model.modules() if hasattr(module, "lora_A"))
    layer.set_scale("default", 3.0)
    assert subject.fingerprint() != before


def test_hooks_inside_an_adapter_still_run() -> None:
    adapted = adapt()
    layers = [
        module for module in adapted.modules() if isinstance(getattr(module, "lora_A", None), torch.nn.ModuleDict)
    ]
    for layer in layers:
        layer.lora_A["default"].register_forward_hook(lambda module, args, output: output * 0)
    expected = logits(adapted).softmax(-1).amax(-1).tolist()
    results = wt.explain((adapted, wordpiece()), TEXTS, ["attcat", "attn-lrp"])
    assert [result["attcat"].probability for result in results] == pytest.approx(expected, rel=1e-12)


def test_adapters_that_transformers_itself_added() -> None:
    model = model_of("bert")
    torch.manual_seed(1)
    model.add_adapter(peft.LoraConfig(r=4, target_modules=LAYERS["bert"], init_lora_weights=False))
    model.double().eval()
    expected = logits(model).softmax(-1).amax(-1).tolist()
    assert expected != logits(model_of("bert")).softmax(-1).amax(-1).tolist()
    results = wt.explain((model, wordpiece()), TEXTS, ["attcat", "full-lrp"])
    assert [result["attcat"].probability for result in results] == pytest.approx(expected, rel=1e-12)


def test_an_image_classifier_with_adapters() -> None:
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(image_model_of("vit"), config).double().eval()
    merged = copy.deepcopy(adapted).merge_and_unload()
    pair = [
        wt.explain((model, None), images=list(images(2)), methods=["gae", "full-lrp"]) for model in (adapted, merged)
    ]
    for one, other in zip(*pair, strict=True):
        for name in one:
            assert one[name].scores == pytest.approx(other[name].scores, rel=1e-7, abs=1e-10)


def test_prompts_that_are_trained_are_refused() -> None:
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    adapted = peft.get_peft_model(model_of("bert"), config).eval()
    with pytest.raises(UnsupportedModel, match=r"PROMPT_TUNING .* virtual tokens .* LoRA"):
        wt.Subject(adapted, wordpiece())


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(UsageError, match=r"training mode .* model\.eval\(\)"):
        wt.explain((adapt().train(), wordpiece()), TEXTS)


def test_a_hook_on_the_wrapper_is_refused() -> None:
    """The model inside is explained, where this hook would not run."""
    adapted = adapt()
    with adapted.register_forward_hook(lambda *_: None), pytest.raises(UnsupportedModel, match="hook"):
        wt.Subject(adapted, wordpiece())


# Folders.


def save(place: Path, base: str, tokenizer_in: str = "base") -> Path:
    """A folder of an adapter, and one of its base model."""
    model_of("bert").float().save_pretrained(place / "base")
    torch.manual_seed(1)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=LAYERS["bert"])
    adapted = train(peft.get_peft_model(model_of("bert").float(), config))
    adapted.peft_config["default"].base_model_name_or_path = base
    adapted.save_pretrained(place / "adapter", save_embedding_layers=False)
    wordpiece().save_pretrained(place / tokenizer_in)
    torch.save(logits(adapted), place / "logits.pt")
    return place / "adapter"


@pytest.mark.parametrize(("base", "tokenizer_in"), [("absolute", "base"), ("../base", "adapter"), ("base", "base")])
def test_a_folder_of_an_adapter(base: str, tokenizer_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path, str(tmp_path / "base") if base == "absolute" else base, tokenizer_in)
    if base == "base":
        monkeypatch.chdir(tmp_path)
    subject = wt.load(folder)
    assert subject.title == str(folder)
    expected = torch.load(tmp_path / "logits.pt").softmax(-1)
    results = wt.explain(folder, TEXTS, ["attcat"])
    found = [result["attcat"].probability for result in results]
    assert found == pytest.approx(expected.amax(-1).tolist(), rel=1e-5)
    assert subject.fingerprint() == results[0]["attcat"].revision == wt.load(folder).fingerprint()
    assert subject.fingerprint() != wt.Subject(model_of("bert").float(), wordpiece()).fingerprint()


def test_an_adapter_over_a_language_model_brings_its_head(tmp_path: Path) -> None:
    """As after training from bert-base: the base has another head, and not the number of labels."""
    config = BertConfig(vocab_size=len(wordpiece()), **KINDS["bert"].config)
    torch.manual_seed(3)
    BertForPreTraining(config).save_pretrained(tmp_path / "base")
    wordpiece().save_pretrained(tmp_path / "base")
    body = BertForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=4)
    adapted = train(
        peft.get_peft_model(body, peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"]))
    )
    adapted.save_pretrained(tmp_path / "adapter")
    subject = wt.load(tmp_path / "adapter")
    assert subject.labels == ("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3")
    result = wt.explain(subject, TEXTS[0], "attcat")[0]["attcat"]
    assert result.probability == pytest.approx(float(logits(adapted)[0].softmax(-1).max()), rel=1e-5)


def test_a_head_that_neither_folder_has_is_named(tmp_path: Path) -> None:
    config = BertConfig(vocab_size=len(wordpiece()), **KINDS["bert"].config)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / "base")  # without a pooler
    folder = save(tmp_path / "other", str(tmp_path / "base"), "adapter")
    with pytest.raises(UnsupportedModel, match=r"adapter' and its base model have no weights for bert\.pooler"):
        wt.load(folder)


def test_a_base_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = save(tmp_path, "./moved")
    with pytest.raises(UsageError, match=r"adapter' is an adapter of './moved', .* base_model_name_or_path"):
        wt.load(folder)


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"peft_type": "LORA"}', '{"peft_type": "NONE"}'])
def test_a_damaged_configuration_of_an_adapter(content: str, tmp_path: Path) -> None:
    folder = save(tmp_path, "../base")
    (folder / "adapter_config.json").write_text(content)
    with pytest.raises(UsageError, match="adapter") as caught:
        wt.load(folder)
    assert "\n" not in str(caught.value)


def test_an_adapter_for_another_base_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, "../base")
    model_of("bert", hidden_size=12).float().save_pretrained(tmp_path / "base")
    with pytest.raises(UsageError, match=r"cannot load .*adapter'") as caught:
        wt.load(folder)
    assert "\n" not in str(caught.value)


def test_trained_prompts_in_a_folder_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, "../base")
    config = {"peft_type": "PREFIX_TUNING", "base_model_name_or_path": "../base", "num_virtual_tokens": 3}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=r"PREFIX_TUNING .* virtual tokens"):
        wt.load(folder)


def test_labels_that_were_saved_with_an_adapter(tmp_path: Path) -> None:
    folder = save(tmp_path, "../base")
    base = json.loads((tmp_path / "base" / "config.json").read_text())
    names = {"id2label": {"0": "bad", "1": "good", "2": "neither"}, "label2id": {"bad": 0, "good": 1, "neither": 2}}
    (folder / "config.json").write_text(json.dumps({**base, **names}))
    assert wt.load(folder).labels == ("bad", "good", "neither")


def test_a_folder_of_a_whole_model_and_its_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path, "nowhere/at-all")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    expected = torch.load(tmp_path / "logits.pt").softmax(-1).amax(-1).tolist()
    results = wt.explain(folder, TEXTS, ["attcat"])
    assert [result["attcat"].probability for result in results] == pytest.approx(expected, rel=1e-5)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UsageError, match=r"has an adapter, which needs peft"):
        wt.load(folder)


def test_without_peft_a_folder_of_an_adapter_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path, "../base")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UsageError, match=r"pip install 'whichtoken\[peft\]'"):
        wt.load(folder)


@pytest.mark.slow
def test_the_default_model_with_an_adapter() -> None:
    plain = wt.load()
    torch.manual_seed(1)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(copy.deepcopy(plain.model), config).eval()
    merged = copy.deepcopy(adapted).merge_and_unload()
    methods: list[Any] = ["attcat", "gae", "attn-lrp", wt.method("integrated-gradients", steps=4)]
    pair = [wt.explain((model, plain.processor), TEXTS, methods) for model in (adapted, merged, plain.model)]
    for one, other, without in zip(*pair, strict=True):
        for name in one:
            largest = max(map(abs, other[name].scores))
            assert one[name].scores == pytest.approx(other[name].scores, abs=1e-3 * largest)
            assert one[name].scores != pytest.approx(without[name].scores, abs=1e-2 * largest)
