"""Choose which units of an input to remove next, based on earlier answers. numpy only, one input at a time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from whichtoken.methods.posterior.process import Answers, Process, fit_once, fit_process

MOST = 0.9  # share of the units that a question removes at most, as curves do
MAP_NOISE = 0.4  # of questions that follow the map, where its largest value is 1
FEW = 10  # units, of which all subsets are listed where candidates are used up
TRIES = 4  # candidates per question: a question that was asked before teaches nothing

Proposal = Literal["thompson", "both-ends", "prior", "uniform"]


@dataclass(frozen=True)
class SearchPlan:
    """How questions are chosen."""

    budget: int  # questions
    per_round: int  # at least; a quarter of those before, if these are more, as each fit takes longer
    proposal: Proposal
    explore: float  # share of random questions
    seed: int


@dataclass(frozen=True)
class Search:
    """One input: its units, and what is known about them."""

    plan: SearchPlan
    sizes: Int[np.ndarray, " unit"]  # in tokens
    maps: Float[np.ndarray, "map unit"]  # the largest absolute value of each is 1, or all are 0
    within: Float[np.ndarray, "map token"]  # how a map differs from its mean over the unit, on the scale of `maps`
    normal: Float[np.ndarray, "draw unit"]  # standard normal numbers for all draws
    key: tuple[int, ...]  # seeds the numbers that are not about a single unit
    answers: Answers
    asked: frozenset[bytes] = frozenset()
    n_drawn: int = 0  # of the numbers

    @property
    def n_units(self) -> int:
        return len(self.sizes)

    @property
    def n_answers(self) -> int:
        return len(self.answers.drops)

    @cached_property
    def guess(self) -> Process:
        """A quick fit, to choose questions."""
        return fit_once(self.answers, list(self.maps))

    @cached_property
    def process(self) -> Process:
        return fit_process(self.answers, list(self.maps))


def start_search(
    units: Int[np.ndarray, " token"],
    maps: Float[np.ndarray, "map token"],
    ids: Int[np.ndarray, " token"],
    plan: SearchPlan,
) -> Search:
    """Prepare an input. `units`: of each token, -1 where it cannot be removed. `maps`: scores of single passes."""
    members = [np.flatnonzero(units == unit) for unit in range(units.max(initial=-1) + 1)]
    sizes = np.array([len(tokens) for tokens in members], dtype=int)
    of_units = np.array([[scores[tokens].sum() for tokens in members] for scores in maps]).reshape(len(maps), -1)
    largest = np.abs(of_units).max(1, initial=0)[:, None]
    within = np.where(units >= 0, maps - (of_units / sizes)[:, units], 0) if members else np.zeros_like(maps)
    words = [tuple(ids[tokens].tolist()) for tokens in members]
    return Search(
        plan,
        sizes=sizes,
        maps=of_units / np.where(largest > 0, largest, 1),
        within=within / np.where(largest > 0, largest, np.inf),
        normal=_numbers_of_units(words, plan.seed, TRIES * plan.budget),
        key=(plan.seed, *sorted(token for word in words for token in word)),
        answers=Answers(np.zeros((0, len(members)), dtype=bool), np.zeros(0)),
    )


def _numbers_of_units(words: Sequence[tuple[int, ...]], seed: int, n: int) -> Float[np.ndarray, "draw unit"]:
    """Return numbers that belong to a word and not to its place, so that permuting words permutes scores."""
    seen, numbers = Counter[tuple[int, ...]](), np.empty((n, len(words)))
    for place, word in enumerate(words):
        numbers[:, place] = np.random.default_rng([seed, seen[word], *word]).standard_normal(n)
        seen[word] += 1
    return numbers


def propose(search: Search) -> Bool[np.ndarray, "question unit"]:
    """Return the next round of questions: which units each removes. None are left when the budget is spent."""
    plan, left = search.plan, round_size(search)
    if 2**search.n_units - 1 <= plan.budget:
        return _next_subsets(search, left)
    chosen: dict[bytes, Bool[np.ndarray, " unit"]] = {}
    for attempt in range(TRIES if search.n_drawn + TRIES * left <= len(search.normal) else 0):
        for removed in _candidates(search, attempt):
            if len(chosen) < left and removed.tobytes() not in search.asked:
                chosen.setdefault(removed.tobytes(), removed)
        if len(chosen) == left:
            break
    if len(chosen) < left and search.n_units <= FEW:
        for removed in _shuffle_subsets(search):
            if len(chosen) < left and removed.tobytes() not in search.asked:
                chosen.setdefault(removed.tobytes(), removed)
    return np.array(list(chosen.values()), dtype=bool).reshape(len(chosen), search.n_units)


def round_size(search: Search) -> int:
    """Return how many questions the next round may ask."""
    return min(max(search.plan.per_round, search.n_answers // 4), search.plan.budget - search.n_answers)


def _shuffle_subsets(search: Search) -> Bool[np.ndarray, "subset unit"]:
    """Return all subsets of a short input in a random order, which depends on the words and not on their places."""
    subsets = _subsets(search.n_units, 1, 2**search.n_units)
    # The fast wave scatters sums that are close to each other.
    return subsets[np.argsort(np.cos(100 * (subsets @ search.normal[0])), kind="stable")]


def _next_subsets(search: Search, n: int) -> Bool[np.ndarray, "question unit"]:
    """Return the next of all subsets of a short input, without the empty one."""
    first = 1 + search.n_answers
    return _subsets(search.n_units, first, min(first + n, 2**search.n_units))


def _subsets(n_units: int, first: int, end: int) -> Bool[np.ndarray, "subset unit"]:
    """Return subsets by their numbers, of which each unit is a bit."""
    subsets: NDArray[np.bool_] = (np.arange(first, end)[:, None] >> np.arange(n_units)) % 2 == 1
    return subsets


def _candidates(search: Search, attempt: int) -> Bool[np.ndarray, "question unit"]:
    """Return one candidate for each question of a round. Those of the last attempts are random, and so mostly new."""
    plan, asked, size = search.plan, search.n_answers, round_size(search)
    normal = search.normal[search.n_drawn + attempt * size :][:size]
    generator = np.random.default_rng([*search.key, asked, attempt])
    how_many, which_end = generator.random(len(normal)), generator.random(len(normal))
    numbers = np.arange(asked, asked + len(normal))
    random = np.floor((numbers + 1) * plan.explore) > np.floor(numbers * plan.explore)
    if plan.proposal == "prior":
        drawn = search.maps.sum(0) + MAP_NOISE * normal
    elif plan.proposal == "uniform" or not asked:
        drawn = normal
    else:
        drawn = search.guess.effects + search.guess.spreads[0] * normal
    if plan.proposal == "both-ends":
        drawn = np.where(which_end[:, None] < 0.5, drawn, -drawn)
    random |= 2 * attempt >= TRIES
    ranked = np.where(random[:, None], normal, drawn / search.sizes)
    counts = 1 + (how_many * max(2, int(MOST * search.n_units))).astype(int)
    ranks = np.argsort(np.argsort(-ranked, axis=1, kind="stable"), axis=1)
    return ranks < counts[:, None]


def learn(search: Search, removed: Bool[np.ndarray, "question unit"], drops: Float[np.ndarray, " question"]) -> Search:
    """Return what is known after a round of answers."""
    answers = Answers(np.concatenate([search.answers.removed, removed]), np.concatenate([search.answers.drops, drops]))
    return replace(
        search,
        answers=answers,
        asked=search.asked | {row.tobytes() for row in removed},
        n_drawn=search.n_drawn + TRIES * round_size(search),
    )
