"""Dark pages: colours that can be read, chosen by the reader's settings, and no effect on the rest of a notebook."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.render.shown import FINE, attribution_of
from tests.render.test_pictures import CHROMIUM, _after_loading
from tests.render.test_rows import DICHROMATS

from whichtoken.render.html import fragment, style_sheet, to_html
from whichtoken.render.palette import STEPS, Theme, contrast, ink, shade
from whichtoken.render.theme import PAGE_COLOURS, shade_rules


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_of_a_page_can_be_read(theme: Theme) -> None:
    colours = PAGE_COLOURS[theme]
    for text in ("ink", "quiet"):
        assert contrast(colours[text], colours["ground"]) >= 4.5
    for step in range(-STEPS, STEPS + 1):
        assert contrast(ink(step, theme), shade(step, theme)) >= 4.5
    for side in (1, -1):  # stronger scores stand out more from the page
        strengths = [contrast(shade(side * step, theme), colours["ground"]) for step in range(STEPS + 1)]
        assert strengths == sorted(strengths)
        assert strengths[-1] > 3


@pytest.mark.parametrize("kind", DICHROMATS)
def test_dark_shades_are_told_apart_by_colour_blind_people(kind: str) -> None:
    for step in (5, 10, 20):
        one, other = (
            [sum(w * c for w, c in zip(row, shade(side * step, "dark"), strict=True)) for row in DICHROMATS[kind]]
            for side in (1, -1)
        )
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 2 * step


def test_the_style_follows_the_system_and_stays_inside() -> None:
    style = style_sheet()
    assert "@media screen and (prefers-color-scheme:dark){.whichtoken{" in style
    assert '<meta name="color-scheme" content="light dark">' in to_html(FINE)
    rules = re.sub(r"@media[^{]*\{((?:[^{}]*\{[^{}]*\})*)\}", r"\1", style)
    selectors = [part for block in re.findall(r"([^{}]+)\{", rules) for part in re.split(r",(?![^(]*\))", block)]
    assert len(selectors) > 60
    assert {part.strip() for part in selectors if ".whichtoken" not in part} == set()
    assert len(re.findall(r"\.whichtoken \.[af]\d+\{", shade_rules())) == 2 * STEPS


PROBE = """<script>
const colour = (name) => getComputedStyle(document.querySelector(name + ' .whichtoken')).backgroundColor;
const word = (name) => getComputedStyle(document.querySelector(name + ' .f20')).color;
document.title = ['.jupyter', '.code', '.plain'].map((name) => colour(name) + word(name)).join(';')
    + ';' + getComputedStyle(document.body).backgroundColor;
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_a_notebook_with_a_dark_theme_gets_dark_fragments(tmp_path: Path) -> None:
    shown = fragment(FINE)
    (tmp_path / "page.html").write_text(
        f"<meta charset=utf-8><body><div class=jupyter data-jp-theme-light=false>{shown}</div>"
        f"<div class='code vscode-dark'>{shown}</div><div class=plain>{shown}</div>{PROBE}",
        encoding="utf-8",
    )
    found = _after_loading(tmp_path / "page.html").split("<title>")[1].split("</title>")[0].split(";")
    dark, light = "rgb(21, 23, 27)rgb(0, 0, 0)", "rgb(255, 255, 255)rgb(0, 0, 0)"
    assert found == [dark, dark, light, "rgba(0, 0, 0, 0)"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_words_stand_as_close_as_in_the_text(tmp_path: Path) -> None:
    """The coloured grounds of words do not push punctuation away."""
    probe = """<script>
        const box = (element) => {
            const range = document.createRange();
            range.selectNodeContents(element);
            return range.getBoundingClientRect();
        };
        const [first, second] = [...document.querySelectorAll('.words span')].map(box);
        document.title = Math.abs(second.left - first.right) < 0.5 ? 'close' : 'apart ' + (second.left - first.right);
        </script>"""
    touching = replace(attribution_of(["slow", "."], [1.0, 2.0]), texts=("slow.",), spans=(None, (0, 4), (4, 5), None))
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{fragment(touching)}{probe}", encoding="utf-8")
    assert "<title>close</title>" in _after_loading(tmp_path / "page.html")
