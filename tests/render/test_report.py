"""The table of a benchmark as page, Markdown, terminal and figures: what they show, and that names are only shown."""

import base64
import hashlib
import html
import json
import re
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import matplotlib as mpl
import pytest
from rich.console import Console, RenderableType
from tests.render.shown import NASTY
from tests.render.test_pictures import CHROMIUM, Page, _after_loading

from whichtoken.bench.metrics import plan_words
from whichtoken.errors import UnknownName, UsageError
from whichtoken.records import Plan
from whichtoken.render import bench_table, charts
from whichtoken.render.canvas import figure_bytes
from whichtoken.render.charts import (
    COLOURS,
    _numbers,
    agreement_figure,
    curves_figure,
    strokes_of,
    variants_figure,
)
from whichtoken.render.report import to_report
from whichtoken.render.rows import visible
from whichtoken.render.terminal import bench_view
from whichtoken.tables import Agreement, BenchTable, Column, Estimate, Line, Trend

COLUMNS = (
    Column("aopc delete morf tenths", "AOPC MoRF", "Mean drop of the probability.", "higher", flattered=True),
    Column("log-odds delete morf tenths", "log-odds MoRF", "Mean of ln(p / p0).", "lower"),
    Column("seconds", "seconds per text", "Time.", "lower"),
    Column("entropy", "entropy of the scores", "How spread the scores are.", ""),
)
METHODS = ("contrast-cat", "refined", "attcat", "gae", "rollout", "lime", "ig", "random")
REMOVED = (0.0, 0.5, 0.9)


def line_of(method: str, number: int) -> Line:
    """Values that sort otherwise as numbers than as texts: 9 before 10 seconds, -0.5 after -1.5."""
    means = (0.75 - number / 8, number / 2 - 3, 8.0 + number, 1.0)
    ps = (None, 0.2, 0.01, 0.0001)
    cells = {
        column.name: Estimate(mean, mean - 0.25, mean + 0.25, 100, ps[min(number, 3)])
        for column, mean in zip(COLUMNS, means, strict=True)
    }
    return Line(method, method == "refined", method == "random", cells)


LINES = tuple(line_of(method, number) for number, method in enumerate(METHODS))
AGREEMENT = Agreement(METHODS, tuple(tuple(1.0 if a == b else -0.3 for a in METHODS) for b in METHODS))
TABLE = BenchTable(
    title="Faithfulness",
    facts=(("model", "tiny"), ("texts", "100")),
    columns=COLUMNS,
    lines=LINES,
    trends=tuple(
        Trend(metric, order, "delete", REMOVED, {m: (0.0, 0.1 * n, 0.2 * n) for n, m in enumerate(METHODS)})
        for metric in ("aopc", "log-odds")
        for order in ("morf", "lerf")
    ),
    notes=("Invented.",),
    agreement=AGREEMENT,
)
GAP = replace(LINES[2], cells={name: cell for name, cell in LINES[2].cells.items() if name != "seconds"})
# One panel of curves in each: drawing takes most of the time.
GAPPED = replace(TABLE, lines=(*LINES[:2], GAP, *LINES[3:]), trends=TABLE.trends[:1])
NAMES = (*NASTY[:5], *NASTY[-3:])  # the others have characters that matplotlib's font lacks
HOSTILE = replace(
    TABLE,
    title="<script>document.title='ran'</script>",
    facts=tuple((nasty, nasty) for nasty in NASTY),
    columns=(replace(COLUMNS[0], title="<b>\"a'|b$x$", about="\"onmouseover='x"), *COLUMNS[1:]),
    lines=tuple(replace(line, method=nasty) for line, nasty in zip(LINES, NAMES, strict=True)),
    notes=(*NASTY, "a | b"),
    trends=tuple(replace(t, means=dict(zip(NAMES, t.means.values(), strict=True))) for t in TABLE.trends[:1]),
    agreement=replace(AGREEMENT, methods=NAMES),
)


def digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def between(source: str, start: str, end: str) -> str:
    return source[source.index(start) + len(start) : source.index(end)]


def test_a_cell_has_mean_interval_and_marks() -> None:
    assert bench_table.head(TABLE) == [
        "method",
        "AOPC MoRF ↑ †",
        "log-odds MoRF ↓",
        "seconds per text ↓",
        "entropy of the scores",
    ]
    first, second, third = bench_table.rows(TABLE)[:3]
    assert first[:2] == ["contrast-cat", "0.750 [0.500, 1.000] •"]
    assert second[:2] == ["refined *", "0.625† [0.375, 0.875] •"]
    assert third[:2] == ["attcat", "0.500 [0.250, 0.750]"]
    assert third[-1] == "1.000 [0.750, 1.250]"  # no mark where neither is better
    assert bench_table.rows(TABLE, short=True)[1] == ["refined *", "0.625† •", "-2.500 •", "9.000 •", "1.000"]


