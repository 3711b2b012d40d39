"""Racing: the deletion curves of many maps of a text, from few evaluations. numpy only, one text at a time.

A curve is a list of sets of deleted tokens, and maps share many sets. Those that most maps share are evaluated first; a
surrogate predicts the others; the rest of the budget goes to the maps with the largest estimated drops. Compare
successive halving (Jamieson and Talwalkar, AISTATS 2016), which does not learn about one candidate from another.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from whichtoken.metrics.surrogate import AnswerScale, choose_kernel, fit_surrogate

# The share of the budget spent after each round, and the share of the maps whose sets are evaluated in it.
ROUNDS = ((0.5, 1.0), (0.75, 0.4), (1.0, 0.2))


@dataclass(frozen=True)
class Race:
    """The distinct sets of a text, and the outputs that are known; the first set deletes nothing and is evaluated."""

    sets: Bool[np.ndarray, "set token"]
    places: Int[np.ndarray, "map step"]  # number of the set that each map deletes at each step
    outputs: Float[np.ndarray, " set"]  # NaN if not evaluated
    sizes: Float[np.ndarray, " token"]  # mean absolute score in the maps
    budget: int

    @property
    def known(self) -> Bool[np.ndarray, " set"]:
        known: Bool[np.ndarray, " set"] = ~np.isnan(self.outputs)
        return known


def start_race(
    deleted: Bool[np.ndarray, "map step token"], maps: Float[np.ndarray, "map token"], whole: float, budget: int
) -> Race:
    """Prepare a text. `deleted`: what each map deletes at each step; `whole`: the output for the whole text."""
    n_maps, n_steps, n_tokens = deleted.shape
    every = np.concatenate([np.zeros((1, n_tokens), dtype=bool), deleted.reshape(-1, n_tokens)])
    sets, places = np.unique(every, axis=0, return_inverse=True)  # sorted, so the empty set is the first
    outputs = np.full(len(sets), np.nan)
    outputs[0] = whole
    return Race(sets, places.reshape(-1)[1:].reshape(n_maps, n_steps), outputs, np.abs(maps).mean(0), budget)


def propose_sets(race: Race, turn: int) -> Int[np.ndarray, " chosen"]:
    """Return the numbers of the sets to evaluate in this round: of the best maps, those that most of them share."""
    spent, share = ROUNDS[turn]
    left = min(int(np.ceil(spent * race.budget)), race.budget) - int(race.known.sum())
    ranked = np.argsort(-_estimate_drops(race), kind="stable")
    chosen = dict[int, None]()
    for n_maps in (int(np.ceil(share * len(ranked))), len(ranked)):
        uses = np.bincount(race.places[ranked[:n_maps]].ravel(), minlength=len(race.sets))
        uses[race.known] = 0
        shared = np.argsort(-uses, kind="stable")
        chosen |= dict.fromkeys(shared[uses[shared] > 0].tolist())
    return np.array(list(chosen)[: max(0, left)], dtype=np.int64)


def learn_outputs(race: Race, chosen: Int[np.ndarray, " chosen"], outputs: Float[np.ndarray, " chosen"]) -> Race:
    known = race.outputs.copy()
    known[chosen] = outputs
    return replace(race, outputs=known)


def fill_outputs(race: Race) -> Float[np.ndarray, "map step"]:
    """Return the output of each map at each step: evaluated, or predicted from what was."""
    filled = race.outputs if race.known.all() else np.where(race.known, race.outputs, _predict(race))
    of_maps: Float[np.ndarray, "map step"] = filled[race.places]
    return of_maps


def _predict(race: Race) -> Float[np.ndarray, " set"]:
    known, whole, outputs = race.sets[race.known], race.outputs[0], race.outputs[race.known]
    # Log-odds are closer to additive than probabilities; outputs beyond 0 and 1 are predicted values, without log-odds.
    answers = AnswerScale(whole if outputs.min() >= 0 and outputs.max() <= 1 else None)
    scaled = answers.scale(whole - outputs)
    surrogate = fit_surrogate(known, scaled, choose_kernel(known, scaled, race.sizes))
    predicted: Float[np.ndarray, " set"] = whole - answers.drops(surrogate.predict(race.sets, 0.0))
    return predicted


def _estimate_drops(race: Race) -> Float[np.ndarray, " map"]:
    if race.known.sum() < 2:
        return np.zeros(len(race.places))
    deleting = race.places.any(0)  # padding of a batch has steps that delete nothing
    drops: Float[np.ndarray, " map"] = race.outputs[0] - fill_outputs(race)[:, deleting].mean(1)
    return drops
