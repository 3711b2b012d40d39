"""A benchmark folder on the page: its table, and the texts on which two methods differ most."""

import json
from pathlib import Path

import pytest
from tests.tiny import CORPUS
from tests.web.calling import Caller, make_caller, subjects

import whichtoken as wt
from whichtoken.bench.disagreement import read_texts
from whichtoken.web.benchmarks import StoredBenchmark
from whichtoken.web.guard import REPORT_POLICY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("benchmark") / "bench"
    protocol = wt.bench.protocol(metrics=("aopc",), min_tokens=1, perturbations=("delete",))
    wt.bench.run(subjects()["texts"], CORPUS, ["attcat", "gae"], protocol=protocol, out=where)
    return where


@pytest.fixture(scope="module")
def opened(folder: Path) -> Caller:
    data = folder.parent / "data.txt"
    data.write_text("\n".join(CORPUS))
    return make_caller(benchmark=StoredBenchmark.open(folder, data), corpus="<p>a page</p>")


def test_the_table_has_intervals_and_marks(opened: Caller, folder: Path) -> None:
    reply, table = opened.get("/api/benchmark").json, wt.bench.read_table(folder)
    assert opened.get("/api/info").json["benchmark"]
    assert reply["methods"] == [line.method for line in table.lines]
    for line, expected in zip(reply["lines"], table.lines, strict=True):
        for name, cell in expected.cells.items():
            shown = line["cells"][name]
            assert (shown["mean"], shown["low"], shown["high"], shown["n"]) == (cell.mean, cell.low, cell.high, cell.n)
            assert shown["text"]
    first = reply["columns"][0]["name"]
    assert sum(line["cells"][first]["best"] for line in reply["lines"]) == 1
    assert set(reply["trends"][0]["means"]) == {"attcat", "gae"}
    assert reply["drill"]


def test_the_texts_where_two_methods_differ_most_come_first(opened: Caller) -> None:
    reply = opened.get("/api/benchmark/disagreements", "first=gae&second=attcat&limit=3").json
    assert reply["plan"] == "delete morf tenths"
    assert len(reply["inputs"]) == 3
    gaps = [abs(one["difference"]) for one in reply["inputs"]]
    assert gaps == sorted(gaps, reverse=True)
    everything = opened.get("/api/benchmark/disagreements", "first=gae&second=attcat&limit=500").json["inputs"]
    assert max(abs(one["difference"]) for one in everything) == gaps[0]
    for one in everything:
        (text,) = one["text"]
        assert text == CORPUS[one["row"]]
        records = wt.explain(subjects()["texts"], [text], "gae,attcat")[0]
        curves = wt.degrade(subjects()["texts"], list(records.values()))
        assert one["first_curve"] == pytest.approx(curves[0].outputs)
        assert (one["first"], one["second"]) == pytest.approx(tuple(map(wt.metrics.aopc, curves)))
        assert one["difference"] == pytest.approx(one["first"] - one["second"])


def test_unknown_methods_and_missing_benchmarks_say_so(opened: Caller, caller: Caller) -> None:
    unknown = opened.get("/api/benchmark/disagreements", "first=gae&second=nobody")
    assert (unknown.status, unknown.error) == (400, "UnknownName")
    assert opened.get("/api/benchmark/disagreements", "first=gae").status == 422
    assert opened.get("/api/benchmark/disagreements", "first=gae&second=attcat&limit=0").status == 422
    for path in ("/api/benchmark", "/api/benchmark/disagreements", "/benchmark", "/corpus"):
        missing = caller.get(path, "first=a&second=b")
        assert (missing.status, missing.error) == (404, "NotFound")


def test_reports_are_pages_that_can_call_nothing(opened: Caller) -> None:
    for path, part in (("/benchmark", b"attcat"), ("/corpus", b"a page")):
        reply = opened.get(path)
        assert part in reply.body
        assert reply.headers["content-security-policy"] == REPORT_POLICY
        assert "allow-same-origin" not in REPORT_POLICY


def test_texts_are_those_of_the_file_that_was_measured(folder: Path, tmp_path: Path) -> None:
    assert read_texts(folder) == {}, "a list of texts has no file"
    data = tmp_path / "data.csv"
    data.write_text("words;label\nslow film;1\n")
    spec = json.loads((folder / "spec.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    call = {"data": str(data), "column": ["words"], "delimiter": ";"}
    (other / "spec.json").write_text(json.dumps(spec | {"call": call}))
    assert read_texts(other) == {0: ("slow film",)}
    (other / "spec.json").write_text(json.dumps(spec | {"call": call | {"column": ["absent"]}}))
    assert read_texts(other) == {}
    with pytest.raises(wt.WhichTokenError, match="absent"):
        read_texts(other, data)
