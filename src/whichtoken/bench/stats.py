"""Means with bootstrap intervals, and paired tests, over inputs. No torch."""

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
    """Return the mean with its 95 % percentile bootstrap interval."""
    array = np.asarray(values, dtype=np.float64)
    low, high = interval(array)
    return Estimate(float(array.mean()), low, high, len(array))


def interval(values: Floats, of: Callable[[Floats], Floats] | None = None) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean, or of `of(means)` over columns, such as a ratio of sums."""
    means = _bootstrap_means(values)
    statistics = means if of is None else of(means)
    return float(np.quantile(statistics, 0.025)), float(np.quantile(statistics, 0.975))


def intervals(values: Floats) -> tuple[Floats, Floats]:
    """Return low and high of the 95 % interval of each column's mean, from the same resamples as `interval`."""
    source, counts = np.random.default_rng(SEED), []
    for _ in range(0, RESAMPLES, 200):
        drawn = source.integers(0, len(values), (200, len(values)))
        counts += [np.bincount(row, minlength=len(values)) for row in drawn]
    means = np.array(counts, dtype=np.float64) @ values / len(values)
    return np.quantile(means, 0.025, 0), np.quantile(means, 0.975, 0)


def _bootstrap_means(values: Floats) -> Floats:
    """Resample in slices to bound memory; the fixed seed draws the same inputs for every method."""
    source, means = np.random.default_rng(SEED), []
    for _ in range(0, RESAMPLES, 200):
        means.append(values[source.integers(0, len(values), (200, len(values)))].mean(1))
    return np.concatenate(means)


def paired_p(best: Sequence[float], other: Sequence[float]) -> float:
    """Return p of a two-sided sign-flip test of the mean difference between two methods on the same inputs."""
    differences = np.asarray(best, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    observed, source, as_large = abs(differences.mean()), np.random.default_rng(SEED), 0
    if 2 ** len(differences) <= RESAMPLES:  # few enough to try every combination of signs
        bits = np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1
        means = abs(((1.0 - 2.0 * bits) * differences).mean(1))
        return float((means >= observed * (1 - 1e-12)).mean())
    for _ in range(0, RESAMPLES, 200):
        flips = source.choice((-1.0, 1.0), (200, len(differences)))
        as_large += int((abs((flips * differences).mean(1)) >= observed * (1 - 1e-12)).sum())
    return (as_large + 1) / (RESAMPLES + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values with Holm's correction for multiple tests."""
    adjusted, highest = [0.0] * len(ps), 0.0
    for place, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, (len(ps) - place) * ps[i]))
        adjusted[i] = highest
    return adjusted


def cells_of(column: Column, values: Values) -> Cells:
    """Return each method's mean, with p against the best method of the column."""
    return with_p_values(
        column, values, {m: cell(list(of_inputs.values())) for m, of_inputs in values.items() if of_inputs}
    )


def with_p_values(column: Column, values: Values, cells: Cells) -> Cells:
    """Add p against the best method, paired over the inputs that both were measured on."""
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
