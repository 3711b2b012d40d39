"""Grad-CAM on attention: the last block's attention heads, each weighted by its mean gradient.

Selvaraju et al., "Grad-CAM", ICCV 2017, as AttCAT ("AttGrads" in its code) and Mask-LRP ("GradCAM") apply it to text:
w_h = mean_ij grad A_L[h], M = max(0, mean_h w_h A_L[h]), scaled to 0..1 over the whole matrix; the score is the
read-out row, with its own entry set to 0.

Deviations: the authors' code hides special tokens in the explained pass (preset `repo`), and returns NaN for a map
without a positive entry, where this method returns zeros.
"""

from dataclasses import dataclass

from whichtoken.core.ops import mask_own_entry, minmax, readout_row
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "attention-grad-cam",
    paper="Selvaraju et al., ICCV 2017; Qiang et al., NeurIPS 2022",
    presets={"repo": {"mask_special": True}, "paper": {}},
)
@dataclass(frozen=True)
class AttentionGradCAM(Method):
    mask_special: bool = False
    keep_self: bool | None = None

    @property
    def needs(self) -> Needs:
        return needs("attention", "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        attention, grad = trace.value(Site.ATTENTION)[-1], trace.grad(Site.ATTENTION)[-1]
        weights = grad.sum((2, 3)) / trace.lengths[:, None] ** 2
        matrix = (weights[:, :, None, None] * attention).mean(1).clamp(min=0)
        scaled = minmax(matrix, trace.mask[:, :, None] & trace.mask[:, None, :])
        return Scores(mask_own_entry(readout_row(scaled, trace.readout), trace, self.keep_self))
