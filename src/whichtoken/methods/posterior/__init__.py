"""Posterior: the mean effect of removing each word, with an interval, and the words that act together. Signed.

The model's answers to chosen removals are explained by a Gaussian process (`process` has the formulas). A score is the
effect of removing the word, averaged over removals of 0 to 70 % of the other words, on the scale of the log-odds. Maps
(`prior`) say which words may matter, and which way. Questions follow draws from the posterior (Thompson sampling), so
that they concentrate on words that may rank highest: the c highest per token are removed, c uniform up to 90 %. A
quarter of them (`explore`) remove random words instead, and of many questions all but 64: more draws rank words hardly
better, while random removals teach more about all others. Of short texts, all subsets are removed.

The "auto" maps are AttCAT and ALTI, of the pass that is made anyway. An input is long if it has more units than the
budget: questions cannot tell about each unit, so all follow the draws, and the map is integrated gradients, if those
leave half of the budget.

`budget` counts evaluations of the model, a pass with a gradient as three; if it leaves no questions, the scores are
those of the first map. Parts of an answer (its sentences or tokens) are asked what the whole answer was asked, and
share its evaluations. Related: ShaplEIG, a Gaussian process with questions of most expected information (2606.02247);
LIME (Ribeiro et al., 2016), Kernel SHAP (Lundberg & Lee, 2017), ContextCite (Cohen-Wang et al., 2024): linear models of
random questions; ProxySPEX (2505.17495): gradient-boosted trees and their Fourier coefficients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.registry import parse, register
from whichtoken.core.trace import Ask, Level, Method, Needs, Probe, Scores, Trace, needs
from whichtoken.core.units import keep_patterns, n_units, stack_removed
from whichtoken.errors import BadSetting, NotFinite
from whichtoken.methods.alti import ALTI
from whichtoken.methods.attcat import AttCAT
from whichtoken.methods.integrated_gradients import IntegratedGradients
from whichtoken.methods.posterior.certainty import (
    confidence_of,
    find_interactions,
    probability_of_top,
    share_among_tokens,
    top_supporting,
)
from whichtoken.methods.posterior.questions import Proposal, Search, SearchPlan, learn, propose, start_search
from whichtoken.trust import Confidence, Interaction, Removal

LEAST_RANDOM, DRAWN = 0.25, 64  # share of random questions, at least; and how many follow draws, at most
SETTLED = 0.95  # probability at which `stop` stops
OF_ONE_PASS, FOR_LONG = (AttCAT(), ALTI()), (IntegratedGradients(steps=8),)  # maps that "auto" stands for
GRADIENT = 3  # evaluations that a pass with a gradient counts as


@register("posterior", paper="ours")
@dataclass(frozen=True)
class Posterior(Method):
    prior: str = "auto"  # methods of few passes, joined by "+"; "auto", or "none"
    budget: int = field(default=64, metadata={"least": 0})  # evaluations, with those of the prior
    units: Level = "word"
    perturbation: str | None = None  # how units are removed: None is the task's own way; "mixed": deleted and masked
    proposal: Proposal = "thompson"
    explore: float | None = field(default=None, metadata={"least": 0})  # share of random questions; None: see above
    per_round: int = field(default=16, metadata={"least": 1})
    stop: int | None = field(default=None, metadata={"least": 1})  # stop once the top `stop` units are settled
    seed: int = field(default=0, metadata={"least": 0})

    def __post_init__(self) -> None:
        if any(prior.tuned_on_deletion or Ask.REMOVALS in prior.needs.asks for prior in self._priors):
            allowed = "'auto', 'none', or methods that do not remove words themselves, joined by +"
            raise BadSetting("prior", self.prior, allowed)
        if self.explore is not None and self.explore > 1:
            raise BadSetting("explore", self.explore, "a share from 0 to 1")

    @property
    def _priors(self) -> list[Method]:
        """The methods of all maps that are used, whatever the lengths of the inputs."""
        if self.prior == "auto":
            return list(dict.fromkeys([*self._choose(is_long=False), *self._choose(is_long=True)]))
        return [] if self.prior == "none" else [parse(name.strip()) for name in self.prior.split("+")]

    def _choose(self, is_long: bool) -> Sequence[Method]:
        """Return the methods of the maps of an input."""
        if self.prior != "auto":
            return self._priors
        return FOR_LONG if is_long and 2 * _cost(FOR_LONG) <= self.budget else OF_ONE_PASS

    def adapt(self, can_run: Callable[[Method], bool]) -> Method:
        if self.prior != "auto" or all(map(can_run, self._priors)):
            return self
        return replace(self, prior="+".join(method.name for method in OF_ONE_PASS if can_run(method)) or "none")

    @property
    def needs(self) -> Needs:
        every = needs(asks="answers" if self.budget else "")
        for prior in self._priors:
            every = prior.needs | every
        return every

    @property
    def removals(self) -> tuple[str | None, ...]:
        return ("delete", "mask") if self.perturbation == "mixed" else (self.perturbation,)

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        units = probe.units(self.units)
        is_long = n_units(units) > self.budget
        maps = []
        for prior in self._priors:  # for inputs that do without it, it is an empty map
            used = torch.tensor([prior in self._choose(of_row) for of_row in is_long.tolist()], device=trace.ids.device)
            if used.any():
                maps.append(_read_map(prior, trace, probe) * used[:, None])
        if not self.budget:
            return Scores(maps[0] if maps else torch.zeros_like(trace.readout))
        stacked = torch.stack([torch.zeros_like(trace.readout), *maps], 1).double()
        plans = map(self._plan, is_long.tolist())
        rows = [values.cpu().numpy() for values in (units, stacked, trace.ids)]
        searches = [start_search(*of_row) for of_row in zip(*rows, plans, strict=True)]
        batch = _Batch(probe, units, trace.lengths.tolist(), self.removals)
        earlier, asked = probe.memory.get(self.label), list[list[Bool[np.ndarray, "question unit"]]]()
        while True:
            rounds = [self._ask(search) for search in searches] if earlier is None else earlier[len(asked)]
            asked.append(rounds)
            if not any(map(len, rounds)):
                break
            drops = batch.drops(rounds, [search.n_answers for search in searches])
            searches = [
                learn(search, removed, of_row) if len(removed) else search
                for search, removed, of_row in zip(searches, rounds, drops, strict=True)
            ]
        probe.memory.setdefault(self.label, asked)
        return _build_scores(searches, batch, (maps or [torch.zeros_like(trace.readout)])[0])

    def _plan(self, is_long: bool) -> SearchPlan:
        n_questions = max(0, self.budget - _cost(self._choose(is_long)))
        usual = 0.0 if is_long else max(LEAST_RANDOM, 1 - DRAWN / max(1, n_questions))
        explore = usual if self.explore is None else self.explore
        return SearchPlan(n_questions, self.per_round, self.proposal, explore, self.seed)

    def _ask(self, search: Search) -> Bool[np.ndarray, "question unit"]:
        may_stop = self.stop is not None and search.n_answers > 0
        is_settled = may_stop and probability_of_top(search, search.guess, self.stop or 1) >= SETTLED
        return search.answers.removed[:0] if is_settled else propose(search)


@dataclass(frozen=True)
class _Batch:
    """A batch of inputs: their units, the number of tokens of each, and how units are removed."""

    probe: Probe
    units: Int[Tensor, "batch token"]
    lengths: Sequence[int]
    removals: Sequence[str | None]  # questions take turns

    def drops(self, rounds: Sequence[Bool[np.ndarray, "_ _"]], asked: Sequence[int]) -> list[Float[np.ndarray, " _"]]:
        """Return how far the log-odds drop under each question. `asked`: the questions before, about each input."""
        kept = keep_patterns(self.units, stack_removed(rounds))
        numbers = torch.tensor(asked)[:, None] + torch.arange(kept.shape[1])
        # The whole input is asked about together with the first questions: alone, it would be a batch of its own.
        kept = torch.cat([torch.ones_like(kept[:, :1]), kept], 1)
        numbers = torch.cat([torch.zeros_like(numbers[:, :1]), numbers], 1)
        log_odds = torch.empty(numbers.shape, dtype=torch.float64)
        for turn, how in enumerate(self.removals):
            chosen = numbers % len(self.removals) == turn
            others = ~chosen[:, :, None].to(kept.device)
            log_odds[chosen] = self.probe.log_odds(kept | others, how).cpu()[chosen]
        lost = (log_odds[:, :1] - log_odds[:, 1:]).numpy()
        return [of_row[: len(removed)] for of_row, removed in zip(lost, rounds, strict=True)]

    def is_word(self, row: int, unit: int) -> bool:
        """Return whether a unit has a letter or a digit; patches of an image count as words."""
        text = self.probe.spell(row, (self.units[row] == unit).nonzero()[:, 0].tolist())
        return text is None or any(map(str.isalnum, text))

    def outputs(self, removed: Sequence[Bool[np.ndarray, "_ _"]]) -> list[list[float]]:
        """Return the probability, or value, of each input without some units, for each list of units."""
        if not any(of_row.any() for of_row in removed):
            return [[0.0] * len(of_row) for of_row in removed]
        outputs = self.probe.outputs(keep_patterns(self.units, stack_removed(removed)), self.removals[0])
        return [values[: len(of_row)] for values, of_row in zip(outputs.tolist(), removed, strict=True)]


def _cost(priors: Sequence[Method]) -> int:
    """Return how many evaluations the maps count as; those of the shared pass with a gradient together as one pass."""
    return GRADIENT * sum([any(prior.needs.grads for prior in priors), *(prior.n_passes for prior in priors)])


def _read_map(prior: Method, trace: Trace, probe: Probe) -> Float[Tensor, "batch token"]:
    scores = prior(trace.restrict(prior.needs), probe).tokens
    if not scores.isfinite().all():
        raise NotFinite(
            f"the prior {prior.label} gives NaN or infinite scores; set prior to 'none', or to another method"
        )
    return scores


def _build_scores(searches: Sequence[Search], batch: _Batch, otherwise: Float[Tensor, "batch token"]) -> Scores:
    """Return scores and confidence, after measuring the check and the strongest interaction. `otherwise`: the scores
    of inputs about which nothing was asked.
    """
    found = [find_interactions(search) if search.n_answers else [] for search in searches]
    removed = [
        _list_measured(search, pairs, partial(batch.is_word, row))
        for row, (search, pairs) in enumerate(zip(searches, found, strict=True))
    ]
    tokens, confidence = torch.zeros(batch.units.shape, dtype=torch.float64), list[Confidence | None]()
    for row, outputs in enumerate(batch.outputs(removed)):
        search, own = searches[row], batch.units[row, : batch.lengths[row]].cpu().numpy()
        if not search.n_answers:
            tokens[row] = otherwise[row].double().cpu()
            confidence.append(None)
            continue
        tokens[row, : len(own)] = torch.from_numpy(share_among_tokens(search.process.effects, search, own))
        check, *measured = [
            Removal(tuple(np.flatnonzero((own >= 0) & gone[own]).tolist()), output)
            for gone, output in zip(removed[row], outputs, strict=True)
        ]
        interactions = [
            Interaction(
                tuple(tuple(np.flatnonzero(own == unit).tolist()) for unit in units), mean, mean - half, mean + half
            )
            for units, mean, half in found[row]
        ]
        if interactions:
            interactions[0] = replace(interactions[0], measured=tuple(measured))
        confidence.append(confidence_of(search, own, interactions, check if check.tokens else None))
    return Scores(tokens.to(batch.units.device), confidence=tuple(confidence))


def _list_measured(
    search: Search, pairs: Sequence[tuple[tuple[int, int], float, float]], is_word: Callable[[int], bool]
) -> Bool[np.ndarray, "measured unit"]:
    """Return what is removed to check the scores, and to show the strongest interaction: one unit, the other, both."""
    if not search.n_answers:
        return np.zeros((1, search.n_units), dtype=bool)
    lists = [top_supporting(search, is_word)]
    if pairs:
        one, other = (np.arange(search.n_units) == unit for unit in pairs[0][0])
        lists += [one, other, one | other]
    return np.array(lists)
