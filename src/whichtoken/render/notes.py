"""What a reader must know about the input of an explanation. No torch."""

from collections.abc import Sequence

from whichtoken.answers import PROMPT, Segment
from whichtoken.records import Attribution
from whichtoken.words import Span


def notes_of(attribution: Attribution) -> tuple[str, ...]:
    """Return what a reader must know about the input of an attribution, warnings first."""
    notes = [*warnings_of(attribution)]
    outside = [name for name, places in _find_control(attribution).items() if not all(places)]
    if outside:
        notes.append(f"the text contains {_describe_control(outside)}")
    n_content = sum(sequence is not None for sequence in attribution.sequences)
    if 2 * attribution.n_unknown > n_content:
        unknown = f"{attribution.n_unknown} of {n_content} tokens are unknown to the tokenizer"
        notes.append(f"{unknown}, so these scores say little")
    if attribution.n_cut:
        notes.append(f"{attribution.n_cut} tokens were cut: the text is longer than the model's limit")
    if attribution.n_windows > 1:
        notes.append(f"averaged over {attribution.n_windows} overlapping windows")
    return tuple(notes)


def warnings_of(attribution: Attribution) -> tuple[str, ...]:
    """Return a warning for each message and document that contains control tokens, which its author may have put there
    to be taken for the chat template.
    """
    by_place: dict[str, list[str]] = {}
    for name, places in _find_control(attribution).items():
        for place in dict.fromkeys(filter(None, places)):
            by_place.setdefault(place, []).append(name)
    return tuple(f"Warning: {place} contains {_describe_control(names)}" for place, names in by_place.items())


def _find_control(attribution: Attribution) -> dict[str, list[str]]:
    """Return for each control token the messages and documents that it is in; "" for one that is in neither."""
    segments = () if attribution.generated is None else attribution.generated.segments
    found: dict[str, list[str]] = {name: [] for name in attribution.control_tokens}
    for token, span, sequence in zip(attribution.tokens, attribution.spans, attribution.sequences, strict=True):
        if token not in found or sequence is None or span is None:
            continue
        if attribution.texts[sequence][slice(*span)].strip() == token:
            found[token].append(_name_place(segments, span) if sequence == PROMPT else "")
    return found


def _name_place(segments: Sequence[Segment], span: Span) -> str:
    """Return the document, else the message, that contains a token."""
    named = {"document": "{}", "role": "the {} message"}
    inside = {s.kind: s.name for s in segments if s.span[0] < span[1] <= s.span[1]}
    return next((shape.format(inside[kind]) for kind, shape in named.items() if kind in inside), "")


def _describe_control(names: Sequence[str]) -> str:
    obeyed = "reads it as a control token" if len(names) == 1 else "reads them as control tokens"
    return f"{', '.join(names)}: the model {obeyed}, not as text (--special-tokens text changes that)"
