"""From what was measured to the table: columns of metrics, means with intervals, tests, mean curves. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from whichtoken.bench.metrics import METRICS, CurveMetric, plans_of
from whichtoken.bench.results import InputResult, by_method
from whichtoken.bench.stats import Cells, Values, cells_of
from whichtoken.metrics.curves import StepMetric, per_step
from whichtoken.records import Plan
from whichtoken.tables import Agreement, BenchTable, Column, Line, Trend

CONTROLS = ("random", "refined-noise")
Found: TypeAlias = tuple[Column, Cells]


def summarise(inputs: Sequence[InputResult], metrics: Sequence[str], unit: str, k: int = 20) -> BenchTable:
    """Without title, facts and notes: the caller knows what was run."""
    found: list[Found] = []
    for name in metrics:
        found += METRICS[name].columns(name, inputs, k)
    seconds = by_method(inputs, lambda one, method: one.methods[method].seconds)
    found += costs(seconds, by_method(inputs, lambda one, method: one.methods[method].evaluations), unit)
    lines = lines_of(found, {m: any(one.methods[m].tuned_on_deletion for one in inputs) for m in inputs[0].methods})
    columns = [_flattered(column, lines) for column, _ in found]
    trends = tuple(_trends(inputs, metrics))
    return BenchTable("", (), tuple(columns), tuple(lines), trends, (), _agreement(inputs, lines), unit)


def lines_of(found: Sequence[Found], tuned_on_deletion: Mapping[str, bool]) -> list[Line]:
    """One for each method, the best of the first column first. `tuned_on_deletion`: by method."""
    lines = [
        Line(
            method=m,
            tuned_on_deletion=tuned_on_deletion[m],
            control=m.split("(")[0].split("@")[0].strip() in CONTROLS,
            cells={column.name: cells[m] for column, cells in found if m in cells},
        )
        for m in tuned_on_deletion
    ]
    first = found[0][0]
    sign = -1 if first.better == "higher" else 1
    return sorted(lines, key=lambda line: sign * line.cells[first.name].mean if first.name in line.cells else np.inf)


def _flattered(column: Column, lines: Iterable[Line]) -> Column:
    deletion = column.plan is not None and column.plan.perturbation == "delete"
    return replace(column, flattered=deletion and any(line.tuned_on_deletion for line in lines))


def costs(seconds: Values, evaluations: Values, unit: str) -> Iterable[Found]:
    """`unit`: what was measured, a "text"."""
    about = "its share of passes that methods share, and its own time; run with the others"
    column = Column("seconds", f"seconds per {unit}", about, "lower", metric="seconds")
    yield column, cells_of(column, seconds)
    about = "passes and shortened texts that it would have taken alone"
    column = Column("evaluations", f"model evaluations per {unit}", about, "lower", metric="evaluations")
    yield column, cells_of(column, evaluations)


def mean_curves_of(inputs: Sequence[InputResult]) -> list[Plan]:
    """The plans whose steps are the same for all inputs, so that there is a mean curve."""
    plans = enumerate(plans_of(inputs))
    same = [plan for i, plan in plans if len({one.plans[i].removed for one in inputs}) == 1]
    return [plan for plan in same if plan.grid != "eraser"]


def _trends(inputs: Sequence[InputResult], metrics: Sequence[str]) -> Iterable[Trend]:
    by_step: dict[str, StepMetric] = {"aopc": "aopc", "log-odds": "log-odds"}
    for plan in mean_curves_of(inputs):
        for name in metrics:
            metric = METRICS[name]
            if not isinstance(metric, CurveMetric) or metric.steps not in by_step:
                continue
            means = {}
            for method in inputs[0].methods:
                steps = np.array([per_step(one.curve(method, plan), by_step[metric.steps]) for one in inputs])
                means[method] = tuple((abs(steps) if metric.absolute else steps).mean(0).tolist())
            yield Trend(metric.steps, plan.order, plan.perturbation, _removed(inputs[0], plan), means, plan.grid)


def _removed(one: InputResult, plan: Plan) -> tuple[float, ...]:
    return next(held.removed for held in one.plans if held.plan == plan)


def _agreement(inputs: Sequence[InputResult], lines: Sequence[Line]) -> Agreement | None:
    if not inputs[0].agreement:
        return None
    names, tables = [line.method for line in lines], []
    for one in inputs:
        places = [list(one.methods).index(name) for name in names]  # parts may have been asked in another order
        tables.append(np.array(one.agreement)[places][:, places])
    return Agreement(tuple(names), tuple(tuple(row) for row in np.mean(tables, 0).tolist()))
