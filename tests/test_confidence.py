"""Records that say how sure they are: bounds of words, JSON there and back, columns of tables."""

import json
from dataclasses import asdict, replace
from typing import Any

import pandas as pd
import pytest
from tests.render.shown import answered_of, attribution_of
from tests.render.test_image_pictures import ONE
from tests.test_records import ATTRIBUTION

import whichtoken as wt
from whichtoken.errors import BadArtifact
from whichtoken.records import Source
from whichtoken.trust import Confidence, Interaction, Removal, merge_confidence

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
MEASURED = (Removal((1,), 0.0), Removal((5, 4), 1.0), Removal((1, 4, 5), 0.5))
TOGETHER = Interaction(units=((1,), (4, 5)), effect=-13.72, low=-15.0, high=-12.0, measured=MEASURED)
OPPOSED = Interaction(units=((2,), (1,)), effect=1.2, low=1.2, high=1.2)
JOINT = replace(RECORD, confidence=replace(SURE, predicted=0.9375, interactions=(TOGETHER, OPPOSED)))


def test_confidence_survives_json() -> None:
    again = wt.Attribution.from_json(RECORD.to_json())
    assert again.confidence == SURE
    assert again.words() == RECORD.words()
    assert "confidence" not in json.loads(ATTRIBUTION.to_json())  # older versions can read it


def test_interactions_survive_json_and_older_versions_read_records_without_them() -> None:
    again = wt.Attribution.from_json(JOINT.to_json())
    assert again == JOINT
    assert again.interactions == (TOGETHER, OPPOSED)
    assert ATTRIBUTION.interactions == RECORD.interactions == ()
    assert not {"predicted", "interactions"} & set(json.loads(RECORD.to_json())["confidence"])
    none = replace(RECORD, confidence=replace(SURE, predicted=0.0), details={"predicted": None, "interactions": ()})
    stored = json.loads(none.to_json())
    assert stored["confidence"]["predicted"] == 0.0
    assert stored["details"] == {"predicted": None, "interactions": []}


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
        ({"predicted": 1.25}, "confidence: predicted is 1.25; expected at most 1"),
        ({"interactions": None}, "confidence.interactions is None"),
    ],
)
def test_confidence_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    stored = json.loads(RECORD.to_json())
    with pytest.raises(BadArtifact, match=message):
        wt.Attribution.from_json(json.dumps(stored | {"confidence": stored["confidence"] | change}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": [[1], [7]]}, r"interaction 1 has the units \(\(1,\), \(7,\)\); there are 7 tokens"),
        ({"units": [[1], [-1]]}, "there are 7 tokens"),
        ({"units": [[1]], "measured": []}, "expected two or more, each of tokens of its own"),
        ({"units": [[1], []]}, "expected two or more"),
        ({"units": [[1], [2, 1]]}, "each of tokens of its own"),
        ({"units": [1, 2]}, r"interactions\[1\].units\[0\] is 1"),
        ({"effect": -15.5}, "interaction 1 has the effect -15.5, outside its bounds -15.0 and -12.0"),
        ({"effect": -11.5}, "outside its bounds"),
        ({"low": float("nan")}, "holds NaN"),
        ({"high": None}, "high is None"),
        ({"measured": [{"tokens": [1], "output": 1.5}]}, "removals is 1.5; expected 0 to 1"),
        ({"measured": [{"tokens": [4], "output": 0.5}]}, r"was measured without \(4,\); expected one or more of its"),
        ({"measured": [{"tokens": [1, 2], "output": 0.5}]}, "expected one or more of its units"),
        ({"measured": [{"tokens": [], "output": 0.5}]}, "expected one or more of its units"),
        ({"surprise": 1}, r"interactions\[1\].surprise is not a known field"),
    ],
)
def test_an_interaction_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    stored = json.loads(JOINT.to_json())
    fine, _ = stored["confidence"]["interactions"]
    stored["confidence"]["interactions"] = [fine, fine | change]
    with pytest.raises(BadArtifact, match=message):
        wt.Attribution.from_json(json.dumps(stored))


def test_the_confidence_of_parts_of_an_answer_is_checked_too() -> None:
    answered = answered_of(["a", "b"], ["c"])
    zeros = (0.0,) * len(answered.tokens)
    sure = replace(SURE, low=zeros, high=zeros, check=None, interactions=(replace(OPPOSED, units=((1,), (2,))),))
    assert answered.generated is not None

    def with_row(confidence: Confidence) -> wt.Attribution:
        (row,) = answered.generated.rows  # type: ignore[union-attr]
        return replace(answered, generated=replace(answered.generated, rows=(replace(row, confidence=confidence),)))  # type: ignore[type-var]

    assert wt.Attribution.from_json(with_row(sure).to_json()) == with_row(sure)
    for wrong in ({"low": ()}, {"check": Removal((99,), 0.5)}, {"interactions": (OPPOSED, replace(OPPOSED, low=2.0))}):
        with pytest.raises(BadArtifact, match=r"confidence|a removal of"):
            wt.Attribution.from_json(with_row(replace(sure, **wrong)).to_json())


