"""Faithfulness metrics: pure functions of curves, those of one curve with direction and range. No torch, no numpy."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from whichtoken.errors import UnknownName, UsageError
from whichtoken.records import Curve, Order

StepMetric: TypeAlias = Literal["aopc", "log-odds"]


@dataclass(frozen=True)
class Metric:
    name: str
    paper: str
    about: str
    curve: Literal["any", "eraser morf", "eraser lerf"]  # that it is measured on: the grid and the order
    # On any curve: when the most relevant tokens go first; the other way round for the least.
    better: Literal["higher", "lower"]
    span: str  # of its values
    measure: Callable[[Curve], float]


def aopc(curve: Curve, absolute: bool = False) -> float:
    """Area over the perturbation curve: the mean drop of the probability over the steps.

    `absolute`: the mean of |p0 - p|, as AttCAT's code has it; a rise then counts as a drop.
    """
    changes = _changes(curve, "aopc")
    return sum(map(abs, changes) if absolute else changes) / len(changes)


def log_odds(curve: Curve) -> float:
    """The mean over the steps of ln(p / p0)."""
    changes = _changes(curve, "log-odds")
    return sum(changes) / len(changes)


def auc(curve: Curve) -> float:
    """Area under the probability's curve by trapezoids, divided by the range of `removed`: 0 to 1 on every grid."""
    _steps(curve)
    points = sorted(zip(curve.removed, curve.probability, strict=True))
    area = sum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(points))
    return area / (points[-1][0] - points[0][0])


def comprehensiveness(curve: Curve) -> float:
    """ERASER: the mean drop of the probability when the highest 1, 5, 10, 20 and 50 % of the tokens are removed.

    As their code. The paper's formula also counts a step that removes nothing, so it gives 5/6 of this.
    """
    return aopc(_eraser(curve, "comprehensiveness", "morf"))


def sufficiency(curve: Curve) -> float:
    """ERASER: the mean drop of the probability when only the highest 1, 5, 10, 20 and 50 % of the tokens are kept.

    As their code. The paper's formula also counts a step that keeps nothing.
    """
    return aopc(_eraser(curve, "sufficiency", "lerf"))


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "aopc",
            "Samek et al., TNNLS 2017",
            "mean drop of the probability as tokens are removed",
            "any",
            "higher",
            "-1 to 1",
            aopc,
        ),
        Metric(
            "log-odds",
            "Shrikumar et al., ICML 2017",
            "mean of ln(p / p0) as tokens are removed",
            "any",
            "lower",
            "below 0 where the probability falls",
            log_odds,
        ),
        Metric(
            "auc",
            "Petsiuk et al., BMVC 2018",
            "area under the probability as tokens are removed",
            "any",
            "lower",
            "0 to 1",
            auc,
        ),
        Metric(
            "comprehensiveness",
            "DeYoung et al., ACL 2020",
            "mean drop of the probability without the highest 1, 5, 10, 20, 50 % of the tokens",
            "eraser morf",
            "higher",
            "-1 to 1",
            comprehensiveness,
        ),
        Metric(
            "sufficiency",
            "DeYoung et al., ACL 2020",
            "mean drop of the probability with only the highest 1, 5, 10, 20, 50 % of the tokens",
            "eraser lerf",
            "lower",
            "-1 to 1",
            sufficiency,
        ),
    )
}


@dataclass(frozen=True)
class Wider:
    """A metric of more than one curve, which a benchmark has."""

    name: str
    paper: str
    about: str
    better: Literal["higher", "lower", ""]
    span: str


WIDER: Mapping[str, Wider] = {
    metric.name: metric
    for metric in (
        Wider(
            "normalised-aopc",
            "Edin et al. 2024",
            "AOPC between the lowest and highest that an order of the tokens has; costs a search for each text",
            "higher",
            "0 to 1",
        ),
        Wider(
            "pooled-auc",
            "Han et al., UAI 2025 (deduced)",
            "area under the mean curve of AOPC or log-odds, all methods scaled together",
            "higher",
            "0 to 0.8",
        ),
        Wider(
            "kendall",
            "Qiang et al., NeurIPS 2022",
            "tau between the explanations of two classes; costs a second explanation",
            "lower",
            "-1 to 1",
        ),
        Wider("agreement", "Kendall 1938", "tau-b between methods", "", "-1 to 1"),
    )
}


