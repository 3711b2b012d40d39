"""A Gaussian process over removals: what a model's answers say about units, some of which act together. numpy only.

The drop of the output without the units r is f(r) = g(r) - g(nothing) + a multiple of m.r, where m is a prior map. g is
a Gaussian process with covariance t² prod_i (1 + l_i s_i s'_i) / c, s_i = -1 for a removed unit and 1 for another. So
l_i says how far answers may depend on unit i, alone and together with others; c makes t² the mean variance of f over
all removals. The multiple has the standard deviation k t, and answers have noise of variance v t².

The lengths l are all equal, or as large as a map says. Two further fits take as such a map how far, by the fit before,
the answers depend on each unit. t is integrated out; k, v, the level of l and its map are averaged over grids, weighted
by their evidence (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5).

Whatever is linear in f is Gaussian, too, and the products have closed forms. Besides answers, these are:
- the effect of a unit: f with the unit removed minus f otherwise, averaged over the removals of the other units;
- the interaction of two units: the effect of one with the other removed minus its effect otherwise, averaged alike.
Each other unit is removed with the same probability, which is uniform from 0 to `HIGHEST`. From 0 to 1, effects would
be Shapley values; where hardly a word remains, the effects of words are not those that a reader expects.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from whichtoken.core.linear_algebra import eigenvectors

HIGHEST = 0.7  # share of the other units that is removed
_NODES, _AREAS = np.polynomial.legendre.leggauss(6)
AREAS = _AREAS / 2  # weights of the shares
LEVELS = np.array((0.01, 0.03, 0.06, 0.12, 0.25, 0.5))  # mean of l
COARSE = np.array((0.03, 0.12, 0.4))
LONGEST = 0.95  # of l
NOISES = np.array((1e-5, 1e-3, 0.01, 0.1, 1.0))  # v
LEANS = np.array((0.3, 1.0, 3.0))  # k, besides 0
BASE = 0.03  # of l, where the largest value of a map is 1: most words hardly matter
FLOOR = 1e-4  # smallest effect that counts, on the scale of the output; the prior of t counts as one such answer
MOST_PRIORS = 100  # grid points that are kept: each takes memory for all units and questions
NEGLIGIBLE = 0.1  # share of the largest weight, under which a grid point is left out


@dataclass(frozen=True)
class Answers:
    """The questions that were asked about an input, and what the model answered."""

    removed: Bool[np.ndarray, "question unit"]
    drops: Float[np.ndarray, " question"]  # of the output


@dataclass(frozen=True)
class Kernels:
    """Covariances under several priors at once, for t = 1."""

    lengths: Float[np.ndarray, "prior unit"]  # l
    leans: Float[np.ndarray, "prior unit"]  # k m
    highest: float = HIGHEST

    @property
    def _signs(self) -> Float[np.ndarray, " share"]:
        """The mean sign of another unit at each share."""
        return np.asarray(1 - self.highest * (_NODES + 1))

    @cached_property
    def _logs(self) -> Float[np.ndarray, " prior"]:
        """The logarithm of prod_i (1 + l_i), by which everything is divided: it may be too large for a number."""
        logs: Float[np.ndarray, " prior"] = np.log1p(self.lengths).sum(1)
        return logs

    @cached_property
    def _scale(self) -> Float[np.ndarray, " prior"]:
        return np.asarray(-2 * np.expm1(-self._logs))  # c, after this division

    def between(
        self, one: Bool[np.ndarray, "n unit"], other: Bool[np.ndarray, "m unit"]
    ) -> Float[np.ndarray, "prior n m"]:
        """Return the covariance of the drops under two lists of removals."""
        one, other = one.astype(np.float64), other.astype(np.float64)
        rates = 2 * np.arctanh(self.lengths)  # what a unit in which two removals differ takes off the logarithm
        rated = one * rates[:, None]
        alone, others = rated.sum(2)[:, :, None], (rates @ other.T)[:, None]
        near = np.exp(2 * rated @ other.T - alone - others) - np.exp(-alone) - np.exp(-others) + 1
        leant = (self.leans @ one.T)[:, :, None] * (self.leans @ other.T)[:, None]
        covariance: Float[np.ndarray, "prior n m"] = near / self._scale[:, None, None] + leant
        return covariance

    def _at_shares(
        self, removed: Bool[np.ndarray, "n unit"]
    ) -> Iterator[tuple[Float[np.ndarray, "prior 1 n"], Float[np.ndarray, "prior unit n"]]]:
        """Yield, for each share, the mean covariance of random removals with given ones, times the weight of the share,
        and the factor by which it changes when a unit is removed. The first removal is that of nothing.
        """
        given = np.concatenate([np.zeros_like(removed[:1]), removed]).T
        for sign, area in zip(self._signs, AREAS, strict=True):
            kept, gone = np.log1p(sign * self.lengths), np.log1p(-sign * self.lengths)
            logs = (kept.sum(1) - self._logs)[:, None] + (gone - kept) @ given.astype(np.float64)
            weighted = area * np.exp(logs) / self._scale[:, None]
            of_kept, of_gone = -2 * self.lengths * np.exp(-kept), 2 * self.lengths * np.exp(-gone)
            yield weighted[:, None], np.where(given, of_gone[:, :, None], of_kept[:, :, None])

    def with_effects(self, removed: Bool[np.ndarray, "n unit"]) -> Float[np.ndarray, "prior unit n"]:
        """Return the covariance of the effects of units with the drops under removals."""
        means = np.sum([weighted * change for weighted, change in self._at_shares(removed)], 0)
        leant = self.leans[:, :, None] * (self.leans @ removed.T.astype(np.float64))[:, None]
        covariance: Float[np.ndarray, "prior unit n"] = means[:, :, 1:] - means[:, :, :1] + leant
        return covariance

    def with_pairs(
        self, first: NDArray[np.int64], second: NDArray[np.int64], removed: Bool[np.ndarray, "n unit"]
    ) -> Float[np.ndarray, "prior pair n"]:
        """Return the covariance of the interactions of pairs of units with the drops under removals."""
        means = np.sum([w * change[:, first] * change[:, second] for w, change in self._at_shares(removed)], 0)
        covariance: Float[np.ndarray, "prior pair n"] = means[:, :, 1:] - means[:, :, :1]
        return covariance

    def pair_sums(
        self, removed: Bool[np.ndarray, "n unit"], weights: Float[np.ndarray, "prior n"]
    ) -> Float[np.ndarray, "unit unit"]:
        """Return the same for all pairs, summed over priors and removals with weights; 0 for a unit with itself."""
        weights = np.concatenate([-weights.sum(1, keepdims=True), weights], 1)[:, None]
        sums = np.zeros((self.lengths.shape[1], self.lengths.shape[1]))
        for weighted, change in self._at_shares(removed):
            sums += np.tensordot(change * (weights * weighted), change, ((0, 2), (0, 2)))
        np.fill_diagonal(sums, 0)
        return sums

    def _shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return, for each two shares, the product of their signs, the mean covariance, and l / (1 + l x signs)."""
        both = np.outer(self._signs, self._signs).ravel()
        factors = 1 + self.lengths[:, None] * both[:, None]
        areas = np.outer(AREAS, AREAS).ravel() * np.exp(np.log(factors).sum(2) - self._logs[:, None])
        return both, areas / self._scale[:, None], self.lengths[:, None] / factors

    def effect_variances(self) -> Float[np.ndarray, "prior unit"]:
        _, areas, ratios = self._shares()
        variances: Float[np.ndarray, "prior unit"] = 4 * (areas[:, None] @ ratios)[:, 0] + self.leans**2
        return variances

    def effect_covariances(self, units: NDArray[np.int64]) -> Float[np.ndarray, "prior few few"]:
        """Return the covariances between the effects of some units."""
        both, areas, ratios = self._shares()
        chosen = ratios[:, :, units]
        covariance = 4 * chosen.transpose(0, 2, 1) @ ((areas * both)[:, :, None] * chosen)
        places = np.arange(len(units))
        covariance[:, places, places] = 4 * (areas[:, None] @ chosen)[:, 0]
        leant: Float[np.ndarray, "prior few few"] = covariance + self.leans[:, units, None] * self.leans[:, None, units]
        return leant

    def pair_variances(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Float[np.ndarray, "prior pair"]:
        _, areas, ratios = self._shares()
        variances: Float[np.ndarray, "prior pair"] = np.einsum(
            "hs,hsp,hsp->hp", 16 * areas, ratios[:, :, first], ratios[:, :, second]
        )
        return variances


@dataclass(frozen=True)
class Process:
    """The posterior: a weighted mixture over the priors that explain the answers."""

    answers: Answers
    kernels: Kernels
    weights: Float[np.ndarray, " prior"]
    variances: Float[np.ndarray, " prior"]  # t²
    inverses: Float[np.ndarray, "prior question question"]  # of the covariance of the answers
    duals: Float[np.ndarray, "prior question"]  # the inverse times the answers
    slopes: Float[np.ndarray, " map"]  # mean multiple of each map, as if its largest absolute value were 1

    @property
    def freedom(self) -> int:
        """The degrees of freedom of the t distributions that this is a mixture of."""
        return len(self.answers.drops) + 1

    @cached_property
    def _with_effects(self) -> Float[np.ndarray, "prior unit question"]:
        return self.kernels.with_effects(self.answers.removed)

    @cached_property
    def _means(self) -> Float[np.ndarray, "prior unit"]:
        means: Float[np.ndarray, "prior unit"] = (self._with_effects @ self.duals[:, :, None])[:, :, 0]
        return means

    def predict(self, removed: Bool[np.ndarray, "n unit"]) -> Float[np.ndarray, " n"]:
        """Return the expected drop under removals."""
        covariance = self.kernels.between(removed, self.answers.removed)
        return np.asarray(self.weights @ (covariance @ self.duals[:, :, None])[:, :, 0])

    @cached_property
    def effects(self) -> Float[np.ndarray, " unit"]:
        return np.asarray(self.weights @ self._means)

    @cached_property
    def spreads(self) -> tuple[Float[np.ndarray, " unit"], Float[np.ndarray, " unit"]]:
        """The scale of the t distribution of each effect, and its scale before any answer, without the map."""
        before = self.kernels.effect_variances()
        known = ((self._with_effects @ self.inverses) * self._with_effects).sum(2)
        after = self.variances[:, None] * (before - known).clip(min=0) + (self._means - self.effects) ** 2
        alone = self.variances[:, None] * (before - self.kernels.leans**2)
        return np.sqrt(self.weights @ after), np.sqrt(self.weights @ alone)

    def effect_covariance(self, units: NDArray[np.int64]) -> Float[np.ndarray, "few few"]:
        """Return the covariance of the effects of some units."""
        cross, means = self._with_effects[:, units], self._means[:, units] - self.effects[units]
        after = self.kernels.effect_covariances(units) - cross @ self.inverses @ cross.transpose(0, 2, 1)
        total = self.variances[:, None, None] * after + means[:, :, None] * means[:, None]
        return np.asarray(np.einsum("h,hij->ij", self.weights, total))

    def interactions(self) -> Float[np.ndarray, "unit unit"]:
        """Return the expected interactions of all pairs of units."""
        return self.kernels.pair_sums(self.answers.removed, self.weights[:, None] * self.duals)

    def interaction_spreads(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Float[np.ndarray, " pair"]:
        """Return the scale of the t distribution of the interactions of some pairs."""
        cross = self.kernels.with_pairs(first, second, self.answers.removed)
        means = (cross @ self.duals[:, :, None])[:, :, 0]
        known = ((cross @ self.inverses) * cross).sum(2)
        after = self.variances[:, None] * (self.kernels.pair_variances(first, second) - known).clip(min=0)
        return np.asarray(np.sqrt(self.weights @ (after + (means - self.weights @ means) ** 2)))

    # Without an answer, the dual of the others is what remains after its own column of the inverse is taken out
    # (Rasmussen and Williams, 5.4.2), so that a prediction of each answer from the others needs no further fit.

    @cached_property
    def leave_one_out(self) -> Float[np.ndarray, " question"]:
        """Each answer, predicted from the others."""
        own = np.diagonal(self.inverses, axis1=1, axis2=2)
        return np.asarray(self.answers.drops - self.weights @ (self.duals / own))

    @cached_property
    def leave_one_out_sums(self) -> Float[np.ndarray, " question"]:
        """Each answer, predicted by the sum of the effects of what it removed, known from the other answers."""
        return self._without_own(self.answers.removed.astype(np.float64) @ self._with_effects)

    def leave_one_out_interactions(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> Float[np.ndarray, "pair question"]:
        """Return what each of some interactions adds to the prediction of each answer by the sum of the effects.

        Effects are means over the removals of the other unit: at the mean share, an interaction adds nothing.
        """
        removed, cross = self.answers.removed, self.kernels.with_pairs(first, second, self.answers.removed)
        one, other = removed[:, first].T.astype(np.float64), removed[:, second].T.astype(np.float64)
        rows = one * other - self.kernels.highest / 2 * (one + other)  # pair question
        added = [self._without_own(row[:, None] * cross[:, pair, None]) for pair, row in enumerate(rows)]
        return np.array(added).reshape(len(first), len(removed))

    def _without_own(self, rows: Float[np.ndarray, "prior question answer"]) -> Float[np.ndarray, " question"]:
        """Return what is linear in the drops, for each question without its own answer. `rows`: its covariances."""
        own = self.duals / np.diagonal(self.inverses, axis1=1, axis2=2)
        values = (rows @ self.duals[:, :, None])[:, :, 0] - (rows * self.inverses).sum(2) * own
        return np.asarray(self.weights @ values)


def fit_process(answers: Answers, maps: Sequence[Float[np.ndarray, " unit"]]) -> Process:
    """Fit the answers three times, the second and third time with lengths that follow what the fit before found."""
    reach = _measure_reach(fit_once(answers, maps))
    reach = _measure_reach(fit_once(answers, maps, [*maps, reach]))
    return fit_once(answers, maps, [reach], LEVELS)


def _measure_reach(process: Process) -> Float[np.ndarray, " unit"]:
    """Return how far the answers depend on each unit, alone and together with others; 0 if they depend on none."""
    reach = np.sqrt(process.effects**2 + (process.interactions() ** 2).sum(1) / 4)
    return np.where(reach.max(initial=0) > FLOOR, reach, 0.0)


def fit_once(
    answers: Answers,
    maps: Sequence[Float[np.ndarray, " unit"]],
    shapes: Sequence[Float[np.ndarray, " unit"]] | None = None,
    levels: Float[np.ndarray, " level"] = COARSE,
) -> Process:
    """Weigh all priors by their evidence. `shapes`: what lengths may follow, besides being equal; None: the maps."""
    removed, drops = answers.removed.astype(np.float64), answers.drops
    lengths = _lengths(maps if shapes is None else shapes, removed.shape[1], levels)
    values, vectors = eigenvectors(Kernels(lengths, np.zeros_like(lengths)).between(answers.removed, answers.removed))
    noises = NOISES[:1] if len(drops) == 2 ** len(lengths[0]) - 1 else NOISES  # if all is known, nothing is noise
    inverse = 1 / (values.clip(min=0)[:, None] + noises[:, None])  # lengths noise rank
    seen = drops @ vectors
    misfit, logs = (seen[:, None] ** 2 * inverse).sum(2), -np.log(inverse).sum(2)
    leans = [(number, k * scaled) for number, scaled in enumerate(map(_scale_map, maps)) for k in LEANS if scaled.any()]
    misfits, evidence = [misfit], [_evidence(misfit, logs, len(drops), noises)]
    for _, lean in leans:  # a multiple of a map adds a matrix of rank 1 to the covariance
        along = (removed @ lean) @ vectors
        shared, own = ((factor[:, None] * inverse).sum(2) for factor in (seen * along, along**2))
        misfits.append(misfit - shared**2 / (1 + own))
        found = _evidence(misfits[-1], logs + np.log1p(own), len(drops), noises)
        evidence.append(np.where(shared >= 0, found, -np.inf))  # the answers may not contradict the map
    weights = np.exp(np.array(evidence) - np.max(evidence))
    weights /= weights.sum()
    strongest = np.sort(np.argsort(-weights, axis=None, kind="stable")[:MOST_PRIORS])
    chosen = np.unravel_index(strongest[weights.flat[strongest] > NEGLIGIBLE * weights.max()], weights.shape)
    which, shape, noise = chosen
    leant = np.array([np.zeros(removed.shape[1]), *(lean for _, lean in leans)])[which]
    along = leant @ removed.T
    inverses = (vectors[shape] * inverse[shape, noise][:, None]) @ vectors[shape].transpose(0, 2, 1)
    turned = (inverses @ along[:, :, None])[:, :, 0]
    inverses -= turned[:, :, None] * turned[:, None] / (1 + (along * turned).sum(1))[:, None, None]
    kept, duals = weights[chosen] / weights[chosen].sum(), inverses @ drops
    numbers = np.array([-1, *(number for number, _ in leans)])[which]
    sizes = [np.abs(lean).max() for _, lean in leans]
    multiples = kept * (along * duals).sum(1) * np.array([0.0, *sizes])[which]
    slopes = [multiples[numbers == number].sum() for number in range(len(maps))]
    variances = (np.array(misfits)[chosen] + FLOOR**2) / (len(drops) + 1)
    return Process(answers, Kernels(lengths[shape], leant), kept, variances, inverses, duals, np.array(slopes))


def _lengths(
    shapes: Sequence[Float[np.ndarray, " unit"]], n_units: int, levels: Float[np.ndarray, " level"]
) -> Float[np.ndarray, "lengths unit"]:
    scaled = [np.abs(of_units) / np.abs(of_units).max() for of_units in shapes if of_units.any()]
    forms = [np.ones(n_units), *(BASE + of_units for of_units in scaled)]
    lengths: Float[np.ndarray, "lengths unit"] = np.concatenate([np.outer(levels, s / s.mean()) for s in forms])
    return lengths.clip(max=LONGEST)


def _scale_map(of_units: Float[np.ndarray, " unit"]) -> Float[np.ndarray, " unit"]:
    """Scale a map so that its sums over random removals have a mean square of 1."""
    size = np.sqrt(of_units.sum() ** 2 / 4 + (of_units**2).sum() / 4)
    return np.asarray(of_units / size if size > 0 else of_units)


def _evidence(
    misfit: Float[np.ndarray, "lengths noise"],
    logs: Float[np.ndarray, "lengths noise"],
    n: int,
    noises: Float[np.ndarray, " noise"],
) -> Float[np.ndarray, "lengths noise"]:
    """Return the log evidence, t integrated out. Without evidence, answers are believed: noise v weighs (1 + v)^-½."""
    return np.asarray(-0.5 * logs - (n + 1) / 2 * np.log(misfit + FLOOR**2) - 0.5 * np.log1p(noises))
