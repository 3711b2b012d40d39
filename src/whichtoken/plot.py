"""wt.plot: pictures of results as figures (png, svg, pdf), HTML pages and LaTeX. No torch."""

from whichtoken.render.charts import agreement, curves, variants
from whichtoken.render.figures import answer, heads, layers, methods
from whichtoken.render.html import to_html
from whichtoken.render.interval_chart import intervals
from whichtoken.render.latex import to_latex
from whichtoken.render.report import to_report
from whichtoken.render.review import to_review

__all__ = [
    "agreement",
    "answer",
    "curves",
    "heads",
    "intervals",
    "layers",
    "methods",
    "to_html",
    "to_latex",
    "to_report",
    "to_review",
    "variants",
]
