"""The command `metrics`: list the metrics. It does not import torch."""

from rich.console import Group, RenderableType
from rich.text import Text

from whichtoken.cli.options import print_list
from whichtoken.metrics.curves import METRICS, WIDER, Metric, Wider
from whichtoken.render.terminal import table_view

POOLED = Wider(  # described here, because the module of the metric imports numpy, which is slow
    "pooled-auc",
    "Han et al., UAI 2025 (deduced)",
    "area under the mean AOPC or log-odds curve, all methods scaled together",
    "higher",
    "0 to 0.8",
)


def metrics() -> None:
    print_list(_metric_list())


def _metric_list() -> RenderableType:
    head = ("metric", "paper", "what it measures", "better", "range")
    listed: list[Metric | Wider] = [*METRICS.values(), *WIDER.values(), POOLED]
    rows = [(m.name, m.paper, m.about, m.better or "neither", m.span) for m in listed]
    order = "better: if the highest scores are removed first (MoRF)"
    note = f"\n{order}. compare reports the metrics of a single curve, bench all of them."
    return Group(table_view(head, rows), Text(note, style="dim"))
