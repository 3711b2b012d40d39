"""TransAtt: the LRP relevance of attention, weighted by its gradient, rolled out through the blocks.

Chefer, Gur and Wolf, "Transformer Interpretability Beyond Attention Visualization", CVPR 2021, eqs. 13 and 14. With
M_l = mean_h max(0, grad A_l * C_l) and C_l the relevance of A_l under their rules, the score is the read-out row of
(I + M_L) ... (I + M_s).

Deviations, each a setting: their BERT code divides the rows of I + M_l by their sum (`rollout`), starts at the last of
twelve blocks (`start_layer`; -1 is the last) and gives the read-out position the lowest score (`own`); their ViT code
starts at block 1. Like AttCAT, Contrast-CAT and Mask-LRP, we set the read-out position's own entry to 0, except for
questions (`own` None). The "GAE" of the Mask-LRP code is this method.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch

from whichtoken.core.ops import Rolling, from_layer, mask_own_entry, relevance_rollout, single_readout
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.lrp import C21


@register(
    "transatt",
    paper="Chefer et al., CVPR 2021",
    presets={
        "bert-repo": {"start_layer": -1, "rollout": "normalised", "own": "lowest"},
        "paper": {"own": "kept"},
        "vit-repo": {"start_layer": 1, "own": "kept"},
    },
)
@dataclass(frozen=True)
class TransAtt(Method):
    start_layer: int = field(default=0, metadata={"least": -1})
    rollout: Rolling = "raw"
    own: Literal["zero", "lowest", "kept"] | None = None
    mask_special: bool = False

    @property
    def needs(self) -> Needs:
        return needs("", "attention", hide_special=self.mask_special, relevance=(C21, "attention"))

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        grads = from_layer(trace.grad(Site.ATTENTION), self.start_layer)
        relevance = from_layer(trace.relevance(C21, Site.ATTENTION), self.start_layer)
        row = relevance_rollout(grads, relevance, self.rollout, trace.readout)
        if self.own != "lowest":
            return Scores(mask_own_entry(row, trace, None if self.own is None else self.own == "kept"))
        lowest = row.masked_fill(~trace.mask, torch.inf).amin(-1, keepdim=True)
        return Scores(torch.where(single_readout(trace), lowest, row))
