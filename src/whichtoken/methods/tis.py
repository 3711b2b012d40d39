"""TIS: the mean probability when a token is kept, over masks derived from the model's own hidden states.

Englebert et al., "Explaining through Transformer Input Sampling", ICCV Workshops 2023. Every dimension of every block's
output is a map over the tokens; k-means clusters these maps into `n_masks`; of each cluster centre the highest `ratio`
of the tokens is kept, the others are removed after the embeddings, and s_j = sum_m p_m B_mj / sum_m B_mj, scaled to
0..1.

Deviations: the paper covers images. Our adaptation to texts removes sub-word tokens; special tokens and the read-out
token always stay (score 0). The k-means is seeded, and a token that no mask keeps gets the lowest score (0 / 0 in the
authors' code). A pattern shared by several masks is evaluated once.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from whichtoken.core.ops import minmax, single_readout
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs

MAX_ROUNDS = 20  # of k-means


@register("tis", paper="Englebert et al., ICCVW 2023")
@dataclass(frozen=True)
class TIS(Method):
    n_masks: int = field(default=1024, metadata={"least": 1})
    ratio: float | tuple[float, ...] = field(default=0.5, metadata={"shares": True})  # share of tokens a mask keeps
    seed: int = field(default=0, metadata={"least": 0})

    @property
    def needs(self) -> Needs:
        return needs("hidden", asks="removals")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        free = trace.mask & ~trace.special & ~single_readout(trace)
        outputs = torch.cat(trace.value(Site.HIDDEN)[1:], -1)
        masks = [self._masks(features, row) for features, row in zip(outputs, free, strict=True)]
        probabilities = probe.keep_in_place(torch.stack(masks))
        scores = torch.zeros_like(trace.readout)
        for row, (kept, of_row) in enumerate(zip(masks, probabilities, strict=True)):
            scores[row] = _mean_when_kept(kept, of_row, free[row])
        return Scores(minmax(scores, free), tuple({"masks": len(set(map(tuple, k.tolist())))} for k in masks))

    def _masks(self, features: Float[Tensor, "token dim"], free: Bool[Tensor, " token"]) -> Bool[Tensor, "n token"]:
        maps = features[free].T.to(torch.float64)
        centres = _centres(maps, self.n_masks, self.seed)
        ratios = self.ratio if isinstance(self.ratio, tuple) else (self.ratio,)
        kept = torch.zeros(len(ratios) * len(centres), len(free), dtype=torch.bool, device=free.device)
        positions = free.nonzero()[:, 0]
        order = positions[centres.argsort(dim=-1, descending=True, stable=True)]
        for number, ratio in enumerate(ratios):
            chosen = order[:, : max(1, int(ratio * len(positions)))]
            kept[number * len(centres) : (number + 1) * len(centres)].scatter_(1, chosen, True)
        return kept


def _centres(maps: Float[Tensor, "map token"], n: int, seed: int) -> Float[Tensor, "n token"]:
    """Return cluster centres by Lloyd's k-means from a seeded choice of maps. A centre without maps does not move."""
    if n >= len(maps):
        return maps
    start = torch.randperm(len(maps), generator=torch.Generator().manual_seed(seed))[:n]
    centres, nearest = maps[start.to(maps.device)], torch.full((len(maps),), -1, device=maps.device)
    for _ in range(MAX_ROUNDS):
        previous, nearest = nearest, torch.cdist(maps, centres).argmin(-1)
        if torch.equal(nearest, previous):
            break
        counts = torch.bincount(nearest, minlength=n)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, nearest, maps)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return centres


def _mean_when_kept(
    kept: Bool[Tensor, "n token"], probabilities: Float[Tensor, " n"], free: Bool[Tensor, " token"]
) -> Float[Tensor, " token"]:
    weights, first = kept.to(probabilities.dtype), probabilities[0]
    # As differences: means of equal probabilities are then equal, and scaling does not turn their rounding into scores.
    mean = first + ((probabilities - first) @ weights) / weights.sum(0).clamp(min=1)
    known = free & kept.any(0)
    lowest = mean[known].min() if known.any() else mean.new_zeros(())
    return torch.where(known, mean, torch.where(free, lowest, 0))
