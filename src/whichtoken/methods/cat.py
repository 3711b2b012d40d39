"""CAT: hidden states times their gradients, summed over blocks. Signed.

Qiang et al., "AttCAT", NeurIPS 2022, eq. 10 (read as a dot product, as in the code):
CAT_j = sum_l < d z_c / d h_l[j], h_l[j] >.

Deviations, each a setting: the equations sum over block outputs h_1..h_L, the code over block inputs h_0..h_{L-1}
(`layers`); the code hides special tokens in the explained pass (`mask_special`), so it explains a different network
from the one that predicts. Recommended: the network that predicts, with the scores of special tokens set to 0
(`zero_special`).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from whichtoken.core.ops import sum_layers, token_dot
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "cat",
    paper="Qiang et al., NeurIPS 2022",
    presets={
        "repo": {"mask_special": True, "zero_special": False},
        "paper": {"layers": "outputs", "zero_special": False},
    },
)
@dataclass(frozen=True)
class CAT(Method):
    sums_layers: ClassVar[bool] = True

    layers: Literal["inputs", "outputs"] = "inputs"
    mask_special: bool = False
    zero_special: bool = True

    @property
    def needs(self) -> Needs:
        return needs("hidden", "hidden", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        chosen = slice(None, -1) if self.layers == "inputs" else slice(1, None)
        pairs = zip(trace.value(Site.HIDDEN)[chosen], trace.grad(Site.HIDDEN)[chosen], strict=True)
        layers = torch.stack([token_dot(features, grad) for features, grad in pairs], 1)
        return sum_layers(layers, trace.special if self.zero_special else None)
