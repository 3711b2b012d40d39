"""What a record says about how far it can be trusted: outputs without some words, intervals, additivity. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Removal:
    """What remains of the output without some tokens."""

    tokens: tuple[int, ...]  # positions in the record's tokens
    output: float  # the probability, or the predicted value, of what is explained


@dataclass(frozen=True)
class Confidence:
    """How sure a method is of its scores, by its own statistical model of the answers it got.

    The bounds of tokens that were only ever removed together (the tokens of a word) are shares of the same interval,
    so their sums are the bounds of the word. If tokens were removed separately, such sums are wider than necessary.
    """

    low: tuple[float, ...]  # of each token's score
    high: tuple[float, ...]
    level: float  # the probability that an effect lies between its bounds
    n_units: int  # parts of the input that are scored separately: words, sentences, tokens or patches
    n_unresolved: int  # units that the answers say little about: their scores mostly follow the prior
    n_answers: int  # inputs with parts removed whose outputs were used
    # The share of the variance of these outputs that scores fitted to the other outputs predict. Where it is low, the
    # words interact, and no list of scores describes the model well. None: too few outputs, or all equal.
    additivity: float | None
    first: float | None  # the probability that the part with the highest score has the highest effect
    check: Removal | None = None  # without the highest parts


def merge_confidence(
    parts: Sequence[Confidence | None], low: tuple[float, ...], high: tuple[float, ...]
) -> Confidence | None:
    """Merge what is known about the pieces of one input, given the merged bounds of its scores.

    The whole is as additive as its least additive piece; which part comes first is only known within a piece.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if len(known) == 1:
        return replace(known[0], low=low, high=high)
    additivity = [part.additivity for part in known if part.additivity is not None]
    return Confidence(
        low=low,
        high=high,
        level=known[0].level,
        n_units=sum(part.n_units for part in known),
        n_unresolved=sum(part.n_unresolved for part in known),
        n_answers=sum(part.n_answers for part in known),
        additivity=min(additivity, default=None),
        first=None,
    )
