"""Grad-CAM for vision Transformers: the read-out row of the last block's heads, each weighted by its mean gradient.

Selvaraju et al., "Grad-CAM", ICCV 2017, as Chefer, Gur and Wolf, CVPR 2021, and the TokenTM supplement apply it: over
patches j, with r the read-out position, w_h = mean_j grad A_L[h, r, j] and s_j = max(0, mean_h w_h A_L[h, r, j]).
Other tokens get 0. In texts, the tokens that are not special take the place of patches. The read-out position's own
entry is set to 0, except for questions (`keep_self` overrides this).

Deviations: the authors scale the map to 0..1, and get NaN where it is constant; here scaling is left to the display.
In `attention-grad-cam`, the form for texts, w_h is a mean over the whole matrix instead.
"""

from dataclasses import dataclass

import torch

from whichtoken.core.ops import mask_own_entry
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register("grad-cam", paper="Selvaraju et al., ICCV 2017; Chefer et al., CVPR 2021")
@dataclass(frozen=True)
class GradCAM(Method):
    mask_special: bool = False
    keep_self: bool | None = None

    @property
    def needs(self) -> Needs:
        return needs("attention", "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        patches = trace.mask & ~trace.special
        attention, grad = (
            torch.einsum("bhqk,bq->bhk", x[-1], trace.readout) * patches[:, None]
            for x in (trace.value(Site.ATTENTION), trace.grad(Site.ATTENTION))
        )
        weights = grad.sum(-1) / patches.sum(-1, keepdim=True).clamp(min=1)
        scores = (weights[..., None] * attention).mean(1).clamp(min=0)
        return Scores(mask_own_entry(scores, trace, self.keep_self))
