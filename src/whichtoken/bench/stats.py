"""Means with intervals, and paired tests, over texts. No torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from whichtoken.tables import Column, Estimate

RESAMPLES = 2000
SEED = 0

Floats = NDArray[np.float64]
Values: TypeAlias = Mapping[str, Mapping[int, float]]  # by method, then by input
Cells: TypeAlias = Mapping[str, Estimate]  # by method


def cell(values: Sequence[float]) -> Estimate:
    """Mean and 95 % percentile bootstrap interval."""
    found = np.asarray(values, dtype=np.float64)
    low, high = interval(found)
    return Estimate(float(found.mean()), low, high, len(found))


def interval(values: Floats, of: Callable[[Floats], Floats] | None = None) -> tuple[float, float]:
    """`of`: what is computed from the means of several columns (text column), as a ratio of sums is."""
    means = _resampled(values)
    found = means if of is None else of(means)
    return float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))


def _resampled(values: Floats) -> Floats:
    """In slices: a corpus squared need not fit in memory. The same texts are drawn for every method."""
    source, found = np.random.default_rng(SEED), []
    for _ in range(0, RESAMPLES, 200):
        found.append(values[source.integers(0, len(values), (200, len(values)))].mean(1))
    return np.concatenate(found)


def paired_p(best: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided sign-flip test of the mean difference between two methods on the same texts."""
    differences = np.asarray(best, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    observed, source, as_large = abs(differences.mean()), np.random.default_rng(SEED), 0
    for _ in range(0, RESAMPLES, 200):
        flips = source.choice((-1.0, 1.0), (200, len(differences)))
        as_large += int((abs((flips * differences).mean(1)) >= observed * (1 - 1e-12)).sum())
    return (as_large + 1) / (RESAMPLES + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted for how many were tested."""
    adjusted, highest = [0.0] * len(ps), 0.0
    for place, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, (len(ps) - place) * ps[i]))
        adjusted[i] = highest
    return adjusted


def cells_of(column: Column, values: Values) -> Cells:
    """Each method's mean; and the chance that the best is no better."""
    return tested(column, values, {m: cell(list(of_inputs.values())) for m, of_inputs in values.items() if of_inputs})


def tested(column: Column, values: Values, cells: Cells) -> Cells:
    """With the chance that the best is no better, on the inputs that both were measured on."""
    if not column.better or len(cells) < 2:
        return cells
    sign = 1 if column.better == "higher" else -1
    best = max(cells, key=lambda method: sign * cells[method].mean)
    others = [method for method in cells if method != best]
    ps = []
    for method in others:
        both = [number for number in values[best] if number in values[method]]
        ps.append(paired_p([values[best][n] for n in both], [values[method][n] for n in both]) if both else 1.0)
    return {**cells} | {method: replace(cells[method], p=p) for method, p in zip(others, holm(ps), strict=True)}
