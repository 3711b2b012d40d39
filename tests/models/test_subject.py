"""Subject: what it refuses, what it knows of a model, and how it names it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import KINDS, MAX_TOKENS, model_of, wordpiece
from transformers import BertConfig, BertForMaskedLM, BertModel, T5Config, T5ForSequenceClassification

import whichtoken as wt
from whichtoken.core.picks import Link
from whichtoken.errors import BadSetting, UnsupportedModel, UsageError
from whichtoken.models import fingerprint
from whichtoken.tasks.classify import link_of

SubjectOf = Callable[..., wt.Subject]
SMALL = {"vocab_size": 200, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(UsageError, match=r"Slow is not a fast tokenizer; .* use AutoTokenizer"):
        wt.Subject(model_of("bert"), Slow())


def test_a_model_in_training_mode_is_refused_also_when_it_got_there_later() -> None:
    model = model_of("bert").train()
    with pytest.raises(UsageError, match=r"training mode .* call model.eval\(\)"):
        wt.Subject(model, wordpiece())
    subject = wt.Subject(model.eval(), wordpiece())
    model.bert.encoder.layer[0].train()
    with pytest.raises(UsageError, match=r"module bert.encoder.layer.0\)"):
        wt.explain(subject, ["slow"])


def test_an_unknown_architecture_is_refused_with_a_way_out() -> None:
    config = T5Config(vocab_size=50, d_model=8, d_ff=8, num_layers=1, num_heads=1, d_kv=8)
    with pytest.raises(UnsupportedModel, match=r"model type 't5'; supported are albert, bert.*add a row"):
        wt.Subject(T5ForSequenceClassification(config).eval(), wordpiece())


def test_something_that_is_no_transformer_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="Linear has model type 'Linear'"):
        wt.Subject(torch.nn.Linear(2, 2).eval(), wordpiece())


@pytest.mark.parametrize(
    ("model", "found"), [(BertModel, "returns no logits"), (BertForMaskedLM, r"logits of shape \(1, 3, 200\)")]
)
def test_a_model_without_a_classification_head_is_refused(model: Any, found: str) -> None:
    """Also if its class does not say so."""
    subject = wt.Subject(type("Own", (model,), {})(BertConfig(**SMALL)).eval(), wordpiece())
    with pytest.raises(UnsupportedModel, match=f"{found}; .*sequence-classification head"):
        wt.explain(subject, ["slow"])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_longest_input_that_fits_works(kind: str, subject_of: SubjectOf) -> None:
    subject = subject_of(kind)
    result = wt.explain(subject, ["slow film " * 60], ["attcat"])[0]["attcat"]
    assert len(result.tokens) == MAX_TOKENS
    assert result.n_cut > 0


def test_a_lower_limit_can_be_set_and_a_higher_one_not() -> None:
    model, tokenizer = model_of("bert"), wordpiece()
    subject = wt.Subject(model, tokenizer, max_tokens=6)
    assert len(wt.explain(subject, ["slow film " * 60], methods="attcat")[0]["attcat"].tokens) == 6
    with pytest.raises(BadSetting, match=f"1 to {MAX_TOKENS}, the model's own limit"):
        wt.Subject(model, tokenizer, max_tokens=MAX_TOKENS + 1)


def test_heads_and_their_probabilities() -> None:
    assert link_of(wt.Subject(model_of("bert"), wordpiece())) is Link.SOFTMAX
    assert link_of(wt.Subject(model_of("bert", labels=1), wordpiece())) is Link.SIGMOID
    many = model_of("bert", problem_type="multi_label_classification")
    assert link_of(wt.Subject(many, wordpiece())) is Link.SIGMOID


def test_a_fingerprint_follows_the_weights() -> None:
    model = model_of("bert")
    subject, same = wt.Subject(model, wordpiece()), wt.Subject(model_of("bert"), wordpiece())
    before = subject.fingerprint()
    assert before.startswith("sha256:")
    assert before == same.fingerprint()
    with torch.no_grad():
        model.classifier.bias[0] += 1e-9
    changed = subject.fingerprint()
    assert changed != before
    model.classifier.weight.data.mul_(2)  # hidden from autograd, which counts no new version
    assert subject.fingerprint() != changed
    assert wt.Subject(model, wordpiece(), revision="abc").fingerprint() == "abc"


@pytest.mark.parametrize("fast", [{}, {"foreach": True}, {"fused": True}])
def test_a_fingerprint_follows_an_optimizer(fast: dict[str, bool]) -> None:
    """Fused optimizers do not count their steps in the version of a tensor."""
    model = model_of("bert")
    subject, optimizer = wt.Subject(model, wordpiece()), torch.optim.SGD(model.parameters(), lr=1e-3, **fast)
    before = subject.fingerprint()
    model(**wordpiece()("slow", return_tensors="pt")).logits.sum().backward()
    gradients = [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]
    optimizer.step()
    assert subject.fingerprint() != before
    wt.explain(subject, ["slow"])
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is None if gradient is None else parameter.grad.equal(gradient)


def test_a_fingerprint_is_not_computed_again_for_another_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    model, hashed = model_of("bert"), list[Any]()
    subject = wt.Subject(model, wordpiece())
    original = fingerprint._content_hash

    def count(model: Any) -> str:
        hashed.append(model)
        return original(model)

    monkeypatch.setattr(fingerprint, "_content_hash", count)
    before = subject.fingerprint()
    model.set_attn_implementation("eager" if subject.own_attention != "eager" else "sdpa")
    assert subject.fingerprint() == before
    assert len(hashed) == 1
    model.config.id2label = {**model.config.id2label, 0: "another name"}
    assert subject.fingerprint() != before


def test_a_fingerprint_follows_the_configuration_but_not_the_version_of_transformers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of("bert")
    subject = wt.Subject(model, wordpiece())
    before = subject.fingerprint()
    monkeypatch.setattr("transformers.configuration_utils.__version__", "99.0")
    assert model.config.to_diff_dict()["transformers_version"] == "99.0"
    assert subject.fingerprint() == before
    model.config.id2label = {0: "a", 1: "b", 2: "c"}
    assert subject.fingerprint() != before


def test_a_model_configured_to_return_tuples_works() -> None:
    model = model_of("bert")
    model.config.return_dict = False
    assert wt.explain(wt.Subject(model, wordpiece()), ["slow"], ["gae"])


def test_a_roberta_without_a_padding_token_is_refused() -> None:
    model = model_of("roberta")
    model.config.pad_token_id = None
    with pytest.raises(UnsupportedModel, match=r"counts positions from config.pad_token_id"):
        wt.Subject(model, KINDS["roberta"].tokenizer())


def test_load_refuses_damaged_files(tmp_path: Path) -> None:
    model_of("bert").save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UsageError, match="cannot load"):
        wt.load(tmp_path)


def test_load_reads_a_folder_in_float32(tmp_path: Path) -> None:
    model_of("bert").half().save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    for name in (tmp_path, str(tmp_path)):
        subject = wt.load(name)
        assert subject.model.dtype is torch.float32
        assert not subject.model.training
        assert subject.title == str(tmp_path)
        assert wt.explain(subject, ["slow"], ["gae"])[0]["gae"].model == str(tmp_path)
    assert wt.load(tmp_path, dtype=torch.float64).model.dtype is torch.float64


def test_load_refuses_a_folder_that_is_not_there_or_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="a folder, a hub name, or None"):
        wt.load(5)  # type: ignore[arg-type]
    for missing in (tmp_path / "nothing", str(tmp_path / "nothing"), "./nothing"):
        with pytest.raises(UsageError, match="there is no folder"):
            wt.load(missing)
    with pytest.raises(UsageError, match="is not the folder of a model"):
        wt.load(tmp_path)


def test_load_refuses_a_body_whose_head_was_never_trained(tmp_path: Path) -> None:
    """Even if its configuration does not name a class."""
    model_of("bert").bert.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "architectures": None}))
    wordpiece().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"no weights for classifier.bias, classifier.weight; fine-tune"):
        wt.load(tmp_path)


def test_a_decoder_without_a_padding_token_is_read_one_text_at_a_time() -> None:
    tokenizer = KINDS["gpt2"].tokenizer()
    padless = wt.Subject(model_of("gpt2", pad_token_id=None), tokenizer)
    padded = wt.Subject(model_of("gpt2"), tokenizer)
    texts = ["It is very slow.", "The actors were wonderful.", "dull"]
    for one, other in zip(
        wt.explain(padless, texts, methods="attcat"), wt.explain(padded, texts, methods="attcat"), strict=True
    ):
        assert one["attcat"].scores == pytest.approx(other["attcat"].scores, rel=1e-9)
