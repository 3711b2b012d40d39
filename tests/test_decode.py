"""JSON into dataclasses: what fits is taken without loss, and what does not fit is refused in one line."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whichtoken.decode import decode, decode_record, fits, parse_json, read_json
from whichtoken.errors import BadArtifact, UsageError


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True)
class Shape:
    name: str
    kind: Literal["open", "closed"] | int
    points: tuple[Point, ...]
    size: tuple[int, int]
    filled: bool
    width: float | None
    weights: Mapping[str, tuple[float, ...]]
    notes: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.name == "circle":
            raise UsageError("a circle has no points")


GOOD: dict[str, Any] = {
    "name": "line",
    "kind": "open",
    "points": [{"x": 1, "y": 2.5}, {"x": -0.0, "y": 1e-300}],
    "size": [3, 4],
    "filled": False,
    "width": None,
    "weights": {"a": [0.1, 2]},
    "notes": {"list": [1, [True]], "none": None},
}


def test_what_fits_becomes_frozen_data() -> None:
    made = decode(Shape, GOOD)
    assert made.points == (Point(1.0, 2.5), Point(0.0, 1e-300))
    assert math.copysign(1, made.points[1].x) == -1
    assert (made.size, made.weights) == ((3, 4), {"a": (0.1, 2.0)})
    assert made.notes == GOOD["notes"]  # what has no type stays as it is
    assert json.loads(json.dumps(asdict(made))) == GOOD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "Shape: name is 3; expected a valid string"),
        ({"kind": "odd"}, "Shape: kind is 'odd'; expected 'open' or 'closed', or a valid integer"),
        ({"kind": True}, "Shape: kind is True; expected 'open' or 'closed', or a valid integer"),
        ({"kind": [1]}, "Shape: kind is [1]; expected 'open' or 'closed', or a valid integer"),
        ({"points": None}, "Shape: points is None; expected a valid array"),
        ({"points": [{"x": 1}]}, "Shape: points[0].y is missing"),
        ({"points": [{"y": 1}]}, "Shape: points[0].x is missing"),
        ({"points": [{"x": 1, "y": 2, "z": 3}]}, "Shape: points[0].z is not a known field"),
        ({"points": [{"x": 1, "y": True}]}, "Shape: points[0].y is True; expected a valid number"),
        ({"points": [7]}, "Shape: points[0] is 7; expected an object"),
        ({"size": [1]}, "Shape: size[1] is missing"),
        ({"size": [1, 2, 3]}, "Shape: size is [1, 2, 3]; expected at most 2 items after validation, not 3"),
        ({"size": [1, 2.0]}, "Shape: size[1] is 2.0; expected a valid integer"),
        ({"filled": 0}, "Shape: filled is 0; expected a valid boolean"),
        ({"width": "1"}, "Shape: width is '1'; expected a valid number"),
        ({"width": 10**400}, "Shape: width is 1000"),
        ({"weights": {"a": [None]}}, "Shape: weights.a[0] is None; expected a valid number"),
        ({"weights": []}, "Shape: weights is []; expected an object"),
        ({"weights": {"a": [math.inf]}}, "numbers must be finite"),
        ({"notes": {"deep": [math.nan]}}, "numbers must be finite"),
        ({"name": "\ud800"}, "Shape: "),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArtifact) as caught:
        decode(Shape, GOOD | change)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", GOOD)
def test_every_field_must_be_there(name: str) -> None:
    with pytest.raises(BadArtifact, match=f"^Shape: {name} is missing$"):
        decode(Shape, {key: value for key, value in GOOD.items() if key != name})


def test_fields_with_a_default_may_be_left_out_only_where_that_is_said() -> None:
    assert decode(Point, {"x": 1}, defaults=True) == Point(1.0)
    with pytest.raises(BadArtifact, match=r"^Point: y is missing$"):
        decode(Point, {"x": 1})


def test_the_checks_of_a_dataclass_are_errors_of_the_file_too() -> None:
    with pytest.raises(BadArtifact, match=r"^Shape: a circle has no points$"):
        decode(Shape, GOOD | {"name": "circle"})


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**30), 10**30), st.text(max_size=5))
def test_numbers_and_texts_come_back_bit_for_bit(x: float, n: int, text: str) -> None:
    stored = json.loads(json.dumps(GOOD | {"points": [{"x": x, "y": -x}], "size": [n, -n], "name": text}))
    made = decode(Shape, stored)
    assert (made.points[0].x.hex(), made.points[0].y.hex()) == (x.hex(), (-x).hex())
    assert (made.size, made.name) == ((n, -n), text)


def test_a_record_says_what_it_is() -> None:
    stamped = {"record": "Point", "schema": 3, "x": 1, "y": 2}
    assert decode_record(Point, stamped, 3) == Point(1.0, 2.0)
    others: list[Any] = [{**stamped, "record": "Shape"}, {**stamped, "schema": 2}, {"x": 1, "y": 2}, [], None, 7]
    for wrong in others:
        with pytest.raises(BadArtifact, match=r"^expected the JSON of one Point, schema 3; found "):
            decode_record(Point, wrong, 3)


def test_whole_numbers_have_at_most_64_bits() -> None:
    assert parse_json(f'{{"a": [{2**63 - 1}, {1 - 2**63}]}}') == {"a": [2**63 - 1, 1 - 2**63]}
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(BadArtifact, match=r"^a\[0\] is a whole number of more than 64 bits"):
            parse_json(f'{{"a": [{number}]}}')


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "", "{", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadArtifact, match=r"numbers must be finite|expected JSON, found"):
        parse_json(text)
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadArtifact, match=r"a\.json cannot be read: "):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, True),
        (1.5, float, True),
        (np.float64(1.5), float, True),  # a float
        (True, float, False),
        (True, int, False),
        (1, bool, False),
        (1.0, int, False),
        ("1", int, False),
        (math.nan, float, False),
        (torch.tensor(1.5), float, False),
        (np.float32(1.5), float, False),
        (np.int64(1), float, False),
        ((1, 2.5), tuple[float, ...], True),
        ((1, torch.tensor(2.5)), tuple[float, ...], False),
        ([1, 2.5], tuple[float, ...], False),
        ((1, 2, 3), tuple[int, int], False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"] | int, False),
        (None, int | None, True),
        (Point(1.0), Point | None, True),
        ({"x": 1.0}, Point | None, False),
    ],
    ids=str,
)
def test_python_values_fit_their_annotations_or_not(value: Any, hint: Any, expected: bool) -> None:
    assert fits(value, hint) is expected
