"""Check the values of decoded records: lengths, spans, probabilities, targets and pictures. No torch.

Records are not named as types here, because their module imports this one.
"""

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Any

from whichtoken.answers import check_answer
from whichtoken.checks import (
    ROUNDING,
    check_count_fields,
    check_counts,
    check_lengths,
    check_probabilities,
    check_removed,
    require,
)
from whichtoken.core.removal_steps import GRIDS
from whichtoken.errors import BadArtifact
from whichtoken.targets import AnswerTokens, Contrast, Target, TokenLabels
from whichtoken.targets import Span as AnswerSpan
from whichtoken.trust import Confidence, Interaction, Removal
from whichtoken.words import Span

PNG = b"\x89PNG\r\n\x1a\n"  # first bytes of a PNG file; 8 more bytes, width and height follow


def check_attribution(record: Any) -> None:
    """Raise BadArtifact unless the values of a decoded record are possible."""
    names = ("tokens", "spans", "sequences", "word_ids", "scores")
    check_lengths("Attribution", {name: getattr(record, name) for name in names})
    same = all(len(row) == len(record.scores) for row in record.layers)
    require(same, "Attribution: a layer must have as many scores as there are tokens")
    for place, (sequence, span) in enumerate(zip(record.sequences, record.spans, strict=True)):
        _check_place(record.texts, sequence, span, f"Attribution: token {place}")
    check_counts("Attribution: a word id", record.word_ids)
    one = (record.probability is None) != (record.value is None)
    require(one, "Attribution: it must have a probability or a value, and not both")
    check_probabilities("Attribution: probability", [record.probability])
    if record.predicted is not None:
        check_probabilities("Attribution: predicted", [record.predicted.probability])
    _check_removals(record, record.removals)
    rows = [] if record.generated is None else record.generated.rows
    for confidence in (record.confidence, *(row.confidence for row in rows)):
        if confidence is not None:
            _check_confidence(record, confidence)
    counts = ("n_cut", "n_windows", "n_unknown", "seconds", "evaluations")
    check_count_fields("Attribution", {name: getattr(record, name) for name in counts})
    _check_target(record.target, len(record.tokens), "Attribution")
    if record.picture is not None:
        _check_picture(record.picture, len(record.tokens))
    if record.generated is not None:
        require(len(record.texts) == 2, "Attribution: generated: expected two texts, the prompt and the answer")
        check_answer(record.generated, len(record.tokens), record.texts[0])


def _check_removals(record: Any, removals: Sequence[Removal]) -> None:
    for removal in removals:
        inside = all(0 <= token < len(record.tokens) for token in removal.tokens)
        require(inside, f"Attribution: a removal of {removal.tokens!r:.60}; there are {len(record.tokens)} tokens")
    if record.value is None:
        check_probabilities("Attribution: removals", [removal.output for removal in removals])


def _check_confidence(record: Any, confidence: Confidence) -> None:
    name, places = "Attribution: confidence", range(len(record.tokens))
    check_lengths(name, {"tokens": places, "low": confidence.low, "high": confidence.high})
    for place, low, high in zip(places, confidence.low, confidence.high, strict=True):
        require(low <= high, f"{name}: token {place} has the bounds {low} and {high}; the lower one comes first")
    check_probabilities(f"{name}: level", [confidence.level])
    check_probabilities(f"{name}: first", [confidence.first])
    for field in ("additivity", "predicted"):
        share = getattr(confidence, field)
        require(share is None or share <= 1 + ROUNDING, f"{name}: {field} is {share}; expected at most 1")
    counts = ("n_units", "n_unresolved", "n_answers")
    check_count_fields(name, {field: getattr(confidence, field) for field in counts})
    n_units, unresolved = confidence.n_units, confidence.n_unresolved
    require(unresolved <= n_units, f"{name}: n_unresolved is {unresolved}, but there are {n_units} units")
    _check_removals(record, [] if confidence.check is None else [confidence.check])
    for number, interaction in enumerate(confidence.interactions):
        _check_interaction(interaction, len(record.tokens), f"{name}: interaction {number}")
        _check_removals(record, interaction.measured)


