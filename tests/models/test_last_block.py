"""Passes that compute most of the last block for one token: the results of the whole block."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.test_unpadded import TEXTS, batch_of, plain_logits
from tests.tiny import class_goal, model_of, token_subject

import whichtoken as wt
from whichtoken.core.trace import Site, needs
from whichtoken.lrp import C21
from whichtoken.models import capture
from whichtoken.models.shortcuts import can_narrow

SubjectOf = Callable[..., wt.Subject]


def watch(subject: wt.Subject, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the number of tokens of each row that feed-forward layers read, one for each layer and pass."""
    kind, seen = type(subject.blocks[-1].get_submodule("mlp")), list[int]()
    compute = kind.forward

    def forward(self: Any, hidden: torch.Tensor) -> Any:
        seen.append(hidden.shape[1])
        return compute(self, hidden)

    monkeypatch.setattr(kind, "forward", forward)
    return seen


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2"])
def test_logits_are_those_of_the_plain_model(subject_of: SubjectOf, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(kind).with_twin()
    batch, read = batch_of(subject, TEXTS), watch(subject, monkeypatch)
    found = subject.logits(batch)
    assert read == [*[batch.ids.shape[1]] * (subject.n_layers - 1), 1]
    torch.testing.assert_close(found, plain_logits(subject_of(kind), batch), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "kind", ["bert", "deberta-v2", "distilbert", "gpt2", "llama", "mpnet", "phi3", "qwen3", "gemma", "mistral"]
)
def test_scores_are_those_of_whole_passes(subject_of: SubjectOf, kind: str) -> None:
    """Under rules, too, also where relevance is shared among tokens."""
    subject = subject_of(kind)
    assert can_narrow(subject.with_twin())
    methods = ["gradient-x-input", "attn-lrp", "cp-lrp", "full-lrp", "transatt", "gae", "raw-attention"]
    found = [wt.explain(subject, TEXTS, method) for method in methods]
    with subject.model.register_forward_hook(lambda *_: None):  # a model with hooks gets no shortcut
        expected = [wt.explain(subject, TEXTS, method) for method in methods]
    for mine, reference in zip(found, expected, strict=True):
        for one, other in zip(mine, reference, strict=True):
            (a,), (b,) = one.values(), other.values()
            assert a.scores == pytest.approx(b.scores, rel=1e-9, abs=1e-12)


def test_what_is_recorded_of_the_last_block_is_computed_for_all_tokens(
    subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of("llama")
    read = watch(subject, monkeypatch)
    wt.explain(subject, TEXTS[3], ["attn-lrp", "transatt"])
    assert read[subject.n_layers - 1 :: subject.n_layers] == [1, 1, 1]  # gradients, and one pass for each rule set
    read.clear()
    wt.explain(subject, TEXTS[3], "attcat")
    assert len(read) == subject.n_layers
    assert 1 not in read


@pytest.mark.parametrize(
    ("method", "query", "projection"),
    [
        ("attn-lrp", 1, 1),
        ("gradient-x-input", 1, 1),
        ("transatt", None, 1),
        ("rollout", None, 1),
        ("attcat", None, None),
    ],
)
def test_queries_are_left_out_unless_attention_is_read(
    subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch, method: str, query: int | None, projection: int | None
) -> None:
    """How many tokens each layer of the last block reads; None: all."""
    subject, n_read, compute = subject_of("llama"), dict[str, int](), torch.nn.functional.linear
    last: Any = subject.blocks[-1].get_submodule("self_attn")
    names = {getattr(last, name).weight.data_ptr(): name for name in ("q_proj", "o_proj")}

    def linear(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
        if weight.data_ptr() in names and x.dim() == 3:  # rules also call it for single tokens, on their way back
            n_read[names[weight.data_ptr()]] = x.shape[1]
        return compute(x, weight, *rest)

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    (text,) = subject.encode([(TEXTS[3],)])
    n = len(text.ids)
    wt.explain(subject, TEXTS[3], method)
    assert n_read == {"q_proj": query or n, "o_proj": projection or n}


def test_a_norm_of_queries_may_have_no_epsilon(subject_of: SubjectOf) -> None:
    subject = wt.Subject(model_of("qwen3", rms_norm_eps=0.0), subject_of("qwen3").tokenizer)
    found = wt.explain(subject, TEXTS[3], "gradient-x-input")[0]["gradient-x-input"].scores
    with subject.model.register_forward_hook(lambda *_: None):
        expected = wt.explain(subject, TEXTS[3], "gradient-x-input")[0]["gradient-x-input"].scores
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_other_heads_and_models_compute_the_whole_layer(subject_of: SubjectOf) -> None:
    subject = subject_of("llama")
    assert can_narrow(subject.with_twin())
    with subject.blocks[-1].register_forward_hook(lambda *_: None):
        assert not can_narrow(subject.with_twin())
    assert not can_narrow(token_subject("gpt2").with_twin())  # reads every token
    assert not can_narrow(wt.Subject(model_of("bert", chunk_size_feed_forward=2), subject_of("bert").tokenizer))
    assert not can_narrow(subject_of("albert").with_twin())  # one block for all layers
    quantise: Any = torch.ao.quantization.quantize_dynamic
    with warnings.catch_warnings(action="ignore"):  # torch's, about its successor
        packed = quantise(model_of("llama").float(), {torch.nn.Linear}, dtype=torch.qint8).eval()
    assert not can_narrow(wt.Subject(packed, subject.tokenizer).with_twin())  # rounds by all tokens that it reads


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_mean_over_tokens_needs_all_of_them(subject_of: SubjectOf, pooling: str) -> None:
    model = model_of("modernbert", classifier_pooling=pooling)
    subject = wt.Subject(model, subject_of("modernbert").tokenizer).with_twin()
    batch = batch_of(subject, TEXTS)
    assert can_narrow(subject) == (pooling == "cls")
    torch.testing.assert_close(subject.logits(batch), plain_logits(subject, batch), rtol=1e-10, atol=1e-12)


def test_relevance_that_is_spread_over_tokens_needs_all_of_them(subject_of: SubjectOf) -> None:
    subject, rules = subject_of("bert"), replace(C21, name="spread", spread=True)
    batch, asked = batch_of(subject, TEXTS), needs(relevance=(rules, "attention"))
    goal = class_goal(subject, [1] * len(TEXTS))

    def relevance() -> torch.Tensor:
        return torch.stack(capture(subject, batch, lambda logits: goal, asked).relevance(rules, Site.ATTENTION))

    found = relevance()
    with subject.model.register_forward_hook(lambda *_: None):
        torch.testing.assert_close(found, relevance(), rtol=1e-9, atol=1e-12)
