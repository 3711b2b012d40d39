"""Posterior: the effect of each word on the log-odds, with an interval, from a few well-chosen removals. Signed.

Effects add up on the log-odds scale, approximately: logit p(x) - logit p(x without S) = sum of w_i over S, plus noise.
The prior of w is centred on a learned multiple of a single-pass map (`prior`); `core.additive` has the formulas. The
model is asked in rounds: draw w from the posterior (Thompson sampling), remove the c words that are highest per token
(c uniform, up to 90 % of them), evaluate, update. A quarter of the questions remove random words (`explore`), because
effects may differ where the highest words remain. Of short texts, all subsets are removed. Scores are the posterior
mean; with `budget` = 0, those of the prior.

Parts of an answer (its sentences or tokens) are asked what the whole answer was asked, and share its evaluations.

A long text has more words than questions: words that the answers say little about are counted as not resolved, and
their scores follow the map. Related: LIME (Ribeiro et al., 2016), Kernel SHAP (Lundberg & Lee, 2017), BayesLIME and
BayesSHAP (Slack et al., 2021), ContextCite (Cohen-Wang et al., 2024): random questions, no map.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from whichtoken.core.asking import Asker
from whichtoken.core.estimates import confidence_of, probability_of_top, share_among_tokens, top_supporting
from whichtoken.core.questions import Proposal, Search, SearchPlan, learn, propose, start_search
from whichtoken.core.registry import parse, register
from whichtoken.core.trace import Ask, Level, Method, Needs, Probe, Scores, Trace, needs
from whichtoken.errors import BadSetting, NotFinite
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
    stop: int | None = field(default=None, metadata={"least": 1})  # stop once the top `stop` units are settled
    seed: int = field(default=0, metadata={"least": 0})

    def __post_init__(self) -> None:
        prior = self._prior
        if prior is not None and (prior.tuned_on_deletion or Ask.REMOVALS in prior.needs.asks):
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

    @property
    def removals(self) -> tuple[str | None, ...]:
        return ("delete", "mask") if self.perturbation == "mixed" else (self.perturbation,)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        start, blank = self._prior, Scores(torch.zeros_like(trace.readout))
        prior = blank if start is None else start(trace.restrict(start.needs), probe)
        if self.budget == 0:
            return prior
        if not prior.tokens.isfinite().all():
            raise NotFinite(
                f"the prior {self.prior} gives NaN or infinite scores; set prior to 'none', or to another method"
            )
        plan = SearchPlan(self.budget, self.per_round, self.proposal, self.explore, self.seed)
        units = probe.units(self.units)
        rows = [values.cpu().numpy() for values in (units, prior.tokens.double(), trace.ids)]
        searches = [start_search(of_row[0], of_row[1], of_row[2], plan) for of_row in zip(*rows, strict=True)]
        ask = Asker(probe, units, trace.lengths.tolist(), self.removals)
        earlier, asked = probe.memory.get(self.label), list[list[Bool[np.ndarray, "question unit"]]]()
        while True:
            if earlier is None:
                rounds = [propose(s, plan) if not self._is_settled(s) else s.answers.removed[:0] for s in searches]
            else:
                rounds = earlier[len(asked)]
            asked.append(rounds)
            if not any(map(len, rounds)):
                break
            drops = ask.drops(rounds, [len(search.answers.drops) for search in searches])
            searches = [
                learn(search, removed, of_row) if len(removed) else search
                for search, removed, of_row in zip(searches, rounds, drops, strict=True)
            ]
        probe.memory.setdefault(self.label, asked)
        return _build_scores(searches, units, ask)

    def _is_settled(self, search: Search) -> bool:
        return self.stop is not None and search.effects is not None and probability_of_top(search, self.stop) >= SETTLED


def _build_scores(searches: Sequence[Search], units: Int[Tensor, "batch token"], ask: Asker) -> Scores:
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
