"""Pooled areas of Contrast-CAT's Table 1, deduced from its figures: neither paper nor code states the scaling.

Each method's mean curve over the texts starts after the first removal; all curves are scaled to 0..1 by the smallest
and largest value over all methods and steps; trapezoids are 0.1 wide. Nine steps give areas from 0 to 0.8. An area
depends on the other methods in the table. No torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from whichtoken.bench.metrics import DOWN, ORDER_WORDS, UP, BenchMetric, Columns, is_measurable
from whichtoken.bench.results import InputResult
from whichtoken.bench.stats import RESAMPLES, SEED
from whichtoken.bench.table import mean_curves_of
from whichtoken.errors import UsageError
from whichtoken.metrics.curves import StepMetric, per_step
from whichtoken.records import Curve, Plan
from whichtoken.tables import Column, Estimate

STEPS: tuple[StepMetric, ...] = ("aopc", "log-odds")


@dataclass(frozen=True)
class PooledAuc(BenchMetric):
    """One number per method for all inputs; its interval comes from a bootstrap over the inputs."""

    on_curves: bool = True

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        for plan in mean_curves_of(inputs):
            for metric in (step for step in STEPS if is_measurable(step, inputs[0].reading)):
                yield _column(name, inputs, plan, metric)


def _column(
    name: str, inputs: Sequence[InputResult], plan: Plan, metric: StepMetric
) -> tuple[Column, Mapping[str, Estimate]]:
    methods, generator = list(inputs[0].methods), np.random.default_rng(SEED)
    changes = np.array([[per_step(result.curve(m, plan), metric)[1:] for result in inputs] for m in methods])
    draws = (generator.integers(0, len(inputs), len(inputs)) for _ in range(RESAMPLES // 10))
    areas = np.array([_areas(methods, changes[:, chosen]) for chosen in draws])
    low, high = np.quantile(areas, (0.025, 0.975), axis=0)
    words = f"{'AOPC' if metric == 'aopc' else metric}, {plan.perturbation}, {ORDER_WORDS[plan.order]}"
    column = Column(
        f"{name} {plan} {metric}",
        f"pooled AUC of {words}",
        "area under the mean curve, scaled by the lowest and highest value of all methods; at most 0.8",
        (UP if metric == "aopc" else DOWN)[plan.order],
        metric=name,
        plan=plan,
    )
    cells = zip(methods, _areas(methods, changes), low, high, strict=True)
    return column, {m: Estimate(float(a), float(lo), float(hi), len(inputs)) for m, a, lo, hi in cells}


def _areas(methods: Sequence[str], changes: NDArray[np.float64]) -> list[float]:
    """Return the area of each method; `changes`: methods x inputs x steps."""
    return list(scaled_areas(dict(zip(methods, changes.mean(1).tolist(), strict=True))).values())


def pooled_minmax_auc(curves_by_method: Mapping[str, Sequence[Curve]], metric: StepMetric) -> dict[str, float]:
    """Return the pooled area of each method; all methods must have curves of the same texts."""
    _check_pool(curves_by_method)
    means = {
        method: [sum(step) / len(step) for step in zip(*(per_step(curve, metric)[1:] for curve in curves), strict=True)]
        for method, curves in curves_by_method.items()
    }
    if len({value for mean in means.values() for value in mean}) == 1:
        raise UsageError(
            f"{metric} is the same for all methods and steps, so the areas cannot be scaled; give more texts"
        )
    return scaled_areas(means)


def scaled_areas(means: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the areas under mean curves scaled by their common range; all 0 if the curves do not differ."""
    low, high = min(map(min, means.values())), max(map(max, means.values()))
    scale = (high - low) or 1.0
    return {
        method: sum(0.1 * (a + b - 2 * low) / (2 * scale) for a, b in pairwise(mean)) for method, mean in means.items()
    }


def _check_pool(curves_by_method: Mapping[str, Sequence[Curve]]) -> None:
    if not curves_by_method or not all(curves_by_method.values()):
        counts = {name: len(curves) for name, curves in curves_by_method.items()}
        raise UsageError(f"every method needs the curve of at least one text; found {counts}")
    curves = [curve for method_curves in curves_by_method.values() for curve in method_curves]
    if len(lengths := {len(curve.removed) - 1 for curve in curves}) > 1:
        raise UsageError(
            f"curves of {sorted(lengths)} steps cannot be averaged; leave out texts too short for all the steps"
        )
    if len(protocols := {(curve.order, curve.perturbation, curve.grid, curve.level) for curve in curves}) > 1:
        raise UsageError(
            f"curves of {sorted(protocols)} cannot be scaled together; give curves of one order and protocol"
        )
    if len({tuple(sorted(curve.key for curve in method_curves)) for method_curves in curves_by_method.values()}) > 1:
        raise UsageError("the methods' curves are of different texts; give the curves of the same texts for each")