def test_several_pieces_are_as_predictable_as_the_least_predictable() -> None:
    sure, low, high = JOINT.confidence, (0.0,) * 3, (1.0,) * 3
    assert sure is not None
    merged = merge_confidence([replace(sure, predicted=0.5), replace(sure, predicted=None), sure], low, high)
    assert merged is not None
    assert (merged.predicted, merged.interactions, merged.check) == (0.5, (), None)
    assert merge_confidence([sure, None], low, high) == replace(sure, low=low, high=high)
    assert merge_confidence([SURE, SURE], low, high).predicted is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"additivity": 1.0, "level": 1.0, "first": 0.0},
        {"additivity": -3.5},  # predictions that are worse than the mean
        {"additivity": None, "first": None, "check": None, "n_answers": 0},
        {"low": SURE.high},
        {"n_unresolved": 4, "check": Removal((), 1.0)},
        {"predicted": -3.5, "interactions": (replace(TOGETHER, low=-13.72, high=-13.72),)},
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
    assert plain[["low", "high", "additivity", "predicted_share", "first", "interactions"]].isna().all(axis=None)
    rows = [line.split(",") for line in results.to_csv().splitlines()]
    assert [row[-4:] for row in rows[1:3]] == [["0.5", "", "", ""], ["-0.25", "", "", ""]]
    assert rows[5][-4:] == ["0.5", "0.25", "0.75", ""]
    tokens = results.to_frame("token")
    assert tuple(tokens[tokens.method == "sure"].low) == SURE.low


def interactions_of(frame: pd.DataFrame) -> list[str | None]:
    return [None if pd.isna(text) else text for text in frame.interactions]


def test_tables_say_what_each_word_acts_together_with() -> None:
    joined = replace(JOINT, texts=("slow film", "it's"), word_ids=(None, 0, 1, None, 0, 0, None))
    joined = replace(joined, spans=(*ATTRIBUTION.spans[:4], (0, 2), (2, 4), None))  # one word, two tokens
    results = wt.Results(({"sure": joined, "plain": RECORD},))
    frame = results.to_frame()
    names = list(frame.columns)
    assert names[names.index("additivity") + 1] == "predicted_share"
    assert names[names.index("high") + 1] == "interactions"
    found = ["it's -13.7; film +1.2", "slow +1.2", "slow -13.7"]
    assert interactions_of(frame) == [*found, *[None] * 4]
    assert set(frame[frame.method == "sure"].predicted_share) == {0.9375}
    assert frame[frame.method == "plain"].predicted_share.isna().all()
    assert "0.5,0.25,0.75,it's -13.7; film +1.2\n" in results.to_csv()
    tokens = interactions_of(results.to_frame("token"))[:7]
    assert tokens == [None, *found[:2], None, found[2], found[2], None]


def test_tables_name_units_of_other_kinds() -> None:
    sentences = replace(JOINT, texts=("slow. film", "it is"), spans=(None, (0, 4), (6, 10), *ATTRIBUTION.spans[3:]))
    frame = wt.Results(
        (
            {
                "sure": replace(sentences, settings={"units": "sentence"}),
            },
        )
    ).to_frame()
    assert list(frame.interactions)[2:] == ["slow -13.7", "slow -13.7"]  # it, is
    tokens = replace(
        JOINT,
        texts=("slowfilm", "it is"),
        spans=(None, (0, 4), (4, 8), *ATTRIBUTION.spans[3:]),
        word_ids=(None, 0, 0, *ATTRIBUTION.word_ids[3:]),
        settings={"units": "token"},
    )
    frame = wt.Results(({"sure": tokens},)).to_frame()
    assert frame.interactions[0] == "it and is -13.7; film and slow +1.2"  # the last within the word itself
    n = len(ONE.scores)
    sure = replace(SURE, low=(0.0,) * n, high=(0.0,) * n, check=None, interactions=(OPPOSED,))
    frame = wt.Results(({"sure": replace(ONE, confidence=sure)},)).to_frame()
    assert interactions_of(frame)[:3] == ["patch 1,2 +1.2", "patch 1,1 +1.2", None]


def test_tables_of_answers_have_the_interactions_of_each_part() -> None:
    answered = answered_of(["a", "b"], ["c", "d"])
    assert answered.generated is not None
    zeros = (0.0,) * len(answered.tokens)
    sure = replace(SURE, low=zeros, high=zeros, check=None, predicted=0.5, interactions=(OPPOSED,))
    first, second = answered.generated.rows
    rows = (replace(first, confidence=sure), replace(second, confidence=replace(sure, interactions=())))
    record = replace(answered, confidence=sure, generated=replace(answered.generated, rows=rows))
    frame = wt.Results(({"sure": record},)).to_frame()
    assert interactions_of(frame) == ["b +1.2", "a +1.2", None, None]
    assert set(frame.predicted_share) == {0.5}


def test_parquet_files_have_bounds(tmp_path: Any) -> None:
    results = wt.Results(({"attcat": ATTRIBUTION, "sure": RECORD, "joint": JOINT},))
    results.to_parquet(tmp_path / "x.parquet")
    names = ["score", "low", "high", "additivity", "predicted_share", "first", "interactions"]
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
    record = replace(attribution_of(["a"], [1.0]), source=Source(columns={"low": 7, "high": 8, "kept_high": 9}))
    frame = wt.Results(({"attcat": record},)).to_frame()
    assert list(frame["kept_low"]) == [7]
    assert (list(frame["kept_high"]), list(frame["kept_kept_high"])) == ([9], [8])


def test_json_has_every_number() -> None:
    stored = json.loads(JOINT.to_json())["confidence"]
    assert JOINT.confidence is not None
    assert stored == json.loads(json.dumps(asdict(JOINT.confidence) | {"interactions": stored["interactions"]}))
    assert stored["interactions"][0] == json.loads(json.dumps(asdict(TOGETHER)))
