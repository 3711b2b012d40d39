"""Removal curves of one text, against random and the best possible order."""

import json
from typing import Any

import numpy as np
import pytest
from tests.web.calling import TEXT, Caller, image_base64, subjects

import whichtoken as wt
from whichtoken.evaluate import aopc_bounds, open_input
from whichtoken.models import LogitCache
from whichtoken.records import Plan
from whichtoken.tasks import task_for
from whichtoken.web.drawing import MOST_UNITS


def explained(methods: list[str], text: str = TEXT) -> list[wt.Attribution]:
    return list(wt.explain(subjects()["texts"], [text], methods)[0].values())


def post(caller: Caller, records: list[wt.Attribution], **more: Any) -> dict[str, list[Any]]:
    body = {"model": "texts", "records": [json.loads(record.to_json()) for record in records], **more}
    by_name: dict[str, list[Any]] = {}
    for name, reply in caller.post("/api/curves", body).events:
        by_name.setdefault(name, []).append(reply)
    return by_name


def test_curves_are_those_of_degrade(caller: Caller) -> None:
    records = explained(["attcat", "posterior"])
    events = post(caller, records, removal="mask", level="token", random=0, bounds=False)
    assert [reply["method"] for reply in events["curve"]] == ["attcat", "posterior"]
    assert [reply["tuned_on_deletion"] for reply in events["curve"]] == [False, True]
    for order in ("morf", "lerf"):
        expected = wt.degrade(subjects()["texts"], records, "mask", order)
        for reply, curve in zip(events["curve"], expected, strict=True):
            assert reply[order]["outputs"] == pytest.approx(curve.outputs)
            assert reply[order]["removed"] == list(curve.removed)
            assert reply[order]["aopc"] == pytest.approx(wt.metrics.aopc(curve))
    assert "band" not in events
    assert "bounds" not in events


def test_the_best_order_bounds_every_other_one(caller: Caller) -> None:
    records = explained(["attcat", "random"])
    events = post(caller, records, random=30)
    (band,), (bounds,) = events["band"], events["bounds"]
    task = task_for(subjects()["texts"].with_twin())
    source = open_input(task, records, LogitCache(task.subject))
    expected = aopc_bounds(source, Plan("delete", level="word"))
    assert (bounds["lower"], bounds["upper"]) == pytest.approx((expected.lower, expected.upper))
    for end, aopc in (("best", bounds["upper"]), ("worst", bounds["lower"])):
        outputs = np.array(bounds[end])
        assert outputs[0] == pytest.approx(records[0].output)
        assert (outputs[0] - outputs[1:]).mean() == pytest.approx(aopc)
    for reply in events["curve"]:
        for order in ("morf", "lerf"):
            assert bounds["lower"] - 1e-9 <= reply[order]["aopc"] <= bounds["upper"] + 1e-9
            share = (reply[order]["aopc"] - bounds["lower"]) / (bounds["upper"] - bounds["lower"])
            assert bounds["normalised"][reply["method"]][order] == pytest.approx(share)
    assert band["n"] == 30
    assert all(
        low - 1e-9 <= mean <= high + 1e-9
        for low, mean, high in zip(band["low"], band["mean"], band["high"], strict=True)
    )
    assert bounds["lower"] < band["aopc"] < bounds["upper"]


@pytest.mark.parametrize(
    "text", ["It is slow.", "The film was slow, but the music was touching and the plot was rare."]
)
def test_both_searches_give_the_curve_of_their_bounds(caller: Caller, text: str) -> None:
    (bounds,) = post(caller, explained(["random"], text), random=0)["bounds"]
    assert bounds["exact"] == (text == "It is slow.")
    outputs = np.array(bounds["best"])
    assert (outputs[0] - outputs[1:]).mean() == pytest.approx(bounds["upper"])


def test_a_long_text_has_no_bounds_and_says_why(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from whichtoken.web import drawing

    assert MOST_UNITS == 64
    monkeypatch.setattr(drawing, "MOST_UNITS", 3)
    (bounds,) = post(caller, explained(["random"]), random=0)["bounds"]
    assert "up to 3" in bounds["skipped"]


def test_records_of_different_texts_or_models_are_refused(caller: Caller) -> None:
    mixed = [*explained(["attcat"]), *explained(["attcat"], "slow film")]
    assert "different inputs" in post(caller, mixed)["error"][0]["error"]["message"]
    body = {"model": "bert", "records": [json.loads(explained(["attcat"])[0].to_json())]}
    (last,) = caller.post("/api/curves", body).events[-1:]
    assert last[0] == "error"
    assert last[1]["error"]["status"] == 400


def test_images_are_evaluated_patch_by_patch(caller: Caller) -> None:
    asked = {"model": "images", "input": {"kind": "image", "data": image_base64()}, "methods": ["gae"]}
    (result,) = (reply["result"] for name, reply in caller.post("/api/explain", asked).events if name == "result")
    events = caller.post("/api/curves", {"model": "images", "records": [result["record"]]}).events
    assert events[-1][0] == "done"
    curve = next(reply for name, reply in events if name == "curve")
    assert len(curve["morf"]["outputs"]) == len(curve["morf"]["removed"])
