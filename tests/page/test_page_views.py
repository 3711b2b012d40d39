"""The page in a real browser: tables, benchmarks, images, other kinds of models, hostile texts, accessibility."""

import csv
import os
import re
from collections.abc import Callable, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="not installed: playwright").expect

Open = Callable[..., Any]
HOSTILE = [
    "</script><script>alert(1)</script> dull",
    '<img src=x onerror="alert(1)"> slow',
    "safe \u202eevil\u202c text \u2066hidden\u2069",
    "'\"><svg onload=alert(1)> & &amp; {{7*7}} ${7*7}",
]
CSV = """text,label,source
The acting is not great but the music saves it.,positive,a
It is very slow.,negative,a
A film so dull that I watched the exit sign.,positive,b
rare birds has more than enough charm to make it memorable.,positive,c
"""
LINK = "#explain?kind=text&text=It+is+very+slow.&methods=attcat,gae"
AXE = Path(os.environ.get("AXE") or Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js")


def is_done(page: Any) -> None:
    page.wait_for_selector("#explain-button[aria-busy=false]")
    page.wait_for_selector("#progress:empty", state="attached")


def review(page: Any, content: str, name: str = "texts.csv") -> None:
    page.set_input_files("#review-file", {"name": name, "mimeType": "text/csv", "buffer": content.encode()})
    page.wait_for_selector("#review-result:not([hidden])")
    expect(page.locator("#review-progress")).to_be_empty()


def shown_rows(page: Any) -> list[int]:
    return [int(row.get_attribute("data-row")) for row in page.locator("tr[data-row]").all()]


def test_a_file_is_reviewed_mistakes_first_and_each_row_opens(open_page: Open) -> None:
    page = open_page("#review")
    review(page, CSV)
    assert shown_rows(page)[0] == 4  # the only mistake
    assert "3 of 4 with a gold label" in page.inner_text("#review-totals")
    page.click("th >> text=Row")
    assert shown_rows(page) == [2, 3, 4, 5]
    page.click("th >> text=Row")
    assert shown_rows(page) == [5, 4, 3, 2]
    page.fill("#review-search", "SLOW")
    assert shown_rows(page) == [3]
    page.fill("#review-search", "")
    page.select_option("#review-filters label:has-text('Decisions') select", "wrong")
    assert shown_rows(page) == [4]
    assert page.inner_text("#review-count") == "1 of 4 rows shown"
    page.click("tr[data-row='4'] button")
    assert page.locator("tr.detail .word").all_inner_texts()[:4] == ["A", "film", "so", "dull"]
    assert page.locator("tr.detail .words .f20").count() == 1
    page.click("text=Explore this text")
    is_done(page)
    assert page.input_value("#field-text") == "A film so dull that I watched the exit sign."
    page.go_back()
    page.wait_for_selector("#view-review:not([hidden])")
    assert shown_rows(page) == [4]


@pytest.mark.slow
def test_a_chip_shows_one_kind_of_mistake(open_page: Open) -> None:
    page = open_page("#review")
    review(page, CSV)
    page.click("#review-totals .chip")
    assert shown_rows(page) == [4]
    page.click("#review-totals .chip")
    assert len(shown_rows(page)) == 4


def numbers_of(cells: Any) -> list[float]:
    return [float(re.search(r"-?\d+\.\d+", text)[0]) for text in cells.all_inner_texts()]  # type: ignore[index]


def test_a_benchmark_sorts_and_leads_to_texts_of_disagreement(open_page: Open) -> None:
    page = open_page("#benchmark")
    page.wait_for_selector("#bench-table tbody tr")
    methods = page.locator("#bench-table tbody tr")
    column = page.locator("#bench-table thead th").nth(1)
    means = numbers_of(page.locator("#bench-table tbody td:nth-child(2) .mean"))
    assert column.get_attribute("aria-sort") == "descending"
    assert means == sorted(means, reverse=True)
    column.locator("button").click()
    turned = numbers_of(page.locator("#bench-table tbody td:nth-child(2) .mean"))
    assert turned == sorted(means)
    assert re.fullmatch(r"\[-?\d.*, -?\d.*\]", methods.first.locator("td small").first.inner_text())
    assert page.locator("#bench-curves .line").count() > 1
    page.select_option("#bench-drill label:has-text('First') select", "attcat")
    page.select_option("#bench-drill label:has-text('Second') select", "random")
    item = page.locator("#bench-inputs li").first
    expect(item).to_contain_text("attcat")
    expect(item).to_contain_text("random")
    text = item.locator(".drill-text").inner_text()
    assert re.match(r"text \d+, the plot was slow", text)
    assert item.locator(".line").count() == 2
    item.locator(".explore").click()
    is_done(page)
    assert page.input_value("#field-text") == text
    assert page.locator(".compared .method").all_inner_texts() == ["attcat", "random"]


def letters(text: str) -> str:
    """Return letters and digits; a control character is shown by its number."""
    return re.sub(r"⟨U\+\w+⟩|\W", "", text)


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(open_page: Open, text: str) -> None:
    page = open_page(LINK)
    is_done(page)
    elements = page.locator("#view-explain script, #view-explain img, #view-explain svg[onload]").count()
    page.fill("#field-text", text)
    page.click("#explain-button")
    expect(page.locator("#words")).not_to_contain_text("very")
    is_done(page)
    shown = page.inner_text("#words")
    assert letters(text) == letters(shown)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", shown)  # no character turns the text around
    assert page.locator("#view-explain script, #view-explain img, #view-explain svg[onload]").count() == elements == 0


def test_hostile_tables_stay_texts(open_page: Open) -> None:
    page = open_page("#review")
    file = StringIO()
    csv.writer(file).writerows([["text", "label"], *([text, f"<b>{n}</b>"] for n, text in enumerate(HOSTILE))])
    review(page, file.getvalue())
    assert len(shown_rows(page)) == len(HOSTILE)
    for button in page.locator("tr[data-row] button").all():
        button.click()
    assert page.locator("tr.detail").count() == len(HOSTILE)
    assert "<img src=x onerror=" in page.inner_text("#review-table")
    assert page.locator("#review-result :is(script, img, svg, td b)").count() == 0


@pytest.mark.slow
def test_patches_of_an_image_can_be_switched_off(open_page: Open) -> None:
    from PIL import Image

    file = BytesIO()
    Image.effect_noise((24, 24), 90).convert("RGB").save(file, "PNG")
    page = open_page(LINK)
    is_done(page)
    page.select_option("#ask-top select", "pictures")
    page.set_input_files(
        "#ask-fields input[type=file]", {"name": "noise.png", "mimeType": "image/png", "buffer": file.getvalue()}
    )
    page.wait_for_selector(".patch")
    is_done(page)
    assert page.locator(".patch").count() == 9
    whole = page.get_attribute("#output", "data-output")
    with page.expect_response("**/api/predict"):
        page.locator(".patch").nth(4).click()
    expect(page.locator("#output")).not_to_have_attribute("data-output", whole)
    assert page.locator(".patch.off").count() == 1
    assert page.locator(".compared .overlay").count() == 1


@pytest.mark.slow
def test_questions_and_entities(open_page: Open) -> None:
    page = open_page(
        "#explain?model=answers&kind=question&question=is+it+slow&context=the+film+is+slow+but+rare&methods=gae"
    )
    is_done(page)
    answer = page.inner_text("#headline .label")
    assert answer in "the film is slow but rare"
    assert page.locator("#words [aria-disabled=true]").count() >= 3  # the question stays
    page.fill("#prediction input", "rare" if answer != "rare" else "film")
    page.click("#prediction button:has-text('Explain')")
    expect(page.locator("#headline .label")).not_to_have_text(answer)
    is_done(page)
    page.select_option("#ask-top select", "entities")
    page.fill("#field-text", "the man is slow but nobody were touching it")
    page.click("#explain-button")
    expect(page.locator("#headline .label")).to_contain_text(": ")
    is_done(page)


@pytest.mark.slow
def test_a_click_on_the_answer_shows_what_led_to_it(open_page: Open) -> None:
    page = open_page("#explain?model=writer&kind=prompt&prompt=the+film+is+slow+but&tokens=4&methods=attcat,gae")
    is_done(page)
    parts = page.locator(".answer-part")
    assert parts.count() == 5  # the whole answer, and its four tokens
    shades = "all => all.map((word) => word.className)"
    whole = page.locator("#words .word").evaluate_all(shades)
    parts.nth(2).click()
    expect(parts.nth(2)).to_have_attribute("aria-pressed", "true")
    one = page.locator("#words .word").evaluate_all(shades)
    assert one != whole
    assert "answer=1" in page.url
    parts.nth(0).click()
    assert page.locator("#words .word").evaluate_all(shades) == whole


@pytest.mark.slow
def test_an_unknown_method_is_an_error_on_the_page(browser: Any, address: str) -> None:
    page = browser.new_page()  # the browser itself logs the refused request
    page.goto(f"{address}/{LINK},atcat")
    expect(page.locator("#problem")).to_contain_text("did you mean 'attcat'?")
    page.close()


VIEWS: dict[str, tuple[str, Sequence[str]]] = {
    "explain": (LINK, ["[data-tool=remove]"]),
    "difference": (LINK, ["text=Difference"]),
    "curves": (f"{LINK}&tab=curves", ["#tab-panel summary >> nth=0"]),
    "layers": (f"{LINK}&tab=layers", []),
    "references": (f"{LINK},contrast-cat&tab=references", []),
    "export": (f"{LINK}&tab=export", []),
    "methods": (LINK, ["text=Choose methods"]),
    "answer": (
        "#explain?model=writer&kind=prompt&prompt=the+film+is+slow&tokens=3&methods=attcat",
        [".answer-part >> nth=1"],
    ),
    "review": ("#review", ["text=Try a small sample", "tr[data-row='4'] button"]),
    "benchmark": ("#benchmark", ["#bench-inputs summary >> nth=0"]),
}


@pytest.mark.slow
@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install --no-save axe-core")
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_no_serious_violation_of_accessibility(open_page: Open, view: str, colours: str) -> None:
    fragment, clicks = VIEWS[view]
    page = open_page(fragment, colours=colours)
    if fragment.startswith("#explain"):
        is_done(page)
    for selector in clicks:
        page.click(selector)
    page.wait_for_load_state("networkidle")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
    assert len(found["passes"]) > 10  # it did look at the page


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_wider_than_a_phone(open_page: Open, view: str) -> None:
    fragment, clicks = VIEWS[view]
    page = open_page(fragment, width=390)
    if fragment.startswith("#explain"):
        is_done(page)
    for selector in clicks:
        page.click(selector)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
