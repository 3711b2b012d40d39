"""The command `metrics`: list the metrics. It does not import torch."""

from rich.console import Group, RenderableType
from rich.text import Text

from whichtoken.cli.options import print_list
from whichtoken.metrics.curves import METRICS, WIDER, Metric, Wider
from whichtoken.render.terminal import table_view

OF_PAPERS = (  # described here, because the modules of these metrics import numpy, which is slow
    Wider(
        "absolute-aopc",
        "Qiang et al., NeurIPS 2022 (code)",
        "mean absolute change over the steps: an increase counts as a drop",
        "higher",
        "0 to 1",
    ),
    Wider(
        "positions-kendall",
        "Qiang et al., NeurIPS 2022; Han et al., UAI 2025 (code)",
        "tau of position lists, not of ranks, between the explanations of a class and the next; only to reproduce",
        "lower",
        "-1 to 1",
    ),
    Wider(
        "pooled-auc",
        "Han et al., UAI 2025 (deduced)",
        "area under the mean AOPC or log-odds curve, all methods scaled together",
        "higher",
        "0 to 0.8",
    ),
)


def metrics() -> None:
    print_list(_metric_list())


def listed_metrics() -> list[Metric | Wider]:
    return [*METRICS.values(), *WIDER.values(), *OF_PAPERS]


def _metric_list() -> RenderableType:
    head = ("metric", "paper", "what it measures", "better", "range")
    rows = [(m.name, m.paper, m.about, m.better or "neither", m.span) for m in listed_metrics()]
    order = "better: if the highest scores are removed first (MoRF)"
    note = f"\n{order}. compare reports the metrics of a single curve, bench all of them."
    return Group(table_view(head, rows), Text(note, style="dim"))
