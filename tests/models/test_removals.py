"""Tokens taken out of the middle: the others keep their positions, whichever way it is done."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.tiny import KINDS, MAIN_KINDS, class_goal
from torch import Tensor

import whichtoken as wt
from whichtoken.core.picks import track
from whichtoken.models import Batch, ModelProbe, architectures, window_row
from whichtoken.models.architectures import ARCHITECTURES

TEXTS = ["The actors were wonderful, but slow.", "It is a rare film", "dull"]
CUTTING = sorted(name for name in KINDS if ARCHITECTURES[name].positions_in_embeddings)


def probe_of(subject: wt.Subject, texts: list[str]) -> ModelProbe:
    documents = subject.encode([(text,) for text in texts])
    batch = subject.batch([window_row(document, document.windows[0]) for document in documents])
    return ModelProbe(subject, batch, class_goal(subject, torch.arange(len(texts)) % 3))


def patterns_for(batch: Batch, n: int = 5) -> Tensor:
    made = torch.rand(len(batch.ids), n, batch.ids.shape[1], generator=torch.Generator().manual_seed(1)) < 0.5
    made[:, 0], made[:, 1] = True, False
    return made


@pytest.mark.parametrize("kind", CUTTING)
def test_cutting_tokens_out_is_hiding_them(
    kind: str, subject_of: Callable[..., wt.Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(kind)
    probe = probe_of(subject, TEXTS)
    cut = probe.keep_in_place(patterns_for(probe.batch))
    row = replace(ARCHITECTURES[kind], positions_in_embeddings=False)
    monkeypatch.setattr(architectures, "ARCHITECTURES", {**ARCHITECTURES, kind: row})
    again = probe_of(wt.Subject(subject.model, subject.tokenizer), TEXTS)
    assert not again.subject.architecture.positions_in_embeddings
    assert torch.allclose(cut, again.keep_in_place(patterns_for(probe.batch)), rtol=1e-9)


@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_nothing_removed_is_the_prediction_and_padding_does_not_matter(
    kind: str, subject_of: Callable[..., wt.Subject]
) -> None:
    subject = subject_of(kind)
    probe = probe_of(subject, TEXTS)
    patterns = patterns_for(probe.batch)
    found = probe.keep_in_place(patterns)
    logits = subject.logits(probe.batch)
    assert torch.allclose(found[:, 0], track(probe.picks, logits))
    assert len(set(found[0].tolist())) > 2  # it matters what is taken out
    for row, text in enumerate(TEXTS):
        single = replace(probe_of(subject, [text]), picks=probe.picks.rows(torch.tensor([row])))
        alone = single.keep_in_place(patterns[row : row + 1, :, : single.batch.ids.shape[1]])
        assert torch.allclose(found[row], alone[0], rtol=1e-9)


def test_positions_are_kept(subject_of: Callable[..., wt.Subject]) -> None:
    """Unlike deletion, which moves what comes after."""
    probe = probe_of(subject_of("bert"), TEXTS[:1])
    pattern = torch.ones(1, 1, probe.batch.ids.shape[1], dtype=torch.bool)
    pattern[..., 1] = False
    places = pattern[0].nonzero()[:, 1][None]
    logits = probe.subject.model(probe.batch.ids[:, places[0]], position_ids=places).logits
    found = float(probe.keep_in_place(pattern))
    assert found == pytest.approx(float(logits.softmax(-1)[0, 0]), rel=1e-9)
    assert found != pytest.approx(float(probe.keep(pattern)), rel=1e-3)


def test_each_pattern_is_asked_once(subject_of: Callable[..., wt.Subject], monkeypatch: pytest.MonkeyPatch) -> None:
    probe = probe_of(subject_of("bert"), TEXTS[:1])
    rows = []
    original = wt.Subject.logits

    def count(self: wt.Subject, batch: Batch, embeddings: Tensor | None = None) -> Tensor:
        rows.append(len(batch.ids))
        return original(self, batch, embeddings)

    monkeypatch.setattr(wt.Subject, "logits", count)
    pattern = torch.zeros(1, 7, probe.batch.ids.shape[1], dtype=torch.bool)
    pattern[0, 3:, 2] = True
    probe.keep_in_place(pattern)
    assert sum(rows) == 2
