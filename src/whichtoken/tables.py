"""Benchmark results as plain data: a table of methods and metrics, and mean curves. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from whichtoken.checks import check_counts, check_lengths, check_removed, check_shares, check_square, require
from whichtoken.records import Plan, Reading


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


@dataclass(frozen=True)
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
