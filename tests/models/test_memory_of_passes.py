"""Passes over long inputs, whose blocks are computed again, and methods that need more memory than there is."""

from typing import Any

import pytest
import torch
from tests.tiny import KINDS, language_subject, model_of

import whichtoken as wt
from whichtoken.errors import UsageError
from whichtoken.models import memory, passes

TEXT = "The film was slow, but the music was touching. It is a rare plot."
METHODS = "attn-lrp,cp-lrp,gradient-x-input,cat,gae"


def rows_of(record: Any) -> torch.Tensor:
    return torch.tensor([record.scores, *(row.scores for row in record.generated.rows)], dtype=torch.float64)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_blocks_that_are_computed_again_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = language_subject(kind)
    arguments: dict[str, Any] = {"prompt": [TEXT, "It is"], "generate": 3, "rows": "token", "methods": METHODS}
    kept = wt.explain(subject, **arguments)
    again: list[int] = []
    blocks = memory.forget_inside
    monkeypatch.setattr(passes, "LARGE", 0)
    monkeypatch.setattr(passes, "forget_inside", lambda twin: again.append(1) or blocks(twin))  # type: ignore[func-returns-value]
    forgotten = wt.explain(subject, **arguments)
    assert again, "no block was computed again"
    for one, other in zip(kept, forgotten, strict=True):
        for label in one:
            expected = rows_of(one[label])
            worst = float((rows_of(other[label]) - expected).abs().max())
            assert worst <= 1e-9 * float(expected.abs().max()), label
    assert all("forward" not in vars(block) for block in subject.blocks)


def test_relevance_under_other_rules_survives_blocks_that_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")
    (kept,) = wt.explain(subject, TEXT, "full-lrp,attn-lrp", target=wt.Contrast(0, 1))
    monkeypatch.setattr(passes, "LARGE", 0)
    (forgotten,) = wt.explain(subject, TEXT, "full-lrp,attn-lrp", target=wt.Contrast(0, 1))
    for label in kept:
        assert forgotten[label].scores == pytest.approx(kept[label].scores, rel=1e-9, abs=1e-12), label


def test_a_prompt_that_does_not_fit_in_memory_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = language_subject()
    monkeypatch.setattr("whichtoken.scoring.available_bytes", lambda device: 100_000)
    monkeypatch.setattr("whichtoken.scoring.SMALL", 0)
    monkeypatch.setattr("whichtoken.models.memory.LARGE", 1000)
    wt.explain(subject, prompt="It is", generate=2, methods="random")
    with pytest.raises(UsageError, match=r"gae needs about [\d.]+ MB .* of 3 layers x 4 heads.*, and 0.1 MB are free"):
        wt.explain(subject, prompt=TEXT, generate=3, methods="random,gae")
