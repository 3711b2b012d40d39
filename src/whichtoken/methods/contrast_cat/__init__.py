"""Contrast-CAT: AttCAT of the difference between a text's activations and those of reference texts. Signed.

Han et al., "Contrast-CAT", UAI 2025. For each reference r, a text that hardly activates class c, the map is
I_r[j] = sum_l alpha_l[j] < d z_c / d h_l[j], h_l[j] - R_r,l[j] >: AttCAT[j] minus the same product with R_r.
Refinement: tokens are deleted in the order of each map, and those maps are averaged whose mean drop in p_c is at least
one standard deviation above the mean over all maps. References come from the subject's `ReferenceLibrary`, or from
`references`: another library, or texts to build one from. The paper's ablations: `n` = 0 is AttCAT, with one map and no
search; `depth` is the number of last layers used.

Deviations, each a setting: `layers` and `mask_special` as in AttCAT. The authors' code aligns by position, with zeros
beyond a shorter reference (`align`), scales every map and their mean to 0..1 (`scale_maps`), deletes in nine steps of
T/9 (T counts special tokens) instead of one by one (`steps`, `steps_of`), never deletes the token ranked last
(`keep_last_token`), and averages all maps when none reaches the threshold, a case the paper leaves open (`fallback`).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from whichtoken.core.ops import attended_gradient, layer_dot
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.errors import BadSetting
from whichtoken.methods.contrast_cat.contrast import Align, Selection, no_overlaps, overlaps
from whichtoken.methods.contrast_cat.refinement import (
    BUDGET_ALLOWED,
    STEPS_ALLOWED,
    THRESHOLD_ALLOWED,
    Maps,
    Refinement,
    Steps,
    combine,
)
from whichtoken.references.library import ReferenceLibrary


@register(
    "contrast-cat",
    paper="Han et al., UAI 2025",
    presets={
        "repo": {
            "mask_special": True,
            "zero_special": False,
            "scale_maps": True,
            "steps_of": "all",
            "keep_last_token": True,
            "fallback": "all",
        },
        "paper": {"layers": "outputs", "zero_special": False, "steps": "each", "fallback": "all"},
    },
)
@dataclass(frozen=True)
class ContrastCAT(Method):
    sums_layers: ClassVar[bool] = True

    references: ReferenceLibrary | list[Any] | tuple[Any, ...] | None = None
    n: int = field(default=30, metadata={"least": 0})
    layers: Literal["inputs", "outputs"] = "inputs"
    depth: int | None = field(default=None, metadata={"least": 1})
    mask_special: bool = False
    zero_special: bool = True
    align: Align = "position"
    scale_maps: bool = False
    refine: bool = True
    steps: Steps = field(default=9, metadata=STEPS_ALLOWED)
    steps_of: Literal["content", "all"] = "content"
    threshold: float | str = field(default="mean+std", metadata=THRESHOLD_ALLOWED)
    keep_last_token: bool = False
    fallback: Literal["best", "all"] = "best"
    budget: int | None = field(default=None, metadata=BUDGET_ALLOWED)

    def __post_init__(self) -> None:
        if self.layers == "outputs" and self.depth == 1:
            allowed = "2 or more with layers='outputs': the last output has a gradient at the read-out position only"
            raise BadSetting("depth", self.depth, allowed)

    @property
    def needs(self) -> Needs:
        asks = "" if self.n == 0 else "references deletions" if self.refine else "references"
        return needs("hidden attention", "hidden", hide_special=self.mask_special, asks=asks)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        blocks = _last_blocks(len(trace.value(Site.ATTENTION)), self.depth)
        shift = 0 if self.layers == "inputs" else 1
        chosen = slice(blocks.start + shift, blocks.stop + shift)
        features, grads = trace.value(Site.HIDDEN)[chosen], trace.grad(Site.HIDDEN)[chosen]
        weights = attended_gradient(trace.value(Site.ATTENTION)[blocks], grads, trace.lengths)
        if self.n == 0:
            contrast = no_overlaps(weights)
        else:
            selection = Selection(self.n, self.align, chosen)
            contrast = overlaps(weights, trace, probe.references(self.references), selection)
        refinement = Refinement(
            self.steps, self.steps_of, self.threshold, self.keep_last_token, self.fallback, self.budget
        )
        own = layer_dot(weights, features)
        maps = Maps(own.sum(1)[:, None, :] - contrast.layers.sum(2), contrast.real, self.scale_maps)
        combined = combine(maps, trace, probe, refinement if self.tuned_on_deletion else None)
        used = own - torch.einsum("bmlt,bm->blt", contrast.layers, combined.shares)
        layers = nn.functional.pad(used, (0, 0, blocks.start, 0))  # one row per block; blocks left out add 0
        details = tuple({**a, **b} for a, b in zip(contrast.details, combined.details, strict=True))
        zeroed = trace.special if self.zero_special else torch.zeros_like(trace.special)
        return Scores(
            combined.scores.masked_fill(zeroed, 0),
            details,
            None
            if self.scale_maps
            else layers.masked_fill(zeroed[:, None, :], 0),  # scaled maps do not sum over layers
        )


def _last_blocks(n_blocks: int, depth: int | None) -> slice:
    if depth is not None and depth > n_blocks:
        raise BadSetting("depth", depth, f"at most {n_blocks}: the model has {n_blocks} blocks")
    return slice(n_blocks - (depth or n_blocks), n_blocks)