def test_the_best_is_the_highest_or_the_lowest() -> None:
    turned = replace(TABLE, columns=tuple(replace(column, better="higher") for column in COLUMNS[:3]))
    assert [entry.best for entry in bench_table.entries(TABLE)[0]] == [True, True, True, False]
    assert [entry.best for entry in bench_table.entries(turned)[0]] == [True, False, False]
    assert [entry.best for entry in bench_table.entries(turned)[-1]] == [False, True, True]


def test_a_column_that_was_not_tested_has_no_marks() -> None:
    untested = [replace(line, cells={"seconds": replace(line.cells["seconds"], p=None)}) for line in LINES]
    table = replace(TABLE, columns=COLUMNS[2:3], lines=tuple(untested))
    assert [(entry.best, entry.close) for (entry,) in bench_table.entries(table)] == [(True, False)] + [
        (False, False)
    ] * 7
    assert "columns without • were not tested" in bench_table.legend(table)
    assert "columns without • were not tested" not in bench_table.legend(TABLE)


REVISION = "sha256:40847c807a55d0325cd21b38611a142fa57baaef8c3163c74f947eb17947bed1"


def test_a_revision_is_short_and_whole_where_one_hovers() -> None:
    table = replace(TABLE, facts=(("model", "tiny"), ("revision", REVISION)), trends=())
    short = "sha256:40847c807a55…"
    page = to_report(table)
    assert f'<dd title="{REVISION}">{short}</dd>' in page
    assert "<dd>tiny</dd>" in page
    assert f"- revision: {short}" in bench_table.markdown(table)
    assert f"revision: {short}" in printed(bench_view(table), 100)
    for shown in (bench_table.markdown(table), printed(bench_view(table), 100)):
        assert REVISION not in shown
    assert bench_table.short_hash("main") == "main"
    assert bench_table.short_hash("1" * 40) == "111111111111…"


def test_seconds_have_no_interval() -> None:
    assert [entry.interval for entry in bench_table.entries(TABLE)[0]] == [
        "[0.500, 1.000]",
        "[-3.250, -2.750]",
        "",
        "[0.750, 1.250]",
    ]
    row = next(line for line in bench_table.markdown(TABLE).splitlines() if line.startswith("| contrast-cat"))
    assert "| **8.000** • |" in row
    assert "[7.750, 8.250]" not in to_report(replace(TABLE, trends=()))


def test_morf_has_one_name_and_a_legend() -> None:
    meaning = "MoRF: most relevant first, LeRF: least relevant first; the order in which parts are removed"
    for shown in (
        to_report(replace(TABLE, trends=())),
        bench_table.markdown(TABLE),
        " ".join(printed(bench_view(TABLE), 200).split()),
    ):
        assert meaning in shown
    old = replace(COLUMNS[0], title="AOPC, delete, highest first"), replace(COLUMNS[1], title="AUC, mask, lowest first")
    assert bench_table.head(replace(TABLE, columns=old))[1:] == ["AOPC, delete, MoRF ↑ †", "AUC, mask, LeRF ↓"]
    assert bench_table.legend(replace(TABLE, columns=old, trends=()))[1] == meaning
    plain = replace(TABLE, columns=COLUMNS[2:], trends=())
    assert meaning not in bench_table.legend(plain)
    assert [plan_words(Plan("delete", order)) for order in ("morf", "lerf", "random")] == [
        "delete, MoRF",
        "delete, LeRF",
        "delete, random order",
    ]


@pytest.mark.parametrize(
    ("mean", "shown"), [(0.0004, "0.00040"), (-0.0, "0.000"), (0.5, "0.500"), (250.0, "250.0"), (12345.6, "12,346")]
)
def test_numbers_have_as_many_decimals_as_their_size_asks_for(mean: float, shown: str) -> None:
    one = replace(LINES[0], cells={"seconds": Estimate(mean, mean, mean, 1)})
    entry = bench_table.entries(replace(TABLE, columns=COLUMNS[2:3], lines=(one,)))[0][0]
    assert (entry.mean, entry.about) == (shown, "1 text")


