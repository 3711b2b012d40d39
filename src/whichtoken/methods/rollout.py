"""Attention rollout: attention plus the identity (the residual), multiplied through the blocks.

Abnar and Zuidema, "Quantifying Attention Flow in Transformers", ACL 2020. With B_l = mean_h A_l + I, rows divided by
their sum, the score is the read-out row of B_L ... B_s, with the read-out position's own entry set to 0, except for
questions (`keep_self` overrides this).

Deviations: blocks before `start_layer` s are left out (the ViT scripts of later papers use 1). The code of AttCAT and
Contrast-CAT hides special tokens in the explained pass (preset `repo`); AttCAT's figure shows the product reversed.
For questions, Mask-LRP's code takes the mean over all rows (`rows`; preset `qa-repo`).
"""

from dataclasses import dataclass, field

from whichtoken.core.ops import Rows, from_layer, mask_own_entry, normalise_rows, product_row, read_rows, with_residual
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "rollout",
    paper="Abnar and Zuidema, ACL 2020",
    presets={
        "repo": {"mask_special": True},
        "paper": {},
        "qa-repo": {"rows": "all"},
    },
)
@dataclass(frozen=True)
class Rollout(Method):
    start_layer: int = field(default=0, metadata={"least": 0})
    mask_special: bool = False
    keep_self: bool | None = None
    rows: Rows = "readout"

    @property
    def needs(self) -> Needs:
        return needs("attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        blocks = from_layer(trace.value(Site.ATTENTION), self.start_layer)
        row = product_row([normalise_rows(with_residual(a.mean(1))) for a in blocks], read_rows(trace, self.rows))
        return Scores(mask_own_entry(row, trace, self.keep_self))
