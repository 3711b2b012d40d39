"""A benchmark as one self-contained page: sortable table, curves, agreement. No external resources; one script.

Everything is escaped by jinja2; the content security policy allows the page's own style sheet and script, by hash, and
embedded images.
"""

import base64
from importlib.util import find_spec
from pathlib import Path

from whichtoken.atomic_write import write_whole
from whichtoken.render import bench_table
from whichtoken.render.canvas import figure_bytes
from whichtoken.render.charts import curves_figure
from whichtoken.render.html import environment, read_template
from whichtoken.render.theme import shade_rules
from whichtoken.tables import BenchTable


def to_report(table: BenchTable, path: str | Path | None = None) -> str:
    """Return the page, and write it to `path` if given. Without matplotlib it has no curves and says so."""
    bench_table.require_table(table)
    source = report_page(table, curves_png(table))
    if path is not None:
        write_whole(path, source)
    return source


def report_page(table: BenchTable, curves: bytes) -> str:
    """Return the page. `curves`: what `curves_png` returns."""
    template = environment().get_template("report.html")
    return str(
        template.render(
            table=table,
            text=bench_table,
            entries=bench_table.entries(table),
            curves=base64.b64encode(curves).decode(),
            style=read_template("report.css") + shade_rules(),
            script=read_template("report.js"),
        )
    )


def fragment(table: BenchTable) -> str:
    """Return HTML for a notebook cell."""
    template = environment().get_template("bench_fragment.html")
    entries, style = bench_table.entries(table), read_template("bench_fragment.css")
    return str(template.render(table=table, text=bench_table, entries=entries, style=style))


def curves_png(table: BenchTable) -> bytes:
    """Return the curves as PNG, empty without any; the content security policy would block the styles in an SVG."""
    if not table.trends or find_spec("matplotlib") is None:
        return b""
    return figure_bytes(curves_figure(table), "png")
