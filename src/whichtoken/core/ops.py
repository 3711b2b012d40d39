"""Tensor formulas that several methods share: batched, and right under padding.

Traces are 0 at padding (see `trace.Trace`), so a sum over tokens is safe and a mean divides by `lengths`.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.trace import Scores, Trace
from whichtoken.errors import BadSetting

Axis = Literal["query", "key", "readout"]  # which token a query-key matrix is about
Rows = Literal["readout", "all"]  # which queries of a query-key matrix are read
Rolling = Literal["raw", "normalised"]  # whether the rows of a rollout's factors are divided by their sum


def token_dot(a: Float[Tensor, "batch token dim"], b: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token"]:
    return torch.einsum("btd,btd->bt", a, b)


def received_attention(
    attention: Float[Tensor, "batch head query key"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch key"]:
    """Mean over heads and queries: how much the whole sequence looks at a token."""
    return attention.mean(1).sum(1) / lengths[:, None]


def attended_gradient(
    attention: Sequence[Float[Tensor, "batch head query key"]],
    grads: Sequence[Float[Tensor, "batch token dim"]],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch layer token dim"]:
    """Gradients of hidden states, each token's weighted by the attention that it receives in the block beside it."""
    received = torch.stack([received_attention(layer, lengths) for layer in attention], 1)
    wide = torch.promote_types(received.dtype, torch.float32)  # the product can leave the range of half precision
    return received.to(wide)[..., None] * torch.stack(tuple(grads), 1)


def layer_dot(
    weights: Float[Tensor, "batch layer token dim"], features: Sequence[Float[Tensor, "batch token dim"]]
) -> Float[Tensor, "batch layer token"]:
    """Dot products token by token, for each layer."""
    return torch.einsum("bltd,bltd->blt", weights, torch.stack(tuple(features), 1).to(weights.dtype))


def summed(layers: Float[Tensor, "batch layer token"], zeroed: Bool[Tensor, "batch token"] | None = None) -> Scores:
    """Scores that are a sum over layers; 0 at the tokens `zeroed`."""
    kept = layers if zeroed is None else layers.masked_fill(zeroed[:, None, :], 0)
    return Scores(kept.sum(1), layers=kept)


def readout_row(
    matrix: Float[Tensor, "batch query key"], readout: Float[Tensor, "batch query"]
) -> Float[Tensor, "batch key"]:
    """The row of the position that the classifier reads (a mean of rows where it reads a mean)."""
    return torch.einsum("bqk,bq->bk", matrix, readout)


def mean_over(
    layers: Sequence[Float[Tensor, "batch head query key"]],
    axis: Axis,
    readout: Float[Tensor, "batch query"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch layer token"]:
    """Mean over heads and the other axis, or the read-out row of the mean over heads; each layer's share of the mean.

    Their sum over layers is the mean over layers.
    """
    means = torch.stack([layer.mean(1) for layer in layers], 1) / len(layers)
    if axis == "readout":
        return torch.einsum("blqk,bq->blk", means, readout)
    return means.sum(3 if axis == "query" else 2) / lengths[:, None, None]


def from_layer(blocks: Sequence[Tensor], start_layer: int) -> Sequence[Tensor]:
    """The blocks from `start_layer` on, of which there must be one; -1 is the last."""
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
    """Read-out row of the product of the blocks' factors, the last block leftmost; the product is never formed."""
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
    """Read-out row of the product of I + mean_h max(0, gradient * relevance) over the blocks."""
    pairs = zip(grads, relevance, strict=True)
    factors = [with_residual((grad * of_block).clamp(min=0).mean(1)) for grad, of_block in pairs]
    return product_row([normalise_rows(f) for f in factors] if rolling == "normalised" else factors, readout)


def read_rows(trace: Trace, rows: Rows) -> Float[Tensor, "batch token"]:
    """Weights of the rows of a query-key matrix that are read: the read-out row, or the mean of all."""
    if rows == "readout":
        return trace.readout
    return trace.mask.to(trace.readout.dtype) / trace.lengths[:, None]


def own_entry(scores: Float[Tensor, "batch token"], trace: Trace, keep: bool | None) -> Float[Tensor, "batch token"]:
    """The read-out position's own entry kept or set to 0; None: kept where that is a token of an answer.

    Papers drop the class token's, which is no word, and keep the answer's.
    """
    return scores if (trace.answering if keep is None else keep) else scores.masked_fill(read_alone(trace), 0)


def read_alone(trace: Trace) -> Bool[Tensor, "batch token"]:
    """The position that is read out, if there is one: of a mean over all none; of an answer either of its ends."""
    return trace.readout > 0 if trace.answering else trace.readout == 1


def minmax(values: Float[Tensor, "batch *rest"], valid: Bool[Tensor, "batch *rest"]) -> Float[Tensor, "batch *rest"]:
    """Per example to 0..1 over the valid entries; 0 elsewhere, and everywhere when all are equal."""
    flat, keep = values.flatten(1), valid.flatten(1)
    low = flat.masked_fill(~keep, torch.inf).amin(1, keepdim=True)
    high = flat.masked_fill(~keep, -torch.inf).amax(1, keepdim=True)
    width = torch.where(high > low, high - low, torch.ones_like(high))
    return ((flat - low) / width).masked_fill(~keep, 0).view_as(values)


def minmax_maps(
    maps: Float[Tensor, "batch map token"], mask: Bool[Tensor, "batch token"]
) -> Float[Tensor, "batch map token"]:
    """Each map to 0..1 over the real tokens."""
    return minmax(maps.flatten(0, 1), mask.repeat_interleave(maps.shape[1], 0)).view_as(maps)
