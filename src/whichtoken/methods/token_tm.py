"""TokenTM: GAE with each token weighted by how much the block changes its length and direction.

Wu et al., "Token Transformation Matters: Towards Faithful Post-hoc Explanation for Vision Transformer", CVPR 2024. A
transformation turns token e_i into e~_i: w_i = |e~_i| / (|e_i| + 1e-8) * NECC_i, with NECC_i = exp cos(e_i, e~_i)
divided by its mean over the tokens. Block by block

    C <- (I + W_ffn) (I + mean_h max(0, grad A[h]) * (A[h] W_attn)) C,   from C = diag |e_i| of the embeddings,

W = diag w; the score is the read-out row, with its own entry set to 0, except for questions (`keep_self` overrides
this). With W_attn = I, W_ffn = 0 and C = I at the start it is GAE (`lengths`, `directions`, `feed_forward` and
`initial` off).

The formulas are from the paper's supplement and secondary sources, not verified against the paper's text or official
code. Open questions are settings. `reading`: "transform", e~ = W_O W_V LN(e), without the output bias, which belongs to
no token, and e~ = FFN(LN(e)); or "stream", the hidden states after attention and after the block, residual included.
`necc_norm`: the mean, or the sum, which makes every w about n times smaller. `heads`: "each" multiplies attention and
gradient head by head; "apart" multiplies their means. Preset `third-party` is a third party's interpretation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from whichtoken.core.ops import mask_own_entry, readout_row
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs

EPSILON = 1e-8
Reading = Literal["transform", "stream"]
Transformation = Callable[[Trace, int, Reading], tuple[Tensor, Tensor]]


@register(
    "token-tm",
    paper="Wu et al., CVPR 2024",
    presets={"third-party": {"reading": "stream", "necc_norm": "sum", "heads": "apart"}},
)
@dataclass(frozen=True)
class TokenTM(Method):
    reading: Reading = "transform"
    necc_norm: Literal["mean", "sum"] = "mean"
    heads: Literal["each", "apart"] = "each"
    lengths: bool = True  # include the ratio of lengths in w
    directions: bool = True  # include NECC in w
    feed_forward: bool = True
    initial: bool = True  # start from the lengths of the embeddings
    mask_special: bool = False
    keep_self: bool | None = None

    @property
    def needs(self) -> Needs:
        sites = {"attention"} | ({"hidden"} if self.initial else set())
        if self.lengths or self.directions:
            sites |= {"hidden", "attended"} if self.reading == "stream" else {"hidden", "value", "projection"}
            if self.feed_forward:
                sites |= {"attended"} if self.reading == "stream" else {"attended", "forwarded"}
        return needs(" ".join(sites), "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        row = trace.readout  # multiplied by one factor after another; the matrix product is never formed
        pairs = list(zip(trace.value(Site.ATTENTION), trace.grad(Site.ATTENTION), strict=True))
        for layer, (attention, grad) in reversed(list(enumerate(pairs))):
            if self.feed_forward:
                row = row * (1 + self._weights(trace, _forwarded, layer))
            mixed = (grad.clamp(min=0) * attention).mean(1)
            if self.heads == "apart":
                mixed = grad.clamp(min=0).mean(1) * attention.mean(1)
            row = row + readout_row(mixed, row) * self._weights(trace, _attended, layer)
        if self.initial:
            row = row * trace.value(Site.HIDDEN)[0].norm(dim=-1)
        return Scores(mask_own_entry(row, trace, self.keep_self))

    def _weights(self, trace: Trace, transformation: Transformation, layer: int) -> Float[Tensor, "batch token"]:
        """Return the diagonal of W."""
        weights = torch.ones_like(trace.readout)
        if not (self.lengths or self.directions):
            return weights
        before, after = transformation(trace, layer, self.reading)
        if self.lengths:
            weights = weights * after.norm(dim=-1) / (before.norm(dim=-1) + EPSILON)
        if self.directions:
            turned = cosine_similarity(before, after, dim=-1).exp() * trace.mask
            share = turned / turned.sum(-1, keepdim=True)
            weights = weights * (share * trace.lengths[:, None] if self.necc_norm == "mean" else share)
        return weights


def _attended(trace: Trace, layer: int, reading: Reading) -> tuple[Tensor, Tensor]:
    """Return tokens before and after the transformation that attention applies to each token alone."""
    before = trace.value(Site.HIDDEN)[layer]
    if reading == "stream":
        return before, trace.value(Site.ATTENDED)[layer]
    value, projection = trace.value(Site.VALUE)[layer], trace.value(Site.PROJECTION)[layer]
    return before, torch.einsum("bhte,hed->btd", value, projection)


def _forwarded(trace: Trace, layer: int, reading: Reading) -> tuple[Tensor, Tensor]:
    """Return tokens before and after the feed-forward layer."""
    after = trace.value(Site.HIDDEN)[layer + 1] if reading == "stream" else trace.value(Site.FORWARDED)[layer]
    return trace.value(Site.ATTENDED)[layer], after
