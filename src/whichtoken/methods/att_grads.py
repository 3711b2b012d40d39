"""Att-grads: the gradient of the target with respect to attention, averaged over blocks, heads and one axis.

A baseline of Contrast-CAT's Table 1 (Han et al., UAI 2025) whose code was not published; implemented as Grad-SAM
without attention and without clamping: 1/(L H T) sum_lhi grad A_l[h, i, j], indexed by the key j. See `grad_sam` for
`axis`; indexed by the query (preset `paper`) it reproduces the table's pattern (poor under MoRF removal, good under
LeRF).
"""

from dataclasses import dataclass
from typing import ClassVar

from whichtoken.core.ops import Axis, mean_over, sum_layers
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "att-grads",
    paper="Barkan et al., CIKM 2021 (ablation)",
    presets={"repo": {"axis": "query", "mask_special": True}, "paper": {"axis": "query"}},
)
@dataclass(frozen=True)
class AttGrads(Method):
    sums_layers: ClassVar[bool] = True

    axis: Axis = "key"
    mask_special: bool = False

    @property
    def needs(self) -> Needs:
        return needs("", "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        return sum_layers(mean_over(trace.grad(Site.ATTENTION), self.axis, trace.readout, trace.lengths))
