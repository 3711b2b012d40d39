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
    template = environment().get_template("report.html")
    source = str(
        template.render(
            table=table,
            text=bench_table,
            entries=bench_table.entries(table),
            curves=_curves(table),
            style=read_template("report.css") + shade_rules(),
            script=read_template("report.js"),
        )
    )
    if path is not None:
        write_whole(path, source)
    return source


def _curves(table: BenchTable) -> str:
    """Return the curves as a base64 PNG, or ""; the content security policy would block the styles in an SVG."""
    if not table.trends or find_spec("matplotlib") is None:
        return ""
    return base64.b64encode(figure_bytes(curves_figure(table), "png")).decode()
