"""Benchmark results as plain data: a table of methods and metrics, and mean curves. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

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
