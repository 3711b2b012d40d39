"""Refinement: average those of several maps of a text that have the best deletion curves.

Each map ranks the tokens; the highest-ranked are deleted in steps; the mean drop in probability is the map's score, and
the maps that reach a threshold are averaged. A method that does this is tuned on the deletion curve. With a budget,
only some of the deletions are evaluated (`racing`), and the drops and the threshold are estimates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from whichtoken.core.ops import minmax_maps
from whichtoken.core.trace import Probe, Trace
from whichtoken.methods.contrast_cat.racing import ROUNDS, fill_outputs, learn_outputs, propose_sets, start_race

Steps = int | Literal["each"] | tuple[float, ...]
STEPS_ALLOWED = {"least": 1, "shares": True}  # metadata of the methods' settings
BUDGET_ALLOWED = {"least": 2}
THRESHOLD_ALLOWED = {"form": r"mean\+std|top-[1-9]\d*", "forms": "'mean+std', 'top-k'"}


@dataclass(frozen=True)
class Refinement:
    """Settings of the refinement; docs/methods.md documents them for each method."""

    steps: Steps
    steps_of: Literal["content", "all"]  # the tokens that the steps are shares of
    threshold: float | str
    keep_last_token: bool
    fallback: Literal["best", "all"]  # which maps are used if none reaches the threshold
    budget: int | None = None  # evaluations of each text; None: all


@dataclass(frozen=True)
class Maps:
    """Several maps for each text, padded to the largest number of maps."""

    values: Float[Tensor, "batch map token"]
    real: Bool[Tensor, "batch map"]  # False at padding
    scaled: bool  # scale each map, and their mean, to 0..1


Details = tuple[Mapping[str, object], ...]


@dataclass(frozen=True)
class Combined:
    scores: Float[Tensor, "batch token"]
    shares: Float[Tensor, "batch map"]  # weight of each map in the mean
    details: Details  # for each text, how the maps were chosen


def combine(maps: Maps, trace: Trace, probe: Probe, how: Refinement | None) -> Combined:
    """Return the mean of the maps that survive the refinement `how` (None: of all maps)."""
    values = minmax_maps(maps.values, trace.mask) if maps.scaled else maps.values
    kept, details = maps.real, tuple[Mapping[str, object], ...]({} for _ in maps.real)
    if how is not None:
        kept, details = _select_survivors(values, maps.real, trace, probe, how)
    mean = torch.einsum("bmt,bm->bt", values, kept.to(values.dtype)) / kept.sum(-1, keepdim=True)
    scores = minmax_maps(mean[:, None], trace.mask)[:, 0] if maps.scaled else mean
    return Combined(scores, kept.to(values.dtype) / kept.sum(-1, keepdim=True), details)


def _select_survivors(
    maps: Float[Tensor, "batch map token"], real: Bool[Tensor, "batch map"], trace: Trace, probe: Probe, how: Refinement
) -> tuple[Bool[Tensor, "batch map"], Details]:
    counts = _counts(trace, how)
    ranks = _ranks(maps, trace, how.keep_last_token)
    deleted = (ranks[:, :, None, :] < counts[:, None, :, None]) & real[:, :, None, None]
    everything = torch.ones_like(deleted[:, :1, 0])
    patterns = torch.cat([everything, ~deleted.flatten(1, 2)], 1)
    if how.budget is None:
        p, asked = probe.keep(patterns), patterns
    else:
        p, asked = _race(maps, deleted, real, trace, probe, how.budget)
    p, counted = p.to(torch.float64), counts > 0
    lost = (p[:, :1] - p[:, 1:]).view(deleted.shape[:3]) * counted[:, None]
    drops = lost.sum(-1) / counted.sum(-1, keepdim=True).clamp(min=1)
    threshold = _threshold(drops, real, how.threshold)
    # The authors compare with a plain >=. If maps give only two different drops, equally often, mean + std is exactly
    # the higher one, so the rounding of these few sums in float64 is allowed for; predicted values may be large.
    slack = _rounding(drops) * p.abs().amax(-1, keepdim=True).clamp(min=1)
    reached = (drops >= threshold[:, None] - slack) & real
    fell_back = ~reached.any(-1)
    best = drops.masked_fill(~real, -torch.inf).amax(-1, keepdim=True)
    fallback = real & (drops >= best - slack) if how.fallback == "best" else real
    evaluations = probe.distinct(asked).tolist()
    details = tuple(
        {
            "drops": drops[row][real[row]].tolist(),
            "survivors": reached[row][real[row]].nonzero()[:, 0].tolist(),
            "threshold": float(threshold[row]),
            "fallback": bool(fell_back[row]),
            "evaluations": evaluations[row],
        }
        for row in range(len(maps))
    )
    return torch.where(fell_back[:, None], fallback, reached), details


def _race(
    maps: Float[Tensor, "batch map token"],
    deleted: Bool[Tensor, "batch map step token"],
    real: Bool[Tensor, "batch map"],
    trace: Trace,
    probe: Probe,
    budget: int,
) -> tuple[Float[Tensor, "batch n"], Bool[Tensor, "batch asked token"]]:
    """Return the outputs of the whole text and of each map and step, some of them predicted, and what was evaluated.

    Each round evaluates all texts of the batch together.
    """
    content = (trace.mask & ~trace.special).cpu().numpy()
    everything = torch.ones_like(deleted[:, :1, 0])
    whole, asked = probe.keep(everything), [everything]
    races = []
    for row, free in enumerate(content):
        values = maps[row, real[row]].to(torch.float64).cpu().numpy()[:, free]
        sets = deleted[row, real[row]].cpu().numpy()[:, :, free]
        races.append(start_race(sets, values, float(whole[row, 0]), budget))
    for turn in range(len(ROUNDS)):
        chosen = [propose_sets(race, turn) for race in races]
        kept = np.ones((len(races), max(map(len, chosen)), content.shape[1]), dtype=bool)
        for pattern, race, numbers, free in zip(kept, races, chosen, content, strict=True):
            if len(numbers):  # texts with fewer questions repeat their last one, which costs nothing
                pattern[:, free] = ~race.sets[np.pad(numbers, (0, len(pattern) - len(numbers)), mode="edge")]
        if kept.shape[1]:
            asked.append(torch.from_numpy(kept).to(deleted.device))
            outputs = probe.keep(asked[-1]).to(torch.float64).cpu().numpy()
            races = [
                learn_outputs(race, numbers, of_row[: len(numbers)])
                for race, numbers, of_row in zip(races, chosen, outputs, strict=True)
            ]
    filled = whole.to(torch.float64)[:, :, None].expand(-1, real.shape[1], deleted.shape[2]).clone()
    for row, race in enumerate(races):
        filled[row, real[row]] = torch.from_numpy(fill_outputs(race)).to(filled)
    return torch.cat([whole.to(filled), filled.flatten(1)], 1), torch.cat(asked, 1)


def _ranks(
    maps: Float[Tensor, "batch map token"], trace: Trace, keep_last_token: bool
) -> Int[Tensor, "batch map token"]:
    """Return each token's deletion rank, 0 first; tokens that are never deleted rank beyond any count."""
    # Scores that differ only by rounding are ties, broken by position: in a decoder, every token of a prefix that text
    # and reference share scores exactly 0.
    grain = _rounding(maps) * maps.abs().amax(-1, keepdim=True)
    falling, by_score = maps.masked_fill(~trace.mask[:, None, :], -torch.inf).sort(-1, descending=True)
    group = nn.functional.pad((falling[..., :-1] - falling[..., 1:] > grain).cumsum(-1), (1, 0))
    order = torch.empty_like(group).scatter(-1, by_score, group).argsort(dim=-1, stable=True)
    content = (trace.mask & ~trace.special)[:, None, :].expand_as(maps)
    takes_turn = content.gather(-1, order)
    if keep_last_token:  # the authors' code never deletes the last-ranked token, whether word or special token
        takes_turn = takes_turn & (torch.arange(maps.shape[-1], device=maps.device) < trace.lengths[:, None, None] - 1)
    turn = takes_turn.cumsum(-1) - 1
    never = torch.full_like(turn, maps.shape[-1] + 1)
    return torch.empty_like(order).scatter(-1, order, torch.where(takes_turn, turn, never))


