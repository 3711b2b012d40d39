"""LIME: a linear model of the probability, fitted to random subsets of the words. Signed.

Ribeiro et al., "'Why Should I Trust You?': Explaining the Predictions of Any Classifier", KDD 2016, with the choices of
the authors' package for texts. Each of `budget` - 1 evaluations removes a random set of words, its size uniform from 1
to all of them. With z_u = 1 if word u is present, the scores w minimise

    sum_z pi(z) (f(z) - w_0 - <w, z>)^2 + |w|^2,    pi(z) = sqrt(exp(-d(z)^2 / 25^2)),

with d(z) 100 times the cosine distance of z to the whole text, which is evaluated, too.

Deviations from the package: 64 evaluations by default instead of 5,000; no selection of words, so all get a score; two
words that are spelled alike are removed separately. The tokens of a word share its score evenly; special tokens, and
tokens that cannot be removed, get 0. For images, the package removes super-pixels; here, patches are the units.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float

from whichtoken.core.linear_algebra import multiply, solve_positive
from whichtoken.core.ops import seed_rows
from whichtoken.core.registry import register
from whichtoken.core.trace import Level, Method, Needs, Probe, Scores, Trace, needs
from whichtoken.core.units import keep_patterns, n_units, spread, stack_removed

KERNEL_WIDTH = 25.0
RIDGE = 1.0


@register("lime", paper="Ribeiro et al., KDD 2016")
@dataclass(frozen=True)
class LIME(Method):
    budget: int = field(default=64, metadata={"least": 2})  # evaluations, that of the whole input included
    units: Level = "word"
    perturbation: str | None = None  # None: the task's own
    seed: int = field(default=0, metadata={"least": 0})

    @property
    def needs(self) -> Needs:
        return needs(asks="answers")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        units = probe.units(self.units)
        counts, generators = n_units(units).tolist(), seed_rows(trace, self.seed)
        removed = [draw_removed(n, self.budget, generator) for n, generator in zip(counts, generators, strict=True)]
        outputs = probe.outputs(keep_patterns(units, stack_removed(removed)), self.perturbation)
        effects = torch.zeros(len(units), max(counts), dtype=torch.float64)
        for row, (n, gone) in enumerate(zip(counts, removed, strict=True)):
            effects[row, :n] = torch.from_numpy(fit_ridge(~gone, outputs[row].double().cpu().numpy()))
        return Scores(spread(effects, units))


def draw_removed(n: int, budget: int, generator: np.random.Generator) -> Bool[np.ndarray, "n unit"]:
    """Draw random sets of n units to remove, after the first, which removes nothing."""
    removed = np.zeros((budget, n), dtype=bool)
    for row in removed[1:] if n else ():
        row[generator.permutation(n)[: generator.integers(1, n + 1)]] = True
    return removed


def fit_ridge(present: Bool[np.ndarray, "n unit"], outputs: Float[np.ndarray, " n"]) -> Float[np.ndarray, " unit"]:
    """Return the weights of the units in the weighted ridge regression, whose intercept is not penalised."""
    cosine = np.sqrt(present.mean(1)) if present.shape[1] else np.ones(len(present))
    weights = np.sqrt(np.exp(-((100 * (1 - cosine)) ** 2) / KERNEL_WIDTH**2))
    design = present - np.average(present, 0, weights)
    centred = outputs - np.average(outputs, 0, weights)
    normal = multiply(design.T, weights[:, None] * design) + RIDGE * np.eye(present.shape[1])
    return solve_positive(normal, multiply(design.T, weights * centred))[0]
