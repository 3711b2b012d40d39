"""degrade: remove tokens in the order of an attribution and ask the model again, which gives a Curve."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from whichtoken.errors import BadSetting, UsageError
from whichtoken.models import ModelProbe, Subject, window_row
from whichtoken.perturb import Delete, Perturbation
from whichtoken.records import Attribution, Curve
from whichtoken.targets import Goal

TENTHS = tuple(k / 10 for k in range(10))  # of the content tokens; 0 is the whole text


@dataclass(frozen=True)
class _Text:
    """One input, as the model saw it when it was explained."""

    probe: ModelProbe
    content: Sequence[int]  # positions that may be removed
    n_tokens: int


def degrade(
    subject: Subject,
    attributions: Sequence[Attribution],
    order: Literal["morf", "lerf"] = "morf",
    perturbation: Perturbation | None = None,
) -> list[Curve]:
    """The curve of each attribution of one text: how its probability falls as 10, 20 .. 90 % of the tokens go.

    `order`: the most relevant first ("morf"), or the least. `perturbation`: by default tokens are deleted. Special
    tokens stay. Each distinct shortened text is evaluated once, whichever attributions ask for it.
    """
    if order not in ("morf", "lerf"):
        raise BadSetting("order", order, "'morf', the most relevant first, or 'lerf', the least")
    if not attributions:
        return []
    how = perturbation or Delete()
    text = _text(subject, attributions, how)
    counts = [round(share * len(text.content)) for share in TENTHS]
    start = perf_counter()
    patterns = torch.cat([_patterns(text, attribution, order, counts) for attribution in attributions])
    found = text.probe.keep(patterns[None])[0].view(len(attributions), len(counts)).tolist()
    seconds = (perf_counter() - start) / len(attributions)
    return [
        Curve(
            key=hashlib.sha256("\0".join(attribution.texts).encode()).hexdigest()[:16],
            order=order,
            perturbation=type(how).__name__.lower(),
            removed=TENTHS,
            probability=tuple(probabilities),
            label=attribution.label,
            method=attribution.method,
            settings=attribution.settings,
            model=subject.title,
            revision=subject.fingerprint(),
            n_cut=attribution.n_cut,
            seconds=seconds,
        )
        for attribution, probabilities in zip(attributions, found, strict=True)
    ]


def _text(subject: Subject, attributions: Sequence[Attribution], how: Perturbation) -> _Text:
    first = attributions[0]
    if any((other.texts, other.label) != (first.texts, first.label) for other in attributions):
        raise UsageError("these attributions are of different texts or labels; degrade those of one text together")
    revision = subject.fingerprint()
    if any(other.revision != revision for other in attributions):
        raise UsageError(f"these attributions are of another model than {subject.title}; use the one they explain")
    document = subject.encode([first.texts])[0]
    seen = tuple(document.tokens[i] for i in document.windows[0])
    if any(other.tokens != seen for other in attributions):
        raise UsageError("these attributions have other tokens than the model reads at once; explain without windows")
    batch = subject.batch([window_row(document, document.windows[0])])
    content = [i for i, sequence in enumerate(first.sequences) if sequence is not None]
    return _Text(ModelProbe(subject, batch, _goal(subject, first.label), how), content, len(seen))


def _goal(subject: Subject, label: str) -> Goal:
    """What an attribution's label speaks of: a class, or one rather than another."""
    labels = subject.labels
    if label in labels:
        return Goal(torch.tensor([labels.index(label)], device=subject.device))
    for a, toward in enumerate(labels):
        for b, against in enumerate(labels):
            if label == f"{toward} rather than {against}":
                return Goal(*(torch.tensor([index], device=subject.device) for index in (a, b)))
    raise UsageError(f"label {label!r} is none of the model's: {', '.join(labels)}")


def _patterns(text: _Text, attribution: Attribution, order: str, counts: Sequence[int]) -> Tensor:
    """Which tokens each step keeps. Ties fall by position; the two orders are each other's reverse."""
    ranked = sorted(text.content, key=lambda i: -attribution.scores[i])
    ranked = ranked if order == "morf" else ranked[::-1]
    kept = torch.ones(len(counts), text.n_tokens, dtype=torch.bool)
    for row, count in zip(kept, counts, strict=True):
        row[ranked[:count]] = False
    return kept
