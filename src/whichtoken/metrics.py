"""Faithfulness metrics: pure functions of curves, each with its direction and range. No torch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from whichtoken.errors import UsageError
from whichtoken.records import Curve


@dataclass(frozen=True)
class Metric:
    name: str
    paper: str
    about: str
    better: Literal["higher", "lower"]  # when the most relevant tokens go first; the other way round for the least
    span: str  # of its values
    measure: Callable[[Curve], float]


def aopc(curve: Curve) -> float:
    """Area over the perturbation curve: the mean drop of the probability over the steps."""
    start, steps = _steps(curve)
    return sum(start - p for p in steps) / len(steps)


def log_odds(curve: Curve) -> float:
    """The mean over the steps of ln(p / p0)."""
    start, steps = _steps(curve)
    smallest = 1e-300  # a probability that underflowed is not impossible, only not representable
    return sum(math.log(max(p, smallest) / max(start, smallest)) for p in steps) / len(steps)


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "aopc",
            "Samek et al., TNNLS 2017",
            "mean drop of the probability as tokens are removed",
            "higher",
            "-1 to 1",
            aopc,
        ),
        Metric(
            "log-odds",
            "Shrikumar et al., ICML 2017",
            "mean of ln(p / p0) as tokens are removed",
            "lower",
            "below 0 where the probability falls",
            log_odds,
        ),
    )
}


def _steps(curve: Curve) -> tuple[float, list[float]]:
    """The probability of the whole text, and of what each step leaves."""
    pairs = list(zip(curve.removed, curve.probability, strict=True))
    whole, steps = [p for removed, p in pairs if removed == 0], [p for removed, p in pairs if removed > 0]
    if len(whole) != 1 or not steps:
        raise UsageError(f"a curve needs the whole text (removed 0) and at least one step; found {curve.removed}")
    return whole[0], steps
