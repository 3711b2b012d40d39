"""What a record says about how far it can be trusted: outputs without some words, intervals, interactions. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Removal:
    """What remains of the output without some tokens."""

    tokens: tuple[int, ...]  # positions in the record's tokens
    output: float  # the probability, or the predicted value, of what is explained


@dataclass(frozen=True)
class Interaction:
    """Units that act together: removing them together lowers the output by more, or less, than their removals alone."""

    units: tuple[tuple[int, ...], ...]  # the tokens of each unit: positions in the record's tokens
    effect: float  # what removing them together adds to the sum of their own effects, on the scale of the scores
    low: float  # bounds of the effect, at the level of `Confidence.level`
    high: float
    # Without the first unit, without the second, without both; only for the strongest.
    measured: tuple[Removal, ...] = ()


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
    # The share of the same variance that the method's own statistical model predicts, with its interactions, each
    # output from the others. None: the model has no interactions, or as for `additivity`.
    predicted: float | None = None
    interactions: tuple[Interaction, ...] = ()  # strongest first; only those whose interval excludes 0


def merge_confidence(
    parts: Sequence[Confidence | None], low: tuple[float, ...], high: tuple[float, ...]
) -> Confidence | None:
    """Merge what is known about the pieces of one input, given the merged bounds of its scores.

    The whole is as additive, and as predictable, as its least additive or predictable piece. Which part comes first,
    the check and the interactions are about the output of one piece, so several pieces have none of them.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if len(known) == 1:
        return replace(known[0], low=low, high=high)
    additivity = [part.additivity for part in known if part.additivity is not None]
    predicted = [part.predicted for part in known if part.predicted is not None]
    return Confidence(
        low=low,
        high=high,
        level=known[0].level,
        n_units=sum(part.n_units for part in known),
        n_unresolved=sum(part.n_unresolved for part in known),
        n_answers=sum(part.n_answers for part in known),
        additivity=min(additivity, default=None),
        first=None,
        predicted=min(predicted, default=None),
    )
