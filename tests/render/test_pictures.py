"""HTML, terminal, LaTeX and figures: what they show, and that they show texts without obeying them."""

import base64
import hashlib
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import matplotlib as mpl
import pytest
from rich.console import Console
from tests.render.shown import FINE, HARMFUL, NASTY, attribution_of

from whichtoken.errors import UsageError
from whichtoken.records import Attribution
from whichtoken.render import figures
from whichtoken.render.html import fragment, to_html
from whichtoken.render.latex import escape, to_latex
from whichtoken.render.rows import Look, visible
from whichtoken.render.terminal import print_each

LAYERED = replace(FINE, layers=((0.0, 0.5, 4.0, 0.0, 0.0, 0.0), (0.0, 0.0, -2.0, -1.0, 0.0, 0.0)))


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_shows_words_scores_and_how_they_were_made() -> None:
    page = Page(
        to_html({"attcat": LAYERED, "other": replace(FINE, tuned_on_deletion=True)}, differences=True, numbers=True)
    )
    words = [attributes for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    assert words[1] == {"class": "f20", "title": "rare: +2 (+100 % of the strongest)"}
    assert words[2]["class"] == "a10"
    assert words[3]["class"] == ""
    for shown in (
        "positive",
        "87.5 %",
        "attcat",
        "other *",
        "attcat \N{MINUS SIGN} other *",
        "block 2",
        "sum",
        "tuned on",
    ):
        assert shown in page.text
    assert any("layers inputs" in (attributes.get("title") or "") for _, attributes in page.tags)
    cells = [attributes["class"] for tag, attributes in page.tags if tag == "td"]
    assert cells == ["f2", "f20", "", "", "", "a10", "a5", "", "f2", "f10", "a5", ""]


@pytest.mark.parametrize("attribution", [FINE, HARMFUL, replace(HARMFUL, layers=(HARMFUL.scores,))])
def test_a_page_runs_and_loads_nothing(attribution: Attribution) -> None:
    source = to_html([attribution, replace(attribution, method="b")], differences=True)
    page = Page(source)
    tags = "html head meta title style body main h1 section p b span div small table thead tbody tr th td"
    assert {tag for tag, _ in page.tags} <= set(tags.split())
    assert {name for _, attributes in page.tags for name in attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "title", "dir",
    }  # fmt: skip
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    style = source[source.index("<style>") + 7 : source.index("</style>")]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style
    assert "http:" not in source
    assert "https:" not in source


def test_a_page_shows_harmful_texts_as_they_are() -> None:
    text = Page(to_html(HARMFUL)).text
    for nasty in NASTY:
        assert visible(nasty) in text
    assert "49" not in text  # templates are not run on texts


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert FINE.to_html(path) == path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="there is no folder"):
        FINE.to_html(tmp_path / "nowhere" / "page.html")


def test_a_notebook_gets_a_fragment_with_its_own_style() -> None:
    shown = FINE._repr_html_()
    assert shown == fragment(FINE)
    assert shown.startswith('<div class="whichtoken">')
    assert "<html" not in shown
    assert "rare" in Page(shown).text


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_in_a_browser_no_script_runs_and_the_words_are_there(tmp_path: Path) -> None:
    (tmp_path / "control.html").write_text("<p>control</p><script>document.title='ran'</script>", encoding="utf-8")
    # The browser does run scripts, so that what is said of the others can fail.
    assert "<title>ran</title>" in _after_loading(tmp_path / "control.html")
    shown = [replace(HARMFUL, layers=(HARMFUL.scores,)), FINE]
    for kind, made in (("page", to_html(shown)), ("fragment", fragment(shown))):
        (tmp_path / f"{kind}.html").write_text(made, encoding="utf-8")
        found = _after_loading(tmp_path / f"{kind}.html")
        assert "<title>ran</title>" not in found, kind
        text = Page(found).text
        for word in ["rare", "dull", *map(visible, NASTY)]:
            assert word in text, (kind, word)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_a_text_in_a_right_to_left_script_is_read_from_the_right(tmp_path: Path) -> None:
    hebrew = attribution_of(["\u05d4\u05e1\u05e8\u05d8", "\u05d4\u05d9\u05d4"], [1.0, 2.0])
    measure = """<script>const [a, b] = document.querySelectorAll('.words span');
        document.title = a.getBoundingClientRect().x > b.getBoundingClientRect().x ? 'right' : 'left'</script>"""
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{fragment(hebrew)}{measure}", encoding="utf-8")
    assert "<title>right</title>" in _after_loading(tmp_path / "page.html")


