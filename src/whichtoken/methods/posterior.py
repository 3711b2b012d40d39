"""Posterior: the effect of each word on the log-odds, with an interval, from a few well-chosen removals. Signed.

Effects add up on the log-odds scale, approximately: logit p(x) - logit p(x without S) = sum of w_i over S, plus noise.
The prior of w is centred on a learned multiple of a single-pass map (`prior`); `core.additive` has the formulas. The
model is asked in rounds: draw w from the posterior (Thompson sampling), remove the c highest words (c uniform, up to 60
percent of them), evaluate, update. A quarter of the questions remove random words instead (`explore`), because effects
may differ where the highest words remain. Scores are the posterior mean; with `budget` = 0, those of the prior.

A long text has more words than questions: words that the answers say little about are counted as not resolved, and
their scores follow the map. Related: LIME (Ribeiro et al., 2016), Kernel SHAP (Lundberg & Lee, 2017), BayesLIME and
BayesSHAP (Slack et al., 2021), ContextCite (Cohen-Wang et al., 2024): random questions, no map.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.estimates import confidence_of, probability_of_top, share_among_tokens, top_supporting
from whichtoken.core.questions import Proposal, Search, SearchPlan, learn, propose, start_search
from whichtoken.core.registry import parse, register
from whichtoken.core.trace import Level, Method, Needs, Probe, Scores, Trace, needs
from whichtoken.core.units import keep_patterns, stack_removed
from whichtoken.errors import BadSetting
from whichtoken.trust import Confidence, Removal

SETTLED = 0.95  # probability at which `stop` stops


@register("posterior", paper="ours")
@dataclass(frozen=True)
class Posterior(Method):
    prior: str = "att-x-att-grads"  # a method, or "none"
    budget: int = field(default=64, metadata={"least": 0})  # questions
    units: Level = "word"
    perturbation: str | None = None  # how units are removed: None is the task's own way; "mixed": deleted and masked
    proposal: Proposal = "thompson"
    explore: float = field(default=0.25, metadata={"least": 0})  # share of random questions
    per_round: int = field(default=8, metadata={"least": 1})
    stop: int | None = field(default=None, metadata={"least": 1})  # stop when so many of the highest units are settled
    seed: int = field(default=0, metadata={"least": 0})

    def __post_init__(self) -> None:
        if self._prior is not None and self._prior.tuned_on_deletion:
            raise BadSetting("prior", self.prior, "'none', or a method that does not remove words itself")
        if self.explore > 1:
            raise BadSetting("explore", self.explore, "a share from 0 to 1")

    @property
    def _prior(self) -> Method | None:
        return None if self.prior == "none" else parse(self.prior)

    @property
    def needs(self) -> Needs:
        asked = needs(asks="answers" if self.budget else "")
        return asked if self._prior is None else self._prior.needs | asked

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        start, blank = self._prior, Scores(torch.zeros_like(trace.readout))
        prior = blank if start is None else start(trace.restrict(start.needs), probe)
        if self.budget == 0:
            return prior
        plan = SearchPlan(self.budget, self.per_round, self.proposal, self.explore, self.seed)
        units = probe.units(self.units)
        rows = [values.cpu().numpy() for values in (units, prior.tokens.double(), trace.ids)]
        searches = [start_search(of_row[0], of_row[1], of_row[2], plan) for of_row in zip(*rows, strict=True)]
        ask = _Asker(probe, units, trace.lengths.tolist(), self.perturbation)
        while True:
            rounds = [propose(s, plan) if not self._is_settled(s) else s.answers.removed[:0] for s in searches]
            if not any(map(len, rounds)):
                break
            drops = ask.drops(rounds)
            searches = [
                learn(search, removed, of_row) if len(removed) else search
                for search, removed, of_row in zip(searches, rounds, drops, strict=True)
            ]
        return _build_scores(searches, units, ask)

    def _is_settled(self, search: Search) -> bool:
        return self.stop is not None and search.effects is not None and probability_of_top(search, self.stop) >= SETTLED


@dataclass(frozen=True)
class _Asker:
    """Asks the model about a batch, one round of all inputs at a time."""

    probe: Probe
    units: Int[Tensor, "batch token"]
    lengths: Sequence[int]
    perturbation: str | None

    def drops(self, rounds: Sequence[Bool[np.ndarray, "_ _"]]) -> list[Float[np.ndarray, " _"]]:
        """Return how far the log-odds drop under each question of each input."""
        nothing_first = [np.concatenate([np.zeros((1, removed.shape[1]), dtype=bool), removed]) for removed in rounds]
        kept = keep_patterns(self.units, stack_removed(nothing_first))
        log_odds = torch.empty(kept.shape[:2], dtype=torch.float64)
        for how, chosen in self._removals(torch.arange(kept.shape[1])):
            log_odds[:, chosen] = self.probe.log_odds(kept[:, chosen], how).cpu()
        lost = (log_odds[:, :1] - log_odds[:, 1:]).numpy()
        return [of_row[: len(removed)] for of_row, removed in zip(lost, rounds, strict=True)]

    def _removals(self, numbers: Int[Tensor, " n"]) -> list[tuple[str | None, Bool[Tensor, " n"]]]:
        """Return which questions are asked by which removal."""
        if self.perturbation == "mixed" and len(numbers) > 1:
            return [("delete", numbers % 2 == 0), ("mask", numbers % 2 == 1)]
        return [("delete" if self.perturbation == "mixed" else self.perturbation, numbers >= 0)]

    def outputs(self, removed: Sequence[Bool[np.ndarray, " _"]]) -> list[float]:
        """Return the probability, or value, of each input without these units."""
        kept = keep_patterns(self.units, stack_removed([of_row[None] for of_row in removed]))
        outputs: list[float] = self.probe.outputs(kept, self._removals(torch.arange(1))[0][0])[:, 0].tolist()
        return outputs


def _build_scores(searches: Sequence[Search], units: Int[Tensor, "batch token"], ask: _Asker) -> Scores:
    tops = [top_supporting(search) for search in searches]
    outputs = ask.outputs(tops) if any(top.any() for top in tops) else [0.0] * len(tops)
    tokens, confidence = torch.zeros(units.shape, dtype=torch.float64), list[Confidence | None]()
    for row, (search, top, output) in enumerate(zip(searches, tops, outputs, strict=True)):
        if search.effects is None:
            confidence.append(None)
            continue
        own = units[row, : ask.lengths[row]].cpu().numpy()
        tokens[row, : len(own)] = torch.from_numpy(share_among_tokens(search.effects.mean, search, own))
        removed = tuple(np.flatnonzero((own >= 0) & top[own]).tolist())
        confidence.append(confidence_of(search, own, Removal(removed, output) if removed else None))
    return Scores(tokens.to(units.device), confidence=tuple(confidence))
