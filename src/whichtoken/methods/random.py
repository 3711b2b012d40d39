"""Random scores: the baseline that every method must beat.

Uniform in 0..1, drawn from the seed and the token ids, so that a text always gets the same scores, whatever else is in
its batch. Special tokens get 0.
"""

from dataclasses import dataclass, field

import torch

from whichtoken.core.ops import seed_rows
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Trace


@register("random", paper="baseline")
@dataclass(frozen=True)
class Random(Method):
    seed: int = field(default=0, metadata={"least": 0})

    @property
    def needs(self) -> Needs:
        return Needs()

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        scores = torch.zeros_like(trace.readout)
        for row, generator in enumerate(seed_rows(trace, self.seed)):
            length = int(trace.lengths[row])
            scores[row, :length] = torch.from_numpy(generator.random(length)).to(scores)
        return Scores(scores.masked_fill(trace.special, 0))
