"""Random ablations of an input, and the linear datamodelling score: how well scores predict them. numpy only.

The linear datamodelling score (LDS; Park et al., ICML 2023; for the sources of a prompt, Cohen-Wang et al., NeurIPS
2024) removes random sets of units, each unit with probability 1/2. It is Spearman's rank correlation, over these sets,
between the output of the model and what the scores predict: the sum of the scores of the units that are kept.
"""

from dataclasses import dataclass
from random import Random

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from whichtoken.metrics.ranks import Scores

TRIES = 20  # draws for each set: a set that was drawn before says nothing new


@dataclass(frozen=True, eq=False)
class Ablations:
    """Random sets of units, and the output of the model for each: a log-probability, probability or value."""

    kept: Bool[np.ndarray, "ablation unit"]
    outputs: Float[np.ndarray, " ablation"]


def draw_kept(n_units: int, n: int, seed: str) -> Bool[np.ndarray, "ablation unit"]:
    """Draw n different sets of units to keep; of an input with few units, return all sets.

    A unit is kept with probability 1/2, whatever happens to the others. Sizes between sets may repeat, sets do not.
    """
    if 2**n_units <= n:
        every: NDArray[np.bool_] = (np.arange(2**n_units)[:, None] >> np.arange(n_units) & 1).astype(bool)
        return every
    source, drawn = Random(seed), dict[int, None]()
    for _ in range(TRIES * n):
        drawn.setdefault(source.getrandbits(n_units))
        if len(drawn) == n:
            break
    return np.array([[number >> unit & 1 for unit in range(n_units)] for number in drawn], dtype=bool)


def linear_datamodelling_score(scores: Scores, ablations: Ablations) -> float | None:
    """Return the score, -1 to 1; None if all predictions, or all outputs, are the same: they have no ranking."""
    predicted = ablations.kept @ np.asarray(scores, dtype=np.float64)
    return spearman(predicted, ablations.outputs)


def spearman(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float | None:
    """Return Spearman's rank correlation; tied values share the mean of their ranks. None if one is constant."""
    ranks = [_rank(np.asarray(values, dtype=np.float64)) for values in (a, b)]
    centred = [own - own.mean() for own in ranks]
    scale = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return None if scale == 0 else float(np.clip(centred[0] @ centred[1] / scale, -1, 1))


def _rank(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks
