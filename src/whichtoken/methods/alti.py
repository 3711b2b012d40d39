"""ALTI: each token's share of a block's output, by how close it comes to that output, multiplied through the blocks.

Ferrando, Gallego and Costa-jussa, "Measuring the Mixing of Contextual Information in the Transformer", EMNLP 2022.
With f_ij = sum_h A[h, i, j] W_O^h v^h_j + [i = j] x_i, T_ij the result of the linear part of the norm that follows, and
y_i the norm's output: c_ij = max(0, |y_i| - |y_i - T_ij|) in 1-norms, rows divided by their sum; the score is the
read-out row of C_L ... C_1. f includes the residual, so no identity is added. Feed-forward layers are left out.

In pre-norm models (GPT-2, Llama, ViT) no norm follows: T_ij = f_ij, and y_i is the residual stream after attention. A
row whose shares all point away from y_i is 0.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.core.ops import product_row
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs

AT_ONCE = 2**24  # entries of f computed at a time; all of f would be queries x keys x dim for each text


@register("alti", paper="Ferrando et al., EMNLP 2022")
@dataclass(frozen=True)
class ALTI(Method):
    mask_special: bool = False

    @property
    def needs(self) -> Needs:
        return needs("hidden attention value projection attended norm", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        return Scores(product_row(contributions(trace), trace.readout))


def contributions(trace: Trace) -> list[Float[Tensor, "batch query key"]]:
    """Return, for each block, how much each key contributes to each query; rows sum to 1."""
    blocks = zip(
        trace.value(Site.HIDDEN)[:-1],
        trace.value(Site.ATTENTION),
        trace.value(Site.VALUE),
        trace.value(Site.PROJECTION),
        trace.value(Site.ATTENDED),
        trace.value(Site.NORM) or [None] * len(trace.value(Site.ATTENTION)),
        strict=True,
    )
    blocks_shares = []
    for x, attention, value, projection, attended, norm in blocks:
        moved = torch.einsum("bhje,hed->bhjd", value, projection)
        at_once = max(1, AT_ONCE // x.numel())
        near = torch.cat(
            [
                _nearness(x, attention, moved, attended, norm, queries)
                for queries in torch.split(torch.arange(x.shape[1], device=x.device), at_once)
            ],
            1,
        )
        total = near.sum(-1, keepdim=True)
        blocks_shares.append(torch.where(total > 0, near / total, 0))
    return blocks_shares


def _nearness(
    x: Float[Tensor, "batch key dim"],
    attention: Float[Tensor, "batch head query key"],
    moved: Float[Tensor, "batch head key dim"],
    attended: Float[Tensor, "batch query dim"],
    norm: Float[Tensor, "batch query dim"] | None,
    queries: Tensor,
) -> Float[Tensor, "batch few key"]:
    shares = torch.einsum("bhqj,bhjd->bqjd", attention[:, :, queries], moved)
    shares[:, torch.arange(len(queries)), queries] += x[:, queries]
    if norm is not None:
        shares = norm[:, queries, None] * (shares - shares.mean(-1, keepdim=True))
    whole = attended[:, queries, None]
    return (whole.abs().sum(-1) - (whole - shares).abs().sum(-1)).clamp(min=0)