@pytest.mark.parametrize("table", [TABLE, GAPPED, HOSTILE])
def test_markdown_has_as_many_cells_in_each_row(table: BenchTable) -> None:
    made = bench_table.markdown(table)
    rows = [line for line in made.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(table.lines)
    assert {row.count("|") for row in rows} == {len(table.columns) + 2}
    assert not re.search("[<>$]", made)
    assert "\N{EN DASH}" in made if table is GAPPED else "\N{EN DASH}" not in made


def test_markdown_shows_names_as_they_are_and_explains_its_marks() -> None:
    made = bench_table.markdown(HOSTILE)
    read = re.sub(r"\\([\\`*_\[\]~#])", r"\1", html.unescape(made))  # as a reader of Markdown would
    for shown in (*map(visible, NASTY), "<b>\"a'|b$x$ ↑ †"):
        assert shown in read
    plain = bench_table.markdown(TABLE)
    assert "| **0.750** [0.500, 1.000] • |" in plain
    assert "† tuned methods" in plain
    assert "↑ higher is better, ↓ lower is better" in plain
    unsearched = bench_table.markdown(replace(TABLE, lines=LINES[2:], columns=COLUMNS[1:]))
    assert "†" not in unsearched
    assert "tuned_on_deletion" not in unsearched


def printed(view: RenderableType, width: int) -> str:
    file = StringIO()
    Console(file=file, width=width).print(view)
    return file.getvalue()


def test_a_terminal_shows_the_columns_that_fit_and_names_the_others() -> None:
    many = replace(TABLE, columns=COLUMNS * 3)
    shown = printed(bench_view(many), 100)
    first = next(line for line in shown.splitlines() if line.startswith("contrast-cat"))
    values = "contrast-cat 0.750 [0.500, 1.000] • -3.000 • 8.000 • 1.000 0.750 • -3.000 • 8.000 •"
    assert " ".join(first.split()) == values
    assert "5 more columns, in the report that --out FOLDER writes: entropy of the scores; AOPC MoRF" in shown
    assert shown.count("contrast-cat") == 1
    narrow = printed(bench_view(many, width=40), 40)
    assert "11 more columns, in the report" in " ".join(narrow.split())
    assert re.search(r"^refined \* +0\.625† \[0\.375, 0\.875\] •", narrow, re.MULTILINE)
    assert "more column" not in printed(bench_view(TABLE), 100)


def test_a_terminal_makes_the_best_bold_and_obeys_no_markup() -> None:
    file = StringIO()
    Console(file=file, width=100, force_terminal=True, color_system="truecolor").print(bench_view(TABLE))
    assert "\x1b[1m 0.750 [0.500, 1.000] •" in file.getvalue()
    assert "\x1b[1m 0.625" not in file.getvalue()
    marked = replace(HOSTILE, columns=(replace(COLUMNS[0], title="[red]x[/red]"),))
    shown = printed(bench_view(marked), 200)
    assert "[red]x[/red]" in shown
    assert "\x1b" not in shown
    for nasty in NASTY:
        assert visible(nasty) in shown


def test_a_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    source = to_report(HOSTILE)
    page = Page(source)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    style, script = between(source, "<style>", "</style>"), between(source, "<script>", "</script>")
    assert policy == (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    tags = """html head meta title style body main h1 h2 dl div dt dd table thead tbody tr th td small span ul li
        details summary code img p script"""
    assert {tag for tag, _ in page.tags} <= set(tags.split())
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert {name for _, attributes in page.tags for name in attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "title", "scope", "role", "aria-label", "tabindex",
        "data-kind", "data-first", "data-value", "hidden", "src", "alt",
    }  # fmt: skip
    sources = [a["src"] for _, a in page.tags if "src" in a]
    assert [(found or "")[:22] for found in sources] == ["data:image/png;base64,"]
    assert "url(" not in style
    for shown in (*map(visible, NASTY), "<b>\"a'|b$x$"):
        assert shown in page.text
    assert "49" not in re.findall(r"\d+", page.text)  # templates are not run on names


def test_a_page_has_all_that_the_table_says(tmp_path: Path) -> None:
    source = to_report(GAPPED, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == source
    page = Page(source)
    for shown in ("Faithfulness", "tiny", "refined *", "† tuned on this", "[0.500, 1.000]", "Invented.", "control"):
        assert shown in page.text
    cells = re.findall(r"<td[^>]*>.*?</td>", between(source, "<tbody>", "</tbody>"))
    assert len(cells) == len(COLUMNS) * len(LINES)
    assert cells[2 * len(COLUMNS) + 2] == "<td>\N{EN DASH}</td>"
    assert [number for number, cell in enumerate(cells) if 'class="best"' in cell] == [0, 1, 2]
    assert [number for number, cell in enumerate(cells) if "tuned on this" in cell] == [len(COLUMNS)]
    assert source.count('<td class="f20">1.00</td>') == len(METHODS)
    assert source.count('<td class="a6">-0.30</td>') == len(METHODS) * (len(METHODS) - 1)
    bare = to_report(BenchTable("x", (), COLUMNS[:1], LINES[:1], ()))
    assert "<h2>Curves" not in bare
    assert "<h2>Agreement" not in bare
    assert "<h2>Notes" not in bare


def test_without_matplotlib_a_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = Page(to_report(TABLE))
    assert "need matplotlib" in page.text
    assert "0.750" in page.text
    assert "img" not in [tag for tag, _ in page.tags]


def after_clicks(path: Path, table: BenchTable, columns: list[int]) -> list[tuple[list[str], list[str | None]]]:
    """After each click on a header, with the page's own policy: the methods from top to bottom, and all `aria-sort`."""
    script = f"""const found = [];
        for (const column of {columns}) {{
            document.querySelectorAll('.bench thead button')[column].click();
            found.push([
                [...document.querySelectorAll('.bench tbody th')].map((name) => name.dataset.value),
                [...document.querySelectorAll('.bench thead th')].map((header) => header.getAttribute('aria-sort')),
            ]);
        }}
        document.title = JSON.stringify(found);"""
    source = to_report(table).replace("; img-src", f" {digest(script)}; img-src")
    path.write_text(source.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    found = html.unescape(between(_after_loading(path), "<title>", "</title>"))
    return [(names, ways) for names, ways in json.loads(found)]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_a_click_sorts_numbers_as_numbers_and_gaps_last(tmp_path: Path) -> None:
    shuffled = replace(GAPPED, lines=tuple(GAPPED.lines[i] for i in (3, 0, 6, 2, 7, 1, 5, 4)), trends=())
    measured = [method for method in METHODS if method != "attcat"]
    expected = [
        (3, "ascending", [*measured, "attcat"]),  # first: a sorted table can have its gap last by chance
        (3, "descending", [*measured[::-1], "attcat"]),
        (0, "ascending", sorted(METHODS)),
        (0, "descending", sorted(METHODS, reverse=True)),
        (1, "descending", [*METHODS]),  # the best first
        (1, "ascending", [*METHODS[::-1]]),
    ]
    found = after_clicks(tmp_path / "page.html", shuffled, [column for column, _, _ in expected])
    for (column, way, methods), (names, ways) in zip(expected, found, strict=True):
        assert names == methods
        assert ways == [way if i == column else None for i in range(5)]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_in_a_browser_only_the_own_script_runs(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(to_report(HOSTILE), encoding="utf-8")
    found = _after_loading(tmp_path / "page.html")
    assert found.count('<button type="button">') == len(COLUMNS) + 1
    assert "<title>ran</title>" not in found
    assert visible(NASTY[0]) in Page(found).text


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures_are_written_in_each_format(ending: str, tmp_path: Path) -> None:
    first = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    made = (
        charts.curves(replace(TABLE, trends=TABLE.trends[:2]), tmp_path / f"c.{ending}"),
        charts.variants(GAPPED, "seconds", tmp_path / f"v.{ending}"),
        charts.agreement(AGREEMENT, tmp_path / f"a.{ending}"),
    )
    for path in made:
        assert path.read_bytes().startswith(first)
        assert path.stat().st_size > 5000


def test_a_line_for_each_method_in_a_panel_for_each_trend() -> None:
    one_less = replace(TABLE, trends=(*TABLE.trends[:3],))
    figure = curves_figure(one_less)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [
        "MoRF, delete   ↑ higher is better",
        "LeRF, delete",
        "MoRF, delete   ↓ lower is better",
    ]
    for axes in shown:
        curves = [line for line in axes.lines if line.get_marker() != "None"]
        assert len(curves) == len(METHODS)
        assert list(curves[0].get_xdata()) == [0, 50, 90]
    styles = dict(zip(METHODS, (line.get_linestyle() for line in shown[0].lines), strict=False))
    assert (styles["contrast-cat"], styles["refined"], styles["random"]) == ("-", "--", ":")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [bench_table.name_of(line) for line in LINES]


def test_trends_that_differ_in_their_steps_only_have_panels_of_their_own() -> None:
    again = replace(TABLE.trends[0], removed=(0.0, 0.1, 0.2))
    shown = [axes for axes in curves_figure(replace(TABLE, trends=(TABLE.trends[0], again))).axes if axes.get_visible()]
    assert [list(axes.lines[0].get_xdata()) for axes in shown] == [[0, 50, 90], [0, 10, 20]]


def test_the_strongest_methods_have_bands_and_others_stay_lines() -> None:
    trend = TABLE.trends[0]
    low = {method: tuple(mean - 0.1 for mean in means) for method, means in trend.means.items()}
    high = {method: tuple(mean + 0.1 for mean in means) for method, means in trend.means.items()}
    figure = curves_figure(replace(TABLE, trends=(replace(trend, low=low, high=high),)))
    bands = figure.axes[0].collections
    assert [band.get_facecolor()[0][:3].tolist() for band in bands] == [[c / 255 for c in COLOURS[i]] for i in range(3)]
    for band, method in zip(bands, METHODS, strict=False):
        heights = {round(y, 6) for _, y in band.get_paths()[0].vertices.tolist()}
        assert heights == {round(y, 6) for y in (*low[method], *high[method])}
    assert "bands: 95 % intervals of the best 3" in figure.legends[0].get_title().get_text()
    without = curves_figure(replace(TABLE, trends=(trend,)))
    assert len(without.axes[0].collections) == 0
    assert "bands" not in without.legends[0].get_title().get_text()


def test_thirty_methods_are_told_apart_and_six_stand_out() -> None:
    lines = [Line(f"m{i}", False, False, {}) for i in range(30)] + [Line(f"c{i}", False, True, {}) for i in range(4)]
    strokes = strokes_of(lines)
    assert len({(stroke.colour, stroke.marker) for stroke in strokes.values()}) == 34
    assert [name for name, stroke in strokes.items() if stroke.prominent] == [f"m{i}" for i in range(6)]
    assert len({strokes[f"m{i}"].colour for i in range(6)}) == 6
    assert {strokes[f"c{i}"].dashes for i in range(4)} == {":"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("n=1", "n=16", "n=0.5", "n=-1e-3"), ("n", [1.0, 16.0, 0.5, -0.001])),
        (("cat(n=1)", "cat(n=2)"), ("cat: n", [1.0, 2.0])),
        (("n=1", "m=2"), ("", [])),
        (("n=1", "n=all"), ("", [])),
        (("a", "b"), ("", [])),
    ],
)
def test_names_that_end_in_a_number_give_a_number_axis(
    names: tuple[str, ...], expected: tuple[str, list[float]]
) -> None:
    assert _numbers(names) == expected


def test_variants_stand_where_their_numbers_are_or_in_the_order_of_the_table() -> None:
    numbered = replace(TABLE, lines=tuple(replace(LINES[i], method=f"n={(5, 2, 9)[i]}") for i in range(3)))
    axes = variants_figure(numbered, "aopc delete morf tenths").axes[0]
    assert axes.get_xlabel() == "n"
    assert [list(axes.lines[0].get_xdata()), list(axes.lines[0].get_ydata())] == [[2, 5, 9], [0.625, 0.75, 0.5]]
    axes = variants_figure(GAPPED, "seconds").axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["contrast-cat", "refined *", "gae", "rollout", "lime", "ig", "random"]
    assert [list(axes.lines[0].get_xdata()), axes.get_ylabel()] == [
        list(range(7)),
        "seconds per text (lower is better)",
    ]


def test_figures_draw_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # texts as texts, not as outlines
    names = ["$x^2$", "_hidden", r"$\frac$", "<script>", *METHODS[4:]]
    table = replace(
        TABLE,
        title="$t$",
        lines=tuple(
            replace(line, method=name, tuned_on_deletion=False) for line, name in zip(LINES, names, strict=True)
        ),
        trends=tuple(replace(t, means=dict(zip(names, t.means.values(), strict=True))) for t in TABLE.trends[:1]),
    )
    for figure in (
        curves_figure(table),
        variants_figure(table, "seconds"),
        agreement_figure(Agreement(tuple(names), tuple((0.5,) * 8 for _ in names))),
    ):
        made = html.unescape(figure_bytes(figure, "svg").decode())
        for name in names[:4]:
            assert re.search(rf"<text [^>]*>{re.escape(name)}</text>", made), name


def test_figures_refuse_what_they_cannot_draw(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"written as \.png, \.svg, \.pdf"):
        charts.curves(TABLE, tmp_path / "f.docx")
    with pytest.raises(UsageError, match="has no curves"):
        charts.curves(replace(TABLE, trends=()), tmp_path / "f.png")
    with pytest.raises(UnknownName, match="did you mean 'seconds'"):
        charts.variants(TABLE, "second", tmp_path / "f.png")
    with pytest.raises(UsageError, match="no line of this table has a value for 'seconds'"):
        charts.variants(replace(TABLE, lines=(GAP,)), "seconds", tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []
