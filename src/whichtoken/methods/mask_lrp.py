"""Mask-LRP: TransAtt with relevance propagated through syntactic and positional attention heads only.

Song et al., "Better Explain Transformers by Illuminating Important Information" (2023). In each block the relevance of
the heads' outputs is multiplied by M = M_synt + M_pos, the number of relations and relative positions for which a head
qualifies, and each part is rescaled to its share of the incoming relevance. Then M_l = mean_h max(0, grad A_l * C_l),
and the score is the read-out row of (I + M_L) ... (I + M_1) (eqs. 10, 11), with its own entry set to 0, except for
questions (`keep_self` overrides this). A block without a chosen head passes relevance through its residual only.

Deviations: the authors' code does not do this. It (preset `repo`) multiplies by a 0/1 mask without rescaling, reads C_l
before the mask and before it is halved, divides the rows of I + M_l by their sum, and hides [SEP] as a key while
explaining (`mask_separators`). For questions it hides nothing, never applies the mask, and spreads the relevance of the
answer's token over all tokens (`spread_answers`). `heads` is a HeadMask; None: the subject's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from whichtoken.core.ops import Rolling, mask_own_entry, relevance_rollout
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs
from whichtoken.heads.mask import HeadMask
from whichtoken.lrp import C21, Gates, divide

HEADS_ALLOWED = "None, or a HeadMask as wt.heads.load returns it; on the command line, --heads FILE"

_SPREAD = replace(C21, name="c21 spread over tokens", spread=True)


@register(
    "mask-lrp",
    paper="Song et al. 2023",
    presets={
        "repo": {"variant": "repo", "rollout": "normalised", "mask_separators": True, "spread_answers": True},
        "paper": {"variant": "paper", "rollout": "raw"},
    },
)
@dataclass(frozen=True)
class MaskLRP(Method):
    heads: HeadMask | None = field(default=None, metadata={"how": HEADS_ALLOWED})
    variant: Literal["paper", "repo"] = "repo"
    rollout: Rolling = "normalised"
    keep_self: bool | None = None
    mask_separators: bool = False
    spread_answers: bool = False

    @property
    def needs(self) -> Needs:
        return needs("", "attention", asks="heads passes", hide_separators=self.mask_separators)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        if self.spread_answers and trace.answering:
            second = probe.trace(None, needs("", "attention", relevance=(_SPREAD, "attention")))  # nothing hidden
            spread = second.relevance(_SPREAD, Site.ATTENTION)
            row = relevance_rollout(second.grad(Site.ATTENTION), spread, self.rollout, trace.readout)
            return Scores(mask_own_entry(row, trace, self.keep_self))
        mask = probe.heads(self.heads)
        rules = replace(C21, gates=_gates(mask, self.variant))
        if self.variant == "paper":
            propagated = probe.trace(None, replace(needs(relevance=(rules, "attention")), view=self.needs.view))
            relevance = propagated.relevance(rules, Site.ATTENTION)
        else:  # values of the same pass: relevance divided by values of another would multiply rounding errors
            sites = needs("attention value context", relevance=(rules, "context"))
            propagated = probe.trace(None, replace(sites, view=self.needs.view))
            relevance = _unmask_attention(propagated, propagated.relevance(rules, Site.CONTEXT))
        row = relevance_rollout(trace.grad(Site.ATTENTION), relevance, self.rollout, trace.readout)
        return Scores(mask_own_entry(row, trace, self.keep_self), ({"heads": str(mask)},) * len(row))


def _gates(mask: HeadMask, variant: str) -> Gates:
    added = tuple(tuple(int(flag) for flag in layer) for layer in mask.added)
    if variant == "paper":
        return Gates((mask.syntactic, mask.positional, added), conserve=True)
    chosen = tuple(tuple(int(flag) for flag in layer) for layer in mask.selected)
    return Gates((chosen,), conserve=False)


def _unmask_attention(trace: Trace, of_context: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the relevance of attention as the authors store it: for all heads, including the half due to values."""
    blocks = zip(
        trace.value(Site.ATTENTION), trace.value(Site.VALUE), trace.value(Site.CONTEXT), of_context, strict=True
    )
    return tuple(a * (divide(relevance, context) @ value.mT) for a, value, context, relevance in blocks)
