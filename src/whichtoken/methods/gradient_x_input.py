"""Gradient x input: embeddings times the gradient of the target. Signed.

Shrikumar et al. 2016, "Not Just a Black Box": s_j = < d z_c / d e[j], e[j] >, with e the input of the first block: word
embeddings plus positions, after the embedding norm. Before that norm, which is invariant to the length of its input,
the product would vanish by construction in DeBERTa-v2 and ModernBERT.
"""

from dataclasses import dataclass

from whichtoken.core.ops import token_dot
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs


@register("gradient-x-input", paper="Shrikumar et al. 2016")
@dataclass(frozen=True)
class GradientXInput(Method):
    @property
    def needs(self) -> Needs:
        return needs("embeddings", "embeddings")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        embeddings, gradient = trace.value(Site.EMBEDDINGS)[0], trace.grad(Site.EMBEDDINGS)[0]
        return Scores(token_dot(embeddings, gradient))
