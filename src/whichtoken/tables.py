"""Benchmark results as plain data: a table of methods and metrics, and mean curves. No torch."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from whichtoken.atomic_write import open_whole, save_text
from whichtoken.checks import check_counts, check_lengths, check_removed, check_shares, check_square, require
from whichtoken.flat import make_frame, write_csv, write_parquet
from whichtoken.records import Plan, Reading

SCHEMA = 3
# The columns of a table with one row for each method and metric, and their types in a parquet file.
CELLS = {
    "method": "string",
    "tuned_on_deletion": "bool",
    "control": "bool",
    "metric": "string",  # the name of the column of the benchmark
    "title": "string",
    "better": "string",
    "mean": "float64",
    "low": "float64",
    "high": "float64",
    "n": "int64",
    "p": "float64",
}


@dataclass(frozen=True)
class Estimate:
    """A mean over texts."""

    mean: float
    low: float  # of the 95 % bootstrap interval
    high: float
    n: int  # texts
    p: float | None = None  # p-value of the test against the best of the column; None for the best itself


@dataclass(frozen=True)
class Column:
    name: str  # "aopc delete morf tenths"
    title: str  # short, for display
    about: str  # its meaning, in one sentence
    better: Literal["higher", "lower", ""]  # "" if neither is
    flattered: bool = False  # favours some methods, which were tuned on what it measures
    metric: str = ""  # the metric that it shows
    plan: Plan | None = None  # the curves it is measured on


@dataclass(frozen=True)
class Line:
    method: str
    tuned_on_deletion: bool
    control: bool  # a control for comparison: random, refined-noise
    cells: Mapping[str, Estimate]  # by column name; columns may be missing
    tuned_on_mask: bool = False  # it removes words by the mask token itself, so that curves by mask flatter it, too


@dataclass(frozen=True)
class Trend:
    """Mean curves of all methods: how a quantity changes as tokens are removed."""

    metric: str  # "aopc": mean drop in probability, or in the value; "log-odds": mean of ln(p / p0)
    order: str  # "morf", "lerf"
    perturbation: str  # "delete", "mask", "pad"
    removed: tuple[float, ...]  # fractions, from 0
    means: Mapping[str, tuple[float, ...]]  # by method
    grid: str = "tenths"
    low: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # of the 95 % bootstrap interval, by method
    high: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # tables of older versions have neither


@dataclass(frozen=True)
class Agreement:
    """How similarly methods rank the tokens of a text: mean Kendall tau-b for each pair of methods."""

    methods: tuple[str, ...]
    tau: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, repr=False)
class BenchTable:
    title: str
    facts: tuple[tuple[str, str], ...]  # what was run: model, data, protocol, number of texts, evaluations ...
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]  # best first
    trends: tuple[Trend, ...]
    notes: tuple[str, ...] = ()
    agreement: Agreement | None = None
    unit: str = "text"  # what one input is: a text, a question ...
    reading: Reading = "probability"  # whose change is measured
    verdict: str = ""  # which method to use, and whether that is settled

    def __repr__(self) -> str:
        return f"<BenchTable: {self.title}; .show() prints it>"

    def show(self) -> None:
        """Print the table; a notebook displays it."""
        from whichtoken.render.terminal import show_table

        show_table(self)

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        from whichtoken.render.report import fragment

        return fragment(self)

    def to_frame(self) -> Any:
        """Return a pandas frame with one row for each method and metric: mean, 95 % interval, number of inputs, p."""
        return make_frame(_cell_rows(self), list(CELLS), CELLS)

    def to_csv(self, path: str | Path | None = None, *, spreadsheet: bool = False) -> str:
        """Return the rows of `to_frame` as csv, and write them to `path`, if given.

        `spreadsheet`: put an apostrophe before texts that a spreadsheet would read as formulas, such as "=1+1".
        """
        made = io.BytesIO()
        write_csv(_cell_rows(self), list(CELLS), made, spreadsheet=spreadsheet)
        return save_text(made.getvalue().decode(), path)

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows of `to_frame` to a parquet file."""
        with open_whole(path) as file:
            write_parquet(_cell_rows(self), list(CELLS), file, CELLS)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return everything as JSON, and write it to `path`, if given; `wt.bench.read_table` reads it."""
        values = {"schema": SCHEMA, **asdict(self)}
        if self.reading == "probability":
            del values["reading"]  # so that older versions can read the tables of classifiers
        for line in values["lines"]:
            if not line["tuned_on_mask"]:
                del line["tuned_on_mask"]  # likewise
        for trend in values["trends"]:
            if not trend["low"]:
                del trend["low"], trend["high"]
        return save_text(json.dumps(values, ensure_ascii=False) + "\n", path)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report, a self-contained page, and write it to `path`, if given."""
        from whichtoken.render.report import to_report

        return to_report(self, path)


def _cell_rows(table: BenchTable) -> Iterator[dict[str, Any]]:
    for line in table.lines:
        for column in (column for column in table.columns if column.name in line.cells):
            yield {
                "method": line.method,
                "tuned_on_deletion": line.tuned_on_deletion,
                "control": line.control,
                "metric": column.name,
                "title": column.title,
                "better": column.better,
                **asdict(line.cells[column.name]),
            }


def order_lines(table: BenchTable, methods: Sequence[str]) -> BenchTable:
    """Return the table with its lines in the order of `methods`, not best first: for the variants of an ablation."""
    ranks = {method: rank for rank, method in enumerate(methods)}
    return replace(table, lines=tuple(sorted(table.lines, key=lambda line: ranks.get(line.method, len(ranks)))))


def check_table(table: BenchTable) -> None:
    """Raise BadArtifact unless the values of a decoded table are possible."""
    names = [column.name for column in table.columns]
    require(len(names) == len(set(names)) > 0, "BenchTable: expected one or more columns with names of their own")
    require(len(table.lines) > 0, "BenchTable: it has no lines")
    for line in table.lines:
        for name, cell in line.cells.items():
            require(name in names, f"BenchTable: {line.method} has a cell for {name!r:.40}, which is not a column")
            _check_estimate(cell, f"BenchTable: {line.method}, {name}")
    for trend in table.trends:
        check_removed(f"BenchTable: trend of {trend.metric}", trend.removed)
        _check_trend(trend)
    if table.agreement is not None:
        check_square("BenchTable: agreement", table.agreement.tau, len(table.agreement.methods))


def _check_trend(trend: Trend) -> None:
    for method in trend.low.keys() | trend.high.keys():
        complete = all(method in of for of in (trend.means, trend.low, trend.high))
        require(complete, f"BenchTable: trend of {trend.metric}: the intervals of {method:.40} are not complete")
    for method, means in trend.means.items():
        steps = {"removed": trend.removed, "means": means}
        if method in trend.low:
            steps |= {"low": trend.low[method], "high": trend.high[method]}
        check_lengths(f"BenchTable: trend of {method}", steps)


def _check_estimate(cell: Estimate, name: str) -> None:
    """Check one cell; a percentile bootstrap interval need not contain the mean."""
    require(cell.low <= cell.high, f"{name}: the interval {cell.low} to {cell.high} is reversed")
    check_counts(f"{name}: n", [cell.n])
    check_shares(f"{name}: p", [cell.p])
