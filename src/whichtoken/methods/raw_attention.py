"""Raw attention: what the read-out position looks at in the last block.

The baseline "RawAtt" of AttCAT, Contrast-CAT and Mask-LRP: s_j = mean_h A_L[h, r, j] with r the read-out position,
whose own entry is 0. It does not depend on the class.

Deviation of the authors' code: attention to special tokens is switched off in the explained pass (preset `repo`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from whichtoken.ops import drop_self, readout_row
from whichtoken.registry import register
from whichtoken.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register
@dataclass(frozen=True)
class RawAttention(Method):
    mask_special: bool = False  # hide special tokens as keys in the explained pass
    keep_self: bool = False  # keep the read-out position's own entry

    name: ClassVar[str] = "raw-attention"
    paper: ClassVar[str] = "baseline"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"repo": {"mask_special": True}, "paper": {}}

    @property
    def needs(self) -> Needs:
        return needs("attention", hide_special=self.mask_special)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        row = readout_row(trace.value(Site.ATTENTION)[-1].mean(1), trace.readout)
        return Scores(row if self.keep_self else drop_self(row, trace.readout))
