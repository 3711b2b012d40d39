"""The benchmark folder that a server was started with: its table, its report, and where methods disagree."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichtoken.bench.disagreement import Disagreement, disagreements, first_plan, read_curves, read_texts
from whichtoken.bench.folder import read_table
from whichtoken.metrics.curves import aopc
from whichtoken.render import bench_table
from whichtoken.render.report import to_report
from whichtoken.render.rows import visible
from whichtoken.tables import BenchTable
from whichtoken.web.replies import (
    BenchmarkReply,
    ColumnView,
    DisagreementsReply,
    DisagreementView,
    EstimateView,
    LineView,
    TrendView,
)


@dataclass(frozen=True)
class StoredBenchmark:
    table: BenchTable
    curves: list[dict[str, Any]] = field(repr=False)  # rows of its results
    texts: Mapping[int, tuple[str, ...]] = field(repr=False)
    report: str = field(repr=False)

    @classmethod
    def open(cls, folder: Path, data: Path | None = None) -> "StoredBenchmark":
        """Read everything at the start: no request opens a file."""
        table = read_table(folder)
        curves = read_curves(folder)
        return cls(table, curves, read_texts(folder, data) if curves else {}, to_report(table))


def benchmark_reply(stored: StoredBenchmark) -> BenchmarkReply:
    table = stored.table
    names = [column.name for column in table.columns]
    lines = zip(table.lines, bench_table.entries(table), strict=True)
    return BenchmarkReply(
        title=visible(table.title),
        verdict=visible(table.verdict),
        facts=tuple(bench_table.facts(table)),
        unit=visible(table.unit),
        reading=table.reading,
        notes=tuple(map(visible, table.notes)),
        legend=tuple(bench_table.legend(table)),
        methods=tuple(visible(line.method) for line in table.lines),
        columns=tuple(
            ColumnView(c.name, bench_table.title_of(c), visible(c.about), c.better, c.flattered) for c in table.columns
        ),
        lines=tuple(
            LineView(
                method=visible(line.method),
                tuned_on_deletion=line.tuned_on_deletion,
                control=line.control,
                cells={
                    name: EstimateView(
                        **vars(line.cells[name]),
                        text=text.mean,
                        interval=text.interval,
                        about=text.about,
                        best=text.best,
                        close=text.close,
                        flattered=text.flattered,
                    )
                    for name, text in zip(names, texts, strict=True)
                    if name in line.cells
                },
            )
            for line, texts in lines
        ),
        trends=tuple(
            TrendView(t.metric, t.order, t.perturbation, t.grid, t.removed, t.means, t.low, t.high)
            for t in table.trends
        ),
        agreement=table.agreement,
        drill=bool(stored.curves),
    )


def disagreements_reply(stored: StoredBenchmark, first: str, second: str, limit: int) -> DisagreementsReply:
    plan = first_plan(stored.curves)
    found = disagreements(stored.curves, first, second, plan)
    views = tuple(_view(stored, one) for one in found[:limit])
    return DisagreementsReply(visible(first), visible(second), str(plan), len(found), views)


def _view(stored: StoredBenchmark, one: Disagreement) -> DisagreementView:
    texts = stored.texts.get(one.row)
    return DisagreementView(
        number=one.number,
        row=one.row,
        id=visible(one.id or ""),
        label=visible(one.label),
        text=None if texts is None else tuple(map(visible, texts)),
        whole=one.first.outputs[0],
        first=aopc(one.first),
        second=aopc(one.second),
        difference=one.difference,
        removed=one.first.removed,
        first_curve=one.first.outputs,
        second_curve=one.second.outputs,
    )
