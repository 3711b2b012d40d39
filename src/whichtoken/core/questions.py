"""Choose which units of an input to remove next, based on earlier answers. numpy only, one input at a time."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from whichtoken.core.additive import Answers, EffectEstimate, fit_effects

MOST = 0.9  # share of the units that a question removes at most, as curves do; 0.6 was no better on training texts
FIRST_NOISE = 0.4  # of the first round, in units of the largest value of the prior map
TRIES = 4  # candidates per question: a question that was asked before teaches nothing

Proposal = Literal["thompson", "both-ends", "prior", "uniform"]


@dataclass(frozen=True)
class SearchPlan:
    """How questions are chosen."""

    budget: int
    per_round: int
    proposal: Proposal
    explore: float  # share of random questions
    seed: int

    @property
    def n_rounds(self) -> int:
        return -(-self.budget // self.per_round)


@dataclass(frozen=True)
class Search:
    """One input: its units, and what is known about their effects."""

    sizes: Int[np.ndarray, " unit"]  # in tokens
    prior: Float[np.ndarray, " unit"]  # a map whose largest absolute value is 1, or zeros
    normal: Float[np.ndarray, "draw unit"]  # standard normal numbers for all draws
    within: Float[np.ndarray, " token"]  # how the map differs from its mean over the unit, on the scale of `prior`
    key: tuple[int, ...]  # seeds the numbers that are not about a single unit
    answers: Answers
    effects: EffectEstimate | None = None
    asked: frozenset[bytes] = frozenset()
    n_rounds: int = 0

    @property
    def n_units(self) -> int:
        return len(self.sizes)


def start_search(
    units: Int[np.ndarray, " token"],
    scores: Float[np.ndarray, " token"],
    ids: Int[np.ndarray, " token"],
    plan: SearchPlan,
) -> Search:
    """Prepare an input. `units`: of each token, -1 where it cannot be removed. `scores`: the prior map."""
    members = [np.flatnonzero(units == unit) for unit in range(units.max(initial=-1) + 1)]
    prior = np.array([scores[tokens].sum() for tokens in members])
    largest = np.abs(prior).max(initial=0)
    sizes = np.array([len(tokens) for tokens in members], dtype=int)
    within = np.where(units >= 0, scores - (prior / sizes)[units], 0) if members else np.zeros(len(units))
    n_draws = TRIES * plan.per_round * plan.n_rounds
    words = [tuple(ids[tokens].tolist()) for tokens in members]
    return Search(
        sizes=sizes,
        prior=prior / largest if largest > 0 else prior,
        within=within / largest if largest > 0 else np.zeros(len(units)),
        normal=_numbers_of_units(words, plan.seed, n_draws),
        key=(plan.seed, *sorted(token for word in words for token in word)),
        answers=Answers(np.zeros((0, len(members)), dtype=bool), np.zeros(0)),
    )


def _numbers_of_units(words: list[tuple[int, ...]], seed: int, n: int) -> Float[np.ndarray, "draw unit"]:
    """Return numbers that belong to a word and not to its place, so that permuting words permutes scores."""
    seen, numbers = Counter[tuple[int, ...]](), np.empty((n, len(words)))
    for place, word in enumerate(words):
        numbers[:, place] = np.random.default_rng([seed, seen[word], *word]).standard_normal(n)
        seen[word] += 1
    return numbers


def propose(search: Search, plan: SearchPlan) -> Bool[np.ndarray, "question unit"]:
    """Return the next round of questions: which units each removes. None are left when the budget is spent."""
    left = min(plan.per_round, plan.budget - len(search.answers.drops))
    if 2**search.n_units - 1 <= plan.budget:
        return _next_subsets(search, left)
    chosen: dict[bytes, Bool[np.ndarray, " unit"]] = {}
    for attempt in range(TRIES if left > 0 and search.n_rounds < plan.n_rounds else 0):
        for removed in _candidates(search, plan, attempt):
            if len(chosen) < left and removed.tobytes() not in search.asked:
                chosen.setdefault(removed.tobytes(), removed)
        if len(chosen) == left:
            break
    return np.array(list(chosen.values()), dtype=bool).reshape(len(chosen), search.n_units)


def _next_subsets(search: Search, n: int) -> Bool[np.ndarray, "question unit"]:
    """Return the next of all subsets of a short input, without the empty one."""
    asked = len(search.answers.drops)
    numbers = np.arange(1 + asked, min(1 + asked + n, 2**search.n_units))
    subsets: NDArray[np.bool_] = (numbers[:, None] >> np.arange(search.n_units)) % 2 == 1
    return subsets


def _candidates(search: Search, plan: SearchPlan, attempt: int) -> Bool[np.ndarray, "question unit"]:
    """Return one candidate for each question of a round. Those of the last attempts are random, and so mostly new."""
    asked, first = len(search.answers.drops), (search.n_rounds * TRIES + attempt) * plan.per_round
    normal = search.normal[first : first + plan.per_round]
    generator = np.random.default_rng([*search.key, search.n_rounds, attempt])
    shared = generator.standard_normal((len(normal), 2 + asked))
    how_many, which_end = generator.random(len(normal)), generator.random(len(normal))
    if plan.proposal == "prior" or search.effects is None:
        drawn = search.prior + FIRST_NOISE * normal
    else:
        drawn = search.effects.draw(normal, shared)
    if plan.proposal == "both-ends":
        drawn = np.where(which_end[:, None] < 0.5, drawn, -drawn)
    numbers = np.arange(asked, asked + len(normal))
    explores = np.floor((numbers + 1) * plan.explore) > np.floor(numbers * plan.explore)
    if plan.proposal == "uniform" or 2 * attempt >= TRIES:
        explores = np.ones_like(explores)
    ranked = np.where(explores[:, None], normal, drawn / search.sizes)
    counts = 1 + (how_many * max(2, int(MOST * search.n_units))).astype(int)
    ranks = np.argsort(np.argsort(-ranked, axis=1, kind="stable"), axis=1)
    return ranks < counts[:, None]


def learn(search: Search, removed: Bool[np.ndarray, "question unit"], drops: Float[np.ndarray, " question"]) -> Search:
    """Return what is known after a round of answers."""
    answers = Answers(np.concatenate([search.answers.removed, removed]), np.concatenate([search.answers.drops, drops]))
    return replace(
        search,
        answers=answers,
        effects=fit_effects(answers, search.prior),
        asked=search.asked | {row.tobytes() for row in removed},
        n_rounds=search.n_rounds + 1,
    )
