"""Leave-one-out: how far the output drops when one word is removed. Signed.

Zeiler & Fergus, "Visualizing and Understanding Convolutional Networks", ECCV 2014 (occlusion of images), and Li et al.,
"Understanding Neural Networks through Representation Erasure", 2016 (words): w_u = f(x) - f(x without u).

Deviations: the log-odds of the target are compared (`scale="probability"`: its probability), because the probability
hardly changes where the model is certain. Li et al. divide the drop of the log-probability by its value. Words are
deleted, where Li et al. set their vectors to 0; patches are filled, where Zeiler & Fergus move a grey square. The
tokens of a word share its effect evenly; special tokens, and tokens that cannot be removed, get 0.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from whichtoken.core.registry import register
from whichtoken.core.trace import Level, Method, Needs, Probe, Scores, Trace, needs
from whichtoken.core.units import keep_patterns, n_units, spread


@register("leave-one-out", paper="Zeiler and Fergus, ECCV 2014; Li et al. 2016")
@dataclass(frozen=True)
class LeaveOneOut(Method):
    units: Level = "word"
    perturbation: str | None = None  # None: the task's own
    scale: Literal["log-odds", "probability"] = "log-odds"

    @property
    def needs(self) -> Needs:
        return needs(asks="answers")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        units = probe.units(self.units)
        most = int(n_units(units).max())
        whole_then_each = torch.cat([torch.zeros(1, most), torch.eye(most)]).bool()
        kept = keep_patterns(units, whole_then_each.expand(len(units), -1, -1))
        evaluate = probe.log_odds if self.scale == "log-odds" else probe.outputs
        outputs = evaluate(kept, self.perturbation)
        return Scores(spread(outputs[:, :1] - outputs[:, 1:], units))
