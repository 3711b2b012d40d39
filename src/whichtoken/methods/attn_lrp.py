"""AttnLRP: gradient x input with LRP rules for attention, norms and activations. Signed.

Achtibat et al., "AttnLRP", ICML 2024: products of two activations (queries with keys, attention with values, gates)
halve the gradient, softmax keeps its Jacobian, the deviation of norms is a constant, and an activation function is a
constant factor f(x) / x; s_j = sum_d x[j, d] g[j, d] at the input of the first block. Softmax and biases absorb
relevance, so scores need not sum to the logit.

The authors recommend CP-LRP for GPT-2, and gamma rules, which are not implemented here, for images.
"""

from dataclasses import dataclass

from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.lrp import ATTN_LRP


@register("attn-lrp", paper="Achtibat et al., ICML 2024")
@dataclass(frozen=True)
class AttnLRP(Method):
    mask_special: bool = False

    @property
    def needs(self) -> Needs:
        return needs(hide_special=self.mask_special, relevance=(ATTN_LRP, "embeddings"))

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        return Scores(trace.relevance(ATTN_LRP, Site.EMBEDDINGS)[0].sum(-1))
