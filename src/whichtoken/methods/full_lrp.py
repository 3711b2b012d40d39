"""Full LRP: relevance propagated from the logit down to the embeddings, summed over each token's dimensions. Signed.

Bach et al., PLoS ONE 2015, as Chefer, Gur and Wolf, CVPR 2021, apply it to Transformers: relevance starts as 1 at the
explained logit, s_j = sum_d R[j, d] at the input of the first block. The read-out position's own entry is set to 0,
except for questions (`keep_self` overrides this). For images, relevance is propagated to the pixels (`lrp.pixels`), and
a patch's score is the sum over its pixels; positions and the tokens before the patches keep their share.

Deviations: `rules` "c21" (their rules for TransAtt, and those of the Mask-LRP code) conserve relevance: the scores and
the entry set to 0 sum to 1. Their code for this baseline uses "orig" (preset `repo`), which doubles relevance at every
linear layer.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.core.ops import mask_own_entry
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.lrp import RULE_SETS


@register("full-lrp", paper="Bach et al. 2015; Chefer et al., CVPR 2021", presets={"repo": {"rules": "orig"}})
@dataclass(frozen=True)
class FullLRP(Method):
    rules: Literal["c21", "orig"] = "c21"
    mask_special: bool = False
    keep_self: bool | None = None

    @property
    def needs(self) -> Needs:
        return needs(hide_special=self.mask_special, relevance=(RULE_SETS[self.rules], "embeddings pixels"))

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        scores = trace.relevance(RULE_SETS[self.rules], Site.EMBEDDINGS)[0].sum(-1)
        scores = mask_own_entry(scores, trace, self.keep_self)
        pixels = trace.relevance(RULE_SETS[self.rules], Site.PIXELS)
        if trace.grid is None or not pixels:
            return Scores(scores)
        patches = _patch_sums(pixels[0], trace.grid)
        return Scores(torch.cat([scores[:, : -patches.shape[1]], patches], 1), pixels=pixels[0])


def _patch_sums(pixels: Float[Tensor, "batch row column"], grid: tuple[int, int]) -> Float[Tensor, "batch patch"]:
    high, wide = pixels.shape[1] // grid[0], pixels.shape[2] // grid[1]
    return pixels.reshape(-1, grid[0], high, grid[1], wide).sum((2, 4)).flatten(1)
