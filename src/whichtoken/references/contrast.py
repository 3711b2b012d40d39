"""How much of each reference's activations a text's gradients see: what Contrast-CAT takes away from AttCAT."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.trace import Trace
from whichtoken.references.library import ReferenceLibrary

Align = Literal["position", "length-matched"]


@dataclass(frozen=True)
class Selection:
    """Which references of a class are used, and which of their hidden states."""

    n: int
    align: Align  # the first n of the library, or the n nearest in length; both compared position by position
    layers: slice


@dataclass(frozen=True)
class Overlaps:
    layers: Float[Tensor, "batch map layer token"]
    real: Bool[Tensor, "batch map"]  # False where a text's class has fewer references than another's
    details: tuple[dict[str, object], ...]


def overlaps(
    weights: Float[Tensor, "batch layer token dim"], trace: Trace, library: ReferenceLibrary, choice: Selection
) -> Overlaps:
    """For each reference of each text's class and each layer < weights[j], R[j] >: one contraction for each class."""
    n_layers, n_tokens = weights.shape[1:3]
    used = {label: _used(library, label, trace.lengths, choice) for label in sorted(set(trace.label.tolist()))}
    widest = max(index.shape[1] for index in used.values())
    values = weights.new_zeros(len(weights), widest, n_layers, n_tokens)
    real = torch.zeros(len(weights), widest, dtype=torch.bool, device=weights.device)
    for label, index in used.items():
        rows = (trace.label == label).nonzero()[:, 0]
        mine = index[rows]
        held = library.read(label, choice.layers, int(mine.max()) + 1, n_tokens, weights)
        seen = torch.einsum("bltd,rltd->brlt", weights[rows], held)
        values[rows, : mine.shape[1]] = seen.gather(1, mine[:, :, None, None].expand(-1, -1, n_layers, n_tokens))
        real[rows, : mine.shape[1]] = True if trace.span is None else _low(library, label, mine, trace.span[rows])
    details = tuple(
        {
            "library": library.digest,
            "references": (places := used[label][row][real[row, : used[label].shape[1]]].tolist()),
            "coverage": _coverage([library.of(label)[i].n_tokens for i in places], length),
        }
        for row, (label, length) in enumerate(zip(trace.label.tolist(), trace.lengths.tolist(), strict=True))
    )
    return Overlaps(values, real, details)


def no_overlaps(weights: Float[Tensor, "batch layer token dim"]) -> Overlaps:
    """Without references: one map, from which nothing is taken away."""
    batch, n_layers, n_tokens = weights.shape[:3]
    real = torch.ones(batch, 1, dtype=torch.bool, device=weights.device)
    return Overlaps(weights.new_zeros(batch, 1, n_layers, n_tokens), real, ({},) * batch)


def _used(
    library: ReferenceLibrary, label: int, lengths: Int[Tensor, " batch"], choice: Selection
) -> Int[Tensor, "batch n"]:
    """For each text, as if it were of this class, the places of its references in the library."""
    references = library.of(label)
    if choice.align == "position":
        return torch.arange(min(choice.n, len(references)), device=lengths.device).expand(len(lengths), -1)
    theirs = torch.tensor([reference.n_tokens for reference in references], device=lengths.device)
    nearest = (theirs - lengths[:, None]).abs().argsort(dim=-1, stable=True)
    return torch.sort(nearest[:, : choice.n], -1).values


def _low(
    library: ReferenceLibrary, label: int, used: Int[Tensor, "batch n"], span: Int[Tensor, "batch 2"]
) -> Bool[Tensor, "batch n"]:
    """Which references reach the place of the explained answer and hardly have one there; if none of them, the one that
    has it least. Only the rule "gamma" chooses; others take what the library holds.

    Of questions there are no classes, and where an answer is differs from one to the next.
    """
    lengths = torch.tensor([reference.n_tokens for reference in library.of(label)], device=used.device)
    reach = lengths[used] > span.amax(-1, keepdim=True)
    reach = reach | ~reach.any(-1, keepdim=True)  # if none does, all are as good
    if library.recipe.rule != "gamma":
        return reach
    p = library.answered(label, span).gather(1, used).masked_fill(~reach, torch.inf)
    low = p < library.recipe.gamma
    return torch.where(low.any(-1, keepdim=True), low, p == p.amin(-1, keepdim=True))


def _coverage(theirs: Sequence[int], length: int) -> float:
    """The share of the text's positions that a reference reaches, on average over the references."""
    return sum(min(n, length) for n in theirs) / (length * len(theirs))
