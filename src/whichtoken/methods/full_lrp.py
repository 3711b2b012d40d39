"""Full LRP: relevance propagated from the logit down to the embeddings, added up over each token's dimensions. Signed.

Bach et al., PLoS ONE 2015, as Chefer, Gur and Wolf, CVPR 2021, apply it to Transformers: the seed is 1 at the explained
logit, s_j = sum_d R[j, d] at the input of the first block, the read-out position's own entry set to 0.

Deviations: `rules` "c21" (their rules for TransAtt, and those of the Mask-LRP code) conserve relevance: scores and the
entry set to 0 sum to 1. Their code for this baseline uses "orig" (preset `repo`), which doubles it at every linear
layer. For images they go on to the pixels; we stop at the patches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from whichtoken.lrp import RULE_SETS
from whichtoken.ops import drop_self
from whichtoken.registry import register
from whichtoken.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register
@dataclass(frozen=True)
class FullLRP(Method):
    rules: Literal["c21", "orig"] = "c21"
    mask_special: bool = False
    keep_self: bool = False

    name: ClassVar[str] = "full-lrp"
    paper: ClassVar[str] = "Bach et al. 2015; Chefer et al., CVPR 2021"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"repo": {"rules": "orig"}}

    @property
    def needs(self) -> Needs:
        return needs(hide_special=self.mask_special, relevance=(RULE_SETS[self.rules], "embeddings"))

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        scores = trace.relevance(RULE_SETS[self.rules], Site.EMBEDDINGS)[0].sum(-1)
        return Scores(scores if self.keep_self else drop_self(scores, trace.readout))
