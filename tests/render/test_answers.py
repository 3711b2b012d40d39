"""Answers of language models: what terminal, page, figure, LaTeX and tables show of them, and that texts stay texts."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.render.shown import ANSWERED, FINE, NASTY, answered_of
from tests.render.test_pictures import CHROMIUM, Page, _after_loading

import whichtoken as wt
from whichtoken.answers import Segment
from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.records import Attribution, Source
from whichtoken.render import figures
from whichtoken.render.answers import format_chance, prompt_text
from whichtoken.render.html import fragment, to_html
from whichtoken.render.latex import to_latex
from whichtoken.render.review import page_for
from whichtoken.render.rows import Look, panels, visible
from whichtoken.render.terminal import print_each
from whichtoken.trust import Confidence, Removal

HARMFUL_ANSWER = answered_of(
    NASTY,
    NASTY[:4],
    model="<img src=x onerror=document.title='ran'>",
    method="<i>[blink]",
    label="<script>document.title='ran'</script>",
)


def with_documents(level: str = "document", rows: str = "token") -> Attribution:
    """The record with its first sentence as a document; the rest of the prompt is the second sentence."""
    answer = ANSWERED.generated
    assert answer is not None
    document = Segment("document", "a.txt", answer.segments[0].span)
    changed = replace(answer, segments=(document, *answer.segments), source_level=level, row_level=rows)  # type: ignore[arg-type]
    return replace(ANSWERED, generated=changed)


def printed(record: Attribution, look: Look | None = None) -> str:
    file = StringIO()
    print_each(Console(file=file, width=120, color_system=None), [record], look or Look())
    return file.getvalue()


def test_a_terminal_shows_the_answer_the_prompt_and_each_part() -> None:
    shown = printed(ANSWERED)
    lines = shown.splitlines()
    assert lines[0] == "Ada likes Rome  log-probability -3  (tiny)"
    assert "attn-lrp  Ada +1.00, likes +0.50, Lyon. +0.50" in shown
    assert "Ada(+1.00) likes(+0.50) Lyon.(+0.50) Tom(-0.50) likes Oslo." in shown  # the answer is not coloured
    assert re.search(r"^likes +37 % +likes \+1.00$", shown, re.M)
    assert "+ supports the answer, - opposes it" in shown


def test_a_chosen_row_replaces_the_whole_answer() -> None:
    shown = printed(ANSWERED, Look(row="Rome"))
    assert "explained: Rome" in shown
    assert "log-probability -1.5" in shown
    assert "Ada likes Lyon.(+1.00) Tom(-0.50) likes Oslo." in shown
    assert "part of the answer" not in shown
    with pytest.raises(UnknownName, match="part of the answer 'Lyon'"):
        printed(ANSWERED, Look(row="Lyon"))
    with pytest.raises(UsageError, match="does not explain an answer"):
        printed(FINE, Look(row="film"))


def test_scores_outside_the_prompt_are_counted() -> None:
    scores = (1.0, *ANSWERED.scores[1:-1], 4.0)  # the prompt has 2 + 1 + 1 + 1
    shown = printed(replace(ANSWERED, scores=scores))
    assert "of all scores, 50 % prompt, 40 % earlier words of the answer, 10 % special tokens and template" in shown
    assert "of all scores" not in printed(ANSWERED)


def test_documents_and_sentences_have_shares_in_the_parts_of_the_answer() -> None:
    shown = printed(with_documents(rows="sentence"))
    assert re.search(r"^a.txt +100 % +100 % +100 % +100 %$", shown, re.M)
    assert re.search(r"^  Ada likes Lyon. +100 % +100 % +100 % +100 %$", shown, re.M)  # in the document
    assert re.search(r"^Tom likes Oslo. +0 % +0 % +0 % +0 %$", shown, re.M)  # outside
    assert "3: Rome" in shown
    assert "rests on" not in printed(ANSWERED)
    assert re.search(r"^rests on +share$", printed(with_documents()), re.M)  # tokens have no columns


def test_a_source_in_several_places_is_coloured_there_and_listed_once() -> None:
    answer = with_documents().generated
    assert answer is not None
    middle = replace(answer, segments=(Segment("document", "b.txt", (4, 15)),))  # "likes Lyon."
    row = panels(replace(ANSWERED, generated=middle), Look())[0].rows[0]
    assert [(cell.text, cell.score, cell.repeated) for cell in row.cells] == [
        ("Ada", 1.0, False),
        ("likes Lyon.", 2.0, False),
        ("Tom likes Oslo.", 1.0, True),
    ]
    assert [cell.called for cell in row.strongest()] == ["b.txt", "the rest of the prompt"]


def test_the_trust_of_an_answer_names_its_log_probability() -> None:
    bounds = tuple(score - 0.1 for score in ANSWERED.scores), tuple(score + 0.1 for score in ANSWERED.scores)
    sure = Confidence(*bounds, 0.9, 6, 0, 64, 0.75, 0.96, Removal((1,), -9.0))
    shown = " ".join(printed(replace(ANSWERED, confidence=sure, settings={"units": "word"})).split())
    assert "predict 75 % of the variation in the log-probability when words are removed (64 trials)" in shown
    assert "“Ada” ranks first with 96 % certainty" in shown
    assert "without “Ada”, the log-probability falls from -3 to -9" in shown


def test_chat_templates_are_quiet_and_titles_leave_them_and_documents_out() -> None:
    chat = answered_of(["<user>", "Where", "is", "Tom?"], ["Oslo"])
    answer = chat.generated
    assert answer is not None
    template = (None, None, *chat.sequences[2:])
    chat = replace(chat, sequences=template, generated=replace(answer, segments=()))
    assert prompt_text(chat) == "Where is Tom?"
    assert "<em>&lt;user&gt; </em>" in to_html(chat)
    named = replace(answer, segments=(Segment("document", "a", (7, 15)),))
    assert prompt_text(replace(chat, generated=named)) == "Tom?"


@pytest.mark.parametrize("record", [ANSWERED, HARMFUL_ANSWER])
def test_a_page_of_an_answer_runs_its_own_script_only(record: Attribution) -> None:
    source = to_html([record, replace(record, method="b")])
    page = Page(source)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", source, re.S)
    assert [attributes for attributes, _ in scripts] == [' type="application/json" class="maps-of-parts"', ""]
    digest = base64.b64encode(hashlib.sha256(scripts[1][1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in (policy or "")
    assert "unsafe" not in (policy or "")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert not [tag for tag, _ in page.tags if tag in ("img", "i", "link", "iframe")]
    data = json.loads(html.unescape(scripts[0][1]))
    assert [part["text"] for part in data["parts"]] == [visible(row.text.strip()) for row in record.generated.rows]  # type: ignore[union-attr]
    for nasty in NASTY if record is HARMFUL_ANSWER else ():
        assert visible(nasty) in page.text


def test_a_page_without_parts_and_a_notebook_have_no_script() -> None:
    answer = ANSWERED.generated
    assert answer is not None
    whole = replace(ANSWERED, generated=replace(answer, rows=(ANSWERED.answer(),), row_level="answer"))
    for source in (to_html(whole), fragment(ANSWERED), wt.Results(({"a": ANSWERED},))._repr_html_()):
        assert "<script" not in source
        assert "script-src" not in source
        assert 'class="f20"' in source  # the colours of the whole answer
    assert "Each part of the answer" in fragment(ANSWERED)
    assert "explained: Rome" not in fragment(ANSWERED)
    assert "Explained: <b>Rome</b>" in fragment(ANSWERED, "Rome")


def test_several_prompts_are_one_page_whose_answers_can_be_chosen() -> None:
    other = replace(ANSWERED, texts=(ANSWERED.texts[0] + "!", ANSWERED.texts[1]))
    source = page_for([{"a": ANSWERED}, {"a": other}], Look())
    assert source.count("<section class=answered>") == 2
    assert source.count("maps-of-parts") == 3  # twice as data, once in the script


DRIVER = """<script>
const log = [], options = [...document.querySelectorAll("[role=listbox] > [role=option]")];
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const shades = () => [...document.querySelectorAll(".words > span")].map((cell) => cell.className).join(" ");
const chosen = () => options.map((option) => option.getAttribute("aria-selected")).join(" ");
log.push(options.length, shades());
options[1].click(); log.push(shades(), chosen(), document.querySelector("[role=status]").textContent);
press("ArrowRight"); log.push(shades(), document.activeElement.textContent);
press("ArrowRight"); log.push(document.activeElement.textContent);
press("Home"); log.push(document.querySelector(".top").textContent, options.map((o) => o.tabIndex).join(" "));
press("Escape"); log.push(shades(), document.querySelector(".said button").getAttribute("aria-pressed"));
press("Enter"); log.push(chosen());
document.title = JSON.stringify(log);
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_in_a_browser_mouse_and_keys_choose_a_part_of_the_answer(tmp_path: Path) -> None:
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", to_html(ANSWERED))
    path = tmp_path / "driven.html"
    path.write_text(free.replace("</body>", DRIVER + "</body>"), encoding="utf-8")
    log = json.loads(html.unescape(re.findall("<title>(.*?)</title>", _after_loading(path))[0]))
    assert log == [
        3,
        "f20 f10 f10 a10  ",
        " f20 a10   ",
        "false true false",
        "“likes”, probability 37 %. Strongest: likes +1.00",
        "  f20 a10  ",
        "Rome",
        "Rome",
        "Ada +1.00",
        "0 -1 -1",
        "f20 f10 f10 a10  ",
        "true",
        "true false false",
    ]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_in_a_browser_the_script_is_allowed_and_texts_are_not_run(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(to_html(HARMFUL_ANSWER), encoding="utf-8")
    found = _after_loading(path)
    assert "<title>ran</title>" not in found
    assert found.count('role="option"') == 4


def test_a_figure_has_a_row_for_each_part_and_the_strongest_columns() -> None:
    figure = figures.answer(ANSWERED)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["Ada  61 %", "likes  37 %", "Rome  22 %"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["Ada", "likes", "Lyon.", "Tom", "likes", "Oslo."]
    sentences = figures.answer(ANSWERED, sources="sentence").axes[0]
    assert [tick.get_text() for tick in sentences.get_xticklabels()] == ["Ada likes Lyon.", "Tom likes Oslo."]
    long = figures.answer(answered_of([f"w{i}" for i in range(70)], ["a", "b"]))
    assert "the 60 strongest of 70 parts of the prompt" in [text.get_text() for text in long.texts]
    with pytest.raises(BadSetting, match="sources='row' is not allowed"):
        figures.answer(ANSWERED, sources="row")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not explain an answer"):
        figures.answer(FINE)


def test_a_figure_of_methods_shows_the_whole_answer(tmp_path: Path) -> None:
    both = {"a": ANSWERED, "b": replace(ANSWERED, method="b")}
    axes = figures.methods(both).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert figures.plot(ANSWERED, tmp_path / "a.svg", Look()).read_text().count("22 %") == 1


def test_latex_shows_the_prompt() -> None:
    source = to_latex(with_documents())
    assert r"\noindent\textbf{Ada likes Rome} (log{-}probability {-}3)" in source
    assert "Ada likes Lyon." in source


def test_tables_have_a_row_for_each_part_and_source() -> None:
    kept = wt.Results(({"attn-lrp": ANSWERED},))
    frame = kept.to_frame()
    assert len(frame) == 3 * 6
    chosen = frame.loc[(frame.part == 2) & (frame.score != 0), ["said", "source", "score"]]
    assert chosen.values.tolist() == [[" Rome", "Lyon.", 2.0], [" Rome", "Tom", -1.0]]
    assert kept.to_csv().startswith(
        "result,row,id,label,value,n_cut,method,additivity,predicted_share,first,part,said,log_probability"
    )
    sentences = wt.Results(({"attn-lrp": with_documents("sentence")},))
    assert list(sentences.to_frame()["source"][:2]) == ["Ada likes Lyon.", "Tom likes Oslo."]
    assert len(sentences.to_frame("token")) == 3 * 6


def test_kept_columns_stay_apart_from_those_of_answers() -> None:
    record = replace(ANSWERED, source=Source(columns={"said": "by mail", "gold": "Oslo"}))
    frame = wt.Results(({"attn-lrp": record},)).to_frame()
    assert "by mail" not in set(frame.said)
    assert set(frame.kept_said) == {"by mail"}
    assert set(frame.gold) == {"Oslo"}  # tables of answers have no gold labels


def test_records_of_other_rows_are_shown_apart(tmp_path: Path) -> None:
    both: Any = [ANSWERED, replace(with_documents(rows="sentence"), method="b")]
    assert len(panels(both, Look())) == 2


def test_probabilities_of_parts() -> None:
    shown = [format_chance(x) for x in (0.0, -0.5, -5.0, -9.1, -2000.0)]
    assert shown == ["100 %", "61 %", "1 %", "e^-9.1", "e^-2000.0"]
