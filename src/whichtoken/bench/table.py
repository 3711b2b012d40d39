"""Build the table from measured inputs: columns of metrics, means with intervals, tests, mean curves. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from whichtoken.bench.metrics import METRICS, CurveMetric, is_measurable, plans_of
from whichtoken.bench.results import InputResult, by_method
from whichtoken.bench.stats import Cells, Floats, Values, cells_of, intervals
from whichtoken.core.removal_steps import OF_METRICS
from whichtoken.metrics.curves import StepMetric, per_step
from whichtoken.records import Plan
from whichtoken.tables import Agreement, BenchTable, Column, Line, Trend

CONTROLS = ("random", "refined-noise")
ColumnCells: TypeAlias = tuple[Column, Cells]


def summarise(inputs: Sequence[InputResult], metrics: Sequence[str], unit: str, k: int = 20) -> BenchTable:
    """Return the table without title, facts and notes, which the caller adds."""
    filled: list[ColumnCells] = []
    for name in metrics:
        filled += METRICS[name].columns(name, inputs, k)
    seconds = by_method(inputs, lambda record, method: record.methods[method].seconds)
    filled += costs(seconds, by_method(inputs, lambda record, method: record.methods[method].evaluations), unit)
    tuned = {m: any(record.methods[m].tuned_on_deletion for record in inputs) for m in inputs[0].methods}
    lines = lines_of(filled, tuned)
    columns = [_mark_flattered(column, lines) for column, _ in filled]
    trends = tuple(_trends(inputs, metrics))
    reading = inputs[0].reading
    return BenchTable("", (), tuple(columns), tuple(lines), trends, (), _agreement(inputs, lines), unit, reading)


def lines_of(filled: Sequence[ColumnCells], tuned_on_deletion: Mapping[str, bool]) -> list[Line]:
    """Return one line per method, sorted by the first column, best first."""
    lines = [
        Line(
            method=m,
            tuned_on_deletion=tuned_on_deletion[m],
            control=m.split("(")[0].split("@")[0].strip() in CONTROLS,
            cells={column.name: cells[m] for column, cells in filled if m in cells},
        )
        for m in tuned_on_deletion
    ]
    first = filled[0][0]
    sign = -1 if first.better == "higher" else 1
    return sorted(lines, key=lambda line: sign * line.cells[first.name].mean if first.name in line.cells else np.inf)


def _mark_flattered(column: Column, lines: Iterable[Line]) -> Column:
    """Mark a column of deletions if methods were tuned on these. A metric without a plan says so itself."""
    deletion = column.plan is not None and column.plan.perturbation == "delete"
    return replace(column, flattered=(deletion or column.flattered) and any(line.tuned_on_deletion for line in lines))


def costs(seconds: Values, evaluations: Values, unit: str) -> Iterable[ColumnCells]:
    """Yield the cost columns. `unit`: what was measured, such as "text"."""
    about = "its share of the forward and backward passes that methods share, plus its own time"
    column = Column("seconds", f"seconds per {unit}", about, "lower", metric="seconds")
    yield column, cells_of(column, seconds)
    about = "passes and perturbed inputs that the method would need if run alone"
    column = Column("evaluations", f"model evaluations per {unit}", about, "lower", metric="evaluations")
    yield column, cells_of(column, evaluations)


def mean_curves_of(inputs: Sequence[InputResult]) -> list[Plan]:
    """Return the plans whose steps are the same for all inputs, so that a mean curve exists; of the first level."""
    plans = enumerate(plans_of(inputs))
    same = [plan for i, plan in plans if len({record.plans[i].removed for record in inputs}) == 1]
    return [plan for plan in same if plan.grid not in OF_METRICS and plan.level == plans_of(inputs)[0].level]


def _trends(inputs: Sequence[InputResult], metrics: Sequence[str]) -> Iterable[Trend]:
    by_step: dict[str, StepMetric] = {"aopc": "aopc", "log-odds": "log-odds"}
    for plan in mean_curves_of(inputs):
        for name in metrics:
            metric = METRICS[name]
            measurable = is_measurable(name, inputs[0].reading)
            if not measurable or not isinstance(metric, CurveMetric) or metric.steps not in by_step:
                continue
            changes = {}
            for method in inputs[0].methods:
                steps = np.array([per_step(record.curve(method, plan), by_step[metric.steps]) for record in inputs])
                changes[method] = abs(steps) if metric.absolute else steps
            means = {method: tuple(steps.mean(0).tolist()) for method, steps in changes.items()}
            low, high = (_by_method(changes, bound) for bound in intervals(np.concatenate([*changes.values()], 1)))
            removed = _removed(inputs[0], plan)
            yield Trend(metric.steps, plan.order, plan.perturbation, removed, means, plan.grid, low, high)


def _by_method(names: Iterable[str], bounds: Floats) -> dict[str, tuple[float, ...]]:
    """Split the bounds of all methods' steps, one method after another."""
    names = list(names)
    return {name: tuple(row) for name, row in zip(names, bounds.reshape(len(names), -1).tolist(), strict=True)}


def _removed(record: InputResult, plan: Plan) -> tuple[float, ...]:
    return next(planned.removed for planned in record.plans if planned.plan == plan)


def _agreement(inputs: Sequence[InputResult], lines: Sequence[Line]) -> Agreement | None:
    if not inputs[0].agreement:
        return None
    names, tables = [line.method for line in lines], []
    for record in inputs:
        places = [list(record.methods).index(name) for name in names]  # parts may list methods in another order
        tables.append(np.array(record.agreement)[places][:, places])
    return Agreement(tuple(names), tuple(tuple(row) for row in np.mean(tables, 0).tolist()))
