"""Titles: what was explained, in pages, fragments, figures and LaTeX."""

import re
from dataclasses import replace

import matplotlib.text
import pytest
from tests.render.shown import FINE, HARMFUL, attribution_of
from tests.render.test_image_pictures import ONE
from tests.render.test_pictures import Page

import whichtoken as wt
from whichtoken.records import Attribution
from whichtoken.render.html import fragment, to_html
from whichtoken.render.rows import Look, panels
from whichtoken.render.titles import LONGEST_TEXT, title_of

OTHER = attribution_of(["x"], [1.0])
TITLE = "positive 87.5 % · “a rare dull film” · tiny"


def titled(results: object) -> str:
    return title_of(panels(results, Look()))  # type: ignore[arg-type]


def test_one_text_is_named_by_label_text_and_model() -> None:
    assert titled(FINE) == TITLE
    assert titled({"attcat": FINE, "gae": FINE}) == TITLE
    pair = replace(FINE, texts=("a rare", "dull film"))
    assert (
        titled(replace(pair, probability=None, value=-0.0151239)) == "positive -0.01512 · “a rare | dull film” · tiny"
    )
    assert titled(ONE) == "cat 87.5 % · cat.png · tiny"
    assert titled([]) == "nothing was explained"


def test_a_long_text_is_shortened_at_a_word() -> None:
    long = attribution_of(["word"] * 50, [1.0] * 50)
    shown = titled(long).split("“")[1].split("”")[0]
    assert shown.endswith("word…")
    assert len(shown) <= LONGEST_TEXT
    unbroken = titled(attribution_of(["w" * 500], [1.0])).split("“")[1].split("”")[0]
    assert unbroken == "w" * (LONGEST_TEXT - 1) + "…"


@pytest.mark.parametrize(
    ("results", "title"),
    [
        ([{"attcat": FINE, "gae": FINE}, OTHER], "2 texts explained by attcat, gae (tiny)"),
        ([FINE, replace(OTHER, model="large")], "2 texts explained by attcat (2 models)"),
        ([{"attcat": ONE}, {"attcat": ONE}], "2 images explained by attcat (tiny)"),
        ([ONE, FINE], "2 inputs explained by attcat (tiny)"),
        ([dict.fromkeys("abcdefg", FINE), OTHER], "2 texts explained by a, b, c, d and 4 more (tiny)"),
    ],
)
def test_several_are_counted(results: list[Attribution], title: str) -> None:
    assert titled(results) == title


def test_pages_and_fragments_have_their_title() -> None:
    page = to_html(FINE)
    assert f"<title>{TITLE}</title>" in page
    heading = re.findall(r"<h1>(.*?)</h1>", page)
    assert [Page(made).text for made in heading] == [TITLE]
    assert page.count("87.5 %") == 2  # in title and heading, not once more above the words
    several = to_html([FINE, OTHER])
    assert "<h1>2 texts explained by attcat (tiny)</h1>" in several
    assert several.count("87.5 %") == 2  # above each text
    assert TITLE in Page(fragment(FINE)).text
    assert "2 texts explained by attcat (tiny)" in Page(fragment([FINE, OTHER])).text


def test_a_harmful_title_is_only_shown() -> None:
    page = to_html(HARMFUL)
    assert "<title>&lt;script&gt;" in page
    assert "<script" not in page
    assert "\x1b" not in page


def test_figures_have_their_title() -> None:
    for figure in (wt.plot.methods(FINE), wt.plot.layers(replace(FINE, layers=(FINE.scores,)))):
        assert TITLE in " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text)).replace("\n", " ")
    images = wt.plot.methods([{"attcat": ONE}, {"attcat": ONE}])
    assert "2 images explained by attcat (tiny)" in [t.get_text() for t in images.findobj(matplotlib.text.Text)]


def test_latex_has_it_as_a_comment() -> None:
    lines = wt.plot.to_latex([FINE, replace(OTHER, texts=("50% x",))]).splitlines()
    assert r"% positive 87.5 \% · “a rare dull film” · tiny" in lines
    assert r"% positive 87.5 \% · “50\% x” · tiny" in lines
