"""What a benchmark found, as data that can be shown: a table of methods and metrics, and mean curves. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whichtoken.records import Plan


@dataclass(frozen=True)
class Estimate:
    """A mean over texts."""

    mean: float
    low: float  # of the 95 % bootstrap interval
    high: float
    n: int  # texts
    p: float | None = None  # that the best of the column is no better than this, by chance; None for the best itself


@dataclass(frozen=True)
class Column:
    name: str  # "aopc delete morf tenths"
    title: str  # in words, short
    about: str  # what it says, in a sentence
    better: Literal["higher", "lower", ""]  # "" where neither is
    flattered: bool = False  # some methods were tuned on what this column measures
    metric: str = ""  # by which it was measured
    plan: Plan | None = None  # and on which curves


@dataclass(frozen=True)
class Line:
    method: str
    tuned_on_deletion: bool
    control: bool  # random, refined-noise: there to compare with
    cells: Mapping[str, Estimate]  # by the column's name; a column may be missing


@dataclass(frozen=True)
class Trend:
    """Mean curves of all methods: how a quantity changes as tokens are removed."""

    metric: str  # "aopc": mean drop of the probability; "log-odds": mean of ln(p / p0)
    order: str  # "morf", "lerf"
    perturbation: str  # "delete", "mask", "pad"
    removed: tuple[float, ...]  # fractions, from 0
    means: Mapping[str, tuple[float, ...]]  # by method
    grid: str = "tenths"


@dataclass(frozen=True)
class Agreement:
    """How alike methods rank the tokens of a text: mean Kendall tau-b, method by method."""

    methods: tuple[str, ...]
    tau: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class BenchTable:
    title: str
    facts: tuple[tuple[str, str], ...]  # what was run: model, data, protocol, number of texts, evaluations ...
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]  # the best first
    trends: tuple[Trend, ...]
    notes: tuple[str, ...] = ()
    agreement: Agreement | None = None
    unit: str = "text"  # what was measured: a text, a question ...


def in_order(table: BenchTable, methods: Sequence[str]) -> BenchTable:
    """Not the best first, but as they are listed: the variants of an ablation."""
    places = {method: place for place, method in enumerate(methods)}
    return replace(table, lines=tuple(sorted(table.lines, key=lambda line: places.get(line.method, len(places)))))
