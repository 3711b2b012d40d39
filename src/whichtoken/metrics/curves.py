"""Faithfulness metrics: pure functions of curves, and a list of metrics with direction and range. No torch or numpy."""

import math
from collections.abc import Callable, Mapping
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
    curve: Literal["any", "eraser morf", "eraser lerf"]  # grid and order of the curve it needs
    # If `curve` is "any", this holds for MoRF curves, and the opposite for LeRF.
    better: Literal["higher", "lower"]
    span: str  # range of its values
    measure: Callable[[Curve], float]
    needs_probability: bool = False  # cannot be measured on predicted values


def aopc(curve: Curve) -> float:
    """Return the area over the perturbation curve: the mean drop in probability, or in the predicted value, over
    the steps.
    """
    changes = _changes(curve, "aopc")
    return sum(changes) / len(changes)


def log_odds(curve: Curve) -> float:
    """Return the mean over the steps of ln(p / p0)."""
    changes = _changes(curve, "log-odds")
    return sum(changes) / len(changes)


def auc(curve: Curve) -> float:
    """Return the trapezoidal area under the curve, divided by the range of `removed`: 0 to 1 on every grid.

    For predicted values, which have no lowest one, it is the area under their change: below 0 if the value falls.
    """
    whole, _ = _steps(curve)
    base = whole if curve.value else 0.0
    points = sorted((removed, output - base) for removed, output in zip(curve.removed, curve.outputs, strict=True))
    area = sum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(points))
    return area / (points[-1][0] - points[0][0])


def comprehensiveness(curve: Curve) -> float:
    """Return ERASER's mean drop in probability when the highest 1, 5, 10, 20 and 50 % of the tokens are removed.

    This follows their code. The paper's formula also counts a step that removes nothing, so it is 5/6 of this.
    """
    return aopc(_eraser(curve, "comprehensiveness", "morf"))


def sufficiency(curve: Curve) -> float:
    """Return ERASER's mean drop in probability when only the highest 1, 5, 10, 20 and 50 % of the tokens are kept.

    This follows their code. The paper's formula also counts a step that keeps nothing.
    """
    return aopc(_eraser(curve, "sufficiency", "lerf"))


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "aopc",
            "Samek et al., TNNLS 2017",
            "mean drop in probability as tokens are removed",
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
            "below 0 if the probability falls",
            log_odds,
            needs_probability=True,
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
            "mean drop in probability without the highest 1, 5, 10, 20, 50 % of the tokens",
            "eraser morf",
            "higher",
            "-1 to 1",
            comprehensiveness,
        ),
        Metric(
            "sufficiency",
            "DeYoung et al., ACL 2020",
            "mean drop in probability with only the highest 1, 5, 10, 20, 50 % of the tokens",
            "eraser lerf",
            "lower",
            "-1 to 1",
            sufficiency,
        ),
    )
}


@dataclass(frozen=True)
class Wider:
    """A benchmark metric that needs more than one curve."""

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
            "AOPC scaled to the lowest and highest of any removal order; needs a search for each text",
            "higher",
            "0 to 1",
        ),
        Wider(
            "srg",
            "Blücher et al., TMLR 2024",
            "symmetric relevance gain: AOPC of MoRF minus AOPC of LeRF",
            "higher",
            "-1 to 1; of values, any",
        ),
        Wider(
            "kendall",
            "Qiang et al., NeurIPS 2022",
            "mean tau between the explanations of a class and of each remaining one (of many, the most probable)",
            "lower",
            "-1 to 1",
        ),
        Wider(
            "precision",
            "Qiang et al., NeurIPS 2022; Song et al. 2023",
            "true-answer tokens among the k highest: how many, and as a share of all such tokens",
            "higher",
            "up to the length of an answer; 0 to 1",
        ),
        Wider("agreement", "Kendall 1938", "tau-b between methods", "", "-1 to 1"),
        Wider(
            "top-drop",
            "ours; as in Cohen-Wang et al., NeurIPS 2024",
            "drop of the output without the highest 1, 3, 5 and 10 units",
            "higher",
            "-1 to 1; of values, any",
        ),
        Wider(
            "lds",
            "Park et al., ICML 2023; Cohen-Wang et al., NeurIPS 2024",
            "Spearman correlation, over random removals, of the summed scores of what is kept with the output",
            "higher",
            "-1 to 1",
        ),
        Wider(
            "signs",
            "ours",
            "strong words (removed alone, they change the log-odds by more than 2) whose score has the right sign",
            "higher",
            "0 to 1",
        ),
        Wider(
            "above-random",
            "ours; bounds as in Edin et al. 2024",
            "AOPC as a share of the way from a random order to the best; needs a search, and the method random",
            "higher",
            "up to 1",
        ),
        Wider("additivity", "ours", "how far the effects add up, for methods that measure it: posterior", "", "0 to 1"),
    )
}


def per_step(curve: Curve, metric: StepMetric) -> tuple[float, ...]:
    """Return what each step of `curve.removed` contributes to the metric; 0.0 for the whole text."""
    start, _ = _steps(curve)
    change = _change(metric, curve)
    return tuple(change(start, output) for output in curve.outputs)


def normalise(value: float, lower: float, upper: float) -> float | None:
    """Scale a value to 0 at `lower` and 1 at `upper`; None if they are equal, so that no order matters."""
    return None if lower == upper else (value - lower) / (upper - lower)


def _drop(start: float, p: float) -> float:
    return start - p


def _log_ratio(start: float, p: float) -> float:
    smallest = 1e-300  # a probability that underflowed is not impossible, only not representable
    return math.log(max(p, smallest) / max(start, smallest))


_CHANGES: Mapping[str, Callable[[float, float], float]] = {"aopc": _drop, "log-odds": _log_ratio}


def _change(metric: str, curve: Curve) -> Callable[[float, float], float]:
    if metric not in _CHANGES:
        raise UnknownName("metric of steps", metric, _CHANGES)
    if curve.value and METRICS[metric].needs_probability:
        raise UsageError(f"{metric} needs probabilities, and this curve holds predicted values; use aopc")
    return _CHANGES[metric]


def _changes(curve: Curve, metric: StepMetric) -> list[float]:
    """Return `per_step` without the whole text."""
    start, steps = _steps(curve)
    change = _change(metric, curve)
    return [change(start, output) for output in steps]


def _steps(curve: Curve) -> tuple[float, list[float]]:
    """Return the probability, or value, of the whole text, and of what remains at each step."""
    pairs = list(zip(curve.removed, curve.outputs, strict=True))
    whole, steps = [p for removed, p in pairs if removed == 0], [p for removed, p in pairs if removed > 0]
    if len(whole) != 1 or not steps:
        raise UsageError(f"a curve needs the whole text (removed 0) and at least one step; found {curve.removed}")
    return whole[0], steps


def _eraser(curve: Curve, metric: str, order: Order) -> Curve:
    if (curve.grid, curve.order) != ("eraser", order):
        raise UsageError(
            f"{metric} is measured on a curve of grid 'eraser' and order {order!r}, not of grid {curve.grid!r} and "
            f"order {curve.order!r}; call degrade with those"
        )
    return curve
