"""A benchmark as one self-contained page: sortable table, curves, agreement. It loads nothing; it runs one script.

Everything is escaped by jinja2; the page's policy allows its own style sheet and its own script, by hash, and pictures
that are part of the page.
"""

import base64
from importlib.util import find_spec
from pathlib import Path

from whichtoken.atomic_write import write_whole
from whichtoken.render import bench_table
from whichtoken.render.charts import curves_figure
from whichtoken.render.figures import drawn
from whichtoken.render.html import environment, own, shade_rules
from whichtoken.tables import BenchTable


def to_report(table: BenchTable, path: str | Path | None = None) -> str:
    """A page, also written to `path` if there is one. Without matplotlib it has no curves, and says so."""
    template = environment().get_template("report.html")
    made = str(
        template.render(
            table=table,
            text=bench_table,
            entries=bench_table.entries(table),
            curves=_curves(table),
            style=own("report.css") + shade_rules(),
            script=own("report.js"),
        )
    )
    if path is not None:
        write_whole(path, made)
    return made


def _curves(table: BenchTable) -> str:
    """PNG, in base64: the page's policy would forbid the styles in an SVG. Empty if there is none."""
    if not table.trends or find_spec("matplotlib") is None:
        return ""
    return base64.b64encode(drawn(curves_figure(table), "png")).decode()
