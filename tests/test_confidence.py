"""Records that say how sure they are: bounds of words, JSON there and back, columns of tables."""

import json
from dataclasses import asdict, replace
from typing import Any

import pandas as pd
import pytest
from tests.render.shown import attribution_of
from tests.render.test_image_pictures import ONE
from tests.test_records import ATTRIBUTION

import whichtoken as wt
from whichtoken.errors import BadArtifact
from whichtoken.records import Source
from whichtoken.trust import Confidence, Removal

SURE = Confidence(
    low=(0.0, 0.25, -0.5, 0.0, -0.125, -1.0, 0.0),
    high=(0.0, 0.75, 0.0, 0.0, 0.5, 1.0, 0.0),
    level=0.9,
    n_units=4,
    n_unresolved=1,
    n_answers=64,
    additivity=0.875,
    first=0.5,
    check=Removal((1, 4), 0.125),
)
RECORD = replace(ATTRIBUTION, confidence=SURE)


def test_confidence_survives_json() -> None:
    again = wt.Attribution.from_json(RECORD.to_json())
    assert again.confidence == SURE
    assert again.words() == RECORD.words()
    assert "confidence" not in json.loads(ATTRIBUTION.to_json())  # older versions can read it


def test_the_bounds_of_a_word_are_the_sums_of_those_of_its_tokens() -> None:
    joined = replace(
        RECORD,
        texts=("slowfilm", "it is"),
        spans=(None, (0, 4), (4, 8), *RECORD.spans[3:]),
        word_ids=(None, 0, 0, *RECORD.word_ids[3:]),
    )
    assert [(w.text, w.score, w.low, w.high) for w in joined.words()] == [
        ("slowfilm", 0.25, -0.25, 0.75),
        ("it", 0.125, -0.125, 0.5),
        ("is", 1e-300, -1.0, 1.0),
    ]
    assert {(word.low, word.high) for word in ATTRIBUTION.words()} == {(None, None)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": [0.0]}, "confidence: 7 tokens, 1 low, 7 high; there must be the same number of each"),
        ({"high": [0.0] * 8}, "7 tokens, 7 low, 8 high"),
        ({"low": [0.0, 0.8, -0.5, 0.0, -0.125, -1.0, 0.0]}, "token 1 has the bounds 0.8 and 0.75; the lower one comes"),
        ({"low": [float("-inf")] * 7}, "confidence.* numbers must be finite|holds -Infinity"),
        ({"level": 1.5}, "confidence: level is 1.5; expected 0 to 1"),
        ({"level": None}, "confidence.level is None"),
        ({"first": -0.25}, "confidence: first is -0.25; expected 0 to 1"),
        ({"additivity": 1.25}, "confidence: additivity is 1.25; expected at most 1"),
        ({"additivity": "high"}, "confidence.additivity is 'high'"),
        ({"n_units": -1, "n_unresolved": -1}, "confidence: n_units is -1; expected at least 0"),
        ({"n_unresolved": -1}, "confidence: n_unresolved is -1; expected at least 0"),
        ({"n_unresolved": 5}, "n_unresolved is 5, but there are 4 units"),
        ({"n_answers": -64}, "confidence: n_answers is -64"),
        ({"check": {"tokens": [1, 7], "output": 0.5}}, r"a removal of \(1, 7\); there are 7 tokens"),
        ({"check": {"tokens": [-1], "output": 0.5}}, r"a removal of \(-1,\); there are 7 tokens"),
        ({"check": {"tokens": [1], "output": 1.5}}, "removals is 1.5; expected 0 to 1"),
        ({"surprise": 1}, "confidence.surprise is not a known field"),
    ],
)
def test_confidence_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    stored = json.loads(RECORD.to_json())
    with pytest.raises(BadArtifact, match=message):
        wt.Attribution.from_json(json.dumps(stored | {"confidence": stored["confidence"] | change}))


@pytest.mark.parametrize(
    "change",
    [
        {"additivity": 1.0, "level": 1.0, "first": 0.0},
        {"additivity": -3.5},  # predictions that are worse than the mean
        {"additivity": None, "first": None, "check": None, "n_answers": 0},
        {"low": SURE.high},
        {"n_unresolved": 4, "check": Removal((), 1.0)},
    ],
)
def test_confidence_at_its_bounds_is_read(change: dict[str, Any]) -> None:
    record = replace(RECORD, confidence=replace(SURE, **change))
    assert wt.Attribution.from_json(record.to_json()) == record


def test_a_predicted_value_may_be_anything_without_the_top_words() -> None:
    record = replace(RECORD, probability=None, value=3.0, confidence=replace(SURE, check=Removal((1,), -7.5)))
    assert wt.Attribution.from_json(record.to_json()) == record


def test_tables_have_bounds_next_to_scores_and_leave_them_empty_for_other_methods() -> None:
    results = wt.Results(({"attcat": ATTRIBUTION, "sure": RECORD},))
    frame = results.to_frame()
    names = list(frame.columns)
    assert names[names.index("score") : names.index("score") + 3] == ["score", "low", "high"]
    sure, plain = frame[frame.method == "sure"], frame[frame.method == "attcat"]
    assert list(sure.low) == [0.25, -0.5, -0.125, -1.0]
    assert list(sure.high) == [0.75, 0.0, 0.5, 1.0]
    assert set(sure["additivity"]) == {0.875}
    assert set(sure["first"]) == {0.5}
    assert plain[["low", "high", "additivity", "first"]].isna().all(axis=None)
    rows = [line.split(",") for line in results.to_csv().splitlines()]
    assert [row[-3:] for row in rows[1:3]] == [["0.5", "", ""], ["-0.25", "", ""]]
    assert rows[5][-3:] == ["0.5", "0.25", "0.75"]
    tokens = results.to_frame("token")
    assert tuple(tokens[tokens.method == "sure"].low) == SURE.low


def test_parquet_files_have_bounds(tmp_path: Any) -> None:
    results = wt.Results(({"attcat": ATTRIBUTION, "sure": RECORD},))
    results.to_parquet(tmp_path / "x.parquet")
    names = ["score", "low", "high", "additivity", "first"]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "x.parquet")[names], results.to_frame()[names])


def test_patches_have_bounds() -> None:
    n = len(ONE.scores)
    sure = replace(SURE, low=tuple(-float(i) for i in range(n)), high=tuple(float(i) for i in range(n)), check=None)
    frame = wt.Results(({"sure": replace(ONE, confidence=sure)},)).to_frame()
    assert ONE.picture is not None
    first = n - ONE.picture.rows * ONE.picture.columns
    assert list(frame.low) == list(sure.low[first:])
    assert list(frame.high) == list(sure.high[first:])


def test_a_kept_column_called_low_stays_apart() -> None:
    record = replace(attribution_of(["a"], [1.0]), source=Source(columns={"low": 7}))
    frame = wt.Results(({"attcat": record},)).to_frame()
    assert list(frame["kept_low"]) == [7]


def test_json_has_every_number() -> None:
    stored = json.loads(RECORD.to_json())["confidence"]
    assert stored == json.loads(json.dumps(asdict(SURE)))
