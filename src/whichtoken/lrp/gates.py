"""Mask-LRP's changes to propagation: relevance passes through chosen heads only, or is spread over all tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from whichtoken.lrp.rules import apply_function, rescale_parts

Weights = tuple[tuple[int, ...], ...]  # layer, head


@dataclass(frozen=True)
class Gates:
    """The factor by which each head's relevance is multiplied; 0 for most heads.

    The results of all `parts` are added. With `conserve`, each part is first rescaled to its share of the incoming
    relevance, as for a sum of two activations, and a block without a chosen head passes all relevance to the residual.
    """

    parts: tuple[Weights, ...]
    conserve: bool

    def apply(self, context: Tensor, layer: int) -> Tensor:
        """Return the output of a block's heads (batch token head dim) unchanged, with a gate for its relevance."""
        weights = [part[layer] for part in self.parts]
        if self.conserve and not any(map(any, weights)):
            return context.detach()  # a constant gets no share of the sum with the residual
        table = torch.tensor(weights, dtype=context.dtype, device=context.device)[:, None, None, :, None]
        return apply_function(_Gate, context, table, self.conserve)


def spread(x: Tensor, mask: Tensor) -> Tensor:
    """Return the tokens (batch token dim) unchanged; on the way back, every real token gets the mean relevance.

    For questions, the authors' code gives every token the relevance that belongs to the answer's token.
    """
    return apply_function(_Spread, x, mask)


class _Spread(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        share = relevance.sum(1, keepdim=True) / mask.sum(1)[:, None, None]
        return share * mask[:, :, None], None


class _Gate(Function):
    @staticmethod
    def forward(ctx: Any, context: Tensor, weights: Tensor, conserve: bool) -> Tensor:
        ctx.save_for_backward(weights)
        ctx.conserve = conserve
        return context.view_as(context)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        parts = [weight * relevance for weight in weights]
        if ctx.conserve:
            parts = rescale_parts(parts, relevance)
        return torch.stack(parts).sum(0), None, None
