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

from whichtoken.core.linear_algebra import eigenvectors, multiply

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
class _Bases:
    """The questions under each prior: thin singular value decompositions of D C^½, with squared values.

    All priors are computed together, because an input has few questions and units. Vectors of value 0 are 0, too.
    """

    leans: Float[np.ndarray, " prior"]
    shapes: Float[np.ndarray, "prior unit"]  # the square roots of S
    maps: Float[np.ndarray, "prior unit"]  # the map, divided by these
    designs: Float[np.ndarray, "prior question unit"]  # the questions, times these
    vectors: Float[np.ndarray, "prior question rank"]
    values: Float[np.ndarray, "prior rank"]
    gains: Float[np.ndarray, "prior unit rank"]  # C D' times the vectors

    @property
    def along(self) -> Float[np.ndarray, "prior question"]:
        """What each question removes of the map."""
        removed: NDArray[np.float64] = (self.designs @ self.maps[:, :, None])[:, :, 0]
        return removed


@dataclass(frozen=True)
class _Fits:
    """The posterior under each prior and at each noise level."""

    bases: _Bases
    evidence: Float[np.ndarray, "prior noise"]  # logarithm; -inf where the multiple of the map is negative
    scales: Float[np.ndarray, "prior noise"]  # t²
    means: Float[np.ndarray, "prior unit noise"]
    variances: Float[np.ndarray, "prior unit noise"]
    residuals: Float[np.ndarray, "prior question noise"]  # drop minus its prediction from the other answers
    multiples: Float[np.ndarray, "prior noise"]  # of the map

    def weigh(self) -> Float[np.ndarray, "prior noise"]:
        """Return the weight of each grid point; 0 if it is negligible."""
        weights = np.exp(self.evidence - self.evidence.max())
        weights /= weights.sum()
        weights[weights <= NEGLIGIBLE] = 0
        scaled: NDArray[np.float64] = weights / weights.sum()
        return scaled


@dataclass(frozen=True)
class EffectEstimate:
    """The posterior of the effects."""

    answers: Answers
    fits: _Fits
    weights: Float[np.ndarray, "prior noise"]  # of the fits
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
        bases, possible = self.fits.bases, np.argwhere(self.weights > 0)
        ends = np.cumsum(self.weights[tuple(possible.T)])
        uniform = np.array([0.5 + 0.5 * erf(number / sqrt(2)) for number in shared[:, 0]])
        chosen, levels = possible[np.searchsorted(ends, uniform * ends[-1]).clip(max=len(ends) - 1)].T
        scales, noises = np.sqrt(self.fits.scales[chosen, levels])[:, None], NOISES[levels][:, None]
        own, draws = shared[:, 2 : 2 + len(self.answers.drops)], np.empty_like(normal)
        for basis in np.unique(chosen):
            rows = chosen == basis
            around = bases.leans[basis] * shared[rows, 1:2] * bases.maps[basis]
            guess = scales[rows] * (normal[rows] + around)
            noise = scales[rows] * np.sqrt(noises[rows]) * own[rows]
            wrong = self.answers.drops - multiply(guess, bases.designs[basis].T) - noise
            seen = multiply(wrong, bases.vectors[basis]) / (bases.values[basis] + noises[rows])
            draws[rows] = guess * bases.shapes[basis] + multiply(seen, bases.gains[basis].T)
        return draws


def fit_effects(answers: Answers, prior: Float[np.ndarray, " unit"]) -> EffectEstimate:
    """Return the posterior of the effects. `prior`: a map whose largest absolute value is 1, or zeros for none."""
    fits = _fit(_decompose(answers, prior), answers.drops)
    weights = fits.weigh()
    mean, residuals = (np.einsum("bl,bpl->p", weights, of_point) for of_point in (fits.means, fits.residuals))
    around = fits.variances + (fits.means - mean[:, None]) ** 2
    return EffectEstimate(
        answers,
        fits,
        weights,
        mean,
        np.sqrt(np.einsum("bl,bpl->p", weights, around)),
        np.sqrt((weights * fits.scales).sum(1) @ fits.bases.shapes**2),
        float((weights * fits.multiples).sum()),
        sqrt((weights * fits.scales * NOISES).sum()),
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


def _decompose(answers: Answers, prior: Float[np.ndarray, " unit"]) -> _Bases:
    """Decompose the smaller of the two products of the design with itself."""
    even, leans = np.ones(len(prior)), LEANS if prior.any() else LEANS[:1]
    shapes = np.stack([shape for shape in ((even, BASE + np.abs(prior)) if prior.any() else (even,)) for _ in leans])
    lean, maps = np.tile(leans, len(shapes) // len(leans)), prior / shapes
    designs = answers.removed * shapes[:, None]
    along = designs @ maps[:, :, None]
    features = np.concatenate([designs, lean[:, None, None] * along], 2)
    if features.shape[1] <= features.shape[2]:
        values, vectors = eigenvectors(features @ features.transpose(0, 2, 1))
    else:
        values, right = eigenvectors(features.transpose(0, 2, 1) @ features)
        vectors = features @ right / np.sqrt(values.clip(min=np.finfo(float).tiny))[:, None]
    real = values > 1e-10 * values.max(1, initial=1.0, keepdims=True)
    values, vectors = np.where(real, values, 0), np.where(real[:, None], vectors, 0)
    moved = designs.transpose(0, 2, 1) + (lean**2)[:, None, None] * maps[:, :, None] * along.transpose(0, 2, 1)
    return _Bases(lean, shapes, maps, designs, vectors, values, (moved @ vectors) * shapes[:, :, None])


def _fit(bases: _Bases, drops: Float[np.ndarray, " question"]) -> _Fits:
    """Return evidence and posterior under each prior, at each noise level."""
    n, seen = len(drops), drops @ bases.vectors  # prior rank
    outside = drops - (bases.vectors @ seen[:, :, None])[:, :, 0]  # what no effects can explain
    noisy = bases.values[:, :, None] + NOISES  # prior rank noise
    inverse = 1 / noisy
    misfit = FLOOR**2 + (seen[:, None] ** 2 @ inverse)[:, 0] + (outside**2).sum(1, keepdims=True) / NOISES
    log_determinant = np.log(noisy).sum(1) + (n - seen.shape[1]) * np.log(NOISES)
    # Without evidence, answers are believed: noise levels have the prior weight 1 / (1 + l).
    evidence = -0.5 * log_determinant - (n + 1) / 2 * np.log(misfit) - np.log1p(NOISES)
    explained = seen[:, :, None] * inverse
    duals = bases.vectors @ explained + outside[:, :, None] / NOISES
    squares = bases.vectors**2
    own = squares @ inverse + (1 - squares.sum(2)).clip(min=0)[:, :, None] / NOISES
    scales, leans = misfit / (n + 1), bases.leans[:, None] ** 2
    before = bases.shapes**2 * (1 + leans * bases.maps**2)
    variances = (before[:, :, None] - bases.gains**2 @ inverse).clip(min=0) * scales[:, None]
    multiples = leans * (bases.along[:, None] @ duals)[:, 0]
    evidence = np.where(multiples >= 0, evidence, -np.inf)
    return _Fits(bases, evidence, scales, bases.gains @ explained, variances, duals / own, multiples)