def _after_loading(path: Path) -> str:
    """The page as it stands when its scripts have run."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={path.parent / 'profile'}",
        "--dump-dom",
    ]
    assert CHROMIUM is not None
    run = subprocess.run([CHROMIUM, *flags, path.as_uri()], capture_output=True, timeout=120, check=True)
    return run.stdout.decode()


PLAIN = Look()


def printed(attribution: Attribution, look: Look = PLAIN, **console: object) -> str:
    file = StringIO()
    print_each(Console(file=file, width=200, **console), [attribution], look)  # type: ignore[arg-type]
    return file.getvalue()


def test_a_terminal_gets_colours_and_a_legend() -> None:
    shown = printed(FINE, force_terminal=True, color_system="truecolor")
    assert "\x1b[38;2;0;0;0;48;2;213;94;0mrare\x1b[0m" in shown
    assert "rare +1.00, a +0.25" in shown
    assert "opposes the label" in shown
    assert "(+1.00)" not in shown
    assert "(+1.00)" in printed(FINE, Look(numbers=True), force_terminal=True, color_system="truecolor")


@pytest.mark.parametrize("how", [{}, {"force_terminal": True, "no_color": True}])
def test_without_colour_numbers_say_what_colours_would(how: dict[str, object]) -> None:
    shown = re.sub("\x1b\\[[0-2]m", "", printed(FINE, Look(), **how))  # bold and dim are no colours
    assert "a(+0.25) rare(+1.00) dull(-0.50) film" in shown
    assert "48;2" not in shown
    assert "+ supports the label" in shown


def test_a_method_that_searched_is_marked() -> None:
    assert "attcat *" in printed(replace(FINE, tuned_on_deletion=True))
    assert "* tuned on the deletion curve" in printed(replace(FINE, tuned_on_deletion=True))
    assert "*" not in printed(FINE)


def test_a_terminal_shows_markup_and_escapes_as_they_are() -> None:
    shown = printed(replace(HARMFUL, layers=(HARMFUL.scores,)))
    assert "\x1b" not in shown
    for nasty in NASTY:
        assert visible(nasty) in shown.replace("\n", "")
    assert "[red]label ␛[31m" in shown
    assert shown.count("<i>[blink]") == 2  # the method, of the words and of the layers
    coloured = printed(HARMFUL, force_terminal=True, color_system="truecolor")
    assert "\x1b[31m" not in coloured
    assert "\x1b[1mrich" not in coloured


def test_latex_escapes_what_means_something_to_it() -> None:
    assert escape(r"\input{secret}") == r"\textbackslash{}input\{secret\}"
    assert escape("50%_of$the#tax&{co}~^") == (r"50\%\_of\$the\#tax\&\{co\}\textasciitilde{}\textasciicircum{}")
    assert r"\textbf{50\% \_x}" in to_latex(replace(FINE, label="50% _x"))
    made = to_latex(HARMFUL, numbers=True)
    assert r"\input{" not in made
    assert not re.search(r"(?<!\\)\$", made)
    assert all("%" not in re.sub(r"\\%", "", line) for line in made.splitlines() if not line.startswith("% "))
    assert all(line.count("%") == line.count(r"\%") + 1 for line in made.splitlines() if line.startswith("% "))


def test_latex_puts_words_into_coloured_boxes() -> None:
    made = FINE.to_latex()
    assert r"\colorbox[RGB]{213,94,0}{\strut rare}" in made
    assert r"\textbf{positive} (87.5\%)" in made
    assert made.count(r"\begin{tabular}") == made.count(r"\end{tabular}") == 1
    strong = to_latex(replace(FINE, scores=tuple(-s for s in FINE.scores)))
    assert r"\textcolor{white}{rare}" in strong  # black on blue would be hard to read


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures_are_written_in_each_format(ending: str, tmp_path: Path) -> None:
    first = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    for made in (
        figures.methods({"attcat": FINE, "b": FINE}, tmp_path / f"m.{ending}", differences=True),
        figures.layers(LAYERED, tmp_path / f"l.{ending}"),
    ):
        assert made.read_bytes().startswith(first)


def test_a_figure_draws_dollars_and_backslashes_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["$x^2$", r"\frac", "$", "{}"]
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # texts as texts, not as outlines
    made = figures.methods(
        replace(FINE, texts=(" ".join(words),), spans=(None, (0, 5), (6, 11), (12, 13), (14, 16), None), label="$l$"),
        tmp_path / "f.svg",
    ).read_text(encoding="utf-8")
    for word in (*words, "$l$ 87.5 % · “$x^2$ \\frac $ {}” · tiny"):  # formulas would be drawn in parts
        assert re.search(rf"<text [^>]*>{re.escape(word)}</text>", made), word


def test_figures_refuse_what_they_cannot_draw(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"written as \.png, \.svg, \.pdf"):
        figures.methods(FINE, tmp_path / "f.docx")
    with pytest.raises(UsageError, match="shows one text, but these results have 2"):
        figures.methods([{"a": FINE}, {"a": FINE}], tmp_path / "f.png")
    with pytest.raises(UsageError, match="no scores by layer"):
        figures.layers(FINE, tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []
