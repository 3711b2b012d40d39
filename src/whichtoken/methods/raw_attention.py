"""Raw attention: the attention of the read-out position in the last block.

The baseline "RawAtt" of AttCAT, Contrast-CAT and Mask-LRP: s_j = mean_h A_L[h, r, j] with r the read-out position,
whose own entry is 0. It does not depend on the class.

Deviations of the authors' code: special tokens are hidden in the explained pass (preset `repo`); for questions,
Mask-LRP's takes the mean over all rows (`rows`; preset `qa-repo`).
"""

from dataclasses import dataclass

from whichtoken.core.ops import Rows, mask_own_entry, read_rows, readout_row
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register(
    "raw-attention",
    paper="baseline",
    presets={
        "repo": {"mask_special": True},
        "paper": {},
        "qa-repo": {"rows": "all"},
    },
)
@dataclass(frozen=True)
class RawAttention(Method):
    mask_special: bool = False  # hide special tokens as keys in the explained pass
    keep_self: bool | None = None  # keep the read-out position's own entry; None: for questions only
    rows: Rows = "readout"

    @property
    def needs(self) -> Needs:
        return needs("attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        row = readout_row(trace.value(Site.ATTENTION)[-1].mean(1), read_rows(trace, self.rows))
        return Scores(mask_own_entry(row, trace, self.keep_self))
