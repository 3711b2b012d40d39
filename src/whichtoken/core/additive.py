"""Bayesian regression of a model's answers on the units that were removed, one input at a time.

Model: y = D w + noise. D says which units each question removed, y how far the output dropped; w are the effects of the
units. Prior: w ~ N(0, t² C), C = S + k² m m', with m a single-pass map: effects scatter around a multiple of the map,
which is learned, too (k = 0: the map is ignored). S = I, or diagonal with entries (b + |m_i|)²: units that matter in
the map may have larger effects. The noise has variance l t². t is integrated out; k, l and S are averaged over grids,
weighted by their evidence (Bishop, Pattern Recognition and Machine Learning, 2006, 3.3 to 3.5).
"""

from dataclasses import dataclass
from math import erf, sqrt

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from whichtoken.core.linear_algebra import eigenvectors

NOISES = np.array(
    (5e-5, 2e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
)  # l; smaller ones multiply rounding
LEANS = (0.0, 1.0, 10.0)  # k
BASE = 0.1  # b
FLOOR = 1e-4  # smallest effect that counts, on the scale of the output; the prior of t counts as one such answer
FEWEST = 4  # answers that additivity is computed from
NEGLIGIBLE = 1e-6  # weight of a grid point that is left out


@dataclass(frozen=True)
class Answers:
    """The questions that were asked about an input, and what the model answered."""

    removed: Bool[np.ndarray, "question unit"]
    drops: Float[np.ndarray, " question"]  # of the output


@dataclass(frozen=True)
class _Basis:
    """The questions under one prior: the thin singular value decomposition of D C^½, squared values."""

    lean: float
    shape: Float[np.ndarray, " unit"]  # the square roots of S
    prior: Float[np.ndarray, " unit"]  # the map, divided by these
    design: Float[np.ndarray, "question unit"]  # the questions, times these
    vectors: Float[np.ndarray, "question rank"]
    values: Float[np.ndarray, " rank"]
    gain: Float[np.ndarray, "unit rank"]  # C D' times the vectors

    def solve(self, answers: Float[np.ndarray, "question n"], noise: float) -> Float[np.ndarray, "unit n"]:
        """Return C D' (D C D' + l I)^-1 times the answers: the effects that they imply."""
        seen: NDArray[np.float64] = self.gain @ ((self.vectors.T @ answers) / (self.values + noise)[:, None])
        return seen


@dataclass(frozen=True)
class Component:
    """The posterior at one point of the grids."""

    basis: _Basis
    noise: float
    weight: float
    scale: float  # t
    mean: Float[np.ndarray, " unit"]
    variance: Float[np.ndarray, " unit"]
    residuals: Float[np.ndarray, " question"]  # drop minus its prediction from the other answers
    multiple: float  # of the map


@dataclass(frozen=True)
class _Fit:
    """The posteriors under one prior, one for each noise level."""

    basis: _Basis
    evidence: Float[np.ndarray, " noise"]  # logarithm; -inf where the multiple of the map is negative
    scales: Float[np.ndarray, " noise"]
    means: Float[np.ndarray, "unit noise"]
    variances: Float[np.ndarray, "unit noise"]
    residuals: Float[np.ndarray, "question noise"]
    multiples: Float[np.ndarray, " noise"]

    def at(self, level: int, weight: float) -> Component:
        mean, variance, residuals = (of[:, level].copy() for of in (self.means, self.variances, self.residuals))
        scale, multiple = sqrt(self.scales[level]), float(self.multiples[level])
        return Component(self.basis, float(NOISES[level]), weight, scale, mean, variance, residuals, multiple)


@dataclass(frozen=True)
class EffectEstimate:
    """The posterior of the effects."""

    answers: Answers
    components: tuple[Component, ...]
    mean: Float[np.ndarray, " unit"]
    spread: Float[np.ndarray, " unit"]  # scale of a Student t distribution with `freedom` degrees of freedom
    prior_spread: Float[np.ndarray, " unit"]  # the same before any answer, without what the map adds
    multiple: float  # of the map that the effects scatter around
    noise: float  # standard deviation of the answers around the sums of effects
    freedom: int
    additivity: float | None  # leave-one-out share of the drops' variance that effects predict; None: unknown

    def draw(
        self, normal: Float[np.ndarray, "draw unit"], shared: Float[np.ndarray, "draw number"]
    ) -> Float[np.ndarray, "draw unit"]:
        """Turn standard normal numbers into draws. `shared` has at least two more columns than there are answers.

        A draw from prior and noise is corrected by what it gets wrong about the answers (Matheron's rule).
        """
        draws, ends = np.empty_like(normal), np.cumsum([component.weight for component in self.components])
        uniform = np.array([0.5 + 0.5 * erf(number / sqrt(2)) for number in shared[:, 0]])
        chosen = np.searchsorted(ends, uniform * ends[-1]).clip(max=len(ends) - 1)
        for number in np.unique(chosen):
            rows, component = chosen == number, self.components[number]
            basis = component.basis
            guess = component.scale * (normal[rows] + basis.lean * shared[rows, 1:2] * basis.prior)
            noise = component.scale * sqrt(component.noise) * shared[rows, 2 : 2 + len(self.answers.drops)]
            wrong = self.answers.drops - guess @ basis.design.T - noise
            draws[rows] = guess * basis.shape + basis.solve(wrong.T, component.noise).T
        return draws


def fit_effects(answers: Answers, prior: Float[np.ndarray, " unit"]) -> EffectEstimate:
    """Return the posterior of the effects. `prior`: a map whose largest absolute value is 1, or zeros for none."""
    even = np.ones(len(prior))
    shapes = [even, BASE + np.abs(prior)] if prior.any() else [even]
    bases = [_decompose(answers, prior, k, shape) for shape in shapes for k in (LEANS if prior.any() else LEANS[:1])]
    fits = [_fit(basis, answers.drops) for basis in bases]
    evidence = np.stack([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    chosen = np.argwhere(weights > NEGLIGIBLE)
    weights = weights[tuple(chosen.T)] / weights[tuple(chosen.T)].sum()
    components = tuple(fits[i].at(level, w) for (i, level), w in zip(chosen.tolist(), weights.tolist(), strict=True))
    mean, residuals = (
        np.einsum("c,cp->p", weights, np.stack([getattr(component, name) for component in components]))
        for name in ("mean", "residuals")
    )
    around = np.stack([component.variance + (component.mean - mean) ** 2 for component in components])
    return EffectEstimate(
        answers,
        components,
        mean,
        np.sqrt(weights @ around),
        np.sqrt(sum(c.weight * (c.scale * c.basis.shape) ** 2 for c in components)),
        sum(component.weight * component.multiple for component in components),
        sqrt(sum(component.weight * component.noise * component.scale**2 for component in components)),
        len(answers.drops) + 1,
        _additivity(answers, residuals),
    )


def _additivity(answers: Answers, residuals: Float[np.ndarray, " question"]) -> float | None:
    """Return the share of the drops' variance that is predicted, at least 0; None if too few answers can tell.

    The answer to a question about a unit that no other question removed cannot be predicted.
    """
    predictable = ((answers.removed.sum(0) > 1) | ~answers.removed).all(1)
    drops = answers.drops[predictable]
    if len(drops) < FEWEST or np.var(drops) <= FLOOR**2:
        return None
    return max(0.0, 1 - float(np.mean(residuals[predictable] ** 2) / np.var(drops)))


def _decompose(
    answers: Answers, prior: Float[np.ndarray, " unit"], lean: float, shape: Float[np.ndarray, " unit"]
) -> _Basis:
    """Decompose the smaller of the two products of the design with itself."""
    design, prior = answers.removed * shape, prior / shape
    along = design @ prior
    features = np.concatenate([design, lean * along[:, None]], 1) if lean else design
    if len(features) <= features.shape[1]:
        values, vectors = eigenvectors(features @ features.T)
    else:
        values, right = eigenvectors(features.T @ features)
        vectors = features @ right / np.sqrt(values.clip(min=np.finfo(float).tiny))
    real = values > 1e-10 * max(values.max(), 1.0)
    values, vectors = values[real], vectors[:, real]
    gain = (design.T + lean**2 * np.outer(prior, along)) @ vectors
    return _Basis(lean, shape, prior, design, vectors, values, gain * shape[:, None])


def _fit(basis: _Basis, drops: Float[np.ndarray, " question"]) -> _Fit:
    """Return evidence and posterior at each noise level."""
    n, seen = len(drops), basis.vectors.T @ drops
    outside = drops - basis.vectors @ seen  # what no effects can explain
    inverse = 1 / (basis.values[:, None] + NOISES)  # rank noise
    misfit = FLOOR**2 + seen**2 @ inverse + outside @ outside / NOISES
    log_determinant = -np.log(inverse).sum(0) + (n - len(seen)) * np.log(NOISES)
    # Without evidence, answers are believed: noise levels have the prior weight 1 / (1 + l).
    evidence = -0.5 * log_determinant - (n + 1) / 2 * np.log(misfit) - np.log1p(NOISES)
    explained = seen[:, None] * inverse
    duals = basis.vectors @ explained + outside[:, None] / NOISES
    squares = basis.vectors**2
    own = squares @ inverse + (1 - squares.sum(1)).clip(min=0)[:, None] / NOISES
    scales = misfit / (n + 1)
    before = basis.shape**2 * (1 + basis.lean**2 * basis.prior**2)
    variances = (before[:, None] - basis.gain**2 @ inverse).clip(min=0) * scales
    multiples = basis.lean**2 * ((basis.design @ basis.prior) @ duals)
    evidence = np.where(multiples >= 0, evidence, -np.inf)
    return _Fit(basis, evidence, scales, basis.gain @ explained, variances, duals / own, multiples)
