"""Several targets of one input, and what a record says about the prediction and about its source."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.tiny import question_subject

import whichtoken as wt
from whichtoken.errors import BadArtifact, BadSetting
from whichtoken.records import Prediction, Source
from whichtoken.trust import Removal

SubjectOf = Callable[..., wt.Subject]
TEXTS = ["It is very slow.", "A rare, charming film."]


def test_each_target_of_each_input_has_a_result(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    found = wt.explain(subject, TEXTS, ["attcat", "random"], targets="all")
    labels = subject.labels
    assert [(r["attcat"].texts[0], r["attcat"].label) for r in found] == [(t, label) for t in TEXTS for label in labels]
    for label in labels:
        (alone, _) = wt.explain(subject, TEXTS, ["attcat"], label)
        assert found[labels.index(label)]["attcat"] == alone["attcat"]
    chosen = wt.explain(subject, TEXTS[:1], ["attcat"], targets=[labels[1], wt.Contrast(0, 1), 1])
    assert [r["attcat"].label for r in chosen] == [labels[1], f"{labels[0]} rather than {labels[1]}"]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"targets": "entailment"}, "'all', or a list"),
    ({"targets": []}, "at least one"),
    ({"targets": "all", "target": 0}, "if there are targets"),
])  # fmt: skip
def test_wrong_targets_are_refused(subject_of: SubjectOf, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        wt.explain(subject_of("bert"), TEXTS, ["attcat"], **arguments)


def test_answers_cannot_be_listed() -> None:
    with pytest.raises(BadSetting, match="answers questions"):
        wt.explain(question_subject("bert"), [("Who?", "A man.")], ["attcat"], targets="all")


@pytest.mark.parametrize("long", ["truncate", "window"])
def test_a_record_says_what_the_model_predicts(subject_of: SubjectOf, long: Any) -> None:
    subject = replace(subject_of("bert"), max_tokens=8)
    text = "slow film, but the music was very touching and rare, as in the first"
    predicted = wt.explain(subject, [text], ["attcat"], long=long)[0]["attcat"]
    assert predicted.predicted is not None
    assert predicted.predicted.label == predicted.label
    assert predicted.predicted.probability == pytest.approx(predicted.probability)
    other = next(label for label in subject.labels if label != predicted.label)
    record = wt.explain(subject, [text], ["attcat"], other, long=long)[0]["attcat"]
    assert record.label == other
    assert record.predicted == Prediction(predicted.label, predicted.predicted.probability)
    assert wt.Attribution.from_json(record.to_json()) == record


def test_a_record_is_right_if_the_gold_label_is_predicted(subject_of: SubjectOf) -> None:
    record = wt.explain(subject_of("bert"), TEXTS[:1], ["attcat"])[0]["attcat"]
    assert record.correct is None
    assert replace(record, source=Source(row=3)).correct is None
    assert replace(record, source=Source(gold=record.label)).correct is True
    assert replace(record, source=Source(gold="else")).correct is False


def test_source_and_removals_are_stored_and_checked(subject_of: SubjectOf) -> None:
    record = wt.explain(subject_of("bert"), TEXTS[:1], ["attcat"])[0]["attcat"]
    full = replace(record, source=Source(2, "a7", "neutral", {"stars": 4}), removals=(Removal((5,), 0.25),))
    assert wt.Attribution.from_json(full.to_json()) == full
    plain = json.loads(record.to_json())
    assert not {"source", "removals"} & plain.keys()
    for wrong in ({"tokens": [99], "output": 0.2}, {"tokens": [1], "output": 1.5}):
        with pytest.raises(BadArtifact, match="removal"):
            wt.Attribution.from_json(json.dumps({**plain, "removals": [wrong]}))
    with pytest.raises(BadArtifact, match="predicted"):
        wt.Attribution.from_json(json.dumps({**plain, "predicted": {"label": "a", "probability": 2.0}}))


def test_a_single_output_has_no_alternative(subject_of: SubjectOf) -> None:
    subject = subject_of("bert", labels=1)
    record = wt.explain(subject, TEXTS[:1], ["attcat"])[0]["attcat"]
    assert record.predicted is None
