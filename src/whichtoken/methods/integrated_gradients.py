"""Integrated gradients: gradient x input averaged along the path from an empty text. Signed.

Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", ICML 2017, eq. 1, over the input of the first
block: s_j = < e[j] - b[j], integral_0^1 d z_c(b + t (e - b)) / d e[j] dt >. In the baseline b every word is replaced by
the padding or mask token (`baseline`); special tokens keep their embeddings, so that the baseline is an empty text.
RoBERTa, XLM-R and MPNet give padding no position of its own; with `mask` positions are kept. With `zero` (zero vectors)
the integral converges poorly, because they lie far from the embeddings that the blocks were trained on.

The scores should sum to z_c(e) - z_c(b); the difference is reported as `completeness_residual`. The cost is `steps`
passes.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whichtoken.core.ops import token_dot
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register("integrated-gradients", paper="Sundararajan et al., ICML 2017")
@dataclass(frozen=True)
class IntegratedGradients(Method):
    steps: int = field(default=50, metadata={"least": 1})
    rule: Literal["gauss-legendre", "midpoint"] = "gauss-legendre"
    baseline: Literal["pad", "mask", "zero"] = "pad"

    @property
    def needs(self) -> Needs:
        return needs("embeddings", asks="passes")

    @property
    def n_passes(self) -> int:
        return self.steps + 1  # one at the baseline

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        embeddings = trace.value(Site.EMBEDDINGS)[0]
        blank = torch.zeros_like(embeddings) if self.baseline == "zero" else probe.blank(self.baseline)
        baseline = torch.where(trace.special[:, :, None], embeddings, blank)
        nodes = [(0.0, 0.0), *self._nodes()]  # the first gives the target at the baseline
        points = probe.differentiate(baseline + at * (embeddings - baseline) for at, _ in nodes)
        gradient, targets = torch.zeros_like(embeddings), list[Tensor]()
        for (_, weight), point in zip(nodes, points, strict=True):
            gradient += weight * point.gradient
            targets.append(point.target)
        scores = token_dot(embeddings - baseline, gradient)
        residual = trace.target - targets[0] - scores.sum(-1)
        return Scores(scores, tuple({"completeness_residual": r} for r in residual.tolist()))

    def _nodes(self) -> list[tuple[float, float]]:
        """Return the points between 0 and 1 at which gradients are taken, with their weights, which sum to 1."""
        if self.rule == "midpoint":
            return [((k + 0.5) / self.steps, 1 / self.steps) for k in range(self.steps)]
        at, weights = np.polynomial.legendre.leggauss(self.steps)
        return list(zip(((at + 1) / 2).tolist(), (weights / 2).tolist(), strict=True))