def per_step(curve: Curve, metric: StepMetric) -> tuple[float, ...]:
    """What a step contributes to the metric, for each of `curve.removed`; 0.0 for the whole text."""
    start, _ = _steps(curve)
    change = _change(metric)
    return tuple(change(start, p) for p in curve.probability)


def pooled_minmax_auc(curves_by_method: Mapping[str, Sequence[Curve]], metric: StepMetric) -> dict[str, float]:
    """The areas of Contrast-CAT's Table 1, as deduced from its figures: neither paper nor code says how they scale.

    Each method's mean curve over the texts, without the whole text; all of them scaled to 0..1 by the smallest and the
    largest value of any method and step; trapezoids 0.1 wide. Nine steps give 0 to 0.8. An area depends on which
    methods it is compared with.
    """
    _check_pool(curves_by_method)
    means = {
        method: [sum(step) / len(step) for step in zip(*(_changes(curve, metric) for curve in curves), strict=True)]
        for method, curves in curves_by_method.items()
    }
    if len({value for mean in means.values() for value in mean}) == 1:
        raise UsageError(f"{metric} is the same for all methods and steps, which no scale tells apart; give more texts")
    return scaled_areas(means)


def scaled_areas(means: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Areas under mean curves that are scaled together; 0 for all where nothing differs."""
    low, high = min(map(min, means.values())), max(map(max, means.values()))
    scale = (high - low) or 1.0
    return {
        method: sum(0.1 * (a + b - 2 * low) / (2 * scale) for a, b in pairwise(mean)) for method, mean in means.items()
    }


def normalised(value: float, lower: float, upper: float) -> float | None:
    """Where a value lies between two bounds: 0 at `lower`, 1 at `upper`. None if they are equal: no order matters."""
    return None if lower == upper else (value - lower) / (upper - lower)


def _drop(start: float, p: float) -> float:
    return start - p


def _log_ratio(start: float, p: float) -> float:
    smallest = 1e-300  # a probability that underflowed is not impossible, only not representable
    return math.log(max(p, smallest) / max(start, smallest))


_CHANGES: Mapping[str, Callable[[float, float], float]] = {"aopc": _drop, "log-odds": _log_ratio}


def _change(metric: str) -> Callable[[float, float], float]:
    if metric not in _CHANGES:
        raise UnknownName("metric of steps", metric, _CHANGES)
    return _CHANGES[metric]


def _changes(curve: Curve, metric: StepMetric) -> list[float]:
    """`per_step` without the whole text."""
    start, steps = _steps(curve)
    change = _change(metric)
    return [change(start, p) for p in steps]


def _steps(curve: Curve) -> tuple[float, list[float]]:
    """The probability of the whole text, and of what each step leaves."""
    pairs = list(zip(curve.removed, curve.probability, strict=True))
    whole, steps = [p for removed, p in pairs if removed == 0], [p for removed, p in pairs if removed > 0]
    if len(whole) != 1 or not steps:
        raise UsageError(f"a curve needs the whole text (removed 0) and at least one step; found {curve.removed}")
    return whole[0], steps


def _eraser(curve: Curve, metric: str, order: Order) -> Curve:
    if (curve.grid, curve.order) != ("eraser", order):
        raise UsageError(
            f"{metric} is measured on a curve of grid 'eraser' and order {order!r}, not of grid {curve.grid!r} and "
            f"order {curve.order!r}; degrade with those"
        )
    return curve


def _check_pool(curves_by_method: Mapping[str, Sequence[Curve]]) -> None:
    if not curves_by_method or not all(curves_by_method.values()):
        counted = {name: len(curves) for name, curves in curves_by_method.items()}
        raise UsageError(f"every method needs the curve of at least one text; found {counted}")
    curves = [curve for several in curves_by_method.values() for curve in several]
    if len(lengths := {len(curve.removed) - 1 for curve in curves}) > 1:
        raise UsageError(f"curves of {sorted(lengths)} steps have no mean; leave out texts too short for all the steps")
    if len(made := {(curve.order, curve.perturbation, curve.grid, curve.level) for curve in curves}) > 1:
        raise UsageError(f"curves of {sorted(made)} have no common scale; give those of one order and protocol")
    if len({tuple(sorted(curve.key for curve in several)) for several in curves_by_method.values()}) > 1:
        raise UsageError("the methods' curves are of different texts; give the curves of the same texts for each")
