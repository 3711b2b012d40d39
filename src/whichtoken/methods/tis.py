"""TIS: the model's answer when only some tokens are left, averaged over masks that its own features suggest.

Englebert et al., "Explaining through Transformer Input Sampling", ICCV Workshops 2023. Every dimension of every block's
output is a map over the tokens; k-means joins these maps to `n_masks`; of each the highest `ratio` of the tokens is
kept, the others are removed behind the embeddings, and s_j = sum_m p_m B_mj / sum_m B_mj, scaled to 0..1.

Deviations: the paper is about images. In texts word pieces are the tokens that can go, special tokens and the read-out
one always stay (score 0); this adaptation is ours. The k-means has a seed, and a token that no mask keeps gets the
lowest score (0 / 0 in the authors' code). A pattern that several masks give is asked once.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from whichtoken.core.ops import minmax, read_alone
from whichtoken.core.registry import register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Site, Trace, needs

ROUNDS = 20  # of k-means, at most


@register("tis", paper="Englebert et al., ICCVW 2023")
@dataclass(frozen=True)
class TIS(Method):
    n_masks: int = field(default=1024, metadata={"least": 1})
    ratio: float | tuple[float, ...] = field(default=0.5, metadata={"shares": True})  # of tokens that a mask keeps
    seed: int = field(default=0, metadata={"least": 0})

    @property
    def needs(self) -> Needs:
        return needs("hidden", asks="removals")

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        free = trace.mask & ~trace.special & ~read_alone(trace)
        outputs = torch.cat(trace.value(Site.HIDDEN)[1:], -1)
        masks = [self._masks(features, row) for features, row in zip(outputs, free, strict=True)]
        answers = probe.keep_in_place(torch.stack(masks))
        scores = torch.zeros_like(trace.readout)
        for row, (kept, found) in enumerate(zip(masks, answers, strict=True)):
            scores[row] = _mean_when_kept(kept, found, free[row])
        return Scores(minmax(scores, free), tuple({"masks": len(set(map(tuple, k.tolist())))} for k in masks))

    def _masks(self, features: Float[Tensor, "token dim"], free: Bool[Tensor, " token"]) -> Bool[Tensor, "n token"]:
        maps = features[free].T.to(torch.float64)
        centres = _centres(maps, self.n_masks, self.seed)
        ratios = self.ratio if isinstance(self.ratio, tuple) else (self.ratio,)
        kept = torch.zeros(len(ratios) * len(centres), len(free), dtype=torch.bool, device=free.device)
        places = free.nonzero()[:, 0]
        order = places[centres.argsort(dim=-1, descending=True, stable=True)]
        for number, ratio in enumerate(ratios):
            chosen = order[:, : max(1, int(ratio * len(places)))]
            kept[number * len(centres) : (number + 1) * len(centres)].scatter_(1, chosen, True)
        return kept


def _centres(maps: Float[Tensor, "map token"], n: int, seed: int) -> Float[Tensor, "n token"]:
    """Of Lloyd's k-means, from a seeded choice of maps. A centre that loses all its maps stays where it is."""
    if n >= len(maps):
        return maps
    start = torch.randperm(len(maps), generator=torch.Generator().manual_seed(seed))[:n]
    centres, nearest = maps[start.to(maps.device)], torch.full((len(maps),), -1, device=maps.device)
    for _ in range(ROUNDS):
        found = torch.cdist(maps, centres).argmin(-1)
        if torch.equal(found, nearest):
            break
        nearest = found
        counts = torch.bincount(nearest, minlength=n)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, nearest, maps)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return centres


def _mean_when_kept(
    kept: Bool[Tensor, "n token"], found: Float[Tensor, " n"], free: Bool[Tensor, " token"]
) -> Float[Tensor, " token"]:
    weights = kept.to(found.dtype)
    mean = (found @ weights) / weights.sum(0).clamp(min=1)
    known = free & kept.any(0)
    lowest = mean[known].min() if known.any() else mean.new_zeros(())
    return torch.where(known, mean, torch.where(free, lowest, 0))
