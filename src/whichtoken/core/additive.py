"""Bayesian regression of a model's answers on the units that were removed. numpy only, one input at a time.

y = D w + noise: D says which units a question removed, y is how far the output dropped, w are the units' effects.
The prior is w ~ N(0, t^2 C), C = I + k^2 m m', with m a single-pass map: effects scatter around a multiple of the map,
and that multiple is learned (k = 0: the map is ignored). Noise has variance l t^2. t is integrated out; l and k are
averaged over a grid, weighted by the evidence (Bishop, Pattern Recognition and Machine Learning, 2006, ch. 3).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

NOISE = (1e-8, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # l: noise variance / prior variance
LEANS = (0.0, 1.0, 10.0)  # k: how far effects may follow the prior map, in prior standard deviations
WEAK = 1.0  # answers that the prior on t is worth
FLOOR = 1e-4  # the effect size that this prior expects, in units of the output: an unaffected output has effects 0


@dataclass(frozen=True)
class Component:
    """The posterior for one noise level and one lean towards the prior map."""

    weight: float
    mean: Float[np.ndarray, " unit"]
    spread: Float[np.ndarray, " unit"]  # standard deviation
    residuals: Float[np.ndarray, " question"]  # leave-one-out: answer minus its prediction from the other answers
    noise: float
    lean: float
    scale: float  # t
    basis: "_Basis"


@dataclass(frozen=True)
class Effects:
    """The posterior of the effects, averaged over noise levels and leans."""

    mean: Float[np.ndarray, " unit"]
    spread: Float[np.ndarray, " unit"]
    additivity: float  # leave-one-out share of the variance of the answers that the effects predict; at most 1
    components: tuple[Component, ...]

    def draw(
        self, normal: Float[np.ndarray, "draw unit"], shared: Float[np.ndarray, "draw more"]
    ) -> Float[np.ndarray, "draw unit"]:
        """Turn standard normal numbers into draws of the effects. `shared`: at least 2 + the number of questions."""
        weights = np.cumsum([component.weight for component in self.components])
        chosen = np.searchsorted(weights, _normal_cdf(shared[:, 0]) * weights[-1])
        return np.stack([self._draw_one(int(c), z, s) for c, z, s in zip(chosen, normal, shared, strict=True)])

    def _draw_one(self, chosen: int, normal: NDArray[np.float64], shared: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draw from prior and noise, then correct the draw by what it gets wrong about the answers (Matheron)."""
        component = self.components[min(chosen, len(self.components) - 1)]
        basis, lean = component.basis, component.lean
        from_prior = component.scale * (normal + lean * shared[1] * basis.prior)
        noise = component.scale * np.sqrt(component.noise) * shared[2 : 2 + len(basis.answers)]
        wrong = basis.answers - basis.removed @ from_prior - noise
        return from_prior + basis.gain @ ((basis.vectors.T @ wrong) / (basis.values + component.noise))


@dataclass(frozen=True)
class _Basis:
    """The eigenvectors and eigenvalues of D C D', and C D' times the eigenvectors."""

    removed: Float[np.ndarray, "question unit"]
    answers: Float[np.ndarray, " question"]
    prior: Float[np.ndarray, " unit"]
    values: Float[np.ndarray, " question"]
    vectors: Float[np.ndarray, "question question"]
    gain: Float[np.ndarray, "unit question"]


def fit_effects(
    removed: Bool[np.ndarray, "question unit"],
    answers: Float[np.ndarray, " question"],
    prior: Float[np.ndarray, " unit"],
) -> Effects:
    """Return the posterior. `answers`: how far the output dropped. `prior`: a map whose largest size is 1, or all 0."""
    design = removed.astype(np.float64)
    parts = [part for lean in (LEANS if prior.any() else (0.0,)) for part in _fit_lean(design, answers, prior, lean)]
    evidence = np.array([log_evidence for log_evidence, _ in parts])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    kept = [
        Component(float(weight), *fitted)
        for weight, (_, fitted) in zip(weights, parts, strict=True)
        if weight > 1e-6  # the others change nothing
    ]
    total = sum(component.weight for component in kept)
    mean = sum(c.weight * c.mean for c in kept) / total
    square = sum(c.weight * (c.spread**2 + (c.mean - mean) ** 2) for c in kept) / total
    residuals = sum(c.weight * c.residuals for c in kept) / total
    variance = float(np.var(answers))
    additivity = 1 - float(np.mean(residuals**2)) / variance if variance > FLOOR**2 else 1.0
    return Effects(mean, np.sqrt(square), additivity, tuple(kept))


def _fit_lean(
    design: NDArray[np.float64], answers: NDArray[np.float64], prior: NDArray[np.float64], lean: float
) -> list[tuple[float, tuple[object, ...]]]:
    """Return log evidence and posterior for each noise level; none if the answers contradict the prior map."""
    n, along = len(answers), design @ prior
    values, vectors = np.linalg.eigh(design @ design.T + lean**2 * np.outer(along, along))
    values = values.clip(min=0)
    gain = (design.T + lean**2 * np.outer(prior, along)) @ vectors
    basis = _Basis(design, answers, prior, values, vectors, gain)
    seen = vectors.T @ answers
    inverse = 1 / (values[:, None] + np.array(NOISE))  # question noise
    misfit = seen**2 @ inverse + WEAK * FLOOR**2
    evidence = 0.5 * np.log(inverse).sum(0) - (n + WEAK) / 2 * np.log(misfit)
    duals = vectors @ (seen[:, None] * inverse)
    means = gain @ (seen[:, None] * inverse)
    own = 1 + lean**2 * prior**2
    variances = (own[:, None] - gain**2 @ inverse).clip(min=0) * misfit / (n + WEAK)
    residuals = duals / (vectors**2 @ inverse)
    fitted = []
    for i, noise in enumerate(NOISE):
        if lean and along @ duals[:, i] < 0:
            continue
        scale = float(np.sqrt(misfit[i] / (n + WEAK)))
        part = (means[:, i], np.sqrt(variances[:, i]), residuals[:, i], noise, lean, scale, basis)
        fitted.append((float(evidence[i]), part))
    return fitted


def _normal_cdf(values: NDArray[np.float64]) -> NDArray[np.float64]:
    from math import erf

    return np.array([0.5 * (1 + erf(value / np.sqrt(2))) for value in values])
