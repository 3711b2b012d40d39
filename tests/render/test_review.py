"""The review page: order, counts and words; that texts are only shown; and, in a browser, that its controls work."""

import html
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.render.shown import NASTY, attribution_of
from tests.render.test_pictures import CHROMIUM, _after_loading
from tests.render.test_report import between, digest

from whichtoken.errors import UsageError
from whichtoken.records import Attribution, Prediction, Source
from whichtoken.render.groups import group_results
from whichtoken.render.html import json_data
from whichtoken.render.numbers import format_remaining
from whichtoken.render.palette import Colour, contrast
from whichtoken.render.review import (
    by_input,
    check_limit,
    removal_steps,
    review_page,
    style_sheet,
    summarise,
    to_review,
)
from whichtoken.render.rows import Look, visible
from whichtoken.render.theme import PAGE_COLOURS, shade_rules
from whichtoken.targets import Class, Span
from whichtoken.trust import Removal

LABELS = ("negative", "positive")


def decision(gold: str | None, predicted: str, probability: float, **changes: object) -> Attribution:
    """A text whose words are its labels, so that it can be told from the others."""
    words = [f"gold-{gold}", predicted, f"{probability}"]
    record = attribution_of(
        words,
        [1.0, 4.0, -2.0],
        label=predicted,
        target=Class(LABELS.index(predicted)),
        probability=probability,
        predicted=Prediction(predicted, probability),
        source=Source(row=int(1000 * probability), id=f"id-{probability}", gold=gold),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


DECISIONS = [
    decision("positive", "positive", 0.9),
    decision("negative", "positive", 0.8),
    decision("positive", "positive", 0.6),
    decision("negative", "positive", 0.7),
    decision("positive", "negative", 0.95),
]
REMOVED = decision("negative", "positive", 0.99, removals=(Removal((2,), 0.314), Removal((1, 2), 0.0042)))


def data_of(page: str) -> Any:
    return json.loads(between(page, '<script type="application/json" id="data">', "</script>\n<script>"))


def texts_of(results: Sequence[Any], look: Look | None = None) -> list[dict[str, Any]]:
    texts: list[dict[str, Any]] = data_of(review_page(results, look or Look()))["texts"]
    return texts


def test_mistakes_are_first_and_then_the_least_confident() -> None:
    assert [(text["correct"], text["measure"]) for text in texts_of(DECISIONS)] == [
        (False, 0.7),
        (False, 0.8),
        (False, 0.95),
        (True, 0.6),
        (True, 0.9),
    ]


def test_without_gold_labels_the_least_confident_are_first_and_nothing_is_said_of_mistakes() -> None:
    page = review_page([replace(record, source=None) for record in DECISIONS], Look())
    assert [text["measure"] for text in data_of(page)["texts"]] == [0.6, 0.7, 0.8, 0.9, 0.95]
    assert [text["place"] for text in data_of(page)["texts"]] == ["text 3", "text 4", "text 2", "text 1", "text 5"]
    for control in ('id="gold"', 'id="decision"', "mistakes first", "correct:"):
        assert control not in page
    assert 'id="predicted"' in page


def test_the_summary_counts_decisions_and_kinds_of_mistakes() -> None:
    unknown = replace(DECISIONS[0], source=None)
    summary = summarise(by_input([*DECISIONS, unknown]))
    assert (summary.n_texts, summary.n_known, summary.n_correct, summary.accuracy) == (6, 5, 2, "40.0 %")
    assert summary.confusions == (("negative", "positive", 2), ("positive", "negative", 1))
    assert (summary.predicted, summary.gold) == ({"negative": 1, "positive": 5}, {"negative": 2, "positive": 3})
    page = review_page([*DECISIONS, unknown], Look())
    assert "gold negative, predicted positive: <b>2</b>" in page
    assert "2 of 5 texts with a gold label, 3 mistakes" in page


def test_a_text_has_its_row_id_labels_columns_and_words() -> None:
    source = Source(12, "r-17", "negative", {"stars": 2, "shop": "<b>", "tags": ["a", None]})
    record = replace(DECISIONS[0], source=source, n_cut=5)
    text = texts_of([record, DECISIONS[1]])[1]
    assert (text["place"], text["id"], text["gold"], text["predicted"]) == ("row 12", "r-17", "negative", "positive")
    assert text["columns"] == [["stars", "2"], ["shop", "<b>"], ["tags", '["a", null]']]
    assert text["words"] == ["", "gold-positive", " ", "positive", " ", "0.9"]
    assert text["shown"] == "90.0 %"
    assert text["notes"] == ["5 tokens were cut: the text is longer than the model's limit"]
    assert text["targets"][0]["views"]["attcat"]["scores"] == [1.0, 4.0, -2.0]


def test_the_title_says_what_was_explained() -> None:
    two = [{name: replace(record, method=name) for name in ("attcat", "gae")} for record in DECISIONS]
    assert "<title>5 texts explained by attcat and gae — tiny</title>" in review_page(two, Look())
    four = [dict.fromkeys("abcd", record) for record in DECISIONS]
    assert "<title>5 texts explained by 4 methods — tiny</title>" in review_page(four, Look())


def test_removals_are_named_by_the_words_that_each_step_adds() -> None:
    assert removal_steps(REMOVED) == [["positive", "31 %"], ["gold-negative", "0.4 %"]]
    view = texts_of([REMOVED, DECISIONS[0]])[0]["targets"][0]["views"]["attcat"]
    assert (view["whole"], view["steps"]) == ("99 %", removal_steps(REMOVED))
    assert view["drop"] == pytest.approx(0.99 - 0.0042)
    assert "largest drop first" in review_page([REMOVED, DECISIONS[0]], Look())
    assert "largest drop first" not in review_page(DECISIONS, Look())


def test_removals_of_a_predicted_value_are_values() -> None:
    record = replace(REMOVED, probability=None, value=4.2, predicted=None, removals=(Removal((2,), 1.25),))
    assert removal_steps(record) == [["positive", "1.25"]]
    assert format_remaining(record, record.output) == "4.2"
    page = review_page([record, replace(record, value=-1.0)], Look())
    assert [text["measure"] for text in data_of(page)["texts"]] == [4.2, -1.0]  # in file order
    assert "lowest value first" in page
    assert "least confident" not in page
    assert "raises it" in page


def test_targets_of_one_text_belong_together_and_the_predicted_one_is_shown() -> None:
    why = decision("negative", "positive", 0.9)
    why_not = replace(why, label="negative", target=Class(0), probability=0.1)
    texts = texts_of([why_not, why, DECISIONS[0]])
    assert [len(text["targets"]) for text in texts] == [2, 1]
    assert [target["label"] for target in texts[0]["targets"]] == ["negative", "positive"]
    assert [target["shown"] for target in texts[0]["targets"]] == ["10.0 %", "90.0 %"]
    assert texts[0]["main"] == 1
    # The same text twice is two texts, with or without a row to tell them apart.
    assert len(texts_of([why_not, why, why_not, why])) == 2
    assert len(by_input([why, replace(why, source=Source(row=2))])) == 2


def test_rows_with_equal_texts_are_not_one_text_explained_by_two_methods() -> None:
    first, other = (replace(DECISIONS[0], method=name, source=Source(row=i)) for i, name in enumerate(("a", "b")))
    assert len(group_results([first, other])) == 2
    assert len(group_results([first, replace(other, source=first.source)])) == 1


def test_answers_are_shown_without_a_filter_by_label() -> None:
    answers = [
        replace(DECISIONS[0], label=f"answer {p}", target=Span(1, 2), probability=p, predicted=None)
        for p in (0.75, 0.25)
    ]
    page = review_page(answers, Look())
    assert "2 questions explained by attcat" in page
    assert 'id="predicted"' not in page
    assert [text["label"] for text in data_of(page)["texts"]] == ["answer 0.25", "answer 0.75"]


def test_methods_tuned_on_deletion_and_differences_say_so() -> None:
    result = {"attcat": DECISIONS[0], "noise": replace(DECISIONS[0], tuned_on_deletion=True)}
    data = data_of(review_page([result, result], Look(differences=True)))
    assert [(method["name"], method["tuned"], method["unit"]) for method in data["methods"]] == [
        ("attcat", False, ""),
        ("noise", True, ""),
        ("attcat \N{MINUS SIGN} noise", True, "difference of shares"),
    ]
    assert data["texts"][0]["targets"][0]["views"]["attcat \N{MINUS SIGN} noise"]["scores"] == [0.0, 0.0, 0.0]


HOSTILE = [
    attribution_of(
        NASTY,
        [float(i - 4) for i in range(len(NASTY))],
        label=nasty,
        model="<img src=x onerror=document.title='ran'>",
        method=nasty,
        predicted=Prediction(nasty, 0.5),
        source=Source(0, nasty, NASTY[i - 1], {nasty: nasty, "list": [nasty]}),
        removals=(Removal((1,), 0.25),),
    )
    for i, nasty in enumerate(NASTY)
]


def test_hostile_texts_cannot_leave_the_data_or_become_markup() -> None:
    page = review_page(HOSTILE, Look())
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    for trap in ("\u2028", "\u202e", "\x1b", "\x00"):
        assert trap not in page
    text = data_of(page)["texts"][0]
    assert text["words"][1::2] == [visible(nasty) for nasty in NASTY]


def test_data_in_a_script_element_is_plain_json() -> None:
    value = {"a": "</script><!-- & \u2028\u2029 \\u003c \U0001f600 é"}
    text = json_data(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_data(float("nan"))


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else() -> None:
    page = review_page(HOSTILE, Look())
    style, script = between(page, "<style>", "</style>"), page[page.rindex("<script>") + 8 : page.rindex("</script>")]
    policy = html.unescape(between(page, 'Security-Policy" content="', '">\n<meta name="viewport"'))
    assert f"style-src {digest(style)}; script-src {digest(script)};" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|https?:", script)
    assert not re.search(r"\sstyle=|\son[a-z]+=\"|https?:|url\(", page.replace(script, "").split('id="data"')[0])


def test_colours_of_texts_have_enough_contrast_in_light_and_dark() -> None:
    style = style_sheet()
    grounds = []
    for scheme in re.findall(r":root\{([^}]*)\}", style):
        colours = {name: rgb(value) for name, value in re.findall(r"--(\w+):(#\w+)", scheme)}
        grounds.append(colours["ground"])
        for name in ("ink", "quiet", "accent", "bad", "good"):
            for ground in ("ground", "raised"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    assert grounds == [PAGE_COLOURS[theme]["ground"] for theme in ("light", "dark")]
    assert shade_rules() in style  # tests/render/test_dark.py has their contrast


def rgb(code: str) -> Colour:
    digits = code[1:] if len(code) == 7 else "".join(2 * digit for digit in code[1:])
    red, green, blue = (int(digits[i : i + 2], 16) for i in (0, 2, 4))
    return red, green, blue


def test_every_control_has_a_label() -> None:
    page = review_page([{"a": record, "b": record} for record in DECISIONS], Look())
    controls = re.findall(r'<(?:select|input)[^>]* id="(\w+)"', page)
    assert {"search", "sort", "method", "predicted", "gold", "decision", "low", "high", "numbers"} == set(controls)
    labels = re.findall(r"<label[^>]*>.*?</label>", page, re.DOTALL)
    for control in controls:
        assert [label for label in labels if f'id="{control}"' in label], control


def test_it_is_written_to_a_file(tmp_path: Path) -> None:
    source = to_review(DECISIONS, tmp_path / "review.html", numbers=True)
    assert (tmp_path / "review.html").read_text(encoding="utf-8") == source
    assert 'id="numbers" checked' in source


def test_more_than_a_thousand_texts_are_refused() -> None:
    check_limit(1000)
    with pytest.raises(UsageError, match=r"up to 1,000 texts, but there are 1,001; split or filter"):
        check_limit(1001)
    with pytest.raises(UsageError, match="there are 1,001"):
        review_page([{"a": DECISIONS[0]} for _ in range(1001)], Look())


# In a browser. The content security policy would stop a driver script, so it is removed from the pages driven here.
DRIVER = """<script>
const log = [];
const ids = () => [...document.querySelectorAll("article .id")].map((id) => id.textContent.slice(3)).join(" ");
const set = (id, value, kind) => {
  const control = document.getElementById(id);
  control.value = value;
  control.dispatchEvent(new Event(kind));
};
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const count = () => document.getElementById("count").textContent;
%s
document.title = JSON.stringify(log);
</script>"""


def drive(tmp_path: Path, results: Sequence[Any], steps: str) -> Any:
    page = review_page(results, Look())
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    path = tmp_path / "driven.html"
    path.write_text(free.replace("</body>", DRIVER % steps + "</body>"), encoding="utf-8")
    return json.loads(html.unescape(re.findall("<title>(.*?)</title>", _after_loading(path))[0]))


browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")


@browser
@pytest.mark.slow
def test_in_a_browser_filters_and_orders_choose_the_texts(tmp_path: Path) -> None:
    steps = """
    log.push(ids());
    set("sort", "down", "change"); log.push(ids());
    set("sort", "file", "change"); log.push(ids());
    set("sort", "drop", "change"); log.push(ids());
    set("sort", "file", "change");
    set("search", "ID-0.9 POSITIVE", "input"); log.push(ids(), count());
    document.getElementById("clear").click(); log.push(count());
    set("low", "75", "input"); set("high", "90", "input"); log.push(ids());
    document.getElementById("clear").click();
    set("decision", "right", "change"); log.push(ids());
    const button = document.querySelector("#confusions button");
    button.click(); log.push(ids(), button.getAttribute("aria-pressed"));
    button.click(); log.push(count(), button.getAttribute("aria-pressed"));
    set("search", "nothing like it", "input"); log.push(count(), document.querySelector("#texts").textContent);
    """
    small = replace(DECISIONS[2], removals=(Removal((1,), 0.5),))
    results = [*DECISIONS[:2], small, *DECISIONS[3:], REMOVED]
    assert drive(tmp_path, results, steps) == [
        "0.7 0.8 0.95 0.99 0.6 0.9",
        "0.99 0.95 0.9 0.8 0.7 0.6",
        "0.9 0.8 0.6 0.7 0.95 0.99",
        "0.99 0.6 0.9 0.8 0.7 0.95",
        "0.9 0.95 0.99",
        "3 of 6 shown",
        "6 of 6 shown",
        "0.9 0.8",
        "0.9 0.6",
        "0.8 0.7 0.99",
        "true",
        "6 of 6 shown",
        "false",
        "0 of 6 shown",
        "No texts match; clear the search and filters to see all.",
    ]


@browser
@pytest.mark.slow
def test_in_a_browser_a_text_shows_its_words_targets_methods_and_removals(tmp_path: Path) -> None:
    steps = """
    const card = document.querySelector("article");
    const words = () => [...card.querySelectorAll(".words span")].map((word) => word.className);
    log.push(words(), card.querySelector(".steps").textContent, card.querySelectorAll("[data-word]")[1].title);
    const [no, yes] = card.querySelectorAll(".targets button");
    log.push(yes.getAttribute("aria-pressed"));
    no.click(); log.push(words(), no.getAttribute("aria-pressed"), yes.getAttribute("aria-pressed"));
    yes.click();
    set("method", "1", "change"); log.push(words(), document.getElementById("about").textContent);
    set("method", "all", "change"); log.push([...card.querySelectorAll(".name")].map((name) => name.textContent));
    """
    opposed = replace(REMOVED, scores=tuple(-score for score in REMOVED.scores))
    why_not = replace(opposed, label="negative", target=Class(0), probability=0.01, removals=())
    tuned = replace(REMOVED, scores=(0.0, 0.0, 0.0, 1.0, 0.0), tuned_on_deletion=True, method="noise")
    results = [{"attcat": why_not, "noise": tuned}, {"attcat": REMOVED, "noise": tuned}, {"attcat": DECISIONS[0]}]
    results[0] = {name: replace(record, label="negative", target=Class(0)) for name, record in results[0].items()}
    found = drive(tmp_path, results, steps)
    assert found[:4] == [
        ["f5", "f20", "a10"],
        "without positive: 99 % to 31 %; without positive, gold-negative: 99 % to 0.4 %",
        "positive: +4 (+100 % of the strongest)",
        "true",
    ]
    assert found[4:7] == [["a5", "a20", "f10"], "true", "false"]
    assert found[7] == ["", "", "f20"]
    assert "tuned on the deletion curve" in found[8]
    assert found[9] == ["attcat", "noise *"]


@browser
@pytest.mark.slow
def test_in_a_browser_the_keyboard_reaches_everything(tmp_path: Path) -> None:
    steps = """
    const at = () => document.activeElement.querySelector?.(".id")?.textContent ?? document.activeElement.id;
    press("/"); log.push(at());
    press("j"); log.push(at());
    press("Enter"); log.push(at());
    press("j"); press("ArrowDown"); log.push(at());
    press("k"); log.push(at());
    press("ArrowRight"); press("ArrowRight"); log.push(document.activeElement.querySelector(".readout").textContent);
    for (let i = 0; i < 99; i++) press("j");
    log.push(at(), document.querySelectorAll("article[tabindex='0']").length);
    """
    many = [decision("positive", "positive", round(0.5 + i / 1000, 3)) for i in range(90)]
    assert drive(tmp_path, many, steps) == [
        "search",
        "search",
        "id-0.5",
        "id-0.502",
        "id-0.501",
        "positive: +4 (+100 % of the strongest)",
        "id-0.589",
        1,
    ]


@browser
@pytest.mark.slow
def test_in_a_browser_the_policy_is_kept_and_no_text_runs(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(review_page(HOSTILE, Look(numbers=True)), encoding="utf-8")
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    run = subprocess.run(
        [CHROMIUM, *flags, "--enable-logging=stderr", path.as_uri()], capture_output=True, timeout=120, check=True
    )
    page, messages = run.stdout.decode(), run.stderr.decode()
    assert "CONSOLE" not in messages  # where the browser reports violations of the policy, and errors
    assert "<title>ran" not in page
    assert page.count("<article") == len(HOSTILE)
