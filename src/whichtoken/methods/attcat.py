"""AttCAT: CAT weighted by the attention each token receives. Signed.

Qiang et al., "AttCAT", NeurIPS 2022, eqs. 11 and 12:
AttCAT_j = sum_l alpha_l[j] < d z_c / d h_l[j], h_l[j] >, alpha_l[j] = mean over heads and queries of A_l[h, i, j].

Deviations, each a setting: the equations pair a block's attention with its output (h_1..h_L), the code with its input
(h_0..h_{L-1}) (`layers`); the code hides special tokens in the explained pass (`mask_special`), so it explains a
different network from the one that predicts. Recommended: the network that predicts, with the scores of special tokens
set to 0 (`zero_special`). The Contrast-CAT code also scales scores to 0..1; here scaling is left to the display.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from whichtoken.core.ops import attended_gradient, layer_dot, sum_layers
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "attcat",
    paper="Qiang et al., NeurIPS 2022",
    presets={
        "repo": {"mask_special": True, "zero_special": False},
        "paper": {"layers": "outputs", "zero_special": False},
    },
)
@dataclass(frozen=True)
class AttCAT(Method):
    sums_layers: ClassVar[bool] = True

    layers: Literal["inputs", "outputs"] = "inputs"
    mask_special: bool = False
    zero_special: bool = True

    @property
    def needs(self) -> Needs:
        return needs("hidden attention", "hidden", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        chosen = slice(None, -1) if self.layers == "inputs" else slice(1, None)
        features, grads = trace.value(Site.HIDDEN)[chosen], trace.grad(Site.HIDDEN)[chosen]
        weights = attended_gradient(trace.value(Site.ATTENTION), grads, trace.lengths)
        return sum_layers(layer_dot(weights, features), trace.special if self.zero_special else None)
