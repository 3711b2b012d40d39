"""Refined noise: AttCAT plus seeded noise, refined as in Contrast-CAT. A control, not an explanation. Signed.

Contrast-CAT's maps are AttCAT minus a contrast, and the maps whose order of deletion lowers p_c most are kept. Here,
noise replaces the contrast: M_r[j] = AttCAT[j] + noise * s * e_r[j], with e_r standard normal and s the standard
deviation of AttCAT over the content tokens. Any gain over AttCAT comes only from the search on the deletion curve; what
Contrast-CAT gains beyond that comes from the contrast. Other settings and the presets are those of Contrast-CAT.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.core.ops import attended_gradient, layer_dot, seed_rows
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.methods.contrast_cat import ContrastCAT
from whichtoken.methods.contrast_cat.refinement import (
    BUDGET_ALLOWED,
    STEPS_ALLOWED,
    THRESHOLD_ALLOWED,
    Maps,
    Refinement,
    Steps,
    combine,
)


@register("refined-noise", paper="control for Han et al., UAI 2025", presets=ContrastCAT.presets)
@dataclass(frozen=True)
class RefinedNoise(Method):
    n: int = field(default=30, metadata={"least": 1})
    noise: float = field(default=1.0, metadata={"least": 0})
    seed: int = field(default=0, metadata={"least": 0})
    layers: Literal["inputs", "outputs"] = "inputs"
    mask_special: bool = False
    zero_special: bool = True
    scale_maps: bool = False
    steps: Steps = field(default=9, metadata=STEPS_ALLOWED)
    steps_of: Literal["content", "all"] = "content"
    threshold: float | str = field(default="mean+std", metadata=THRESHOLD_ALLOWED)
    keep_last_token: bool = False
    fallback: Literal["best", "all"] = "best"
    budget: int | None = field(default=None, metadata=BUDGET_ALLOWED)

    @property
    def needs(self) -> Needs:
        return needs("hidden attention", "hidden", hide_special=self.mask_special, asks="deletions")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        chosen = slice(0, -1) if self.layers == "inputs" else slice(1, None)
        features, grads = trace.value(Site.HIDDEN)[chosen], trace.grad(Site.HIDDEN)[chosen]
        attcat = layer_dot(attended_gradient(trace.value(Site.ATTENTION), grads, trace.lengths), features).sum(1)
        values = attcat[:, None, :] + self._noise(attcat, trace)
        all_real = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        refinement = Refinement(
            self.steps, self.steps_of, self.threshold, self.keep_last_token, self.fallback, self.budget
        )
        combined = combine(Maps(values, all_real, self.scale_maps), trace, probe, refinement)
        scores = combined.scores.masked_fill(trace.special, 0) if self.zero_special else combined.scores
        return Scores(scores, combined.details)

    def _noise(self, attcat: Float[Tensor, "batch token"], trace: Trace) -> Float[Tensor, "batch map token"]:
        """Draw noise that does not depend on the other texts of the batch."""
        noise = torch.zeros(len(attcat), self.n, attcat.shape[1], dtype=attcat.dtype, device=attcat.device)
        for row, generator in enumerate(seed_rows(trace, self.seed)):
            length = int(trace.lengths[row])
            content = ~trace.special[row, :length]
            spread = attcat[row, :length][content].std(correction=0)
            normal = torch.from_numpy(generator.standard_normal((self.n, length))).to(attcat)
            noise[row, :, :length] = self.noise * spread * normal * content
        return noise
