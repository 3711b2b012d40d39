"""Plausibility: how well attributions agree with human rationales. No torch.

Plausibility is not faithfulness and is kept separate from it: people mark what would convince them, but the model may
use something else, and a faithful explanation of a model that reasons oddly is not plausible. Nor does a plausible
explanation show that the model reasons well. Metrics as in ERASER, DeYoung et al., ACL 2020.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.records import Attribution
from whichtoken.words import Span


@dataclass(frozen=True)
class Rationale:
    """The parts of a text that a person marked as the reason for a label."""

    texts: tuple[str, ...]  # one text, or the two of a pair
    spans: tuple[tuple[int, int, int], ...]  # sequence, start, end: character offsets into texts[sequence]
    label: str | int | None = None  # the label it supports: a name, a label index, or unknown

    def __post_init__(self) -> None:
        for sequence, start, end in self.spans:
            if not (0 <= sequence < len(self.texts) and 0 <= start < end <= len(self.texts[sequence])):
                lengths = " and ".join(str(len(text)) for text in self.texts)
                raise BadInput(
                    f"a rationale marks characters {start} to {end} of text {sequence}, but the texts, counted from 0, "
                    f"have {lengths} characters; give (sequence, start, end)"
                )


@dataclass(frozen=True)
class Plausibility:
    """The metrics of one text, or their means over texts; each is 0 to 1, higher is better."""

    token_f1: float
    iou_f1: float
    auprc: float


def plausibility(attributions: Sequence[Attribution], rationales: Sequence[Rationale]) -> list[Plausibility | None]:
    """Measure how well each attribution agrees with its rationale; None if no token lies in it, so that means skip it.

    Special tokens do not count. The highest tokens of a text are selected, at least one: the share selected is the mean
    share of tokens in a rationale, over all texts with a rationale. So pass all texts of a data set together.
    """
    if len(attributions) != len(rationales):
        raise UsageError(
            f"{len(attributions)} attributions and {len(rationales)} rationales; give the same number of each"
        )
    content = [_content_positions(attribution) for attribution in attributions]
    gold = [_gold_positions(*pair) for pair in zip(attributions, rationales, strict=True)]
    shares = [len(marked) / len(tokens) for marked, tokens in zip(gold, content, strict=True) if marked]
    share = sum(shares) / len(shares) if shares else 0.0
    return [
        _measure(attribution, tokens, marked, max(1, round(share * len(tokens)))) if marked else None
        for attribution, tokens, marked in zip(attributions, content, gold, strict=True)
    ]


def top_tokens(scores: Sequence[float], k: int) -> tuple[int, ...]:
    """Return the positions of the k highest scores, highest first; ties by position."""
    return tuple(np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")[:k].tolist())


def runs(positions: Iterable[int]) -> tuple[Span, ...]:
    """Group consecutive positions into (start, end) spans, end exclusive."""
    spans: list[Span] = []
    for position in sorted(set(positions)):
        if spans and spans[-1][1] == position:
            spans[-1] = (spans[-1][0], position + 1)
        else:
            spans.append((position, position + 1))
    return tuple(spans)


def token_f1(chosen: Collection[int], gold: Collection[int]) -> float:
    """Return the F1 of the chosen positions; 0.0 if either set is empty."""
    both = len(set(chosen) & set(gold))
    return 2 * both / (len(set(chosen)) + len(set(gold))) if both else 0.0


def iou_f1(chosen_runs: Collection[Span], gold_runs: Collection[Span], threshold: float = 0.5) -> float:
    """Return the F1 of runs of tokens; runs match if their intersection / union is at least the threshold.

    ERASER counts matching chosen runs for recall too. That is the same for thresholds from 0.5 on if the runs of a side
    do not touch, as no run can then match two; below 0.5 its recall could exceed 1.
    """
    if not 0 < threshold <= 1:
        raise BadSetting("threshold", threshold, "above 0 and at most 1")
    matches = [(c, g) for c in chosen_runs for g in gold_runs if _iou(c, g) >= threshold]
    if not matches:
        return 0.0
    precision = len({chosen for chosen, _ in matches}) / len(set(chosen_runs))
    recall = len({gold for _, gold in matches}) / len(set(gold_runs))
    return 2 * precision * recall / (precision + recall)


def auprc(scores: Sequence[float], gold: Collection[int]) -> float:
    """Return the area (trapezoids) under the precision-recall curve, from precision 1 at recall 0; ties together."""
    row, marked = np.asarray(scores, dtype=np.float64), set(gold)
    if not marked or not marked <= set(range(len(row))):
        raise UsageError(f"gold positions {sorted(marked)} of {len(row)} tokens; give at least one, counted from 0")
    order = np.argsort(-row, kind="stable")
    hits = np.cumsum(np.isin(order, list(marked)))
    ranked = row[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(row) - 1)  # of each group of tied scores
    precision, recall = hits[last] / (last + 1), hits[last] / len(marked)
    return float(np.trapezoid([1.0, *precision], [0.0, *recall]))


def _measure(attribution: Attribution, tokens: Sequence[int], gold: Collection[int], k: int) -> Plausibility:
    scores = [attribution.scores[position] for position in tokens]
    chosen = [tokens[i] for i in top_tokens(scores, k)]
    marked = [i for i, position in enumerate(tokens) if position in gold]
    return Plausibility(token_f1(chosen, gold), iou_f1(runs(chosen), runs(gold)), auprc(scores, marked))


def _content_positions(attribution: Attribution) -> list[int]:
    places = zip(attribution.sequences, attribution.spans, strict=True)
    return [i for i, (sequence, span) in enumerate(places) if sequence is not None and span is not None]


def _gold_positions(attribution: Attribution, rationale: Rationale) -> set[int]:
    """Return the positions of the tokens that share a character with the rationale."""
    if attribution.texts != rationale.texts:
        raise UsageError(
            f"an attribution of {attribution.texts!r:.60} is paired with a rationale of {rationale.texts!r:.60}; give "
            "rationales in the order of the attributions"
        )
    label = rationale.label
    if isinstance(label, str) and label.lower() != attribution.label.lower():
        raise UsageError(
            f"a rationale for {label!r} does not apply to an attribution for {attribution.label!r}; explain "
            "that label, or rename the rationale's label if both names mean the same"
        )
    places = zip(attribution.sequences, attribution.spans, strict=True)
    return {
        i
        for i, (sequence, span) in enumerate(places)
        if span is not None
        and any(s == sequence and max(start, span[0]) < min(end, span[1]) for s, start, end in rationale.spans)
    }


def _iou(a: Span, b: Span) -> float:
    both = max(0, min(a[1], b[1]) - max(a[0], b[0]))
    return both / (a[1] - a[0] + b[1] - b[0] - both)
