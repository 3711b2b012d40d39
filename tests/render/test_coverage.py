"""Texts that are longer than their references: every picture says how much of them has a contrast."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from rich.console import Console
from tests.render.shown import FINE
from tests.render.test_report import between
from tests.tiny import KINDS, model_of, question_subject, with_references

import whichtoken as wt
from whichtoken.records import Attribution
from whichtoken.render import figures
from whichtoken.render.html import fragment, to_html
from whichtoken.render.latex import escape, to_latex
from whichtoken.render.review import review_page
from whichtoken.render.rows import Look, panels
from whichtoken.render.terminal import print_each

SENTENCE = (
    "Contrast-CAT's references cover 21 % of this text; beyond them, its scores are those of AttCAT: build a library "
    "from longer texts (whichtoken references build)"
)
LONG = " ".join(["the film was slow, but the music was touching"] * 4)


def covered(coverage: object, **changes: Any) -> Attribution:
    return replace(FINE, method="contrast-cat", details={"library": "a", "coverage": coverage}, **changes)


SHORT = covered(0.21)


def notes_of(*records: Attribution) -> tuple[str, ...]:
    return panels({f"{record.method}-{i}": record for i, record in enumerate(records)}, Look())[0].notes


def test_a_note_appears_when_references_cover_less_than_half() -> None:
    assert notes_of(SHORT) == (SENTENCE,)
    assert notes_of(covered(0.5)) == notes_of(covered(1.0)) == notes_of(FINE) == ()


def test_methods_with_the_same_references_share_a_note() -> None:
    assert notes_of(FINE, SHORT, SHORT) == (SENTENCE,)


def test_details_of_other_methods_and_of_changed_files_give_no_note() -> None:
    unusual: list[dict[str, Any]] = [
        {"coverage": 0.1},  # not of references
        {"library": "a", "coverage": "0.1"},
        {"library": "a", "coverage": None},
        {"windows": 3},
        {"windows": [3]},
        {"start": 0.1, "end": []},
    ]
    for details in unusual:
        assert notes_of(replace(FINE, details=details)) == ()


def test_every_picture_says_it(tmp_path: Path) -> None:
    file = StringIO()
    print_each(Console(file=file, width=200), [{"attcat": FINE, "contrast-cat": SHORT}], Look())
    shown = {"terminal": file.getvalue(), "latex": to_latex(SHORT)}
    for name, page in ("page", to_html(SHORT)), ("notebook", fragment(SHORT)):
        shown[name] = page.replace("&#39;", "'")
    with mpl.rc_context({"svg.fonttype": "none"}):
        for name, drawn in ("methods", SHORT), ("layers", replace(SHORT, layers=(SHORT.scores,))):
            drawing = figures.plot(drawn, tmp_path / f"{name}.svg", Look()).read_text()
            shown[name] = " ".join(re.findall(r"<text [^>]*>([^<]*)</text>", drawing))  # titles may have several lines
    sentences = {"latex": escape(SENTENCE)}
    assert [name for name, text in shown.items() if sentences.get(name, SENTENCE) not in text] == []


def test_latex_breaks_the_line() -> None:
    """A column of type l is as wide as its text, which would run off the page."""
    (line,) = (line for line in to_latex(SHORT).splitlines() if "references cover" in line)
    assert line.startswith(r"\multicolumn{2}{@{}p{0.95\linewidth}@{}}{\raggedright\arraybackslash Contrast")


def test_a_review_page_says_it_about_the_method_and_target_that_it_is_true_of() -> None:
    """Classes have references of their own, so a text may have several coverages."""
    other = covered(0.9, label="negative", target=wt.Class(0))
    page = review_page([{"attcat": replace(FINE, n_cut=3), "contrast-cat": SHORT}, {"contrast-cat": other}], Look())
    (text,) = json.loads(between(page, '<script type="application/json" id="data">', "</script>\n<script>"))["texts"]
    assert text["notes"] == ["3 tokens were cut: the text is longer than the model's limit"]
    found = {(t["label"], name): view.get("note") for t in text["targets"] for name, view in t["views"].items()}
    expected = {
        ("positive", "attcat"): None,
        ("positive", "contrast-cat"): SENTENCE,
        ("negative", "contrast-cat"): None,
    }
    assert found == expected


def test_a_stored_result_says_it_too() -> None:
    assert notes_of(Attribution.from_json(SHORT.to_json())) == (SENTENCE,)


@pytest.mark.parametrize("long", ["truncate", "window"])
def test_short_references_cover_little_of_a_long_text(long: Any) -> None:
    subject = with_references(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), ["very slow film"])
    (note,) = (note for note in panels(explain(subject, LONG, long), Look())[0].notes if "references" in note)
    assert re.match(r"Contrast-CAT's references cover \d\d? % of this text; ", note)


def explain(subject: wt.Subject, text: str, long: Any) -> Attribution:
    found = wt.explain(subject, [text], [wt.method("contrast-cat", refine=False)], long=long)[0]
    return next(iter(found.values()))


def test_windows_and_the_ends_of_an_answer_have_one_coverage() -> None:
    parts = [{"library": "a", "coverage": share} for share in (0.3, 0.12)]
    assert notes_of(replace(FINE, details={"windows": parts})) == (SENTENCE,)
    assert notes_of(replace(FINE, details={"start": parts[0], "end": parts[1], "window": 1, "windows": 2})) == (
        SENTENCE,
    )


def test_an_answer_says_it() -> None:
    plain = question_subject()
    library = wt.references.build(plain, [("is it slow?", "it is")], min_tokens=1, dtype="float64", gamma=1.0)
    method = wt.method("contrast-cat", references=library, refine=False)
    found = wt.explain(plain, question="is it slow?", context=LONG, methods=[method])[0]
    assert any("references cover" in note for note in panels(found, Look())[0].notes)
