"""What `explain` returns: rows that keep their identity, and results that show and save themselves."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from pyarrow import parquet
from tests.render.shown import FINE
from tests.render.test_report import TABLE
from tests.test_images import noise
from tests.test_images import subject as image_subject
from tests.tiny import question_subject

import whichtoken as wt
from whichtoken.data import TextExample
from whichtoken.errors import BadInput, NotFinite, UsageError, WhichTokenError
from whichtoken.flat import WORDS
from whichtoken.records import Source
from whichtoken.results import SHOWN

TEXTS = ["the film is slow", "it was a rare plot"]
Subjects = Callable[..., wt.Subject]


def sources(results: wt.Results) -> list[Source | None]:
    return [next(iter(result.values())).source for result in results]


def write_reviews(folder: Path) -> Path:
    path = folder / "reviews.csv"
    rows = ["nr;body;gold;stars", "r1;the film is slow;1;4", "r2;it was a rare plot;Neutral;2", "r3;nobody won;;3"]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_rows_of_a_file_keep_their_identity(subject_of: Subjects, tmp_path: Path) -> None:
    subject, path = subject_of("bert"), write_reviews(tmp_path)
    examples = wt.data.read_examples(path, labels="gold", columns="body", id="nr", keep=["stars"])
    results = wt.explain(subject, examples, ["attcat", "gradient-x-input"])
    assert sources(results) == [
        Source(2, "r1", "entailment", {"stars": "4"}),
        Source(3, "r2", "neutral", {"stars": "2"}),
        Source(4, "r3", None, {"stars": "3"}),
    ]
    first = results[0]["gradient-x-input"]
    assert first.correct is (first.predicted is not None and first.predicted.label == "entailment")
    assert results[2]["attcat"].correct is None
    assert wt.Attribution.from_json(first.to_json()) == first
    plain = wt.explain(subject, ["the film is slow", "it was a rare plot", "nobody won"], ["attcat"])
    assert sources(plain) == [None] * 3
    assert [result["attcat"].scores for result in plain] == [result["attcat"].scores for result in results]


def test_dictionaries_are_rows(subject_of: Subjects) -> None:
    rows = [{"idx": 7, "sentence": TEXTS[0], "label": 1}, {"idx": 8, "sentence": TEXTS[1], "label": -1}]
    results = wt.explain(subject_of("bert"), rows)
    assert sources(results) == [Source(0, "7", "entailment"), Source(1, "8")]
    with pytest.raises(BadInput, match="input 1: no column has a usual name for texts"):
        wt.explain(subject_of("bert"), [rows[0], {"body": "a"}])


def test_a_gold_label_that_was_named_must_be_one_of_the_model(subject_of: Subjects) -> None:
    rows = [{"text": TEXTS[0], "label": "positive"}]
    assert sources(wt.explain(subject_of("bert"), rows)) == [Source(0)]  # a column of some other labels
    named = wt.data.read_examples(rows, labels="label")
    with pytest.raises(
        BadInput, match=r"row 0: the gold label 'positive' is not a label of the model: 0 contradiction, 1 e"
    ):
        wt.explain(subject_of("bert"), named)


def test_questions_keep_their_id_and_answer() -> None:
    question = wt.data.Question("q7", "is it slow", "the film is slow", (wt.data.Answer("slow", 12),))
    results = wt.explain(question_subject(), [question])
    assert sources(results) == [Source(None, "q7", "slow")]
    assert results[0]["gae"].texts == ("is it slow", "the film is slow")


def test_images_keep_their_label() -> None:
    subject = image_subject()
    images = [noise(), noise()]
    results = wt.explain(subject, images=wt.data.read_images(images, [1, 0]), methods=["gae"])
    assert [source and source.gold for source in sources(results)] == [subject.labels[1], subject.labels[0]]
    rows = [{"image": images[0], "label": 1}]
    assert sources(wt.explain(subject, images=rows, methods=["gae"])) == [Source(0, None, subject.labels[1])]


def test_bad_inputs_can_be_skipped(subject_of: Subjects) -> None:
    subject, bad = subject_of("bert"), list[tuple[Any, str]]()
    texts = ["", TEXTS[0], "slow " * 60, "\u200b" * 3, TEXTS[1], 3]

    def skip(item: Any, error: WhichTokenError) -> None:
        bad.append((item, str(error)))

    results = list(wt.explain_each(subject, texts, ["attcat"], long="error", on_bad_input=skip))
    assert [result["attcat"].texts[0] for result in results] == TEXTS
    assert sorted(str(item)[:4] for item, _ in bad) == sorted(["", "slow", "\u200b" * 3, "3"])
    assert {message[:7] for _, message in bad} == {"input 0", "input 2", "input 3", "input 5"}


def test_inputs_with_scores_that_are_not_finite_can_be_skipped(
    subject_of: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, bad = subject_of("bert"), list[Any]()
    import whichtoken.scoring as module

    check = module.check_logits

    def fail_on_short(subject: Any, batch: Any, indices: Sequence[int], logits: torch.Tensor) -> None:
        for row, index in enumerate(indices):
            if int(batch.mask[row].sum()) < 6:
                raise NotFinite(": NaN", index=index)
        check(subject, batch, indices, logits)

    monkeypatch.setattr(module, "check_logits", fail_on_short)
    examples = [TextExample((text,), where=f"row {i}") for i, text in enumerate([TEXTS[0], "slow", TEXTS[1], "film"])]
    results = list(
        wt.explain_each(subject, examples, on_bad_input=lambda item, error: bad.append(str(error)), methods="attcat")
    )
    assert [result["attcat"].texts[0] for result in results] == TEXTS
    assert sorted(bad) == ["row 1: NaN", "row 3: NaN"]


@pytest.fixture
def results(subject_of: Subjects) -> wt.Results:
    rows = [{"id": f"r{i}", "text": text, "label": i, "score": 0.5 + i} for i, text in enumerate(TEXTS)]
    examples = wt.data.read_examples(rows, keep=["score"])
    return wt.explain(subject_of("bert"), examples, ["attcat", "gradient-x-input"])


def test_results_are_like_a_list(results: wt.Results) -> None:
    assert isinstance(results, wt.Results)
    assert isinstance(results, Sequence)
    assert len(results) == 2
    assert results == list(results)
    assert list(results) == results
    assert results != list(results)[:1]
    assert results != "results"
    assert results[-1] == list(results)[1]
    assert results[0] in results
    assert isinstance(results[:1], wt.Results)
    assert results[:1] + results[1:] == results
    assert results[:1] + list(results)[1:] == results
    assert list(results)[:1] + results[1:] == results
    assert repr(results) == "<Results: 2 results of attcat, gradient-x-input; .show() prints them>"
    with pytest.raises(TypeError):
        hash(results)


def test_a_frame_has_a_row_for_each_word(results: wt.Results) -> None:
    frame = results.to_frame()
    assert list(frame.columns) == [*WORDS, "kept_score"]
    one = frame[(frame.id == "r1") & (frame.method == "attcat")]
    attribution = results[1]["attcat"]
    assert list(one.word) == TEXTS[1].split()
    assert list(one.score) == [word.score for word in attribution.words()]
    assert list(one.position) == list(range(5))
    assert [TEXTS[1][start:end] for start, end in zip(one.start, one.end, strict=True)] == list(one.word)
    last = one.iloc[-1]
    assert attribution.predicted is not None
    assert (last.result, last.row, last.gold, last.kept_score) == (1, 1, "entailment", 1.5)
    assert (last.label, last.probability) == (attribution.label, attribution.probability)
    assert (last.predicted, last.correct) == (attribution.predicted.label, attribution.correct)
    tokens = results.to_frame("token")
    assert list(tokens[(tokens.result == 0) & (tokens.method == "attcat")].word) == list(results[0]["attcat"].tokens)
    with pytest.raises(UsageError, match="level='letter' is not allowed"):
        results.to_frame("letter")


def test_saved_rows_are_those_of_the_frame(results: wt.Results, tmp_path: Path) -> None:
    frame = results.to_frame()
    results.to_csv(tmp_path / "x.csv")
    content = (tmp_path / "x.csv").read_bytes().decode()
    assert "\r" not in content
    assert content == results.to_csv()
    empty = {"interactions": "float64"}  # what pandas makes of a column of nothing
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(content)), frame.astype(empty), check_dtype=False)
    results.to_parquet(tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert {field.name: str(field.type) for field in table.schema}["kept_score"] == "string"
    rows = table.to_pylist()
    assert [row["kept_score"] for row in rows] == frame["kept_score"].map(str).tolist()
    assert [row["score"] for row in rows] == list(frame.score)
    assert [row["correct"] for row in rows] == list(frame.correct)


def test_a_csv_file_keeps_texts_exactly(subject_of: Subjects) -> None:
    example = TextExample(
        ("=slow\u2028\u00e9",), id='a,"b"\nc', columns={"list": [1, None], "ok": True, "none": None, "old": "a\rb"}
    )
    (row, *_) = csv.DictReader(io.StringIO(wt.explain(subject_of("bert"), [example]).to_csv(), newline=""))
    assert (row["id"], row["list"], row["ok"], row["none"]) == ('a,"b"\nc', "[1, null]", "true", "")
    assert row["old"] == "a\rb"
    assert row["word"][0] == "="


FORMULAS = ["=1+1", "@SUM(A1)", "+cmd", "-cmd", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1+1", "- 5", "-5e", "+1,2"]
HARMLESS = ["slow", "1 = 1", "it's", "\u2212", "", "-5", "+5", "-.5", "-1.5e-3", "007"]


def test_texts_that_a_spreadsheet_would_compute_begin_with_an_apostrophe_if_that_is_asked_for() -> None:
    columns = {f"text {i}": text for i, text in enumerate([*FORMULAS, *HARMLESS])}
    source = Source(1, "=id", "+gold", {**columns, "=head": -2.5, "whole": -3, "ok": False, "list": ["=1"]})
    record = replace(FINE, source=source, scores=tuple(-score for score in FINE.scores), label="-label")
    results = wt.Results(({"=method": record},))
    (plain, *_), (quoted, *_) = (
        list(csv.DictReader(io.StringIO(results.to_csv(spreadsheet=spreadsheet), newline="")))
        for spreadsheet in (False, True)
    )
    assert {name: plain[name] for name in columns} == columns
    assert {name: quoted[name] for name in columns} == {
        name: f"'{text}" if text in FORMULAS else text for name, text in columns.items()
    }
    assert (quoted["id"], quoted["gold"]) == ("'=id", "'+gold")
    assert (quoted["label"], quoted["method"]) == ("'-label", "'=method")
    assert (quoted["'=head"], quoted["whole"], quoted["ok"], quoted["list"]) == ("-2.5", "-3", "false", '["=1"]')
    assert float(quoted["score"]) == float(plain["score"]) < 0


def test_images_have_a_row_for_each_patch() -> None:
    subject = image_subject()
    results = wt.explain(subject, images=[noise()], methods=["gae"])
    frame, picture = results.to_frame(), results[0]["gae"].picture
    assert picture is not None
    assert len(frame) == picture.rows * picture.columns
    assert frame.word[0] == "patch 1,1"
    assert set(frame.id) == {picture.source}


def test_json_can_be_read_again(results: wt.Results, tmp_path: Path) -> None:
    results.to_json(tmp_path / "x.json")
    results.to_jsonl(tmp_path / "x.jsonl")
    assert wt.Results.read(tmp_path / "x.json") == results
    assert wt.Results.read(tmp_path / "x.jsonl") == results
    assert len(json.loads(results.to_json())) == 4
    with pytest.raises(UsageError, match="there is no file"):
        wt.Results.read(tmp_path / "nothing.json")


def test_pages_and_latex_are_written(results: wt.Results, tmp_path: Path) -> None:
    assert results.to_html(tmp_path / "x.html") == wt.plot.to_review(list(results))
    assert results[:1].to_html() == wt.plot.to_html(list(results[:1]))
    assert results.to_latex(tmp_path / "x.tex") == wt.plot.to_latex(list(results))
    assert "rare" in (tmp_path / "x.tex").read_text(encoding="utf-8")
    assert "rare" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_a_notebook_shows_the_first_results() -> None:
    many = wt.Results(({"attcat": FINE},) * (SHOWN + 3))
    shown = many._repr_html_()
    assert shown.count('class="head"') == many[:SHOWN]._repr_html_().count('class="head"') > 0
    assert "3 more" in shown
    assert "more;" not in many[:SHOWN]._repr_html_()
    assert wt.Results()._repr_html_() == "<p>no results</p>"


def test_results_and_tables_print_themselves(results: wt.Results, capsys: pytest.CaptureFixture[str]) -> None:
    results.show()
    assert "gradient-x-input" in capsys.readouterr().out
    TABLE.show()
    assert "aopc" in capsys.readouterr().out.lower()


def test_a_notebook_displays_them(results: wt.Results, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    notebook = SimpleNamespace(display=shown.append)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("whichtoken.render.terminal.import_module", lambda name: notebook)
    results.show()
    TABLE.show()
    assert shown == [results, TABLE]


def test_a_benchmark_table_becomes_a_frame_and_files(tmp_path: Path) -> None:
    table = TABLE
    frame = table.to_frame()
    cells = [(line, column) for line in table.lines for column in table.columns if column.name in line.cells]
    assert len(frame) == len(cells) > 1
    line, column = cells[0]
    assert (frame.method[0], frame.metric[0]) == (line.method, column.name)
    assert (frame["mean"][0], frame.low[0], frame.n[0]) == tuple(
        getattr(line.cells[column.name], name) for name in ("mean", "low", "n")
    )
    table.to_csv(tmp_path / "x.csv")
    read = pd.read_csv(tmp_path / "x.csv", keep_default_na=False, na_values={"p": [""]})
    pd.testing.assert_frame_equal(read, frame, check_dtype=False)
    named = replace(table, lines=(replace(table.lines[0], method="=1+1"),))
    assert named.to_csv().splitlines()[1].startswith("=1+1,")
    assert named.to_csv(spreadsheet=True).splitlines()[1].startswith("'=1+1,")
    table.to_parquet(tmp_path / "x.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "x.parquet"), frame, check_dtype=False)
    table.to_json(tmp_path / "table.json")
    assert wt.bench.read_table(tmp_path / "table.json") == table
    assert table.to_html(tmp_path / "x.html") == wt.plot.to_report(table)
    shown = table._repr_html_()
    assert line.method in shown
    assert "<script" not in shown
