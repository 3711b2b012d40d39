"""What pictures of head masks show: a kind for each head, and what the corpus said of relations. No torch."""

from enum import StrEnum
from typing import TYPE_CHECKING

from whichtoken.render.palette import Colour
from whichtoken.render.rows import visible

if TYPE_CHECKING:  # the package imports numpy, and `whichtoken --help` need not wait for that
    from whichtoken.heads.mask import HeadMask


class Kind(StrEnum):
    NEITHER = "neither"
    SYNTACTIC = "syntactic"
    POSITIONAL = "positional"
    BOTH = "both"
    ADDED = "added"  # with no measured reason


LETTERS = {Kind.NEITHER: "·", Kind.SYNTACTIC: "S", Kind.POSITIONAL: "P", Kind.BOTH: "B", Kind.ADDED: "A"}
# Okabe and Ito's, which colour-blind people tell apart.
COLOURS: dict[Kind, Colour] = {
    Kind.NEITHER: (232, 232, 232),
    Kind.SYNTACTIC: (0, 114, 178),
    Kind.POSITIONAL: (230, 159, 0),
    Kind.BOTH: (0, 158, 115),
    Kind.ADDED: (204, 121, 167),
}


def kinds(mask: "HeadMask") -> list[list[Kind]]:
    """layer head"""
    grids = zip(mask.syntactic, mask.positional, mask.added, strict=True)
    return [[_kind(*marks) for marks in zip(*rows, strict=True)] for rows in grids]


def _kind(syntactic: int, positional: int, added: bool) -> Kind:
    if syntactic or positional:
        return Kind.BOTH if syntactic and positional else Kind.SYNTACTIC if syntactic else Kind.POSITIONAL
    return Kind.ADDED if added else Kind.NEITHER


def present(mask: "HeadMask") -> list[Kind]:
    """What a legend has to say: the paper's four, and `added` where there is that."""
    found = {kind for row in kinds(mask) for kind in row}
    return [kind for kind in Kind if kind is not Kind.ADDED or kind in found]


def title(mask: "HeadMask", between: str = " ") -> str:
    """`between` its two halves."""
    total = sum(len(row) for row in mask.syntactic)
    made = "" if mask.origin == "measured" else f", {mask.origin}"
    reasons = f"{mask.n_syntactic} syntactic, {mask.n_positional} positional"
    return f"{visible(mask.model)}: {mask.n_selected} of {total} heads{between}({reasons}){visible(made)}"


def corpus_line(mask: "HeadMask") -> str:
    """What was read."""
    found = mask.statistics
    if found is None:
        return "not measured on a corpus"
    cut = f", {found.n_cut} cut at the model's limit" if found.n_cut else ""
    empty = f", {found.n_empty} without tokens left out" if found.n_empty else ""
    return visible(
        f"{found.corpus}: {found.n_sentences:,} sentences{cut}{empty}; {found.n_words:,} words, of which "
        f"{found.n_unaligned:,} have no token of their own; {found.n_tokens:,} tokens"
    )


RELATIONS = ("relation", "occurrences", "measured", "usual place", "its share", "best head", "its share", "needed")
REASONS = ("head", "points to", "share", "needed")


def relation_rows(mask: "HeadMask") -> list[tuple[str, ...]]:
    """Under the titles RELATIONS."""
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
    """Under the titles REASONS."""
    return [
        (place(one.layer, one.head), visible(one.what), f"{one.share:.3f}", f"> {one.needed:.3f}")
        for one in mask.reasons()
    ]


def place(layer: int, head: int) -> str:
    """Counted from 1, as the axes are."""
    return f"block {layer + 1}, head {head + 1}"
