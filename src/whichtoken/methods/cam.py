"""CAM as the Mask-LRP paper applies it to text: the positive mean gradient that a key receives in the last block.

Song et al. 2023, after Zhou et al., CVPR 2016: s_j = max(0, mean_hi grad A_L[h, i, j]), with the read-out
position's own entry set to 0.
"""

from dataclasses import dataclass

from whichtoken.core.ops import mask_own_entry, received_attention
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register("cam", paper="Zhou et al., CVPR 2016; Song et al. 2023")
@dataclass(frozen=True)
class CAM(Method):
    mask_special: bool = False
    keep_self: bool | None = None

    @property
    def needs(self) -> Needs:
        return needs("", "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        received = received_attention(trace.grad(Site.ATTENTION)[-1], trace.lengths)
        return Scores(mask_own_entry(received.clamp(min=0), trace, self.keep_self))
