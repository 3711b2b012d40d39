"""Att x Att-grads: attention times its gradient, averaged over blocks, heads and one axis.

A baseline of Contrast-CAT's Table 1 (Han et al., UAI 2025) whose code was not published; implemented as Grad-SAM
without clamping: 1/(L H T) sum_lhi (A_l * grad A_l)[h, i, j], signed, indexed by the key j. See `grad_sam` for `axis`;
the table's pattern (poor under MoRF removal) needs the query (preset `paper`).
"""

from dataclasses import dataclass
from typing import ClassVar

from whichtoken.core.ops import Axis, mean_over, sum_layers
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "att-x-att-grads",
    paper="Barkan et al., CIKM 2021 (ablation)",
    presets={"repo": {"axis": "query", "mask_special": True}, "paper": {"axis": "query"}},
)
@dataclass(frozen=True)
class AttXAttGrads(Method):
    sums_layers: ClassVar[bool] = True

    axis: Axis = "key"
    mask_special: bool = False

    @property
    def needs(self) -> Needs:
        return needs("attention", "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        pairs = zip(trace.value(Site.ATTENTION), trace.grad(Site.ATTENTION), strict=True)
        return sum_layers(mean_over([a * grad for a, grad in pairs], self.axis, trace.readout, trace.lengths))
