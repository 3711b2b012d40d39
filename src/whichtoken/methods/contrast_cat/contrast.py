"""The term that Contrast-CAT subtracts from AttCAT: reference activations weighted by the text's gradients."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.trace import Trace
from whichtoken.references.coverage import coverage
from whichtoken.references.library import ReferenceLibrary

Align = Literal["position", "length-matched"]


@dataclass(frozen=True)
class Selection:
    """Which references of a class are used, and which of their hidden states."""

    n: int
    align: Align  # "position": the first n of the library; "length-matched": the n nearest in length
    layers: slice


@dataclass(frozen=True)
class Overlaps:
    layers: Float[Tensor, "batch map layer token"]
    real: Bool[Tensor, "batch map"]  # False at padding: other classes in the batch have more references
    details: tuple[dict[str, object], ...]


def overlaps(
    weights: Float[Tensor, "batch layer token dim"], trace: Trace, library: ReferenceLibrary, choice: Selection
) -> Overlaps:
    """Return < weights[j], R[j] > for each reference of each text's class and each layer; one contraction per class."""
    n_layers, n_tokens = weights.shape[1:3]
    by_label = {label: _select(library, label, trace.lengths, choice) for label in sorted(set(trace.label.tolist()))}
    widest = max(index.shape[1] for index in by_label.values())
    values = weights.new_zeros(len(weights), widest, n_layers, n_tokens)
    real = torch.zeros(len(weights), widest, dtype=torch.bool, device=weights.device)
    for label, index in by_label.items():
        rows = (trace.label == label).nonzero()[:, 0]
        used = index[rows]
        stored = label, choice.layers, int(used.max()) + 1
        if len(rows) > 1 or weights.device.type != "cpu":
            products = torch.einsum("bltd,rltd->brlt", weights[rows], library.read(*stored, n_tokens, weights))
        else:
            products = library.contract(*stored, weights[rows[0]])[None]
        values[rows, : used.shape[1]] = products.gather(1, used[:, :, None, None].expand(-1, -1, n_layers, n_tokens))
        real[rows, : used.shape[1]] = True if trace.span is None else _suitable(library, label, used, trace.span[rows])
    details = tuple(
        {
            "library": library.digest,
            "references": (numbers := by_label[label][row][real[row, : by_label[label].shape[1]]].tolist()),
            "coverage": coverage([library.of(label)[i].n_tokens for i in numbers], length),
        }
        for row, (label, length) in enumerate(zip(trace.label.tolist(), trace.lengths.tolist(), strict=True))
    )
    return Overlaps(values, real, details)


def no_overlaps(weights: Float[Tensor, "batch layer token dim"]) -> Overlaps:
    """Return one map of zeros: without references, nothing is subtracted."""
    batch, n_layers, n_tokens = weights.shape[:3]
    real = torch.ones(batch, 1, dtype=torch.bool, device=weights.device)
    return Overlaps(weights.new_zeros(batch, 1, n_layers, n_tokens), real, ({},) * batch)


def _select(
    library: ReferenceLibrary, label: int, lengths: Int[Tensor, " batch"], choice: Selection
) -> Int[Tensor, "batch n"]:
    """Return, for each text, which of this class's references in the library it uses."""
    references = library.of(label)
    if choice.align == "position":
        return torch.arange(min(choice.n, len(references)), device=lengths.device).expand(len(lengths), -1)
    n_tokens = torch.tensor([reference.n_tokens for reference in references], device=lengths.device)
    nearest = (n_tokens - lengths[:, None]).abs().argsort(dim=-1, stable=True)
    return torch.sort(nearest[:, : choice.n], -1).values


def _suitable(
    library: ReferenceLibrary, label: int, used: Int[Tensor, "batch n"], span: Int[Tensor, "batch 2"]
) -> Bool[Tensor, "batch n"]:
    """Return which references extend to the explained answer's position and have p < gamma there.

    If none has, the one with the lowest p is used; if none extends that far, all count as doing so. Rules other than
    "gamma" use every reference that does. Questions have no classes, and every answer has its own position.
    """
    lengths = torch.tensor([reference.n_tokens for reference in library.of(label)], device=used.device)
    reach = lengths[used] > span.amax(-1, keepdim=True)
    reach = reach | ~reach.any(-1, keepdim=True)  # if none does, all count
    if library.recipe.rule != "gamma":
        return reach
    p = library.answer_probabilities(label, span).gather(1, used).masked_fill(~reach, torch.inf)
    low = p < library.recipe.gamma
    return torch.where(low.any(-1, keepdim=True), low, p == p.amin(-1, keepdim=True))
