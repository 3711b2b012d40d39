"""GAE: attention weighted by its positive gradient, accumulated through the blocks.

Chefer, Gur and Wolf, "Generic Attention-model Explainability", ICCV 2021, self-attention case. With
M_l = mean_h max(0, grad A_l * A_l): R <- R + M_l R from R = I (eqs. 5, 6); the score is the read-out row, with its own
entry set to 0, except for questions (`keep_self` overrides this). Rows are not normalised; the paper does so only for
several modalities.

The "GAE" of the Mask-LRP code is a different method (TransAtt), which replaces A by its LRP relevance.
"""

from dataclasses import dataclass, field

from whichtoken.core.ops import from_layer, mask_own_entry, relevance_rollout
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register("gae", paper="Chefer et al., ICCV 2021")
@dataclass(frozen=True)
class GAE(Method):
    start_layer: int = field(default=0, metadata={"least": 0})  # the authors advise the last blocks for CLIP
    mask_special: bool = False
    keep_self: bool | None = None

    @property
    def needs(self) -> Needs:
        return needs("attention", "attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        grads, values = (
            from_layer(x, self.start_layer) for x in (trace.grad(Site.ATTENTION), trace.value(Site.ATTENTION))
        )
        row = relevance_rollout(grads, values, "raw", trace.readout)
        return Scores(mask_own_entry(row, trace, self.keep_self))
