"""A surrogate of a model: predicts the drop for sets of removed units from those evaluated. One input at a time.

A Gaussian process (Rasmussen and Williams, 2006, chapters 2 and 5) with the kernel exp(-sum of r_i over the units i in
which two sets differ): interactions of all orders are possible, but those of few units are favoured. The rates r_i are
all the same or grow with the effects of the units, whichever explains the answers better.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from whichtoken.core.linear_algebra import multiply, solve_positive

BASES = (0.3, 1.0)  # added to the effects, as shares of their mean, before they become rates
LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)  # sum of the rates
NOISES = (1e-4, 1e-2)  # variance of the noise, as a share of the prior's
MOST = 600  # answers that a fit uses, the newest ones
NEAREST = 1e-4  # probabilities count as this far from 0 and 1 at least


@dataclass(frozen=True)
class AnswerScale:
    """The scale of a surrogate's predictions: log-odds if the model gives probabilities, else the drops themselves."""

    whole: float | None  # probability of the whole input

    def scale(self, drops: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        if self.whole is None:
            return drops
        p = np.clip(self.whole - drops, NEAREST, 1 - NEAREST)
        return np.log1p(-p) - np.log(p)

    def drops(self, scaled: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return scaled if self.whole is None else self.whole - 1 / (1 + np.exp(scaled))


@dataclass(frozen=True)
class Kernel:
    rates: Float[np.ndarray, " unit"]
    noise: float

    def between(self, one: Bool[np.ndarray, "n unit"], other: Bool[np.ndarray, "m unit"]) -> Float[np.ndarray, "n m"]:
        one, other = one.astype(np.float64), other.astype(np.float64)
        different = (one @ self.rates)[:, None] + other @ self.rates - 2 * multiply(one * self.rates, other.T)
        near: Float[np.ndarray, "n m"] = np.exp(-different)
        return near


@dataclass(frozen=True)
class Surrogate:
    kernel: Kernel
    sets: Bool[np.ndarray, "answer unit"]
    mean: float
    weights: Float[np.ndarray, " answer"]
    spread: float  # standard deviation of the prior
    log_evidence: float

    def predict(self, sets: Bool[np.ndarray, "n unit"], optimism: float) -> Float[np.ndarray, " n"]:
        near = self.kernel.between(sets, self.sets)
        return self._add_optimism(self.mean + multiply(near, self.weights), near.max(1), optimism)

    def predict_swaps(self, removed: Bool[np.ndarray, " unit"], optimism: float) -> Float[np.ndarray, "first second"]:
        """Return the same for a set with one of its units (first) replaced by one of the others (second).

        A swap multiplies the kernel by a factor for each of the two units, so that no exponential is computed.
        """
        factors = np.exp(np.where(self.sets, -self.kernel.rates, self.kernel.rates))
        near = self.kernel.between(removed[None], self.sets)[0]
        without, added = near[:, None] * factors[:, removed], 1 / factors[:, ~removed]
        mean = self.mean + multiply((self.weights[:, None] * without).T, added)
        nearest = (without[:, :, None] * added[:, None, :]).max(0) if optimism else np.zeros_like(mean)
        return self._add_optimism(mean, nearest, optimism)

    def _add_optimism(
        self, mean: Float[np.ndarray, "..."], nearest: Float[np.ndarray, "..."], optimism: float
    ) -> Float[np.ndarray, "..."]:
        """Add so many standard deviations, of which the nearest answer alone gives an upper limit."""
        optimistic: Float[np.ndarray, "..."] = mean + optimism * self.spread * np.sqrt((1 - nearest**2).clip(min=0))
        return optimistic


def fit_surrogate(
    sets: Bool[np.ndarray, "answer unit"], scaled: Float[np.ndarray, " answer"], kernel: Kernel
) -> Surrogate:
    sets, scaled = sets[-MOST:], scaled[-MOST:]
    covariance = kernel.between(sets, sets) + kernel.noise * np.eye(len(sets))
    mean = float(scaled.mean())
    weights, log_determinant = solve_positive(covariance, scaled - mean)
    variance = max(float((scaled - mean) @ weights) / len(sets), np.finfo(float).tiny)
    evidence = -0.5 * log_determinant - len(sets) / 2 * np.log(variance)
    return Surrogate(kernel, sets, mean, weights, np.sqrt(variance), float(evidence))


def choose_kernel(
    sets: Bool[np.ndarray, "answer unit"],
    scaled: Float[np.ndarray, " answer"],
    sizes: Float[np.ndarray, " unit"] | None = None,
) -> Kernel:
    """Return the kernel under which the answers are most probable.

    `sizes`: how large the effects of the units may be, relative to each other; None: as in a linear fit.
    """
    n, effects = sets.shape[1], np.abs(_fit_line(sets, scaled)) if sizes is None else sizes
    shapes = [np.ones(n)]
    if effects.any():
        shapes += [(base + effects / effects.mean()) / (base + 1) for base in BASES]
    kernels = [Kernel(level * shape / n, noise) for shape, level, noise in product(shapes, LEVELS, NOISES)]
    return max(kernels, key=lambda kernel: fit_surrogate(sets, scaled, kernel).log_evidence)


def _fit_line(
    sets: Bool[np.ndarray, "answer unit"], scaled: Float[np.ndarray, " answer"]
) -> Float[np.ndarray, " unit"]:
    centred = sets - sets.mean(0)
    weights, _ = solve_positive(
        multiply(centred.T, centred) + np.eye(sets.shape[1]), multiply(centred.T, scaled - scaled.mean())
    )
    return weights
