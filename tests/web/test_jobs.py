"""Jobs: what they send and when, how they wait, and how they end."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.tiny import FATAL
from tests.web.calling import TEXT, Caller, image_base64, make_caller, parse_events, subjects, text_request

import whichtoken as wt
from whichtoken.errors import RuleGap
from whichtoken.models.cancelling import Cancelled
from whichtoken.web.lanes import LAST, Report, Ticket
from whichtoken.web.limits import Limits

METHODS = ["posterior", "attcat", "attcat@repo", "contrast-cat"]


@dataclass(frozen=True)
class Watched:
    """The events of a job, and whether it has ended."""

    seen: list[tuple[str, Any]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def send(self, name: str, reply: Any) -> None:
        self.seen.append((name, reply))
        if name in LAST:
            self.ended.set()

    def last(self) -> tuple[str, Any]:
        assert self.ended.wait(20)
        return self.seen[-1]


@contextmanager
def occupied(caller: Caller, model: str = "texts") -> Iterator[Watched]:
    """Keep a model's lane busy with a job that ends when it is told to, or cancelled."""
    entered, release, watched = threading.Event(), threading.Event(), Watched()

    def work(report: Report) -> None:
        entered.set()
        while not release.wait(0.01):
            report.before_pass()

    caller.service.lanes[model].submit(Ticket("explain", work, watched.send))
    assert entered.wait(10)
    try:
        yield watched
    finally:
        release.set()


def kinds(events: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in events]


def test_each_method_is_sent_when_it_is_ready_fast_ones_first(caller: Caller) -> None:
    events = caller.post("/api/explain", text_request(methods=METHODS)).events
    results = [reply for name, reply in events if name == "result"]
    assert [reply["method"] for reply in results] == ["attcat", "attcat@repo", "posterior", "contrast-cat"]
    sent = [name for name in kinds(events) if name != "progress"]
    assert sent == ["queued", "started", "result", "result", "result", "result", "done"]
    expected = wt.explain(subjects()["texts"], [TEXT], METHODS)[0]
    for reply in results:
        record = wt.Attribution.from_json(json.dumps(reply["result"]["record"]))
        assert record.scores == pytest.approx(expected[reply["method"]].scores)
        assert record.label == expected[reply["method"]].label


def test_a_result_has_rows_for_words_and_tokens_with_their_colours(caller: Caller) -> None:
    events = caller.post("/api/explain", text_request(methods=["posterior"])).events
    (result,) = (reply["result"] for name, reply in events if name == "result")
    record = wt.Attribution.from_json(json.dumps(result["record"]))
    words, tokens = result["rows"]["word"]["cells"], result["rows"]["token"]["cells"]
    assert [cell["score"] for cell in words] == pytest.approx([word.score for word in record.words()])
    assert [cell["tokens"] for cell in tokens] == [[i] for i in range(len(record.tokens))]
    assert sorted(i for cell in words for i in cell["tokens"]) == list(range(1, len(record.tokens) - 1))
    strongest = max(words, key=lambda cell: abs(cell["score"]))
    assert strongest["shade"] in ("f20", "a20")
    assert strongest["step"] == (20 if strongest["score"] > 0 else -20)
    for cell in words:
        assert cell["interval"]["low"] <= cell["score"] <= cell["interval"]["high"]
        assert cell["uncertain"] == (cell["interval"]["low"] <= 0 <= cell["interval"]["high"])
        assert cell["removable"]
    assert "trials" in result["rows"]["word"]["trust"]
    assert result["rows"]["word"]["tuned_on_deletion"]
    assert result["output"].endswith(" %")


def test_layers_references_and_contrast(caller: Caller) -> None:
    target = {"label": "neutral", "rather_than": "entailment"}
    asked = text_request(methods=["attcat", "contrast-cat"], layers=True, target=target)
    results = {
        reply["method"]: reply["result"]
        for name, reply in caller.post("/api/explain", asked).events
        if name == "result"
    }
    for result in results.values():
        assert result["label"] == "neutral rather than entailment"
        rows = result["layers"]["word"]
        assert [row["name"] for row in rows] == ["block 1", "block 2", "block 3", "sum"]
        sums = [sum(row["cells"][0]["score"] for row in rows[:-1])]
        assert sums == pytest.approx([rows[-1]["cells"][0]["score"]])
    assert results["attcat"]["references"] == []
    references = results["contrast-cat"]["references"]
    assert [one["survived"] for one in references] == sorted((one["survived"] for one in references), reverse=True)
    assert references[0]["survived"]
    assert references[0]["text"] is None or references[0]["text"]
    without = caller.post("/api/explain", text_request(methods=["gae"], layers=True)).events
    assert next(reply for name, reply in without if name == "result")["result"]["layers"] == {}


