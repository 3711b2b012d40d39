"""Files of a person: a table to review, saved states, and exports."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.web.calling import TEXT, Caller, image_base64, make_caller, subjects

import whichtoken as wt
from whichtoken.web.limits import Limits

CSV = "id,text,label,author\na,It is slow.,neutral,x\nb,A rare film,contradiction,y\nc,,neutral,z\nd,won,other,z\n"
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e slow\x00"


def review(caller: Caller, content: str, **more: Any) -> list[tuple[str, Any]]:
    return caller.post("/api/review", {"model": "texts", "content": content, **more}).events


def records_of(methods: str = "attcat,gae", text: str = TEXT, **more: Any) -> list[Any]:
    results = wt.explain(subjects()["texts"], [text], methods, **more)
    return [json.loads(record.to_json()) for record in results[0].values()]


def test_a_table_is_reviewed_row_by_row(caller: Caller) -> None:
    events = review(caller, CSV, method="attcat")
    rows = [reply for name, reply in events if name == "row"]
    assert next(reply for name, reply in events if name == "summary") == {"rows": 3}
    assert [(row["row"], row["id"], row["text"], row["gold"]) for row in rows] == [
        (2, "a", "It is slow.", "neutral"),
        (3, "b", "A rare film", "contradiction"),
        (5, "d", "won", None),
    ]
    (bad,) = (reply for name, reply in events if name == "bad_row")
    assert bad["row"] == 4
    assert "empty text" in bad["message"]
    expected = wt.explain(subjects()["texts"], ["It is slow.", "A rare film", "won"], "attcat")
    for row, result in zip(rows, expected, strict=True):
        record = result["attcat"]
        assert record.predicted is not None
        assert row["predicted"] == record.predicted.label
        assert row["output"] == pytest.approx(record.predicted.probability)
        assert row["correct"] == (None if row["gold"] is None else row["gold"] == row["predicted"])
        best = sorted(record.words(), key=lambda word: -word.score)
        assert row["strongest"] == [word.text for word in best if word.score > 0][:3]
        assert row["input"] == {"kind": "text", "text": row["text"]}
        assert row["result"]["record"]["scores"] == pytest.approx(record.scores)
    totals = next(reply for name, reply in events if name == "totals")
    assert (totals["rows"], totals["known"]) == (3, 2)
    assert totals["correct"] == sum(bool(row["correct"]) for row in rows)
    assert events[-1][0] == "done"


def test_rows_that_are_too_long_are_listed_and_not_explained() -> None:
    """A pair counts as a whole, as in all requests."""
    limited = make_caller(Limits(text_characters=20))
    rows = ["slow film,rare plot", "slow film,rare plots!!", f"{'slow ' * 9},x", "won,won"]
    content = "\n".join(["first,second", *rows])
    events = review(limited, content, columns=["first", "second"], method="attcat")
    assert [reply["row"] for name, reply in events if name == "row"] == [2, 5]
    bad = [(reply["row"], reply["message"]) for name, reply in events if name == "bad_row"]
    assert [row for row, _ in bad] == [3, 4]
    assert all("has over 20 characters" in message for _, message in bad)
    limited.service.stop()


@pytest.mark.parametrize(
    ("content", "form"),
    [("text\tlabel\nslow film\tneutral\n", "tsv"), ("slow film\n", "txt"), ('{"text": "slow film"}\n', "jsonl")],
)
def test_other_kinds_of_tables(caller: Caller, content: str, form: str) -> None:
    (row,) = (reply for name, reply in review(caller, content, format=form, method="attcat") if name == "row")
    assert row["text"] == "slow film"


def test_columns_are_chosen_and_pairs_and_questions_are_read(caller: Caller) -> None:
    content = "first,second\nslow film,rare plot\n"
    (row,) = (r for n, r in review(caller, content, columns=["first", "second"], method="attcat") if n == "row")
    assert row["input"] == {"kind": "pair", "text": "slow film", "pair": "rare plot"}
    asked = {"model": "bert", "content": "question,context\nwhat was slow?,The plot was slow.\n"}
    (answer,) = (reply for name, reply in caller.post("/api/review", asked).events if name == "row")
    assert answer["input"] == {"kind": "question", "question": "what was slow?", "context": "The plot was slow."}
    image = caller.post("/api/review", {"model": "images", "content": "text\nslow\n"})
    assert (image.status, image.error) == (400, "UsageError")


def test_the_upload_leaves_no_file_behind(caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert review(caller, CSV, method="attcat")[-1][0] == "done"
    assert caller.post("/api/review", {"model": "texts", "content": 'text\n"open'}).status == 400
    assert list(tmp_path.iterdir()) == []


def test_no_message_names_a_path_of_the_server(caller: Caller) -> None:
    for content in ("a,b\n1,2\n", 'text\n"open', "text\n\x00", "\n\n"):
        reply = caller.post("/api/review", {"model": "texts", "content": content})
        assert reply.status == 400
        assert "/" not in reply.json["error"]["message"].replace("and/or", ""), reply.json


def test_differences_are_those_of_other_pages(caller: Caller) -> None:
    (panel,) = caller.post("/api/render", {"records": records_of(), "differences": True}).json["panels"]
    first, other = (row["cells"] for row in panel["rows"])
    (difference,) = panel["differences"]
    shares = [a["share"] - b["share"] for a, b in zip(first, other, strict=True)]
    assert [cell["share"] for cell in difference["cells"]] == pytest.approx(shares)
    assert difference["name"] == "attcat \N{MINUS SIGN} gae"
    tokens = caller.post("/api/render", {"records": records_of(), "level": "token"}).json["panels"][0]
    assert tokens["rows"][0]["cells"][0]["text"] == "[CLS]"


def test_exports_are_what_the_library_writes(caller: Caller, tmp_path: Path) -> None:
    records = records_of()

    def export(form: str, given: list[Any]) -> bytes:
        reply = caller.post("/api/export", {"records": given, "format": form})
        assert reply.status == 200
        assert reply.headers["content-disposition"] == f'attachment; filename="whichtoken.{form}"'
        return reply.body

    (tmp_path / "saved.json").write_bytes(export("json", records))
    attributions = [wt.Attribution.from_json(json.dumps(record)) for record in records]
    assert list(wt.Results.read(tmp_path / "saved.json")[0].values()) == attributions
    assert export("html", records).decode() == wt.plot.to_html(attributions)
    assert export("png", records).startswith(b"\x89PNG")
    svg = export("svg", records)
    assert b"<svg" in svg
    assert b"<script" not in svg
    by_layer = records_of("attcat", layers=True)
    assert export("svg", by_layer) != export("svg", records_of("attcat"))
    several = caller.post("/api/export", {"records": [*records, *records_of(text="slow film")], "format": "png"})
    assert (several.status, several.error) == (400, "UsageError")


def test_a_saved_state_opens_as_it_was(caller: Caller) -> None:
    page = {"text": TEXT, "off": [1, 2], "anything": [None, {"else": True}]}
    content = json.dumps({"whichtoken": "state", "schema": 1, "page": page, "records": records_of()})
    reply = caller.post("/api/open", {"content": content}).json
    assert reply["page"] == page
    assert [one["method"] for one in reply["results"]] == ["attcat", "gae"]
    first = reply["results"][0]["result"]
    assert first["record"] == records_of()[0] | {key: first["record"][key] for key in ("seconds", "evaluations")}
    assert all(cell["removable"] for cell in first["rows"]["word"]["cells"])
    empty = {"whichtoken": "state", "schema": 1, "page": {}, "records": []}
    assert caller.post("/api/open", {"content": json.dumps(empty)}).json == {"page": {}, "results": []}


@pytest.mark.parametrize("form", ["to_json", "to_jsonl"])
def test_results_of_the_command_line_open_too(caller: Caller, form: str) -> None:
    results = wt.explain(subjects()["texts"], [TEXT, "slow film"], "attcat,gae")
    reply = caller.post("/api/open", {"content": getattr(results, form)()}).json
    assert reply["page"] is None
    assert len(reply["results"]) == 4


def test_what_this_server_cannot_run_is_shown_but_cannot_be_switched(caller: Caller) -> None:
    record = records_of("attcat")[0]
    for changes in (
        {"revision": "another"},
        {"texts": ["changed film. " * 5]},
        {"target": {"start": 1, "end": 2, "part": "both", "free": False}},
    ):
        content = json.dumps([record | changes])
        (one,) = caller.post("/api/open", {"content": content}).json["results"]
        assert not any(cell["removable"] for cell in one["result"]["rows"]["word"]["cells"]), changes


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]x",
        "[1]",
        "[[]]",
        '{"record": "Attribution"}',
        '{"whichtoken": "state", "schema": 2, "page": {}, "records": []}',
        '{"whichtoken": "state", "schema": 1, "page": 1, "records": []}',
        '{"whichtoken": "state", "schema": 1, "page": {}, "records": [{}]}',
        '{"whichtoken": "state", "schema": 1, "page": {"n": 1e999}, "records": []}',
        "[" * 5000,
        '{"a":' * 5000,
    ],
)
def test_other_files_are_refused(caller: Caller, content: str) -> None:
    reply = caller.post("/api/open", {"content": content})
    assert (reply.status, reply.error in ("BadArtifact", "BadInput")) == (400, True)


def test_records_of_strangers_are_checked(caller: Caller) -> None:
    record = records_of("attcat")[0]
    nested: Any = 1
    for _ in range(200):
        nested = [nested]
    for changes in (
        {"scores": [1.0]},
        {"details": {"deep": nested}},
        {"probability": 7},
        {"schema": 99},
        {"n_cut": -1},
    ):
        for path, more in (
            ("/api/render", {}),
            ("/api/export", {"format": "html"}),
            ("/api/curves", {"model": "texts"}),
        ):
            reply = caller.post(path, {"records": [record | changes], **more})
            assert (reply.status, reply.error) == (400, "BadArtifact"), (path, changes)
    many = caller.post("/api/render", {"records": [{}] * 501})
    assert (many.status, many.error) == (413, "TooLarge")


def test_details_of_strangers_name_no_references_of_ours(caller: Caller) -> None:
    record = records_of("contrast-cat")[0]
    library = subjects()["texts"].references
    assert library is not None
    for references in ([10**9], ["0"], [-1], None, {"a": 1}):
        details = {"library": library.digest, "references": references, "drops": "x", "survivors": [None]}
        (one,) = caller.post("/api/open", {"content": json.dumps([record | {"details": details}])}).json["results"]
        assert one["result"]["references"] == []


def test_hostile_texts_stay_text(caller: Caller) -> None:
    records = records_of(text=HOSTILE)
    (panel,) = caller.post("/api/render", {"records": records}).json["panels"]
    shown = "".join(cell["before"] + cell["text"] for cell in panel["rows"][0]["cells"])
    assert "\u202e" not in shown
    assert "\x00" not in shown
    page = caller.post("/api/export", {"records": records, "format": "html"}).body.decode()
    assert "<img src=x" not in page
    assert "</script><img" not in page
    image = caller.post(
        "/api/explain", {"model": "images", "input": {"kind": "image", "data": image_base64()}, "methods": ["gae"]}
    ).events
    (result,) = (reply["result"] for name, reply in image if name == "result")
    again = caller.post("/api/open", {"content": json.dumps([result["record"]])}).json["results"][0]["result"]
    assert len(again["rows"]["token"]["cells"]) == 9
