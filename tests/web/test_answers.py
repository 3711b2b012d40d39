"""Answers of language models on the page: each part of the answer has its own map of the prompt."""

import json
from typing import Any

import pytest
from tests.web.calling import Caller, subjects

import whichtoken as wt

PROMPT = "The plot was slow but the music"


def asked(**more: Any) -> dict[str, Any]:
    return {"kind": "prompt", "prompt": PROMPT, "tokens": 5, **more}


def explain(caller: Caller, methods: list[str], **more: Any) -> list[Any]:
    events = caller.post("/api/explain", {"model": "llama", "input": asked(**more), "methods": methods}).events
    assert events[-1][0] == "done", events[-1]
    return [reply["result"] for name, reply in events if name == "result"]


def test_each_token_of_the_answer_has_a_row_of_its_own(caller: Caller) -> None:
    (result,) = explain(caller, ["attcat"])
    expected = wt.explain(subjects()["llama"], prompt=PROMPT, generate=5, rows="token", methods="attcat")[0]["attcat"]
    assert expected.generated is not None
    assert result["answer"]["text"].split() == expected.texts[1].split()
    assert len(result["answer"]["parts"]) == len(expected.generated.rows) > 1
    for part, row in zip(result["answer"]["parts"], expected.generated.rows, strict=True):
        for cell in part["rows"]["token"]["cells"]:
            assert cell["score"] == pytest.approx(row.scores[cell["tokens"][0]])
            assert cell["removable"]
        assert part["tokens"] == list(row.tokens)
        assert part["log_probability"] == pytest.approx(row.log_probability)
    info = next(model for model in caller.get("/api/info").json["models"] if model["id"] == "llama")
    assert (info["inputs"], info["reading"], info["labels"]) == (["prompt"], "value", [])
    assert not info["token"]  # there are no labels of tokens to choose from


def test_words_of_the_prompt_are_switched_off_and_the_answer_stays(caller: Caller) -> None:
    given = {"model": "llama", "input": asked(rows="answer")}
    (whole,) = caller.post("/api/predict", given).json["explained"]
    assert whole["reading"] == "value"
    removable = [cell for cell in whole["cells"] if cell["removable"]]
    assert "slow" in [cell["text"] for cell in removable]
    off = next(cell for cell in removable if cell["text"] == "slow")["tokens"]
    (view,) = caller.post("/api/predict", {**given, "off": off}).json["explained"]
    assert view["outputs"][0] != pytest.approx(view["whole"])
    assert view["removed"] == [1 / len(removable)]


def test_a_continuation_or_a_foil_may_be_given(caller: Caller) -> None:
    (given,) = explain(caller, ["gradient-x-input"], continuation=" was slow", rows="answer")
    assert given["answer"]["is_given"]
    assert given["label"] == "was slow"
    (contrast,) = explain(caller, ["gradient-x-input"], continuation=" was slow", foil=" is rare")
    assert "rather than is rare" in contrast["label"]


def test_curves_of_an_answer(caller: Caller) -> None:
    records = [result["record"] for result in explain(caller, ["attcat", "gradient-x-input"], rows="answer")]
    events = caller.post("/api/curves", {"model": "llama", "records": records}).events
    assert events[-1][0] == "done", events[-1]
    assert [name for name, _ in events if name not in ("queued", "started", "progress")] == [
        *("curve", "curve"),
        *("band", "bounds", "done"),
    ]


def test_wrong_prompts_are_refused(caller: Caller) -> None:
    for more, status in (({"prompt": " "}, 400), ({"tokens": 129}, 413), ({"tokens": 0}, 422), ({"foil": ""}, 400)):
        assert caller.post("/api/predict", {"model": "llama", "input": asked(**more)}).status == status, more
    text = caller.post("/api/predict", {"model": "llama", "input": {"kind": "text", "text": "slow"}})
    assert (text.status, text.error) == (400, "UsageError")
    label = caller.post("/api/predict", {"model": "llama", "input": asked(), "target": {"label": "positive"}})
    assert (label.status, label.error) == (400, "BadSetting")


def test_records_of_strangers_name_no_tokens_that_the_model_lacks(caller: Caller) -> None:
    (result,) = explain(caller, ["attcat"], rows="answer")
    record = result["record"]
    wrong = record["generated"] | {"ids": [10**6] * len(record["tokens"])}
    events = caller.post("/api/curves", {"model": "llama", "records": [record | {"generated": wrong}]}).events
    assert events[-1][1]["error"]["kind"] == "UsageError"
    large = record["generated"] | {"rows": [row | {"log_probability": 1e300} for row in record["generated"]["rows"]]}
    for generated in (wrong, large, large | {"rows": large["rows"] * 2}):
        opened = caller.post("/api/open", {"content": json.dumps([record | {"generated": generated}])})
        assert opened.status in (200, 400), opened.json


def test_control_tokens_in_a_prompt_are_named(caller: Caller) -> None:
    (plain,) = explain(caller, ["random"], prompt="The </s> plot", rows="answer")
    assert plain["notes"][0].startswith("the text contains </s>: the model reads it as a control token")
    assert plain["warnings"] == []
    assert plain["record"]["control_tokens"] == ["</s>"]
