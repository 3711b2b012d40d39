"""Relevance from the tokens of an image down to its pixels: the z^B rule of the patch convolution.

Chefer, Gur and Wolf, CVPR 2021, for Full LRP (after Montavon et al. 2017). What is added to the patches as positions
takes its share by the rule set's own rule for sums, over all tokens; this share, and that of the tokens before the
patches, end there. Then, with l and h the lowest and highest value of the image, W+ and W- the weights above and below
0, and R the relevance of a patch's dimension:

    Z = W x - W+ l - W- h + 1e-9,   R_x = x (W' R/Z) - l (W+' R/Z) - h (W-' R/Z),   added up over channels,

computed as W+ (x - l) + W- (x - h) and so on: in an image of one colour the terms above cancel to rounding errors.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import conv2d, conv_transpose2d

from whichtoken.lrp.rules import EPSILON, applied, unchanged


def embedded(
    pixels: Tensor, convolution: nn.Conv2d, patches: Tensor, prefix: Tensor, embeddings: Tensor
) -> tuple[Tensor, Tensor]:
    """The embeddings as a function of the image: a stand-in for its pixels (batch row column), which relevance goes to,
    and what the first block reads. To be called while rules are in force.

    `patches` is what the convolution gave, `prefix` the tokens before the patches, without their positions.
    """
    image = pixels.detach().sum(1).requires_grad_()
    patches = applied(_Patches, image, patches.detach(), pixels, convolution)
    tokens = torch.cat([prefix.expand(len(pixels), -1, -1), patches.flatten(2).mT], 1)
    positions = (embeddings - tokens.detach()).requires_grad_()  # only what requires a gradient has a share of a sum
    return image, unchanged(lambda total: embeddings.clone(), tokens + positions)  # the sum again would be rounded


class _Patches(Function):
    """What the convolution gave; relevance goes to the image, its channels added up."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, patches: Tensor, pixels: Tensor, convolution: nn.Conv2d) -> Tensor:
        ctx.save_for_backward(pixels, convolution.weight)
        ctx.stride = convolution.stride
        return patches.clone()

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None]:
        pixels, weight = ctx.saved_tensors
        low, high = (of(pixels, (1, 2, 3), True) for of in (torch.amin, torch.amax))
        parts = [(pixels - low, weight.clamp(min=0)), (pixels - high, weight.clamp(max=0))]
        z = torch.stack([conv2d(x, w, stride=ctx.stride) for x, w in parts]).sum(0) + EPSILON
        scaled = relevance / z
        back = [x * conv_transpose2d(scaled, w, stride=ctx.stride) for x, w in parts]
        return torch.stack(back).sum((0, 2)), None, None, None
