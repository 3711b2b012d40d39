"""Answers: each sequence is read once, whoever asks."""

from collections.abc import Callable

import pytest
import torch
from tests.tiny import KINDS, model_of

import whichtoken as wt
from whichtoken.errors import NotFinite
from whichtoken.models import Answers, Row

SubjectOf = Callable[..., wt.Subject]


def row(*ids: int) -> Row:
    return Row((2, *ids, 3), (0,) * (len(ids) + 2), (True, *(False for _ in ids), True))


def test_each_sequence_is_read_once_and_answers_keep_their_order(subject_of: SubjectOf) -> None:
    subject = subject_of("bert").twinned()
    answers, rows = Answers(subject), [row(7), row(8, 9, 10), row(7), row(11, 12)]
    read: list[int] = []
    with subject.model.register_forward_hook(lambda module, args, output: read.append(len(output.logits))):
        found = answers(rows)
        assert sum(read) == 3
        assert answers(rows[::-1]).equal(found.flip(0))
        assert sum(read) == 3
    assert (answers.tally.asked, answers.tally.evaluated) == (8, 3)
    for one, logits in zip(rows, found, strict=True):
        with torch.no_grad():
            alone = subject.model(input_ids=torch.tensor([one.ids])).logits[0]
        assert logits.tolist() == pytest.approx(alone.tolist(), rel=1e-9)


def test_nothing_asked_is_nothing_answered(subject_of: SubjectOf) -> None:
    assert Answers(subject_of("bert"))([]).shape == (0, 3)


def test_half_precision_is_widened_and_infinity_refused() -> None:
    half = wt.Subject(model_of("bert").bfloat16(), KINDS["bert"].tokenizer())
    assert Answers(half)([row(7)]).dtype == torch.float32
    broken = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    with torch.no_grad():
        broken.model.classifier.bias[0] = torch.inf
    with pytest.raises(NotFinite, match="for a shortened text"):
        Answers(broken)([row(7)])
