"""Propagate relevance from the tokens of an image to its pixels: the z^B rule for the patch convolution.

Full LRP in Chefer, Gur and Wolf, CVPR 2021 (after Montavon et al. 2017). First, the rule set's rule for sums, over all
tokens, splits relevance between tokens and position embeddings; the share of the position embeddings, and that of the
tokens before the patches, goes no further. Then, with l and h the lowest and highest value of the image, W+ and W- the
positive and negative weights, W' the transpose of W, and R the relevance of each dimension of a patch:

    Z = W x - W+ l - W- h + 1e-9,   R_x = x (W' R/Z) - l (W+' R/Z) - h (W-' R/Z),   summed over channels,

computed as W+ (x - l) + W- (x - h) and so on, because in an image of one colour the terms above cancel out and only
rounding errors remain.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import conv2d, conv_transpose2d

from whichtoken.lrp.rules import EPSILON, apply_function, identity


def embed_pixels(
    pixels: Tensor, convolution: nn.Conv2d, patches: Tensor, prefix: Tensor, embeddings: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a stand-in for the image's pixels (batch row column), which receives relevance, and the embeddings that
    the first block reads, as a function of that stand-in. Call this while a rule set is active.

    `patches` is the output of the convolution, `prefix` the tokens before the patches, without their positions.
    """
    image = pixels.detach().sum(1).requires_grad_()
    patches = apply_function(_Patches, image, patches.detach(), pixels, convolution)
    tokens = torch.cat([prefix.expand(len(pixels), -1, -1), patches.flatten(2).mT], 1)
    # A term gets a share of a sum only if it requires a gradient.
    positions = (embeddings - tokens.detach()).requires_grad_()
    return image, identity(lambda total: embeddings.clone(), tokens + positions)  # the sum itself would be rounded


class _Patches(Function):
    """Return the output of the convolution; relevance goes to the image, summed over channels."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, patches: Tensor, pixels: Tensor, convolution: nn.Conv2d) -> Tensor:
        ctx.save_for_backward(pixels, convolution.weight.to(pixels.dtype))
        ctx.stride = convolution.stride
        return patches.clone()

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None]:
        pixels, weight = ctx.saved_tensors
        low, high = (reduce(pixels, (1, 2, 3), True) for reduce in (torch.amin, torch.amax))
        parts = [(pixels - low, weight.clamp(min=0)), (pixels - high, weight.clamp(max=0))]
        z = torch.stack([conv2d(x, w, stride=ctx.stride) for x, w in parts]).sum(0) + EPSILON
        scaled = relevance / z
        back = [x * conv_transpose2d(scaled, w, stride=ctx.stride) for x, w in parts]
        return torch.stack(back).sum((0, 2)), None, None, None
