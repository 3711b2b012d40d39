"""Grad-SAM: attention times its positive gradient, averaged over blocks, heads and one axis.

Barkan et al., "Grad-SAM", CIKM 2021: with H = A * max(0, grad A), r_i = 1/(L H T) sum_lhj H_l[h, i, j]. The paper and
the Contrast-CAT code average over keys, so r is indexed by the query (`axis="query"`, presets `paper` and `repo`);
indexed by the key (`"key"`) it measures how much attention a token receives; `"readout"` takes the row of the read-out
position.

Deviations: the read-out row by default, which is far more faithful (docs/results.md). The Contrast-CAT code hides
special tokens in the explained pass (preset `repo`), and fails for models with a single head.
"""

from dataclasses import dataclass
from typing import ClassVar

from whichtoken.core.ops import Axis, mean_over, sum_layers
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "grad-sam",
    paper="Barkan et al., CIKM 2021",
    presets={"repo": {"axis": "query", "mask_special": True}, "paper": {"axis": "query"}},
)
@dataclass(frozen=True)
class GradSAM(Method):
    sums_layers: ClassVar[bool] = True

    axis: Axis = "readout"
    mask_special: bool = False

    @property
    def needs(self) -> Needs:
        return needs("attention", "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        pairs = zip(trace.value(Site.ATTENTION), trace.grad(Site.ATTENTION), strict=True)
        return sum_layers(
            mean_over([a * grad.clamp(min=0) for a, grad in pairs], self.axis, trace.readout, trace.lengths)
        )
