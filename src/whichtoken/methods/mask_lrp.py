"""Mask-LRP: TransAtt with relevance propagated through syntactic and positional attention heads only.

Song et al., "Better Explain Transformers by Illuminating Important Information" (2023). In each block the relevance of
the heads' outputs is multiplied by M = M_synt + M_pos, for how many relations and relative positions a head qualifies,
and each part is scaled to its share of what came in; then M_l = mean_h max(0, grad A_l * C_l) and the
read-out row of (I + M_L) ... (I + M_1) (eqs. 10, 11), its own entry set to 0, or kept for questions (`keep_self`; None:
that). A block without a chosen head lets relevance through its residual only.

Deviations: no code of the authors' does this. Theirs (preset `repo`) multiplies by a mask of 0 and 1, restores nothing,
reads C_l before the mask and before it is halved, and divides the rows of I + M_l by their sum. For questions it never
passes the mask on, and spreads the relevance of the answer's token over all of them; so does the preset. `heads` is a
HeadMask; None: the subject's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from whichtoken.core.ops import Rolling, own_entry, relevance_rollout
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.heads.mask import HeadMask
from whichtoken.lrp import C21, Gates, divide

HOW = "None, or a HeadMask as wt.heads.load returns it; on the command line, --heads FILE"


_SPREAD = replace(C21, name="c21 spread over tokens", spread=True)


@register(
    "mask-lrp",
    paper="Song et al. 2023",
    presets={
        "repo": {"variant": "repo", "rollout": "normalised"},
        "paper": {},
    },
)
@dataclass(frozen=True)
class MaskLRP(Method):
    heads: HeadMask | None = field(default=None, metadata={"how": HOW})
    variant: Literal["paper", "repo"] = "paper"
    rollout: Rolling = "raw"
    keep_self: bool | None = None

    @property
    def needs(self) -> Needs:
        values = "" if self.variant == "paper" else "attention value context"
        return needs(values, "attention", asks="heads passes")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        if self.variant == "repo" and trace.answering:
            found = probe.trace(None, Needs(relevance=frozenset({(_SPREAD, Site.ATTENTION)})))
            everywhere = found.relevance(_SPREAD, Site.ATTENTION)
            row = relevance_rollout(trace.grad(Site.ATTENTION), everywhere, self.rollout, trace.readout)
            return Scores(own_entry(row, trace, self.keep_self))
        mask = probe.heads(self.heads)
        rules = replace(C21, gates=_gates(mask, self.variant))
        site = Site.ATTENTION if self.variant == "paper" else Site.CONTEXT
        arriving = probe.trace(None, Needs(relevance=frozenset({(rules, site)}))).relevance(rules, site)
        relevance = arriving if self.variant == "paper" else _unmasked(trace, arriving)
        row = relevance_rollout(trace.grad(Site.ATTENTION), relevance, self.rollout, trace.readout)
        return Scores(own_entry(row, trace, self.keep_self), ({"heads": str(mask)},) * len(row))


def _gates(mask: HeadMask, variant: str) -> Gates:
    added = tuple(tuple(int(flag) for flag in layer) for layer in mask.added)
    if variant == "paper":
        return Gates((mask.syntactic, mask.positional, added), conserve=True)
    chosen = tuple(tuple(int(flag) for flag in layer) for layer in mask.selected)
    return Gates((chosen,), conserve=False)


def _unmasked(trace: Trace, arriving: Sequence[Tensor]) -> list[Tensor]:
    """Relevance of attention as the authors store it: of all heads, and the half that belongs to values too."""
    blocks = zip(trace.value(Site.ATTENTION), trace.value(Site.VALUE), trace.value(Site.CONTEXT), arriving, strict=True)
    return [a * (divide(relevance, context) @ value.mT) for a, value, context, relevance in blocks]
