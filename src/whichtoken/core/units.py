"""Units: the words, sentences or patches that a method removes as a whole, as patterns and as scores of tokens."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad


def n_units(units: Int[Tensor, "batch token"]) -> Int[Tensor, " batch"]:
    """Return how many units each row has; `units` numbers them from 0 and is -1 at tokens that cannot be removed."""
    return units.amax(-1) + 1


def stack_removed(rows: Sequence[Bool[np.ndarray, "_ _"]]) -> Bool[Tensor, "batch n unit"]:
    """Stack which units each pattern of each row removes; what is added to shorter rows removes nothing."""
    shape = [max((array.shape[axis] for array in rows), default=0) for axis in (0, 1)]
    removed = torch.zeros(len(rows), *shape, dtype=torch.bool)
    for row, array in enumerate(rows):
        removed[row, : array.shape[0], : array.shape[1]] = torch.from_numpy(array)
    return removed


def keep_patterns(
    units: Int[Tensor, "batch token"], removed: Bool[Tensor, "batch n unit"]
) -> Bool[Tensor, "batch n token"]:
    """Return which tokens remain when units are removed; tokens of no unit always remain."""
    column = _column(units, removed.shape[2])[:, None].expand(-1, removed.shape[1], -1)
    return ~pad(removed, (0, 1)).to(units.device).gather(2, column)


def spread(effects: Float[Tensor, "batch unit"], units: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token"]:
    """Divide the effect of each unit evenly among its tokens; tokens of no unit get 0."""
    padded = pad(effects, (0, 1)).to(units.device)
    column = _column(units, effects.shape[1])
    n_tokens = torch.zeros_like(padded).scatter_add(1, column, torch.ones_like(column, dtype=padded.dtype))
    return (padded / n_tokens.clamp(min=1)).gather(1, column)


def _column(units: Int[Tensor, "batch token"], none: int) -> Int[Tensor, "batch token"]:
    """Return the unit of each token, or `none`, a column that is added for tokens of no unit."""
    return units.where(units >= 0, none)
