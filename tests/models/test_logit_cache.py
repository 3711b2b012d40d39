"""LogitCache: each sequence is read once, whoever asks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.tiny import KINDS, class_goal, language_subject, model_of, question_subject, span_goal

import whichtoken as wt
from whichtoken.core.rows import Row
from whichtoken.errors import NotFinite
from whichtoken.models import LogitCache
from whichtoken.tasks.generate import pick_answers

SubjectOf = Callable[..., wt.Subject]


def row(*ids: int) -> Row:
    return Row((2, *ids, 3), (0,) * (len(ids) + 2), (True, *(False for _ in ids), True))


def test_each_sequence_is_read_once_and_what_is_read_keeps_its_order(subject_of: SubjectOf) -> None:
    subject = subject_of("bert").with_twin()
    cache, rows = LogitCache(subject), [row(7), row(8, 9, 10), row(7), row(11, 12)]
    goal = class_goal(subject, [0, 1, 2, 0])
    read: list[int] = []
    with subject.model.register_forward_hook(lambda module, args, output: read.append(len(output.logits))):
        found = torch.stack(cache.read(rows, goal))
        assert sum(read) == 3
        assert torch.stack(cache.read(rows[::-1], goal)).equal(found.flip(0))
        assert sum(read) == 3
    assert (cache.tally.asked, cache.tally.evaluated) == (8, 3)
    for one, logits in zip(rows, found, strict=True):
        with torch.no_grad():
            alone = subject.model(input_ids=torch.tensor([one.ids])).logits[0]
        assert logits.tolist() == pytest.approx(alone.tolist(), rel=1e-9)
    expected = found.softmax(-1)[range(4), [0, 1, 2, 0]]
    assert cache.probability(rows, goal).equal(expected)
    assert (cache.tally.asked, cache.tally.evaluated) == (12, 3)


def test_rows_that_differ_in_token_types_are_told_apart(subject_of: SubjectOf) -> None:
    """A typed [SEP] can give a text the ids of a pair."""
    cache, text = LogitCache(subject_of("bert")), row(7, 3, 8)
    pair = Row(text.ids, (0, 0, 0, 1, 1), text.special)
    one, other = cache.read([text, pair], class_goal(subject_of("bert"), [0, 0]))
    assert not one.equal(other)
    assert cache.tally.evaluated == 2


def test_answers_to_one_question_are_told_apart() -> None:
    """What is kept of a sequence are the ends of one answer."""
    subject, rows = question_subject(), [row(7, 8, 9)] * 2
    goal = span_goal([1, 2], [2, 3], "sum")
    found = torch.stack(LogitCache(subject).read(rows, goal))
    torch.testing.assert_close(found, goal.read(subject.logits(subject.batch(rows))))
    assert not found[0].equal(found[1])


def test_parts_of_an_answer_share_an_evaluation() -> None:
    """Of a sequence, what is read of every token of its answer is kept, and of both ends of an answer in a context."""
    subject, answered = question_subject(), row(7, 8, 9)
    cache = LogitCache(subject)
    for part in ("start", "end", "sum"):
        cache.read([answered], span_goal([1], [2], part))
    assert cache.tally.evaluated == 1
    cache = LogitCache(language_subject())
    for chosen in ([0], [1], [0, 1]):
        cache.read([replace(answered, tail=2)], pick_answers([(1, [8, 9])], [chosen], [], "logit", torch.device("cpu")))
    assert cache.tally.evaluated == 1


def test_nothing_asked_is_nothing_answered(subject_of: SubjectOf) -> None:
    cache, goal = LogitCache(subject_of("bert")), class_goal(subject_of("bert"), torch.empty(0, dtype=torch.long))
    assert cache.read([], goal) == []
    assert cache.probability([], goal).shape == (0,)


def test_half_precision_is_widened_and_infinity_refused() -> None:
    half = wt.Subject(model_of("bert").bfloat16(), KINDS["bert"].tokenizer())
    assert LogitCache(half).read([row(7)], class_goal(half, [0]))[0].dtype == torch.float32
    broken = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    with torch.no_grad():
        broken.model.classifier.bias[0] = torch.inf
    with pytest.raises(NotFinite, match="for an input with parts removed"):
        LogitCache(broken).read([row(7)], class_goal(broken, [0]))
