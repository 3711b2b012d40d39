"""The page in a real browser: type, explain, switch words off, compare, share."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="not installed: playwright").expect

TEXT = "The acting is not great, but the music saves it."
FAST = "attcat,att-x-att-grads"
Open = Callable[..., Any]


def link(text: str = TEXT, methods: str = FAST, **more: str) -> str:
    parts = {"kind": "text", "text": text, "methods": methods, **more}
    return "#explain?" + "&".join(f"{name}={quote_plus(value)}" for name, value in parts.items())


def is_done(page: Any) -> None:
    """Wait until no job is running."""
    page.wait_for_selector("#explain-button[aria-busy=false]")
    page.wait_for_selector("#progress:empty", state="attached")


def output(page: Any) -> float:
    return float(page.get_attribute("#output", "data-output"))


def words(page: Any) -> list[str]:
    found: list[str] = page.locator("#words [role=switch]").all_inner_texts()
    return found


def word(page: Any, text: str) -> Any:
    return page.locator("#words [role=switch]", has_text=re.compile(f"^{re.escape(text)}$")).first


def says(page: Any, probability: float) -> None:
    """Wait until the page shows this probability."""
    expect(page.locator("#output")).to_have_text(f"{100 * probability:.1f} %")


def after(page: Any, act: Callable[[], Any]) -> float:
    """Do something that asks the model, and return what it says then."""
    with page.expect_response("**/api/predict") as answer:
        act()
    found: float = answer.value.json()["explained"][0]["outputs"][0]
    says(page, found)
    return found


@pytest.mark.slow
def test_a_first_visit_shows_an_explained_example(open_page: Open) -> None:
    page = open_page()
    is_done(page)
    assert page.input_value("#field-text") == TEXT
    assert [each for each in words(page) if each.isalpha()] == re.findall(r"\w+", TEXT)
    assert output(page) > 0.9
    assert page.inner_text("#headline .label") == "positive"
    assert page.locator("#words .f20").count() == 1  # the strongest word
    assert re.search(r"ranks first with .* certainty", page.inner_text("#trust"))


def test_type_and_explain(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    page.fill("#field-text", "It is very slow.")
    page.click("#explain-button")
    expect(page.locator("#headline .label")).to_have_text("negative")
    is_done(page)
    assert words(page) == ["It", "is", "very", "slow", "."]
    assert "f20" in word(page, "slow").get_attribute("class")


@pytest.mark.slow
def test_an_empty_text_is_asked_for(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    page.fill("#field-text", "  ")
    page.click("#explain-button")
    assert page.inner_text("#ask-problem") == "Fill in: text."
    assert page.evaluate("document.activeElement.id") == "field-text"


def test_a_click_switches_a_word_off_and_the_probability_changes(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    whole = output(page)
    without = after(page, lambda: word(page, "but").click())
    assert without < whole - 0.5
    assert word(page, "but").get_attribute("aria-checked") == "false"
    assert "1 word off" in page.inner_text("#tools")
    assert page.inner_text("#change").startswith(f"was {100 * whole:.1f} %, now {100 * without:.1f} %")
    assert page.locator("#tried circle").count() == 2  # both states are on the curve
    word(page, "but").click()
    says(page, whole)
    assert word(page, "but").get_attribute("aria-checked") == "true"


@pytest.mark.slow
def test_remove_keep_undo_reset(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    whole, n_words = output(page), len(words(page))
    scores = page.locator("#words [role=switch]")
    removed = after(page, lambda: page.click("[data-tool=remove]"))
    off = page.locator("#words [aria-checked=false]")
    assert off.count() == 3
    assert all(re.search("supports", each.get_attribute("aria-label")) for each in off.all())
    kept = after(page, lambda: page.click("[data-tool=keep]"))
    assert page.locator("#words [aria-checked=false]").count() == n_words - 3 == scores.count() - 3
    assert kept != removed
    page.click("[data-tool=undo]")
    says(page, removed)
    page.click("[data-tool=reset]")
    says(page, whole)
    assert page.is_disabled("[data-tool=reset]")
    assert page.is_enabled("[data-tool=undo]")


@pytest.mark.slow
def test_the_number_of_top_words_can_be_changed(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    page.fill("#tools input[type=number]", "1")
    page.press("#tools input[type=number]", "Enter")
    after(page, lambda: page.click("text=Remove top 1"))
    off = page.locator("#words [aria-checked=false]")
    assert off.count() == 1
    assert "(100 % of the strongest)" in off.get_attribute("aria-label")


@pytest.mark.slow
def test_keyboard_moves_and_switches_and_shows_scores(open_page: Open) -> None:
    page = open_page(link(methods="posterior,attcat"))
    is_done(page)
    page.locator("#words [role=switch]").first.focus()
    assert page.locator("#words [tabindex='0']").count() == 1
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "not"
    assert re.search(r"^not opposes -\d.*90 % interval", page.inner_text("#score"))
    assert page.locator("#score .interval").count() == 1
    after(page, lambda: page.keyboard.press(" "))
    assert page.evaluate("document.activeElement.textContent") == "not"  # the focus stays
    assert page.evaluate("document.activeElement.getAttribute('aria-checked')") == "false"


@pytest.mark.slow
def test_words_and_tokens(open_page: Open) -> None:
    page = open_page(link(text="A nonsensical plot."))
    is_done(page)
    before = words(page)
    page.click("#choices >> text=Tokens")
    is_done(page)
    assert len(words(page)) > len(before)
    assert "level=token" in page.url


@pytest.mark.slow
def test_methods_are_compared_side_by_side_and_as_a_difference(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    page.click("text=Choose methods")
    page.fill("#methods-dialog input[type=search]", "gae")
    page.check("#methods-dialog input[value=gae]")
    page.click("text=Use these")
    page.wait_for_selector(".compared-row:nth-child(3) .words")
    is_done(page)
    assert page.locator(".compared .method").all_inner_texts() == ["attcat", "att-x-att-grads", "gae"]
    shades = [
        line.locator(".word").evaluate_all("all => all.map(w => w.className)")
        for line in page.locator(".compared-row").all()
    ]
    assert shades[0] != shades[1] != shades[2]
    page.click("text=Difference")
    page.wait_for_selector(".compared-row:nth-of-type(2) .words")
    names = page.locator(".compared .method").all_inner_texts()
    assert len(names) == 2
    assert all("attcat" in name for name in names)


@pytest.mark.slow
def test_removal_curves_with_bounds(open_page: Open) -> None:
    page = open_page(link(text="It is very slow.", methods="posterior,attcat", tab="curves"))
    page.wait_for_selector("#tab-panel .line.best >> nth=1", state="attached")
    is_done(page)
    rows = page.locator("#tab-panel .scores tbody tr")
    assert [row.locator("th").inner_text().strip() for row in rows.all()][:2] == ["posterior *", "attcat"]
    figures = [float(text) for text in rows.nth(1).locator("td").all_inner_texts()]
    assert len(figures) == 4
    assert 0 <= figures[1] <= 1.01
    assert page.locator("#tab-panel .band.random").count() == 2
    assert "tuned on the deletion curve" in page.inner_text("#tab-panel")


@pytest.mark.slow
def test_another_label_and_one_label_rather_than_another(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    page.click(".labels button:has-text('negative')")
    expect(page.locator("#headline .label")).to_have_text("negative")
    is_done(page)
    assert output(page) < 0.1
    assert re.search("but: opposes", word(page, "but").get_attribute("aria-label"))
    with page.expect_request("**/api/explain") as asked:
        page.select_option("#prediction select", "positive")
    assert asked.value.post_data_json["target"] == {"label": "negative", "rather_than": "positive"}
    is_done(page)
    assert "than=positive" in page.url


@pytest.mark.slow
def test_layers_and_references(open_page: Open) -> None:
    page = open_page(link(methods="contrast-cat,attcat", tab="layers"))
    is_done(page)
    assert page.locator("table.layers tbody tr").count() == 7  # six blocks and the sum
    assert page.locator("table.layers tbody tr").last.locator("td").count() == len(words(page))
    page.click("#tab-references")
    survived = page.locator("#tab-panel > .references li").count()
    assert f"{survived} survived" in page.inner_text("#tab-panel")
    assert survived > 0


@pytest.mark.slow
def test_a_shared_link_reopens_the_same_view(open_page: Open) -> None:
    page = open_page(link(), permissions=["clipboard-read", "clipboard-write"])
    is_done(page)
    page.click("#choices >> text=Tokens")
    is_done(page)
    page.select_option("#choices select", "att-x-att-grads")
    changed = after(page, lambda: word(page, "not").click())
    page.click("#tab-export")
    page.click("#copy-link")
    page.wait_for_selector("text=The link is in the clipboard.")
    copied = page.evaluate("navigator.clipboard.readText()")
    other = open_page(copied.split("/", 3)[3])
    is_done(other)
    says(other, changed)
    assert words(other) == words(page)
    assert other.input_value("#choices select") == "att-x-att-grads"
    assert other.get_attribute("#tab-export", "aria-selected") == "true"
    shades = "all => all.map((word) => word.className)"
    assert other.locator("#words .word").evaluate_all(shades) == page.locator("#words .word").evaluate_all(shades)


@pytest.mark.slow
def test_back_returns_to_the_text_before(open_page: Open) -> None:
    page = open_page(link())
    is_done(page)
    page.fill("#field-text", "It is very slow.")
    page.click("#explain-button")
    expect(page.locator("#headline .label")).to_have_text("negative")
    page.go_back()
    expect(page.locator("#headline .label")).to_have_text("positive")
    assert page.input_value("#field-text") == TEXT


@pytest.mark.slow
def test_a_saved_file_opens_the_same_view(open_page: Open, tmp_path: Path) -> None:
    page = open_page(link(methods="posterior,attcat", tab="export"))
    is_done(page)
    with page.expect_download() as saved:
        page.click("#save-file")
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["whichtoken"] == "state"
    assert len(kept["records"]) == 2
    other = open_page(link(text="It is very slow.", methods="attcat"))
    is_done(other)
    asked: list[str] = []
    other.on("request", lambda request: asked.append(request.url))
    other.set_input_files("#open-file", path)
    expect(other.locator("#headline .label")).to_have_text("positive")
    is_done(other)
    assert words(other) == words(page)
    assert other.input_value("#field-text") == TEXT
    assert not [url for url in asked if url.endswith("/api/explain")]  # nothing is computed again


@pytest.mark.slow
def test_output_of_the_command_line_opens(open_page: Open, tmp_path: Path) -> None:
    page = open_page(link(methods="attcat", tab="export"))
    is_done(page)
    with page.expect_download() as saved:
        page.click("[data-format=json]")  # the same records as `whichtoken explain --out x.json`
    path = tmp_path / "explained.json"
    saved.value.save_as(path)
    other = open_page(link(text="It is very slow.", methods="gae"))
    is_done(other)
    other.set_input_files("#open-file", path)
    expect(other.locator("#headline .label")).to_have_text("positive")
    is_done(other)
    assert other.locator(".compared .method").all_inner_texts() == ["attcat"]
    before = output(other)
    assert after(other, lambda: word(other, "but").click()) < before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "first"), [("json", b"["), ("html", b"<!doctype"), ("png", b"\x89PNG"), ("svg", b"<?xml")]
)
def test_exports(open_page: Open, tmp_path: Path, ending: str, first: bytes) -> None:
    page = open_page(link(methods="attcat", tab="export"))
    is_done(page)
    with page.expect_download() as saved:
        page.click(f"[data-format={ending}]")
    path = tmp_path / "exported"
    saved.value.save_as(path)
    assert saved.value.suggested_filename.endswith(f".{ending}")
    assert path.read_bytes().lstrip()[: len(first)] == first


@pytest.mark.slow
def test_progress_of_slow_methods_and_stop(open_page: Open) -> None:
    page = open_page(link(text=" ".join([TEXT] * 4), methods="attcat"))
    is_done(page)
    page.click("text=Choose methods")
    page.check("#methods-dialog input[value=posterior]")
    page.click("text=Use these")
    page.click("#progress button")
    is_done(page)
    assert page.locator("#words [role=switch]").count() > 30
    page.click("#explain-button")
    page.wait_for_selector(".compared-row:has-text('posterior') .words")
