"""The removals of the strongest words: against asking the model by hand, and how much they cost."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.tiny import WORDS, image_model_of, images, model_of, question_subject, wordpiece

import whichtoken as wt
from whichtoken.errors import BadSetting
from whichtoken.records import Attribution
from whichtoken.tasks import task_for
from whichtoken.top_words import remove_top

SubjectOf = Callable[..., wt.Subject]
TEXTS = ["The actors were won, but it is slow.", "it is a rare film", "the plot was slow", "chaver untouching filmend"]


def probability(subject: wt.Subject, tokens: list[str], label: str) -> float:
    """Of what is left, asked of the model itself."""
    ids = torch.tensor([subject.tokenizer.convert_tokens_to_ids(tokens)])
    with torch.no_grad():
        return float(subject.model(input_ids=ids).logits.softmax(-1)[0, subject.labels.index(label)])


def strongest_words(record: Attribution, count: int) -> list[list[int]]:
    """Positions of the tokens of each word that supports the label, strongest first, found by word ids alone."""
    words: dict[int, list[int]] = {}
    for position, word in enumerate(record.word_ids):
        if word is not None:
            words.setdefault(word, []).append(position)
    scores = {word: sum(record.scores[i] for i in places) for word, places in words.items()}
    ranked = sorted((word for word in words if scores[word] > 0), key=lambda word: -scores[word])
    return [words[word] for word in ranked[:count]]


def test_removals_are_what_the_model_says_without_the_strongest_words(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    several = False
    for result in wt.explain(subject, TEXTS, ["attcat", "gae"], remove_top=3):
        for record in result.values():
            words, gone = strongest_words(record, 3), set[int]()
            assert len(record.removals) == len(words)
            for removal, places in zip(record.removals, words, strict=True):
                gone |= set(places)
                assert removal.tokens == tuple(sorted(gone))
                left = [token for i, token in enumerate(record.tokens) if i not in gone]
                assert removal.output == pytest.approx(probability(subject, left, record.label), rel=1e-9)
            several = several or any(len(places) > 1 for places in words)
    assert several  # a word of several tokens is removed at once


def test_they_are_not_measured_unless_asked_for_and_scores_stay_the_same(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    plain = wt.explain(subject, TEXTS, methods="attcat")
    assert not any(record.removals for result in plain for record in result.values())
    measured = wt.explain(subject, TEXTS, remove_top=1, methods="attcat")
    for before, after in zip(plain, measured, strict=True):
        assert replace(after["attcat"], removals=()) == before["attcat"]


def test_words_that_oppose_the_label_are_not_removed(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    record = wt.explain(subject, TEXTS[1:2], methods="attcat")[0]["attcat"]
    n = len(record.scores)
    task = task_for(subject)
    opposed = replace(record, scores=tuple(-1.0 for _ in range(n)))
    one = replace(record, scores=(-1.0, -1.0, 1.0, *(-1.0 for _ in range(n - 3))))
    nothing, single = remove_top(task, [opposed, one], 3)
    assert nothing.removals == ()
    assert [removal.tokens for removal in single.removals] == [(2,)]


def test_equal_remainders_are_evaluated_once_and_texts_share_batches(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    texts = [f"{first} {second} film" for first in WORDS[:6] for second in WORDS[6:12]]
    records = [record for result in wt.explain(subject, texts) for record in result.values()]
    sizes: list[int] = []
    measured: list[Attribution] = []

    def count(module: object, arguments: object, output: object) -> None:
        sizes.append(len(output.logits))  # type: ignore[attr-defined]

    with subject.model.register_forward_hook(count):
        measured = remove_top(task_for(subject), [*records, *records], 2)
    different = {
        tuple(token for i, token in enumerate(record.tokens) if i not in removal.tokens)
        for record in measured
        for removal in record.removals
    }
    assert measured[: len(records)] == measured[len(records) :]
    assert sum(sizes) == len(different)
    assert len(sizes) <= 3


def test_a_text_in_windows_has_none(subject_of: SubjectOf) -> None:
    texts = [" ".join(WORDS * 4), TEXTS[0]]
    long, short = wt.explain(subject_of("bert"), texts, long="window", remove_top=2, methods="attcat")
    assert long["attcat"].n_windows > 1
    assert long["attcat"].removals == ()
    assert short["attcat"].removals


def test_each_target_and_each_answer_is_measured_by_its_own_output(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    for result in wt.explain(subject, TEXTS[:1], targets="all", remove_top=1, methods="attcat"):
        record = result["attcat"]
        for removal in record.removals:
            left = [token for i, token in enumerate(record.tokens) if i not in removal.tokens]
            assert removal.output == pytest.approx(probability(subject, left, record.label), rel=1e-9)


def test_a_predicted_value_and_an_answer_agree_with_the_curve_of_words() -> None:
    """`degrade` removes words in the same order, so the first steps of its finest curve are the removals."""
    questions: list[tuple[str, str]] = [("who is slow", "the actors were slow but the film is rare"), ("a", TEXTS[0])]
    values = wt.Subject(model_of("bert", labels=1, problem_type="regression"), wordpiece())
    cases: list[tuple[wt.Subject, Sequence[Any]]] = [(values, TEXTS), (question_subject(), questions)]
    for subject, inputs in cases:
        records = [result["attcat"] for result in wt.explain(subject, inputs, ["attcat"], remove_top=2)]
        curves = wt.degrade(subject, records, grid="all", level="word")
        assert any(record.removals for record in records)
        for record, curve in zip(records, curves, strict=True):
            steps = curve.outputs[1 : 1 + len(record.removals)]
            assert [removal.output for removal in record.removals] == pytest.approx(steps, rel=1e-6)


@pytest.mark.parametrize("count", [-1, 1.5, "3", None, True])
def test_a_wrong_number_is_refused(count: object, subject_of: SubjectOf) -> None:
    with pytest.raises(BadSetting, match="remove_top"):
        wt.explain(subject_of("bert"), TEXTS, remove_top=count)  # type: ignore[arg-type]


def test_images_have_no_words() -> None:
    subject = wt.Subject(image_model_of("vit"), None, name="tiny")
    with pytest.raises(BadSetting, match="0: images have no words"):
        wt.explain(subject, images=list(images(1)), methods=["gae"], remove_top=1)
