"""ContextCite: which sentences of a prompt an answer rests on, by a sparse regression on random ablations. Signed.

Cohen-Wang et al., "ContextCite: Attributing Model Generation to Context", NeurIPS 2024. Each of `ablations` evaluations
keeps every sentence with probability 1/2. With z_u = 1 if sentence u is kept, standardised over the ablations, and y
the log-odds of the answer divided by its number of tokens, the weights minimise

    sum_z (y(z) - w_0 - <w, z>)^2 / (2 n) + alpha |w|_1,

and scores are w in units of the log-odds. Sentences that do not matter get exactly 0.

Deviations from the authors' package: sentences are removed as tokens, without tokenizing the rest again. The tokens of
a sentence share its score evenly; special tokens, and tokens that cannot be removed, get 0. For models that do not
generate text, there is one token to predict.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float

from whichtoken.core.ops import seed_rows
from whichtoken.core.registry import register
from whichtoken.core.trace import Level, Method, Needs, Probe, Scores, Trace, needs
from whichtoken.core.units import keep_patterns, n_units, spread, stack_removed

SWEEPS = 10_000  # of coordinate descent, at most
TOLERANCE = 1e-10  # largest change of a weight in the last sweep, as a share of the largest weight


@register("context-cite", paper="Cohen-Wang et al., NeurIPS 2024")
@dataclass(frozen=True)
class ContextCite(Method):
    ablations: int = field(default=64, metadata={"least": 2})
    units: Level = "sentence"
    alpha: float = field(default=0.01, metadata={"least": 0})
    perturbation: str | None = None  # None: the task's own
    seed: int = field(default=0, metadata={"least": 0})

    @property
    def needs(self) -> Needs:
        return needs(asks="answers")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        units = probe.units(self.units)
        counts, generators = n_units(units).tolist(), seed_rows(trace, self.seed)
        removed = [generator.random((self.ablations, n)) < 0.5 for n, generator in zip(counts, generators, strict=True)]
        outputs = probe.log_odds(keep_patterns(units, stack_removed(removed)), self.perturbation)
        n_read = (trace.readout > 0).sum(-1).clamp(min=1).tolist() if trace.answering else [1] * len(units)
        effects = torch.zeros(len(units), max(counts), dtype=torch.float64)
        for row, (n, gone) in enumerate(zip(counts, removed, strict=True)):
            answers = outputs[row].double().cpu().numpy() / n_read[row]
            effects[row, :n] = torch.from_numpy(fit_lasso(~gone, answers, self.alpha) * n_read[row])
        return Scores(spread(effects, units))


def fit_lasso(
    kept: Bool[np.ndarray, "n unit"], answers: Float[np.ndarray, " n"], alpha: float
) -> Float[np.ndarray, " unit"]:
    """Return the weights of the units, by coordinate descent on standardised columns; 0 for constant columns."""
    spreads = kept.std(0)
    varies = spreads > 0
    design = (kept - kept.mean(0)) / np.where(varies, spreads, 1)
    residual, weights, n = answers - answers.mean(), np.zeros(kept.shape[1]), len(answers)
    for _ in range(SWEEPS):
        before = weights.copy()
        for unit in np.flatnonzero(varies):
            column = design[:, unit]
            pull = column @ residual / n + weights[unit]  # the mean of the squared column is 1
            new = np.sign(pull) * max(abs(pull) - alpha, 0.0)
            residual -= column * (new - weights[unit])
            weights[unit] = new
        if np.abs(weights - before).max(initial=0) <= TOLERANCE * np.abs(weights).max(initial=0):
            break
    return np.where(varies, weights / np.where(varies, spreads, 1), 0.0)
