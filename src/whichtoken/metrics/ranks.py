"""Metrics of token rankings: pure functions of scores. No torch."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from whichtoken.errors import BadSetting, UsageError

Scores: TypeAlias = Sequence[float]  # of the tokens of one text


def kendall(a: Scores, b: Scores) -> float:
    """Return Kendall's tau-b of two methods' scores of the same tokens: 1 for the same ranking, -1 for the reverse.

    0.0 if either assigns one score to all tokens, which is not a ranking (tau would be 0/0, and records cannot hold
    NaN).
    """
    return _tau(score_table([a, b]))[0][1]


def agreement(scores: Sequence[Scores]) -> tuple[tuple[float, ...], ...]:
    """Return Kendall's tau-b between all methods, one row of scores each; 0.0 for constant rows, as in `kendall`."""
    return _tau(score_table(scores)) if scores else ()


def precision_at_k(scores: Scores, gold_positions: Collection[int], k: int = 20) -> int:
    """Return how many gold positions are among the k highest scores, ties by position: a count, as in AttCAT."""
    if k < 1:
        raise BadSetting("k", k, "1 or more")
    row = score_table([scores])[0]
    if outside := sorted(position for position in gold_positions if not 0 <= position < len(row)):
        raise UsageError(f"gold positions {outside} are not among the {len(row)} tokens; count them from 0")
    return len(set(np.argsort(-row, kind="stable")[:k].tolist()) & set(gold_positions))


def recall_at_k(counts: Sequence[int], span_lengths: Sequence[int]) -> float:
    """Return mean `precision_at_k` / mean length of the gold spans: what Mask-LRP's code reports as precision@20."""
    if len(counts) != len(span_lengths) or not sum(span_lengths):
        raise UsageError(
            f"{len(counts)} counts and {len(span_lengths)} span lengths, {sum(span_lengths)} tokens in all; "
            "give one of each for every text, and at least one span with a token"
        )
    return sum(counts) / sum(span_lengths)


def score_table(scores: Sequence[Scores]) -> NDArray[np.float64]:
    """Return one row for each method; raise UsageError if lengths differ or a score is not finite."""
    if len(lengths := {len(row) for row in scores}) > 1:
        raise UsageError(f"scores of {sorted(lengths)} tokens cannot be compared; give scores of the same tokens")
    table = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(table).all():
        raise UsageError("some scores are NaN or infinite and cannot be ranked; give finite scores")
    return table


def _tau(table: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    """Return tau-b of all rows: products of signs of differences, over the root of the product of untied pairs."""
    first, second = np.triu_indices(table.shape[1], k=1)
    left, right = table[:, first], table[:, second]
    signs = (left > right).astype(np.float64) - (left < right)  # a difference could overflow
    products = signs @ signs.T
    apart = np.sqrt(np.outer(products.diagonal(), products.diagonal()))
    tau = np.divide(products, apart, out=np.zeros_like(products), where=apart > 0)
    return tuple(map(tuple, tau.tolist()))
