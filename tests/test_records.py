"""Attribution and Curve: JSON there and back, and refusal of anything else."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtoken import Attribution, Class, Contrast, Curve, Span
from whichtoken.errors import BadArtifact

ATTRIBUTION = Attribution(
    texts=("slow film", "it is"),
    tokens=("[CLS]", "slow", "film", "[SEP]", "it", "is", "[SEP]"),
    spans=(None, (0, 4), (5, 9), None, (0, 2), (3, 5), None),
    sequences=(None, 0, 0, None, 1, 1, None),
    word_ids=(None, 0, 1, None, 0, 1, None),
    scores=(9.0, 0.5, -0.25, 9.0, 0.125, 1e-300, 9.0),
    label="entailment",
    target=Class(1),
    probability=0.75,
    method="attcat",
    settings={"layers": "inputs", "mask_special": False},
    tuned_on_deletion=False,
    model="tiny",
    revision="sha256:00",
    n_cut=3,
    n_windows=1,
    details={"note": [1, "a"]},
    seconds=0.1,
)
CURVE = Curve(
    key="slow film",
    order="morf",
    perturbation="delete",
    removed=(0.0, 0.5, 1.0),
    probability=(0.9, 0.5, 0.1),
    label="negative",
    target=Class(0),
    method="attcat",
    settings={"layers": "inputs"},
    model="tiny",
    revision="sha256:00",
    n_cut=0,
    seconds=0.5,
)


def test_an_attribution_survives_json() -> None:
    again = Attribution.from_json(ATTRIBUTION.to_json())
    assert again.scores == ATTRIBUTION.scores
    assert again.spans == ATTRIBUTION.spans
    assert again.settings == ATTRIBUTION.settings
    assert again.words() == ATTRIBUTION.words()
    assert again.to_json() == ATTRIBUTION.to_json()


@pytest.mark.parametrize("target", [Class(2), Contrast(0, 2), Span(3, 5, "both"), Span(4, 4, "end")])
def test_what_was_explained_survives_json(target: Class | Contrast | Span) -> None:
    attribution, curve = replace(ATTRIBUTION, target=target), replace(CURVE, target=target)
    assert Attribution.from_json(attribution.to_json()).target == target
    assert Curve.from_json(curve.to_json()) == curve


def test_json_says_what_it_is() -> None:
    stored = json.loads(ATTRIBUTION.to_json())
    assert (stored["record"], stored["schema"]) == ("Attribution", 3)
    assert stored["method"] == "attcat"
    assert stored["n_cut"] == 3


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=5), st.sampled_from(["morf", "lerf", "random"]))
def test_a_curve_survives_json(points: list[tuple[float, float]], order: Any) -> None:
    removed, probability = tuple(x for x, _ in points), tuple(y for _, y in points)
    curve = replace(CURVE, key="é\n'\"<>", order=order, removed=removed, probability=probability)
    assert Curve.from_json(curve.to_json()) == curve


def test_words_leave_out_special_tokens() -> None:
    assert [(w.sequence, w.text, w.score) for w in ATTRIBUTION.words()] == [
        (0, "slow", 0.5),
        (0, "film", -0.25),
        (1, "it", 0.125),
        (1, "is", 1e-300),
    ]


def test_elapsed_time_does_not_count_when_attributions_are_compared() -> None:
    assert replace(CURVE, seconds=9.0) == CURVE
    slower = json.loads(ATTRIBUTION.to_json()) | {"seconds": 5.0}
    assert Attribution.from_json(json.dumps(slower)) == Attribution.from_json(ATTRIBUTION.to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 1}, "schema 3"),
        ({"record": "Curve"}, "expected the JSON of one Attribution"),
        ({"surprise": 1}, "surprise is not a known field"),
        ({"layers": [[1.0]]}, "a layer must have as many scores as there are tokens"),
        ({"scores": [float("nan")] * 7}, "holds NaN; numbers must be finite"),
        ({"scores": [1.0]}, "7 tokens, .* 1 scores; there must be the same number of each"),
        ({"scores": None}, "scores is None; expected a valid array"),
        ({"tokens": 3}, "tokens is 3"),
        ({"texts": "abc"}, "texts is 'abc'"),
        ({"probability": "high"}, "probability is 'high'"),
        ({"n_cut": True}, "n_cut is True"),
        ({"target": None}, "target is None"),
        ({"target": {"label": "x", "more": 1}}, "target"),
        ({"target": {"start": 1, "end": 2, "part": "all", "free": False}}, "target"),
        ({"spans": [[1, 2, 3]] * 7}, r"spans\[0\] is \[1, 2, 3\]; expected at most 2 items"),
        ({"sequences": ["0"] * 7}, r"sequences\[0\] is '0'; expected a valid integer"),
    ],
)
def test_other_json_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArtifact, match=message):
        Attribution.from_json(json.dumps(json.loads(ATTRIBUTION.to_json()) | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "{}"])
def test_what_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(BadArtifact, match="expected the JSON of one Curve"):
        Curve.from_json(text)