def _rounding(values: Tensor) -> float:
    """Return the relative difference that another order of the same sums can cause."""
    return 32 * torch.finfo(values.dtype).eps


def _counts(trace: Trace, settings: Refinement) -> Int[Tensor, "batch step"]:
    """Return how many tokens each step deletes; a step that repeats the previous one is set to 0 and not counted."""
    content = (trace.mask & ~trace.special).sum(-1)
    totals = trace.lengths if settings.steps_of == "all" else content
    if settings.steps == "each":
        counts = torch.arange(1, int(content.max()) + 1, device=totals.device).expand(len(totals), -1)
        return torch.where(counts <= content[:, None], counts, 0)
    if isinstance(settings.steps, tuple):
        shares = torch.tensor(settings.steps, dtype=torch.float64, device=totals.device)
        exact = shares * totals[:, None]
    else:
        tops = torch.arange(1, settings.steps + 1, device=totals.device) * totals[:, None]
        exact = tops.to(torch.float64) / settings.steps
    counts = exact.round().long().sort(-1).values
    return torch.cat([counts[:, :1], counts[:, 1:].where(counts[:, 1:] > counts[:, :-1], 0)], 1)


def _threshold(
    drops: Float[Tensor, "batch map"], real: Bool[Tensor, "batch map"], rule: float | str
) -> Float[Tensor, " batch"]:
    if not isinstance(rule, str):
        return torch.full_like(drops[:, 0], rule)
    if rule.startswith("top-"):
        k = min(int(rule.removeprefix("top-")), drops.shape[1])
        highest = drops.masked_fill(~real, -torch.inf).topk(k, -1).values
        return highest.masked_fill(highest.isinf(), torch.inf).amin(-1)  # with fewer than k maps, the lowest drop
    n = real.sum(-1, keepdim=True)
    mean = (drops * real).sum(-1, keepdim=True) / n
    variance = ((drops - mean).square() * real).sum(-1, keepdim=True) / n
    return (mean + variance.sqrt())[:, 0]
