"""CP-LRP (Conservative LRP): gradient x input with attention and the scale of norms held constant. Signed.

Ali et al., "XAI for Transformers: Better Explanations through Conservative Propagation", ICML 2022: attention
probabilities and the deviation of layer norms are constants, linear layers keep their gradient;
s_j = sum_d x[j, d] (d z_c / d x[j, d]) at the input of the first block. Without biases the scores sum to the logit.

Deviations: an activation function is a constant factor f(x) / x, which conserves relevance (`activations` "factor");
the authors' code differentiates it (preset `paper`). In gated layers, which the paper does not cover, the gate is a
constant.
"""

from dataclasses import dataclass
from typing import Literal

from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.lrp import CP_LRP, CP_LRP_GRADIENT, RuleSet


@register("cp-lrp", paper="Ali et al., ICML 2022", presets={"paper": {"activations": "gradient"}})
@dataclass(frozen=True)
class CPLRP(Method):
    activations: Literal["factor", "gradient"] = "factor"
    mask_special: bool = False

    @property
    def needs(self) -> Needs:
        return needs(hide_special=self.mask_special, relevance=(self._rules, "embeddings"))

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        return Scores(trace.relevance(self._rules, Site.EMBEDDINGS)[0].sum(-1))

    @property
    def _rules(self) -> RuleSet:
        return CP_LRP if self.activations == "factor" else CP_LRP_GRADIENT
