"""Partial LRP: the relevance that reaches the attention of the last block.

Voita et al., ACL 2019, as a baseline in Chefer, Gur and Wolf, CVPR 2021: s = mean_h max(0, C_L[h, r, :]), with C_L the
relevance of the last block's attention and r the read-out position, whose own entry is set to 0.

Deviations: `rules` as in Full LRP ("orig", the preset `repo`, is the code of Chefer et al. for this baseline).
`gradient`, their ablation, multiplies C_L by the gradient before negative values are clamped.
"""

from dataclasses import dataclass
from typing import Literal

from whichtoken.core.ops import mask_own_entry, readout_row
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.lrp import RULE_SETS


@register("partial-lrp", paper="Voita et al., ACL 2019; Chefer et al., CVPR 2021", presets={"repo": {"rules": "orig"}})
@dataclass(frozen=True)
class PartialLRP(Method):
    rules: Literal["c21", "orig"] = "c21"
    gradient: bool = False
    mask_special: bool = False
    keep_self: bool | None = None  # as in raw attention

    @property
    def needs(self) -> Needs:
        grads = "attention" if self.gradient else ""
        return needs("", grads, hide_special=self.mask_special, relevance=(RULE_SETS[self.rules], "attention"))

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        relevance = trace.relevance(RULE_SETS[self.rules], Site.ATTENTION)[-1]
        if self.gradient:
            relevance = relevance * trace.grad(Site.ATTENTION)[-1]
        row = readout_row(relevance.clamp(min=0).mean(1), trace.readout)
        return Scores(mask_own_entry(row, trace, self.keep_self))
