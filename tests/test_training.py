"""The parts of training/ that decide what the default model learns from, and what it is chosen by."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "training"))

from distilling import (
    SENTENCE_WORDS,
    SOFT_WEIGHT,
    TEMPERATURE,
    UNLABELLED,
    distillation_loss,
    keep_aside,
    sentences_of,
)


def test_no_text_that_shares_a_phrase_with_a_kept_sentence_is_trained_on() -> None:
    sentence = "one two three four five six seven eight nine ten"
    longer = f"well , {sentence} indeed"
    texts = [
        sentence,
        longer,
        "three four five",
        "five",
        "six seven",
        "threefour five six",
        "something else altogether",
    ]
    kept, rest = keep_aside(texts, 1, min_words=10)
    assert sorted([*kept, *rest]) == list(range(len(texts)))
    assert set(kept) >= {0, 1, 2}  # either sentence is drawn; each contains, or is part of, the other
    assert rest == [3, 4, 5, 6]  # one or two words may be shared, and words count as a whole


def test_a_teacher_that_agrees_costs_nothing_and_one_that_differs_does() -> None:
    logits = torch.tensor([[2.0, -1.0], [0.5, 0.5]], requires_grad=True)
    unlabelled = torch.full((2,), UNLABELLED)
    assert distillation_loss(logits, unlabelled, logits.detach()).item() == pytest.approx(0, abs=1e-7)
    soft, labels = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
    p, q = (soft / TEMPERATURE).softmax(-1), (logits.detach() / TEMPERATURE).softmax(-1)
    divergence = (p * (p / q).log()).sum(-1).mean()
    hard = -logits.detach().log_softmax(-1)[[0, 1], labels].mean()
    expected = (1 - SOFT_WEIGHT) * hard + SOFT_WEIGHT * TEMPERATURE**2 * divergence
    assert distillation_loss(logits, labels, soft).item() == pytest.approx(expected.item(), rel=1e-6)
    half = distillation_loss(logits, torch.tensor([0, UNLABELLED]), soft)
    first = -logits.detach().log_softmax(-1)[0, 0] / 2
    assert half.item() == pytest.approx((expected - (1 - SOFT_WEIGHT) * (hard - first)).item(), rel=1e-6)


def test_sentences_are_drawn_from_reviews_without_markup(tmp_path: Path) -> None:
    words = " ".join(f"word{i}" for i in range(12))
    review = f"Too short. {words}!<br /><br />{words.upper()}? End."
    (tmp_path / "reviews.tsv").write_text(f"label\ttext\n0\t{review}\n", encoding="utf-8")
    found = sentences_of(tmp_path / "reviews.tsv", 2)
    assert sorted(found, key=str.lower) == sorted([f"{words}!", f"{words.upper()}?"], key=str.lower)
    assert all(len(sentence.split()) in SENTENCE_WORDS for sentence in found)
