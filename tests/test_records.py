"""Attribution and Curve: JSON there and back, and refusal of anything else."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtoken import Attribution, Class, Contrast, Curve, Span
from whichtoken.core.removal_steps import GRIDS
from whichtoken.errors import BadArtifact
from whichtoken.record_checks import PNG
from whichtoken.records import Picture

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
    grid="all",
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


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=5),
    st.floats(0, 1),
    st.sampled_from(["morf", "lerf", "random"]),
)
def test_a_curve_survives_json(points: list[tuple[float, float]], whole: float, order: Any) -> None:
    removed, probability = (0.0, *sorted(x for x, _ in points)), (whole, *(y for _, y in points))
    curve = replace(CURVE, key="é\n'\"<>", order=order, grid="of a package", removed=removed, probability=probability)
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
        ({"target": {}}, r"target is Span\(start=None.*expected the positions of tokens of the 7, from 0"),
        ({"target": {"free": True}}, "expected the positions of tokens"),
        ({"target": {"start": 1}}, "with both ends, or with neither|target"),
        ({"target": {"start": 3, "end": 7}}, "expected the positions of tokens of the 7"),
        ({"target": {"start": -1, "end": 2}}, "expected the positions of tokens"),
        ({"target": {"label": -1}}, "expected labels by index, from 0"),
        ({"target": {"label": 0, "rather_than": -2}}, "expected labels by index, from 0"),
        ({"probability": 1.01}, "probability is 1.01; expected 0 to 1"),
        ({"probability": -0.01}, "probability is -0.01; expected 0 to 1"),
        ({"spans": [None, [0, 99], [5, 9], None, [0, 2], [3, 5], None]}, r"token 1 has the span \(0, 99\), .* 0 to 9"),
        ({"spans": [None, [4, 0], [5, 9], None, [0, 2], [3, 5], None]}, "token 1 has the span"),
        ({"spans": [None, [-4, 4], [5, 9], None, [0, 2], [3, 5], None]}, "token 1 has the span"),
        ({"spans": [None, [0, 4], [5, 9], None, [0, 6], [3, 5], None]}, r"token 4 has the span .* 0 to 5"),
        ({"sequences": [None, 0, 0, None, 1, 2, None]}, "token 5 is in text 2, but there are 2 texts"),
        ({"sequences": [None, 0, 0, None, 1, -1, None]}, "token 5 is in text -1"),
        ({"sequences": [None, None, 0, None, 1, 1, None]}, "token 1 has a span, but no sequence"),
        ({"word_ids": [None, -1, 1, None, 0, 1, None]}, "a word id is -1; expected at least 0"),
        ({"n_cut": -1}, "n_cut is -1; expected at least 0"),
        ({"n_windows": -1}, "n_windows is -1"),
        ({"seconds": -0.5}, "seconds is -0.5"),
        ({"evaluations": -1.0}, "evaluations is -1.0"),
        ({"n_cut": 10**30}, "n_cut is a whole number of more than 64 bits"),
        ({"label": "a\ud800"}, "label holds half of a surrogate pair"),
        ({"settings": {"\udfff": 1}}, "holds half of a surrogate pair"),
        ({"details": {"deep": json.loads("[" * 70 + "]" * 70)}}, "nested too deeply: more than 64 levels"),
    ],
)
def test_other_json_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArtifact, match=message):
        Attribution.from_json(json.dumps(json.loads(ATTRIBUTION.to_json()) | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "{}"])
def test_what_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(BadArtifact, match="expected the JSON of one Curve"):
        Curve.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"probability": 0.0},
        {"probability": 1.0},
        {"probability": 1 + 1e-7},  # rounded in single precision
        {"n_cut": 0, "n_windows": 0},
        {"n_cut": 2**63 - 1},
        {"spans": (None, (0, 9), (9, 9), None, (0, 0), (3, 5), None)},
        {"target": Span(0, 6)},
        {"target": Span(6, 2, free=True)},
        {"target": Contrast(0, 0)},
        {"details": {"deep": json.loads("[" * 60 + "]" * 60)}},
        {"label": "\U0001f3ac é"},
    ],
)
def test_values_at_their_bounds_are_read(change: dict[str, Any]) -> None:
    record = replace(ATTRIBUTION, **change)
    assert Attribution.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": [0.9, 0.5]}, "3 removed, 2 probability; there must be the same number of each"),
        ({"probability": [0.9, 0.5, 1.5]}, "probability is 1.5; expected 0 to 1"),
        ({"probability": [0.9, -0.5, 0.5]}, "probability is -0.5"),
        ({"removed": [0.0, 0.6, 0.5]}, "expected shares that ascend from 0"),
        ({"removed": [0.1, 0.5, 1.0]}, "expected shares that ascend from 0"),
        ({"removed": [0.0, 0.5, 1.5]}, "removed is 1.5; expected 0 to 1"),
        ({"removed": [], "probability": []}, "expected shares that ascend from 0"),
        ({"removed": [0.0, 0.5], "probability": [0.9, 0.5]}, "these are not all the steps of grid all"),
        ({"removed": [0.0], "probability": [0.9]}, "these are not all the steps of grid all"),
        ({"grid": "tenths"}, "these are not all the steps of grid tenths"),
        ({"grid": "eraser"}, "these are not all the steps of grid eraser"),
        ({"n_cut": -1}, "n_cut is -1"),
        ({"seconds": -1}, "seconds is -1"),
        ({"target": {}}, "expected the positions of tokens, from 0"),
    ],
)
def test_a_curve_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArtifact, match=message):
        Curve.from_json(json.dumps(json.loads(CURVE.to_json()) | change))


@pytest.mark.parametrize("grid", ["all", "eraser", "tenths", "tenths-to-all", "twentieths"])
@pytest.mark.parametrize("order", ["morf", "lerf"])
@pytest.mark.parametrize("n_units", [1, 4, 23])
def test_the_steps_of_every_grid_are_read_and_refused_if_one_is_gone(grid: str, order: Any, n_units: int) -> None:
    removed = GRIDS[grid].steps(n_units, 2, order).removed
    curve = replace(CURVE, grid=grid, order=order, removed=removed, probability=(0.5,) * len(removed))
    assert Curve.from_json(curve.to_json()) == curve
    with pytest.raises(BadArtifact, match=f"not all the steps of grid {grid}"):
        Curve.from_json(replace(curve, removed=removed[:-1], probability=(0.5,) * (len(removed) - 1)).to_json())


def picture(rows: int, columns: int, n_tokens: int) -> str:
    """The JSON of an attribution of an image of 4 x 2 pixels."""
    png = base64.b64encode(PNG + bytes(8) + (4).to_bytes(4) + (2).to_bytes(4)).decode()
    patches = dict.fromkeys(("spans", "sequences", "word_ids"), (None,) * n_tokens)
    made = replace(ATTRIBUTION, texts=(), tokens=("p",) * n_tokens, scores=(1.0,) * n_tokens, **patches)  # type: ignore[arg-type]
    return replace(made, picture=Picture("a.png", png, 4, 2, rows, columns)).to_json()


@pytest.mark.parametrize("grid", [(2, 3), (1, 6), (6, 1), (1, 1)])
def test_a_grid_may_have_as_many_patches_as_there_are_tokens(grid: tuple[int, int]) -> None:
    """Not every model has a token before its patches."""
    found = Attribution.from_json(picture(*grid, n_tokens=6))
    assert len(found.grid()) == grid[0]
    assert {len(row) for row in found.grid()} == {grid[1]}


@pytest.mark.parametrize("grid", [(1, 7), (7, 1), (2, 4), (0, 3), (3, 0), (-1, -1)])
def test_a_grid_of_more_patches_than_tokens_or_of_none_is_refused(grid: tuple[int, int]) -> None:
    with pytest.raises(BadArtifact, match="need at least 1 of each, and a token per patch"):
        Attribution.from_json(picture(*grid, n_tokens=6))


def test_what_cannot_be_written_is_named_by_its_field() -> None:
    with pytest.raises(BadArtifact, match=r"texts\[1\] holds half of a surrogate pair"):
        replace(ATTRIBUTION, texts=("slow film", "it\ud800")).to_json()
    with pytest.raises(BadArtifact, match="key holds half of a surrogate pair"):
        replace(CURVE, key="\udc80").to_json()