def test_questions_entities_and_images_have_results_of_their_own(caller: Caller) -> None:
    question = {"kind": "question", "question": "what was slow?", "context": "The plot was slow but the music won."}
    events = caller.post("/api/explain", {"model": "bert", "input": question}).events
    assert kinds(events)[-1] == "done"
    several = {"kind": "text", "text": "The film was a man but the actors were slow."}
    entities = caller.post("/api/explain", {"model": "bert-2", "input": several, "methods": ["attcat"]}).events
    parts = [(reply["part"], reply["parts"]) for name, reply in entities if name == "result"]
    assert parts == [(i, len(parts)) for i in range(len(parts))]
    assert len(parts) > 1
    nothing = caller.post(
        "/api/explain", {"model": "bert-2", "input": {"kind": "text", "text": "it"}, "methods": ["attcat"]}
    )
    assert kinds(nothing.events)[-2:] == ["nothing", "done"]
    image = {"kind": "image", "data": image_base64()}
    (seen,) = (
        reply["result"]
        for name, reply in caller.post("/api/explain", {"model": "images", "input": image}).events
        if name == "result"
    )
    assert list(seen["rows"]) == ["token"]
    assert len(seen["rows"]["token"]["cells"]) == seen["picture"]["rows"] * seen["picture"]["columns"] == 9
    assert seen["picture"]["overlay"] != seen["picture"]["png"]


