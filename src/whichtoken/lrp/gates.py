"""What Mask-LRP does to relevance on its way: through chosen attention heads only; and its code, spread over tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from whichtoken.lrp.rules import applied, shared

Weights = tuple[tuple[int, ...], ...]  # layer, head


@dataclass(frozen=True)
class Gates:
    """How much of the relevance of each head's output goes on; 0 for most heads.

    `parts` are added up. `conserve`: each part is first scaled to its share of what came in, as in a sum of two
    activations, and in a block without any chosen head all relevance takes the residual connection.
    """

    parts: tuple[Weights, ...]
    conserve: bool

    def apply(self, context: Tensor, layer: int) -> Tensor:
        """The output of a block's heads (batch token head dim), unchanged, with a gate behind it."""
        weights = [part[layer] for part in self.parts]
        if self.conserve and not any(map(any, weights)):
            return context.detach()  # a constant: the sum with the residual then gives it no share
        table = torch.tensor(weights, dtype=context.dtype, device=context.device)[:, None, None, :, None]
        return applied(_Gate, context, table, self.conserve)


def spread(x: Tensor, mask: Tensor) -> Tensor:
    """Tokens (batch token dim), unchanged; of relevance that comes back each real one gets the mean over all of them.

    For questions the authors' code gives every token what belongs to the answer's.
    """
    return applied(_Spread, x, mask)


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
            parts = shared(parts, relevance)
        return torch.stack(parts).sum(0), None, None
