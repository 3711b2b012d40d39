"""Kernel SHAP: Shapley values of the words, by a weighted regression on subsets of them. Signed.

Lundberg & Lee, "A Unified Approach to Interpreting Model Predictions", NeurIPS 2017, Theorem 2: of all w whose sum is
f(all words) - f(no word), the Shapley values minimise

    sum_S k(S) (f(S) - f(no word) - sum_{u in S} w_u)^2,    k(S) = (M - 1) / (C(M, |S|) |S| (M - |S|)),

over the sets S of M words that remain. As in the authors' package, the sets of 1 and M - 1 words, of 2 and M - 2, and
so on are all evaluated as long as the budget allows; from the other sizes, sets and their complements are drawn by k.
With 2^M evaluations or more, the values are exact.

Deviations from the package: words are removed, not replaced by background data; the budget counts the evaluations of
all words and of none; no words are selected by a lasso. The condition on the sum is met by construction: each w_u is
an equal share plus a deviation, and deviations sum to 0. Where the evaluations do not determine the values (details:
`determined`), the smallest deviations are taken, so that the result does not depend on the order of the words. The
tokens of a word share its value evenly; special tokens, and tokens that cannot be removed, get 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float

from whichtoken.core.linear_algebra import least_squares
from whichtoken.core.ops import seed_rows
from whichtoken.core.registry import register
from whichtoken.core.trace import Level, Method, Needs, Probe, Scores, Trace, needs
from whichtoken.core.units import keep_patterns, n_units, spread, stack_removed

Coalitions = tuple[Bool[np.ndarray, "n unit"], Float[np.ndarray, " n"]]  # which units are present, and weights


@register("kernel-shap", paper="Lundberg and Lee, NeurIPS 2017")
@dataclass(frozen=True)
class KernelSHAP(Method):
    budget: int = field(default=64, metadata={"least": 2})  # evaluations, those of the whole and of nothing included
    units: Level = "word"
    perturbation: str | None = None  # None: the task's own
    seed: int = field(default=0, metadata={"least": 0})
    scale: Literal["log-odds", "probability"] = "probability"

    @property
    def needs(self) -> Needs:
        return needs(asks="answers")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        units = probe.units(self.units)
        counts, generators = n_units(units).tolist(), seed_rows(trace, self.seed)
        chosen = [choose_coalitions(n, self.budget - 2, of_row) for n, of_row in zip(counts, generators, strict=True)]
        ends = [np.array([[False] * n, [True] * n]) for n in counts]  # nothing is removed, everything is
        removed = stack_removed([np.concatenate([end, ~s]) for end, (s, _) in zip(ends, chosen, strict=True)])
        evaluate = probe.log_odds if self.scale == "log-odds" else probe.outputs
        outputs = evaluate(keep_patterns(units, removed), self.perturbation).double().cpu().numpy()
        effects, details = torch.zeros(len(units), max(counts), dtype=torch.float64), []
        for row, (present, weights) in enumerate(chosen):
            whole, nothing, *of_sets = outputs[row, : 2 + len(present)]
            values, rank = fit_shapley(present, weights, np.array(of_sets) - nothing, whole - nothing)
            effects[row, : counts[row]] = torch.from_numpy(values)
            details.append({"coalitions": len(present), "determined": rank >= counts[row] - 1})
        return Scores(spread(effects, units), tuple(details))


def choose_coalitions(n: int, budget: int, generator: np.random.Generator) -> Coalitions:
    """Return at most `budget` sets of n units, neither empty nor whole, with weights that represent the kernel."""
    sizes = range(1, n // 2 + 1)  # sets of n - size units are their complements
    share = {size: _n_sides(size, n) / (size * (n - size)) for size in sizes}  # of the kernel's weight, up to a factor
    sets, weights = list[Bool[np.ndarray, " unit"]](), list[float]()
    for size in sizes:
        n_sets, left = comb(n, size) * _n_sides(size, n), sum(share.values())
        if (budget - len(sets)) * share[size] / left < n_sets * (1 - 1e-8):
            break
        for members in combinations(range(n), size):
            present = np.isin(np.arange(n), members)
            sets += [present, ~present][: _n_sides(size, n)]
        weights += [share.pop(size) / n_sets] * n_sets
    drawn = _draw_sets(n, budget - len(sets), share, generator) if share else {}
    sets += [np.frombuffer(present, dtype=bool) for present in drawn]
    weights += [sum(share.values()) * count / sum(drawn.values()) for count in drawn.values()]
    return np.array(sets, dtype=bool).reshape(len(sets), n), np.array(weights, dtype=np.float64)


def _n_sides(size: int, n: int) -> int:
    """Return 1 if the complement of a set has the same size, otherwise 2."""
    return 1 if 2 * size == n else 2


def _draw_sets(n: int, budget: int, share: Mapping[int, float], generator: np.random.Generator) -> dict[bytes, int]:
    """Draw sets, each with its complement, up to `budget` different ones; return how often each was drawn."""
    counts: dict[bytes, int] = {}
    chances = np.array([weight / _n_sides(size, n) for size, weight in share.items()])
    for size in generator.choice(list(share), 4 * budget, p=chances / chances.sum()).tolist():
        if len(counts) == budget:
            break
        present = np.zeros(n, dtype=bool)
        present[generator.permutation(n)[:size]] = True
        for side in (present, ~present)[: _n_sides(size, n)]:
            if side.tobytes() in counts or len(counts) < budget:
                counts[side.tobytes()] = counts.get(side.tobytes(), 0) + 1
    return counts


def fit_shapley(
    present: Bool[np.ndarray, "n unit"], weights: Float[np.ndarray, " n"], gains: Float[np.ndarray, " n"], total: float
) -> tuple[Float[np.ndarray, " unit"], int]:
    """Return values whose sum is `total`, and the rank of the regression: one less than the units if it is determined.

    Rows without their mean say nothing about a common shift, so the deviations of least norm sum to 0.
    """
    n = present.shape[1]
    if not n:
        return np.zeros(0), 0
    filled, root = present.mean(1, keepdims=True), np.sqrt(weights)
    deviations, rank = least_squares(
        root[:, None] * (present - filled), root * (gains - total * filled[:, 0]), smallest=1e-10
    )
    return total / n + deviations, rank
