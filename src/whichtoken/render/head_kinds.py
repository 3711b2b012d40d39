"""The content of head-mask pictures: the kind of each head, and the statistics of relations. No torch."""

from enum import StrEnum
from typing import TYPE_CHECKING

from whichtoken.render.palette import Colour
from whichtoken.render.rows import visible

if TYPE_CHECKING:  # the package imports numpy, which would slow down `whichtoken --help`
    from whichtoken.heads.mask import HeadMask


class Kind(StrEnum):
    NEITHER = "neither"
    SYNTACTIC = "syntactic"
    POSITIONAL = "positional"
    BOTH = "both"
    ADDED = "added"  # without a measured reason


LETTERS = {Kind.NEITHER: "·", Kind.SYNTACTIC: "S", Kind.POSITIONAL: "P", Kind.BOTH: "B", Kind.ADDED: "A"}
# The palette of Okabe and Ito, safe for colour-blind readers.
COLOURS: dict[Kind, Colour] = {
    Kind.NEITHER: (232, 232, 232),
    Kind.SYNTACTIC: (0, 114, 178),
    Kind.POSITIONAL: (230, 159, 0),
    Kind.BOTH: (0, 158, 115),
    Kind.ADDED: (204, 121, 167),
}


def kinds(mask: "HeadMask") -> list[list[Kind]]:
    """Return the kinds as [layer][head]."""
    grids = zip(mask.syntactic, mask.positional, mask.added, strict=True)
    return [[_kind(*marks) for marks in zip(*rows, strict=True)] for rows in grids]


def _kind(syntactic: int, positional: int, added: bool) -> Kind:
    if syntactic or positional:
        return Kind.BOTH if syntactic and positional else Kind.SYNTACTIC if syntactic else Kind.POSITIONAL
    return Kind.ADDED if added else Kind.NEITHER


def legend_kinds(mask: "HeadMask") -> list[Kind]:
    """Return the kinds of a legend: the paper's four, and `added` if present."""
    present = {kind for row in kinds(mask) for kind in row}
    return [kind for kind in Kind if kind is not Kind.ADDED or kind in present]


def title(mask: "HeadMask", between: str = " ") -> str:
    """Return the title; `between` separates its two halves."""
    total = sum(len(row) for row in mask.syntactic)
    origin = "" if mask.origin == "measured" else f", {mask.origin}"
    reasons = f"{mask.n_syntactic} syntactic, {mask.n_positional} positional"
    return f"{visible(mask.model)}: {mask.n_selected} of {total} heads{between}({reasons}){visible(origin)}"


def corpus_line(mask: "HeadMask") -> str:
    """Describe the corpus, and what is not known of the model, in one line."""
    counts, note = mask.statistics, mask.identity.note
    if counts is None:
        return f"not measured on a corpus{note}"
    cut = f", {counts.n_cut} cut at the model's limit" if counts.n_cut else ""
    empty = f", {counts.n_empty} without tokens left out" if counts.n_empty else ""
    return visible(
        f"{counts.corpus}: {counts.n_sentences:,} sentences{cut}{empty}; {counts.n_words:,} words, "
        f"{counts.n_unaligned:,} of them without a token of their own; {counts.n_tokens:,} tokens{note}"
    )


RELATIONS = ("relation", "occurrences", "measured", "usual place", "its share", "best head", "its share", "needed")
REASONS = ("head", "points to", "share", "needed")


def relation_rows(mask: "HeadMask") -> list[tuple[str, ...]]:
    """Return the rows under the column titles RELATIONS."""
    if mask.statistics is None:
        return []
    rule = mask.rule
    rows: list[tuple[str, ...]] = []
    for relation in mask.statistics.relations:
        layer, head, share = relation.best()
        counts = (visible(relation.name), f"{relation.n_found:,}", f"{relation.n_measured:,}")
        if relation.n_measured < rule.min_count:
            rows.append((*counts, "-", "-", "-", "-", f"{rule.min_count:,} occurrences"))
            continue
        needed = f"> {relation.position_share + rule.syntactic:.3f}"
        usual = (f"{relation.position:+d}", f"{relation.position_share:.3f}")
        rows.append((*counts, *usual, place(layer, head), f"{share:.3f}", needed))
    return rows


def reason_rows(mask: "HeadMask") -> list[tuple[str, ...]]:
    """Return the rows under the column titles REASONS."""
    return [
        (place(reason.layer, reason.head), visible(reason.what), f"{reason.share:.3f}", f"> {reason.needed:.3f}")
        for reason in mask.reasons()
    ]


def place(layer: int, head: int) -> str:
    """Name a head, counted from 1 as on the axes."""
    return f"block {layer + 1}, head {head + 1}"