def _check_interaction(interaction: Interaction, n_tokens: int, name: str) -> None:
    units, low, effect, high = interaction.units, interaction.low, interaction.effect, interaction.high
    tokens = [token for unit in units for token in unit]
    apart = len(units) > 1 and all(units) and len(set(tokens)) == len(tokens)
    require(apart, f"{name} has the units {units!r:.60}; expected two or more, each of tokens of its own")
    inside = all(0 <= token < n_tokens for token in tokens)
    require(inside, f"{name} has the units {units!r:.60}; there are {n_tokens} tokens")
    require(low <= effect <= high, f"{name} has the effect {effect}, outside its bounds {low} and {high}")
    for removal in interaction.measured:
        gone = set(removal.tokens)
        whole = gone == {token for unit in units if gone & set(unit) for token in unit} != set()
        require(whole, f"{name} was measured without {removal.tokens!r:.60}; expected one or more of its units")


def check_curve(record: Any) -> None:
    """Raise BadArtifact unless the values of a decoded record are possible."""
    require(not (record.value and record.probability), "Curve: it must have probabilities or values, and not both")
    outputs = "value" if record.value else "probability"
    check_lengths("Curve", {"removed": record.removed, outputs: record.outputs})
    check_steps("Curve", record.removed, record.grid, record.order)
    check_probabilities("Curve: probability", record.probability)
    check_count_fields("Curve", {"n_cut": record.n_cut, "seconds": record.seconds})
    _check_target(record.target, None, "Curve")


def check_steps(name: str, removed: Sequence[float], grid: str, order: Any) -> None:
    """Require the steps of the grid, all of them; for a grid that is not registered here, ascending shares."""
    check_removed(name, removed)
    if grid in GRIDS:
        complete = GRIDS[grid].can_give(removed, order)
        require(complete, f"{name}: removed is {removed!r:.60}; these are not all the steps of grid {grid}")


def _check_place(texts: Sequence[str], sequence: int | None, span: Span | None, name: str) -> None:
    inside = sequence is None or 0 <= sequence < len(texts)
    require(inside, f"{name} is in text {sequence}, but there are {len(texts)} texts")
    if span is not None:
        require(sequence is not None, f"{name} has a span, but no sequence says in which text")
        length = len(texts[sequence or 0])
        require(0 <= span[0] <= span[1] <= length, f"{name} has the span {span}, but its text has 0 to {length}")


def _check_target(target: Target, n_tokens: int | None, name: str) -> None:
    """Require indices of classes or tokens. `n_tokens`: None if unknown."""
    if isinstance(target, AnswerSpan | TokenLabels | AnswerTokens):
        for position in (target.start, target.end) if isinstance(target, AnswerSpan) else target.tokens:
            inside = position is not None and position >= 0 and (n_tokens is None or position < n_tokens)
            limit = "" if n_tokens is None else f" of the {n_tokens}"
            require(inside, f"{name}: target is {target}; expected the positions of tokens{limit}, from 0")
    if isinstance(target, AnswerTokens):
        right = len(target.ids) == len(target.tokens) and len(target.rather_than) in (0, len(target.ids))
        require(right, f"{name}: target is {target}; expected an id for each token")
    elif not isinstance(target, AnswerSpan):
        labels = (
            [*target.labels, *target.rather_than]
            if isinstance(target, TokenLabels)
            else [target.label, *([target.rather_than] if isinstance(target, Contrast) else [])]
        )
        right = all(isinstance(label, str) or label >= 0 for label in labels)
        require(right, f"{name}: target is {target}; expected labels by index, from 0")


def _check_picture(picture: Any, n_tokens: int) -> None:
    """Raise BadArtifact unless the picture holds an image of the size that it states."""
    size, grid = (picture.width, picture.height), (picture.rows, picture.columns)
    if min(*size, *grid) < 1 or math.prod(grid) > n_tokens:
        raise BadArtifact(f"picture: {size} pixels in {grid} patches; need at least 1 of each, and a token per patch")
    if picture.pixels and (
        len(picture.pixels) != picture.height or {len(row) for row in picture.pixels} != {picture.width}
    ):
        raise BadArtifact(f"picture: pixel scores are not {picture.height} rows of {picture.width}")
    try:
        head = base64.b64decode(picture.png, validate=True)[:24]
    except (binascii.Error, ValueError) as error:
        raise BadArtifact(f"picture: png is not base64: {error}") from error
    if head[:8] != PNG or (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) != size:
        raise BadArtifact(f"picture: png is not a PNG image of {picture.width} x {picture.height}")
