"""Contrast-CAT: AttCAT of the difference between a text's activations and those of reference texts. Signed.

Han et al., "Contrast-CAT", UAI 2025. For each reference r, a text that hardly activates class c:
I_r[j] = sum_l alpha_l[j] < d z_c / d h_l[j], h_l[j] - R_r,l[j] >, AttCAT[j] minus what the gradient sees of R_r.
Refined: tokens are deleted in the order of each map, and the maps whose mean drop of p_c is at least mean + one
standard deviation over the maps are averaged. References come from a `ReferenceLibrary`: the subject's, or
`references`: another one, or texts to make one of. The paper's ablations: `n` = 0 is AttCAT, one map and no search;
`depth` keeps the last layers only.

Deviations, each a setting: `layers` and `mask_special` as in AttCAT; the code aligns by position, with zeros beyond a
shorter reference (`align`), scales every map and their mean to 0..1 (`scale_maps`), deletes in nine steps of T/9,
special tokens counted (`steps`, `steps_of`), where the paper deletes one by one, never deletes the token ranked last
(`keep_last_token`), and averages all maps when none reaches the threshold, which the paper leaves open (`fallback`).
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from whichtoken.core.ops import attended_gradient, layer_dot
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.errors import BadSetting
from whichtoken.references.contrast import Align, Selection, no_overlaps, overlaps
from whichtoken.references.library import ReferenceLibrary
from whichtoken.references.refinement import STEPS_ALLOWED, THRESHOLD_ALLOWED, Maps, Refinement, Steps, combine


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

    def __post_init__(self) -> None:
        if self.layers == "outputs" and self.depth == 1:
            allowed = "2 or more with layers='outputs': the last block's has a gradient only where it is read out"
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
            found = no_overlaps(weights)
        else:
            found = overlaps(weights, trace, probe.references(self.references), Selection(self.n, self.align, chosen))
        how = Refinement(self.steps, self.steps_of, self.threshold, self.keep_last_token, self.fallback)
        own = layer_dot(weights, features)
        maps = Maps(own.sum(1)[:, None, :] - found.layers.sum(2), found.real, self.scale_maps)
        combined = combine(maps, trace, probe, how if self.tuned_on_deletion else None)
        used = own - torch.einsum("bmlt,bm->blt", found.layers, combined.shares)
        layers = nn.functional.pad(used, (0, 0, blocks.start, 0))  # a row for each block: one left out adds 0
        details = tuple({**about, **more} for about, more in zip(found.details, combined.details, strict=True))
        hidden = trace.special if self.zero_special else torch.zeros_like(trace.special)
        return Scores(
            combined.scores.masked_fill(hidden, 0),
            details,
            None if self.scale_maps else layers.masked_fill(hidden[:, None, :], 0),  # scaling is not a sum over layers
        )


def _last_blocks(there: int, depth: int | None) -> slice:
    if depth is not None and depth > there:
        raise BadSetting("depth", depth, f"at most {there}: the model has {there} blocks")
    return slice(there - (depth or there), there)
