"""The job behind `/api/curves`: how the output falls as words are removed, beside random orders and the best one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from whichtoken.errors import BadSetting
from whichtoken.evaluate import OpenInput, aopc_bounds, degrade_input, open_input
from whichtoken.metrics.curves import aopc, normalise
from whichtoken.models import LogitCache
from whichtoken.records import Attribution, Curve, Order, Plan
from whichtoken.web.asked import read_records
from whichtoken.web.facts import levels_of
from whichtoken.web.lanes import Report
from whichtoken.web.limits import Limits
from whichtoken.web.replies import CurveView
from whichtoken.web.schema import CurvesRequest
from whichtoken.web.served import Served

ORDERS: tuple[Order, ...] = ("morf", "lerf")
BAND = (0.05, 0.95)  # quantiles of random orders
MOST_UNITS = 64  # parts up to which the best possible order is searched for, as in a benchmark


def plan_curves(model: Served, asked: CurvesRequest, limits: Limits) -> Callable[[Report], None]:
    """Return the work of a job; whatever can be refused is refused here."""
    records = read_records(asked.records, limits)
    if len(records) > limits.methods:
        raise BadSetting("records", f"{len(records)} records", f"at most {limits.methods} at once")
    task, levels = model.for_jobs, levels_of(model.task)
    how = model.task.removal(asked.removal).name
    level = asked.level if asked.level in levels else levels[0]

    def work(report: Report) -> None:
        source = open_input(task, records, LogitCache(task.subject))
        plans = {order: Plan(how, order, level=level) for order in ORDERS}
        steps = len(records) + bool(asked.random) + asked.bounds
        measured: dict[str, dict[Order, Curve]] = {}
        for done, record in enumerate(records):
            report.progress(done, steps, record.name or record.method)
            made = degrade_input(source, [record], list(plans.values()))
            curves = dict(zip(ORDERS, (curve for (curve,) in made), strict=True))
            measured[_free_name(record, measured)] = curves
            report.event("curve", _curve_event(list(measured)[-1], record, curves))
        if asked.random:
            report.progress(len(records), steps, "random orders")
            report.event(
                "band",
                _band(source, records[0], [Plan(how, "random", level=level, seed=s) for s in range(asked.random)]),
            )
        if asked.bounds:
            report.progress(steps - 1, steps, "the best possible order")
            report.event("bounds", _bounds(source, plans["morf"], measured))

    return work


def _free_name(record: Attribution, taken: dict[str, Any]) -> str:
    name = record.name or record.method
    numbers = (name if n == 1 else f"{name} ({n})" for n in range(1, len(taken) + 2))
    return next(free for free in numbers if free not in taken)


def _curve_event(name: str, record: Attribution, curves: dict[Order, Curve]) -> dict[str, Any]:
    views: dict[str, CurveView] = {
        order: CurveView(curve.removed, curve.outputs, aopc(curve)) for order, curve in curves.items()
    }
    return {"method": name, "tuned_on_deletion": record.tuned_on_deletion, **views}


def _band(source: OpenInput, record: Attribution, plans: Sequence[Plan]) -> dict[str, Any]:
    curves = [curve for (curve,) in degrade_input(source, [record], plans)]
    outputs = np.array([curve.outputs for curve in curves])
    low, high = np.quantile(outputs, BAND, axis=0).tolist()
    return {
        "removed": curves[0].removed,
        "low": low,
        "mean": outputs.mean(0).tolist(),
        "high": high,
        "n": len(curves),
        "aopc": float(np.mean([aopc(curve) for curve in curves])),
    }


def _bounds(source: OpenInput, plan: Plan, measured: dict[str, dict[Order, Curve]]) -> dict[str, Any]:
    n_units = len(source.units(plan.level))
    if n_units > MOST_UNITS:
        return {"skipped": f"there are {n_units} parts; the best possible order is searched for up to {MOST_UNITS}"}
    bounds = aopc_bounds(source, plan)
    first = next(iter(measured.values()))["morf"]
    whole = first.outputs[0]

    def place(curve: Curve) -> float | None:
        return normalise(aopc(curve), bounds.lower, bounds.upper)

    return {
        "skipped": "",
        "removed": first.removed,
        "best": [whole, *(whole - drop for drop in bounds.best)],
        "worst": [whole, *(whole - drop for drop in bounds.worst)],
        "upper": bounds.upper,
        "lower": bounds.lower,
        "exact": bounds.exact,
        "normalised": {name: {order: place(curve) for order, curve in of.items()} for name, of in measured.items()},
    }
