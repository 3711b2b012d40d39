"""Switching words off: what the page shows is what the model says about what remains."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.web.calling import TEXT, Caller, SlowClicks, image_base64, make_caller, subjects, text_request

import whichtoken as wt
from whichtoken.web.limits import Limits
from whichtoken.web.served import KEPT


def probabilities(text: str) -> Any:
    subject = subjects()["texts"]
    with torch.no_grad():
        return subject.model(**subject.tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]


def test_a_word_that_is_off_is_deleted_and_every_label_follows(caller: Caller) -> None:
    reply = caller.post("/api/predict", text_request()).json
    (whole,) = reply["explained"]
    words = [cell["text"] for cell in whole["cells"]]
    assert "".join(cell["before"] + cell["text"] for cell in whole["cells"]) == TEXT
    assert whole["outputs"] == [pytest.approx(whole["whole"])]
    off = [token for cell in whole["cells"] if cell["text"] in ("rare", "slow") for token in cell["tokens"]]
    (switched,) = caller.post("/api/predict", text_request(off=off)).json["explained"]
    expected = probabilities("The actors were , but the plot was .")
    label = int(probabilities(TEXT).argmax())
    assert switched["outputs"] == [pytest.approx(float(expected[label]))]
    assert switched["outputs"][0] != pytest.approx(switched["whole"], abs=1e-3)
    assert switched["removed"] == [2 / len(words)]
    assert switched["label"] == subjects()["texts"].labels[label]
    shown = caller.post("/api/predict", text_request(off=off)).json["labels"]
    assert [view["probability"] for view in shown] == pytest.approx(sorted(expected.tolist(), reverse=True))
    assert [view["label"] for view in shown] == [subjects()["texts"].labels[view["index"]] for view in shown]


def test_states_are_answered_together_and_in_order(caller: Caller) -> None:
    states = [[], [1], [1, 2, 3], list(range(40))]
    reply = caller.post("/api/predict", text_request(states=states)).json
    (together,) = reply["explained"]
    alone = [caller.post("/api/predict", text_request(off=off)).json for off in states]
    assert together["outputs"] == pytest.approx([one["explained"][0]["outputs"][0] for one in alone])
    assert together["removed"][-1] == 1
    assert together["outputs"][0] == pytest.approx(together["whole"])
    assert reply["labels"] == alone[-1]["labels"]
    assert reply["whole_labels"] == alone[-1]["whole_labels"] == alone[0]["labels"] != reply["labels"]


def test_a_part_of_a_word_is_off_only_at_the_level_of_tokens(caller: Caller) -> None:
    text = "It is very slow."  # ver ##y
    asked = text_request(text, off=[4])
    (word,) = caller.post("/api/predict", asked).json["explained"]
    (token,) = caller.post("/api/predict", {**asked, "level": "token"}).json["explained"]
    assert word["removed"] == [0]
    assert token["removed"] == [1 / 6]
    assert not [cell for cell in token["cells"] if cell["removable"] and cell["text"] in ("[CLS]", "[SEP]")]


def test_another_target_removal_and_contrast(caller: Caller) -> None:
    asked = text_request(target={"label": "neutral", "rather_than": 0}, off=[1], removal="mask")
    (view,) = caller.post("/api/predict", asked).json["explained"]
    (record,) = wt.explain(subjects()["texts"], [TEXT], "random", wt.Contrast("neutral", 0))[0].values()
    assert view["label"] == record.label == "neutral rather than contradiction"
    assert view["whole"] == pytest.approx(record.output)
    expected = probabilities(f"[MASK]{TEXT[3:]}")[[2, 0]]
    assert view["outputs"] == [pytest.approx(float(expected[0] / expected.sum()))]


def test_an_answer_stays_while_its_context_is_switched_off(caller: Caller) -> None:
    given = {"kind": "question", "question": "what was slow?", "context": "The plot was slow but the music won."}
    (view,) = caller.post("/api/predict", {"model": "bert", "input": given}).json["explained"]
    assert view["label"] in given["context"]
    fixed = [cell["text"] for cell in view["cells"] if not cell["removable"]]
    assert {"what", "slow", "?"} <= set(fixed)
    removable = [token for cell in view["cells"] if cell["removable"] for token in cell["tokens"]]
    (off,) = caller.post("/api/predict", {"model": "bert", "input": given, "off": removable}).json["explained"]
    assert off["removed"] == [1]
    assert 0 < off["outputs"][0] <= 1


def test_every_entity_has_its_own_probability_and_a_text_without_one_says_so(caller: Caller) -> None:
    several, none = "The film was a man but the actors were slow.", "it"
    asked = {"model": "bert-2", "input": {"kind": "text", "text": several}}
    reply = caller.post("/api/predict", asked).json
    records = [result["random"] for result in wt.explain(subjects()["bert-2"], [several], "random")]
    assert [view["label"] for view in reply["explained"]] == [record.label for record in records]
    assert len(records) > 1
    nothing = caller.post("/api/predict", {**asked, "input": {"kind": "text", "text": none}}).json
    assert nothing["explained"] == []
    assert "no entity" in nothing["note"]
    asked = {"model": "bert-2", "input": {"kind": "text", "text": TEXT}}
    (chosen,) = caller.post("/api/predict", {**asked, "token": "plot", "target": {"label": "B-LOC"}}).json["explained"]
    assert "plot" in chosen["label"]
    wrong = caller.post("/api/predict", text_request(token="plot"))
    assert (wrong.status, wrong.error) == (400, "UsageError")


def test_patches_of_an_image_are_switched(caller: Caller) -> None:
    asked = {"model": "images", "input": {"kind": "image", "data": image_base64()}}
    (view,) = caller.post("/api/predict", asked).json["explained"]
    assert len(view["cells"]) == 9
    assert all(cell["removable"] for cell in view["cells"])
    first = view["cells"][0]["tokens"]
    (off,) = caller.post("/api/predict", {**asked, "off": first}).json["explained"]
    assert off["removed"] == [1 / 9]
    assert off["outputs"][0] != pytest.approx(off["whole"], abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "status", "kind"),
    [
        ({"model": "other"}, 400, "UnknownName"),
        ({"model": "/etc/passwd"}, 400, "UnknownName"),
        ({"input": {"kind": "text", "text": "  "}}, 400, "BadInput"),
        ({"input": {"kind": "text", "text": "\ud800"}}, 400, "BadInput"),
        ({"input": {"kind": "question", "question": "a?", "context": "b"}}, 400, "UsageError"),
        ({"input": {"kind": "image", "data": ""}}, 400, "UsageError"),
        ({"input": {"kind": "prompt", "prompt": "once"}}, 400, "UsageError"),
        ({"input": {"kind": "file", "path": "/etc/passwd"}}, 422, "WrongShape"),
        ({"input": {"kind": "text", "text": "a", "path": "b"}}, 422, "WrongShape"),
        ({"target": {"label": "no such"}}, 400, "UnknownName"),
        ({"target": {"label": 99}}, 400, "BadSetting"),
        ({"target": {"label": 1, "rather_than": 1}}, 400, "BadSetting"),
        ({"removal": "burn"}, 400, "UnknownName"),
        ({"off": [-1]}, 422, "WrongShape"),
        ({"level": "letter"}, 422, "WrongShape"),
        ({"more": 1}, 422, "WrongShape"),
        ({"input": {"kind": "text", "text": "a" * 20_001}}, 413, "TooLarge"),
        ({"states": [[]] * 201}, 413, "TooLarge"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    caller: Caller, changes: dict[str, Any], status: int, kind: str
) -> None:
    reply = caller.post("/api/predict", text_request() | changes)
    assert (reply.status, reply.error) == (status, kind)


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff\xfe", b'{"model": NaN}', b"[" * 100_000])
def test_a_body_that_is_no_request_is_refused(caller: Caller, body: bytes) -> None:
    reply = caller.call("POST", "/api/predict", body)
    assert (reply.status, reply.error) in ((422, "WrongShape"), (400, "Http"))


def test_hostile_images_are_refused_before_they_are_decoded() -> None:
    caller = make_caller(Limits(image_bytes=3000, image_pixels=500), names=["images"])

    def send(data: str) -> tuple[int, str]:
        reply = caller.post("/api/predict", {"model": "images", "input": {"kind": "image", "data": data}})
        return reply.status, reply.error if reply.status != 200 else ""

    assert send(image_base64()) == (200, "")
    assert send(image_base64(form="JPEG")) == (200, "")
    assert send(image_base64((30, 30))) == (413, "TooLarge")
    assert send("A" * 5000) == (413, "TooLarge")
    assert send("AAAA") == (400, "BadInput")
    assert send("not base64!") == (400, "BadInput")
    assert send(image_base64(form="TIFF")) == (400, "BadInput")
    assert send(image_base64()[:200]) == (400, "BadInput")
    caller.service.stop()


def test_an_input_is_opened_once_however_often_words_are_switched(monkeypatch: pytest.MonkeyPatch) -> None:
    from whichtoken.web import switching

    caller, opened = make_caller(), list[str]()
    original = switching.open_record

    def open_record(*parts: Any) -> Any:
        opened.append("")
        return original(*parts)

    monkeypatch.setattr(switching, "open_record", open_record)
    for off in ([], [1], [2]):
        caller.post("/api/predict", text_request(off=off))
    assert len(opened) == 1
    caller.post("/api/predict", text_request(target={"label": 2}))
    assert len(opened) == 2
    for number in range(KEPT):
        caller.post("/api/predict", text_request(f"film {number}"))
    caller.post("/api/predict", text_request())
    assert len(opened) == 3 + KEPT
    caller.service.stop()


def ask(caller: Caller, leave_when: threading.Event | None = None) -> Any:
    return caller.call("POST", "/api/predict", json.dumps(text_request()).encode(), leave_when=leave_when)


def test_a_running_click_ends_with_its_next_pass_when_its_caller_leaves(clicks: SlowClicks) -> None:
    caller = make_caller()
    left = ask(caller, leave_when=clicks.entered)
    assert (left.status, left.error) == (499, "CallerLeft")
    assert clicks.cancelled.wait(60)
    clicks.release.set()
    assert ask(caller).status == 200
    assert clicks.n_done == 1
    caller.service.stop()


def test_a_click_whose_caller_left_before_its_turn_is_not_worked_on(clicks: SlowClicks) -> None:
    caller, busy, has_left = make_caller(Limits(clicks=1)), threading.Event(), threading.Event()
    clicks.release.set()
    has_left.set()
    before = caller.service.models["texts"].clicks.submit(busy.wait, 60)
    for _ in range(3):  # each frees its place
        assert ask(caller, leave_when=has_left).error == "CallerLeft"
    busy.set()
    assert before.result()
    assert ask(caller).status == 200
    assert clicks.n_done == 1
    caller.service.stop()


def test_only_so_many_clicks_wait(clicks: SlowClicks) -> None:
    caller = make_caller(Limits(clicks=1))
    with ThreadPoolExecutor(1) as other:
        first = other.submit(ask, caller)
        assert clicks.entered.wait(60)
        reply = ask(caller)
        assert (reply.status, reply.error, reply.headers["retry-after"]) == (429, "TooManyClicks", "1")
        assert "try again in a moment" in reply.json["error"]["message"]
        opened = caller.post("/api/open", {"content": "[]"})
        assert (opened.status, opened.error) == (429, "TooManyClicks")
        clicks.release.set()
        assert first.result().status == 200
    assert ask(caller).status == 200
    caller.service.stop()