def test_a_method_that_fails_does_not_keep_the_others_from_being_shown(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whichtoken.methods.attcat import AttCAT

    def fail(*parts: object) -> None:
        raise RuleGap("rules", "operation", "module")

    monkeypatch.setattr(AttCAT, "__call__", fail)
    events = caller.post("/api/explain", text_request(methods=["attcat", "gae"])).events
    assert [name for name in kinds(events) if name != "progress"][2:] == ["failed", "result", "done"]
    failed = next(reply for name, reply in events if name == "failed")
    assert failed["method"] == "attcat"
    assert failed["error"]["kind"] == "RuleGap"


def test_an_unexpected_error_is_counted_and_logged_without_the_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from whichtoken.web import explaining, switching

    def fail(*parts: object, **more: object) -> None:
        raise ValueError(f"secret {TEXT}")

    caller = make_caller()
    monkeypatch.setattr(explaining, "plan", fail)
    monkeypatch.setattr(switching, "plan", fail)
    events = caller.post("/api/explain", text_request(methods=["gae"])).events
    assert events[-1][0] == "error"
    assert events[-1][1]["error"]["kind"] == "Internal"
    clicked = caller.post("/api/predict", text_request())
    assert (clicked.status, clicked.error) == (500, "Internal")
    assert "ValueError at test_jobs.py" in caplog.text
    assert "secret" not in caplog.text + str(events) + clicked.body.decode()
    assert 'whichtoken_errors_total{type="ValueError"} 2' in caller.get("/metrics").body.decode()
    caller.service.stop()


def test_a_panic_of_the_tokenizer_fails_one_input_and_no_lane() -> None:
    caller = make_caller(names=["brittle"])
    asked = {"model": "brittle", "input": {"kind": "text", "text": FATAL}}
    name, reply = caller.post("/api/explain", {**asked, "methods": ["attcat"]}).events[-1]
    assert (name, reply["error"]["kind"]) == ("error", "BadInput")
    assert "the tokenizer fails on" in reply["error"]["message"]
    clicked = caller.post("/api/predict", asked)
    assert (clicked.status, clicked.error) == (400, "BadInput")
    content = f"{TEXT}\n{FATAL}\n{TEXT}\n"
    reviewed = caller.post("/api/review", {"model": "brittle", "content": content, "format": "txt"}).events
    assert [name for name in kinds(reviewed) if name in ("row", "bad_row")] == ["bad_row", "row", "row"]
    assert kinds(reviewed)[-1] == "done"
    assert caller.get("/health").status == 200
    caller.service.stop()


class Panic(BaseException):
    """As Rust code raises it: no Exception."""


def test_a_job_that_panics_ends_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from whichtoken.web import explaining, switching

    def fail(*parts: object, **more: object) -> None:
        raise Panic(f"secret {TEXT}")

    caller = make_caller()
    with monkeypatch.context() as patch:
        patch.setattr(explaining, "plan", fail)
        patch.setattr(switching, "plan", fail)
        name, reply = caller.post("/api/explain", text_request(methods=["gae"])).events[-1]
        assert (name, reply["error"]["kind"]) == ("error", "Internal")
        clicked = caller.post("/api/predict", text_request())
        assert (clicked.status, clicked.error) == (500, "Internal")
    assert kinds(caller.post("/api/explain", text_request(methods=["gae"])).events)[-1] == "done"
    assert caller.post("/api/predict", text_request()).status == 200
    assert caller.get("/health").status == 200
    caller.service.stop()


def test_a_lane_that_died_ends_its_jobs_and_is_reported() -> None:
    caller, entered, release = make_caller(names=["texts", "images"]), threading.Event(), threading.Event()

    def end(report: Report) -> None:
        entered.set()
        release.wait(20)
        raise SystemExit

    deadly, waiting, lane = Watched(), Watched(), caller.service.lanes["texts"]
    lane.submit(Ticket("explain", end, deadly.send))
    assert entered.wait(20)
    lane.submit(Ticket("explain", lambda report: None, waiting.send))
    release.set()
    for watched in (deadly, waiting):
        name, reply = watched.last()
        assert (name, reply["error"]["kind"]) == ("error", "LaneDied")
    for reply in (caller.get("/health"), caller.post("/api/explain", text_request(methods=["gae"]))):
        assert (reply.status, reply.error) == (503, "LaneDied")
        assert "texts" in reply.json["error"]["message"]
    other = caller.post("/api/explain", {"model": "images", "input": {"kind": "image", "data": image_base64()}})
    assert kinds(other.events)[-1] == "done"
    assert len(lane) == 0
    caller.service.stop()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/explain", text_request(methods=["atcat"]), 400),
        ("/api/explain", text_request(methods=[]), 400),
        ("/api/explain", text_request(methods=["attcat(x=1)"]), 400),
        ("/api/explain", text_request(methods=["mask-lrp"]), 400),
        ("/api/explain", text_request(methods=["gae", "attcat", "cat", "rollout"]), 400),
        ("/api/explain", text_request("x" * 301), 413),
        ("/api/curves", {"model": "texts", "records": []}, 400),
        ("/api/curves", {"model": "texts", "records": [{}]}, 400),
        ("/api/review", {"model": "texts", "content": ""}, 400),
        ("/api/review", {"model": "texts", "content": "a,b\n1,2\n"}, 400),
        ("/api/review", {"model": "texts", "content": "text\n" + "slow film\n" * 9}, 413),
        ("/api/review", {"model": "texts", "content": "x" * 901, "format": "txt"}, 413),
        ("/api/review", {"model": "texts", "content": "slow", "format": "parquet"}, 422),
        ("/api/review", {"model": "texts", "content": "slow", "format": "txt", "method": "all"}, 400),
    ],
)
def test_what_can_be_refused_is_refused_before_the_stream(path: str, body: dict[str, Any], status: int) -> None:
    reply = _limited().post(path, body)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
    assert reply.error


_made: list[Caller] = []


def _limited() -> Caller:
    if not _made:
        _made.append(make_caller(Limits(methods=3, text_characters=300, csv_rows=8, csv_bytes=900)))
    return _made[0]


def test_a_job_waits_behind_others_and_is_told_its_position() -> None:
    caller = make_caller(names=["texts", "images"])
    with occupied(caller):

        def leave(body: bytes) -> bool:
            return b"queued" in body

        first = caller.call("POST", "/api/explain", _body(), leave_after=leave)
        assert parse_events(first.body) == [("queued", {"job": parse_events(first.body)[0][1]["job"], "position": 1})]
        assert len(caller.service.lanes["texts"]) == 1, "it left the lane when its caller left"
        other = caller.post("/api/explain", {"model": "images", "input": {"kind": "image", "data": image_base64()}})
        assert kinds(other.events)[-1] == "done", "another model has a lane of its own"
        assert caller.post("/api/predict", text_request()).status == 200, "clicks do not wait"
    caller.service.stop()


def _body() -> bytes:
    return json.dumps(text_request(methods=["posterior"])).encode()


