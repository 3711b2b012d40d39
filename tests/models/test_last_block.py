"""Passes that compute the feed-forward layer of the last block for one token: the results of the whole layer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.models.test_unpadded import TEXTS, batch_of, plain_logits
from tests.tiny import model_of, token_subject

import whichtoken as wt
from whichtoken.models.last_block import can_narrow, narrow_last_block

SubjectOf = Callable[..., wt.Subject]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens of each row the feed-forward layers of the last blocks read."""
    seen = list[int]()

    def watch(subject: Any, batch: Any) -> Any:
        layer = subject.blocks[-1].get_submodule("mlp")
        context, compute = narrow_last_block(subject, batch), type(layer).forward

        def forward(hidden: torch.Tensor) -> torch.Tensor:
            seen.append(hidden.shape[1])
            made: torch.Tensor = compute(layer, hidden)
            return made

        layer.forward = forward
        return context

    monkeypatch.setattr("whichtoken.models.shortcuts.narrow_last_block", watch)
    return seen


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2"])
def test_logits_are_those_of_the_plain_model(subject_of: SubjectOf, kind: str, read: list[int]) -> None:
    subject = subject_of(kind).with_twin()
    batch = batch_of(subject, TEXTS)
    found = subject.logits(batch)
    torch.testing.assert_close(found, plain_logits(subject_of(kind), batch), rtol=1e-10, atol=1e-12)
    assert read == [1]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_scores_are_those_of_whole_passes(subject_of: SubjectOf, kind: str, read: list[int]) -> None:
    """Under rules that carry a gradient, too; relevance that is divided among tokens needs all of them."""
    subject = subject_of(kind)
    methods = ["gradient-x-input", "attn-lrp", "cp-lrp"]
    found = [wt.explain(subject, TEXTS, method) for method in methods]
    assert set(read) == {1}
    with subject.model.register_forward_hook(lambda *_: None):  # a hook rules shortcuts out
        expected = [wt.explain(subject, TEXTS, method) for method in methods]
    for mine, reference in zip(found, expected, strict=True):
        for one, other in zip(mine, reference, strict=True):
            (a,), (b,) = one.values(), other.values()
            assert a.scores == pytest.approx(b.scores, rel=1e-9, abs=1e-12)
    read.clear()
    wt.explain(subject, TEXTS, ["full-lrp", "attcat"])
    assert read == []


def test_other_heads_and_models_compute_the_whole_layer(subject_of: SubjectOf) -> None:
    subject = subject_of("llama")
    assert can_narrow(subject.with_twin())
    with subject.blocks[-1].register_forward_hook(lambda *_: None):
        assert not can_narrow(subject.with_twin())
    assert not can_narrow(token_subject("gpt2").with_twin())  # reads every token
    assert not can_narrow(subject_of("bert").with_twin())  # its layer is two modules


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_mean_over_tokens_needs_all_of_them(subject_of: SubjectOf, pooling: str) -> None:
    model = model_of("modernbert", classifier_pooling=pooling)
    subject = wt.Subject(model, subject_of("modernbert").tokenizer).with_twin()
    batch = batch_of(subject, TEXTS)
    assert can_narrow(subject) == (pooling == "cls")
    torch.testing.assert_close(subject.logits(batch), plain_logits(subject, batch), rtol=1e-10, atol=1e-12)
