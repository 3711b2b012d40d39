"""Tensor formulas that several methods share, batched and correct under padding.

Traces are 0 at padding (see `trace.Trace`), so a sum over tokens is safe and a mean divides by `lengths`.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.trace import Scores, Trace
from whichtoken.errors import BadSetting

Axis = Literal["query", "key", "readout"]  # which token an entry of a query-key matrix is assigned to
Rows = Literal["readout", "all"]  # which queries of a query-key matrix are read
Rolling = Literal["raw", "normalised"]  # whether the rows of the factors of a rollout are divided by their sum


def token_dot(a: Float[Tensor, "batch token dim"], b: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token"]:
    return torch.einsum("btd,btd->bt", a, b)


def received_attention(
    attention: Float[Tensor, "batch head query key"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch key"]:
    """Return the mean over heads and queries: how much the whole sequence attends to each token."""
    return attention.mean(1).sum(1) / lengths[:, None]


def attended_gradient(
    attention: Sequence[Float[Tensor, "batch head query key"]],
    grads: Sequence[Float[Tensor, "batch token dim"]],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch layer token dim"]:
    """Return gradients of hidden states, each token's weighted by the attention it receives in that layer's block."""
    received = torch.stack([received_attention(layer, lengths) for layer in attention], 1)
    wide = torch.promote_types(received.dtype, torch.float32)  # the product can exceed the range of half precision
    return received.to(wide)[..., None] * torch.stack(tuple(grads), 1)


def layer_dot(
    weights: Float[Tensor, "batch layer token dim"], features: Sequence[Float[Tensor, "batch token dim"]]
) -> Float[Tensor, "batch layer token"]:
    """Return the dot product of each token, for each layer."""
    return torch.einsum("bltd,bltd->blt", weights, torch.stack(tuple(features), 1).to(weights.dtype))


def sum_layers(layers: Float[Tensor, "batch layer token"], zeroed: Bool[Tensor, "batch token"] | None = None) -> Scores:
    """Return scores that are a sum over layers, with 0 at the tokens `zeroed`."""
    kept = layers if zeroed is None else layers.masked_fill(zeroed[:, None, :], 0)
    return Scores(kept.sum(1), layers=kept)


def readout_row(
    matrix: Float[Tensor, "batch query key"], readout: Float[Tensor, "batch query"]
) -> Float[Tensor, "batch key"]:
    """Return the row of the read-out position (the mean of the rows, if the head reads a mean)."""
    return torch.einsum("bqk,bq->bk", matrix, readout.to(matrix.dtype))  # relevance may be wider than the trace


def mean_over(
    layers: Sequence[Float[Tensor, "batch head query key"]],
    axis: Axis,
    readout: Float[Tensor, "batch query"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch layer token"]:
    """Return the mean over heads and over the other axis, or the read-out row of the mean over heads.

    Each layer is divided by the number of layers, so that the sum over layers is their mean.
    """
    means = torch.stack([layer.mean(1) for layer in layers], 1) / len(layers)
    if axis == "readout":
        return torch.einsum("blqk,bq->blk", means, readout)
    return means.sum(3 if axis == "query" else 2) / lengths[:, None, None]


def from_layer(blocks: Sequence[Tensor], start_layer: int) -> Sequence[Tensor]:
    """Return the blocks from `start_layer` on, at least one; -1 is the last."""
    if start_layer >= len(blocks):
        raise BadSetting("start_layer", start_layer, f"at most {len(blocks) - 1}: the model has {len(blocks)} blocks")
    return blocks[start_layer:]


def with_residual(matrix: Float[Tensor, "batch token token"]) -> Float[Tensor, "batch token token"]:
    return matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def normalise_rows(matrix: Float[Tensor, "batch query key"]) -> Float[Tensor, "batch query key"]:
    return matrix / matrix.sum(-1, keepdim=True)


def product_row(
    factors: Sequence[Float[Tensor, "batch token token"]], readout: Float[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """Return the read-out row of the product of the blocks' factors, last block leftmost, without forming it."""
    row = readout
    for factor in reversed(factors):
        row = readout_row(factor, row)
    return row


def relevance_rollout(
    grads: Sequence[Float[Tensor, "batch head query key"]],
    relevance: Sequence[Float[Tensor, "batch head query key"]],
    rolling: Rolling,
    readout: Float[Tensor, "batch query"],
) -> Float[Tensor, "batch key"]:
    """Return the read-out row of the product over blocks of I + mean_h max(0, gradient * relevance)."""
    pairs = zip(grads, relevance, strict=True)
    factors = [with_residual((grad * block_relevance).clamp(min=0).mean(1)) for grad, block_relevance in pairs]
    return product_row([normalise_rows(f) for f in factors] if rolling == "normalised" else factors, readout)


def read_rows(trace: Trace, rows: Rows) -> Float[Tensor, "batch token"]:
    """Return the weights of the rows that are read from a query-key matrix: the read-out row, or the mean of all."""
    if rows == "readout":
        return trace.readout
    return trace.mask.to(trace.readout.dtype) / trace.lengths[:, None]


def mask_own_entry(
    scores: Float[Tensor, "batch token"], trace: Trace, keep: bool | None
) -> Float[Tensor, "batch token"]:
    """Keep the read-out position's own entry or set it to 0; None keeps it for questions only.

    The papers drop the entry of the class token, which is not a word, and keep that of an answer token.
    """
    return scores if (trace.answering if keep is None else keep) else scores.masked_fill(single_readout(trace), 0)


def single_readout(trace: Trace) -> Bool[Tensor, "batch token"]:
    """Mark the read-out position: none if the head reads a mean; for questions, the ends of the answer being read."""
    return trace.readout > 0 if trace.answering else trace.readout == 1


def seed_rows(trace: Trace, seed: int) -> list[np.random.Generator]:
    """Return a generator for each row, seeded by its token ids, so that it does not depend on the rest of the batch."""
    lengths = trace.lengths.tolist()
    return [np.random.default_rng([seed, *trace.ids[row, :n].tolist()]) for row, n in enumerate(lengths)]


def minmax(values: Float[Tensor, "batch *rest"], valid: Bool[Tensor, "batch *rest"]) -> Float[Tensor, "batch *rest"]:
    """Scale each example to 0..1 over its valid entries; 0 elsewhere, and everywhere if all are equal."""
    flat, keep = values.flatten(1), valid.flatten(1)
    low = flat.masked_fill(~keep, torch.inf).amin(1, keepdim=True)
    high = flat.masked_fill(~keep, -torch.inf).amax(1, keepdim=True)
    width = torch.where(high > low, high - low, torch.ones_like(high))
    return ((flat - low) / width).masked_fill(~keep, 0).view_as(values)


def minmax_maps(
    maps: Float[Tensor, "batch map token"], mask: Bool[Tensor, "batch token"]
) -> Float[Tensor, "batch map token"]:
    """Scale each map to 0..1 over the tokens that are not padding."""
    return minmax(maps.flatten(0, 1), mask.repeat_interleave(maps.shape[1], 0)).view_as(maps)