def test_a_running_job_ends_with_its_next_pass_when_its_caller_goes_away() -> None:
    caller, ended = make_caller(), threading.Event()
    lane = caller.service.lanes["texts"]
    reply = caller.call("POST", "/api/explain", _body(), leave_after=lambda body: b"event: progress" in body)
    assert kinds(reply.events)[-1] == "progress"
    lane.submit(Ticket("explain", lambda report: ended.set(), lambda name, reply: None))
    assert ended.wait(20), "the lane is free again"
    assert 'whichtoken_jobs_total{ended="cancelled",kind="explain"} 1' in caller.get("/metrics").body.decode()
    caller.service.stop()


def test_a_job_is_cancelled_by_its_name() -> None:
    caller = make_caller()
    with occupied(caller) as watched:
        job = watched.seen[0][1]["job"]
        assert caller.call("DELETE", f"/api/jobs/{job}").status == 204
        assert watched.last() == ("cancelled", {})
    assert caller.call("DELETE", "/api/jobs/unknown").error == "NotFound"
    caller.service.stop()


def test_positions_change_when_others_leave() -> None:
    caller = make_caller()
    lane, watched = caller.service.lanes["texts"], [Watched() for _ in range(3)]
    with occupied(caller):
        tickets = [Ticket("explain", lambda report: None, one.send) for one in watched]
        for ticket in tickets:
            lane.submit(ticket)
        lane.cancel(tickets[1])
    assert [one.last()[0] for one in watched] == ["done", "cancelled", "done"]
    positions = [[reply["position"] for name, reply in one.seen if name == "queued"] for one in watched]
    assert positions[0] == [1]
    assert positions[1] == [2]
    assert positions[2] == [3, 2, 1]
    caller.service.stop()


def test_whoever_has_the_last_event_of_a_job_finds_the_lane_free() -> None:
    caller, left, ended = make_caller(), list[int](), threading.Event()
    lane = caller.service.lanes["texts"]

    def send(name: str, reply: Any) -> None:
        if name in LAST:
            left.append(len(lane))
            ended.set()

    lane.submit(Ticket("explain", lambda report: None, send))
    assert ended.wait(20)
    assert left == [0]
    caller.service.stop()


def test_a_job_over_its_time_says_so() -> None:
    caller, watched = make_caller(), Watched()

    def work(report: Report) -> None:
        report.seconds = 0
        report.before_pass()

    caller.service.lanes["texts"].submit(Ticket("explain", work, watched.send))
    name, reply = watched.last()
    assert (name, reply["error"]["kind"]) == ("error", "TimeLimit")
    caller.service.stop()


def test_a_click_over_its_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = make_caller()
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr("whichtoken.web.service.monotonic", lambda: next(clock))
    reply = caller.post("/api/predict", text_request())
    assert (reply.status, reply.error) == (408, "TimeLimit")
    caller.service.stop()


def test_only_so_many_jobs_are_accepted() -> None:
    caller = make_caller(Limits(jobs=1))
    with occupied(caller):
        reply = caller.call("POST", "/api/explain", _body(), leave_after=lambda body: b"queued" in body)
        assert reply.status == 429
        assert (reply.error, reply.headers["retry-after"]) == ("TooManyJobs", "1")
        assert caller.post("/api/predict", text_request()).status == 200, "a click is no job"
    caller.service.stop()


def test_a_stopping_server_ends_its_jobs_and_takes_no_more() -> None:
    caller = make_caller()
    with occupied(caller) as watched:
        caller.service.stop()
        assert watched.seen[-1][0] == "cancelled"
    for reply in (
        caller.post("/api/explain", text_request()),
        caller.post("/api/predict", text_request()),
        caller.get("/health"),
    ):
        assert (reply.status, reply.error) == (503, "Stopping")


def test_a_watched_job_counts_the_passes_of_all_its_threads() -> None:
    """Also where the library divides work among threads, which have an event of their own."""
    from whichtoken.models.cancelling import check_cancelled, watched_by
    from whichtoken.models.workers import map_on_cores

    seen: list[int] = []

    def watcher() -> None:
        seen.append(1)
        if len(seen) > 3:
            raise Cancelled

    with watched_by(watcher), pytest.raises(Cancelled):
        list(map_on_cores(lambda state, item: check_cancelled(), [0, 1], range(20)))
    assert len(seen) >= 4
