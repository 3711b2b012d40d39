"""Metrics of removing the few highest units, random ones, or each alone, and of how well scores add up. No torch.

They suit prompts, whose sources one would remove one by one, and work for every task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from whichtoken.bench.metrics import (
    ROUNDING,
    UP,
    BenchMetric,
    Columns,
    CurveMetric,
    ScoredInput,
    name_level,
    plan_words,
    plans_of,
    register_metric,
    searched_bounds,
    share_cell,
)
from whichtoken.bench.results import InputResult, by_method
from whichtoken.bench.stats import cells_of, interval, with_p_values
from whichtoken.core.removal_steps import TOP
from whichtoken.metrics.ablations import linear_datamodelling_score
from whichtoken.metrics.curves import aopc
from whichtoken.records import Curve, Order, Plan
from whichtoken.tables import Column, Estimate

RANDOM = "random"  # the method whose order stands for any order
STRONG = 2.0  # change of the log-odds: the odds change by a factor of 7.4


def top_drop(curve: Curve, k: int) -> float | None:
    """Return the drop when the k highest units are removed, from a curve of grid `top`; None if there are fewer."""
    step = 1 + TOP.index(k)
    return curve.outputs[0] - curve.outputs[step] if step < len(curve.outputs) else None


def _drop(plan: Plan, k: int, record: InputResult, method: str) -> float | None:
    return top_drop(record.curve(method, plan), k)


def _stored(key: str, record: InputResult, method: str) -> float | None:
    return record.methods[method].values.get(key)


@dataclass(frozen=True)
class TopDrop(BenchMetric):
    """The mean drop of the output when the highest 1, 3, 5 and 10 units are removed, a column for each."""

    on_curves: bool = True
    own_curve: tuple[str, Order] | None = ("top", "morf")

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        output = "predicted value" if inputs[0].reading == "value" else "probability"
        for plan in plans_of(inputs):
            if plan.grid == "top":
                yield from self._of_plan(name, inputs, plan, output)

    def _of_plan(self, name: str, inputs: Sequence[InputResult], plan: Plan, output: str) -> Columns:
        level, by = name_level(plan, inputs)
        for count in TOP:
            values = by_method(inputs, partial(_drop, plan, count))
            if any(values.values()):
                about = f"drop of the {output} without the {count} highest, over inputs that have as many"
                title = f"drop, top {count}, {plan.perturbation}{by}"
                metric = f"{name}@{count}"
                column = Column(f"{metric} {plan}{level}", title, about, "higher", metric=metric, plan=plan)
                yield column, cells_of(column, values)


@dataclass(frozen=True)
class LinearDatamodelling(BenchMetric):
    """How well the sum of the scores of what is kept predicts the output, over random ablations."""

    title: str = "LDS"
    about: str = (
        "linear datamodelling score: Spearman's correlation, over random ablations, of the sum of the scores of the "
        "units that are kept with the output"
    )
    ablates: bool = True

    def values_of(self, name: str, scored: ScoredInput) -> Mapping[str, float]:
        assert scored.units_at is not None, "a metric that ablates is given the units of every level"
        found = {
            f"{name} {level}": linear_datamodelling_score(scored.units_at(scored.own, level), ablations)
            for level, ablations in scored.ablations.items()
        }
        return {key: value for key, value in found.items() if value is not None}

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        stored = [key for record in inputs for result in record.methods.values() for key in result.values]
        keys = [key for key in dict.fromkeys(stored) if key.startswith(f"{name} ")]
        for key in keys:
            values = by_method(inputs, partial(_stored, key))
            by = f", by {key.removeprefix(f'{name} ')}" if len(keys) > 1 else ""
            # The ablations are deletions, on which some methods were tuned, though not on these ones.
            column = Column(key, f"{self.title}{by}", self.about, "higher", flattered=True, metric=name)
            yield column, cells_of(column, values)


@dataclass(frozen=True)
class Signs(BenchMetric):
    """The share of the strong units whose score has the right sign, over the strong units of all inputs.

    A unit is strong if its removal alone changes the log-odds by more than STRONG. Leave-one-out has 1 by definition,
    so the metric flatters every method that evaluates removals, and no verdict is based on it.
    """

    needs_probability: bool = True
    removes_each: bool = True

    def values_of(self, name: str, scored: ScoredInput) -> Mapping[str, float]:
        assert scored.units_at is not None, "a metric that removes each unit is given the units of every level"
        strong = [
            (score, effect)
            for level, effects in scored.effects.items()
            for score, effect in zip(scored.units_at(scored.own, level), effects, strict=True)
            if abs(effect) > STRONG
        ]
        right = sum(np.sign(score) == np.sign(effect) for score, effect in strong)  # a score of 0 is wrong
        return {f"{name} right": float(right), f"{name} strong": float(len(strong))} if strong else {}

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        counts, totals = (
            {method: of for method, of in by_method(inputs, partial(_stored, f"{name} {what}")).items() if of}
            for what in ("right", "strong")
        )
        if not totals:
            return
        n_strong = max(int(sum(of.values())) for of in totals.values())
        title = f"right signs of {n_strong:,} strong unit{'s' * (n_strong != 1)}"
        about = (
            "share of the strong units of all inputs whose score has the right sign (0 has none); a word, in images a "
            f"patch, is strong if removing it alone changes the log-odds by more than {STRONG:g}"
        )
        column = Column(name, title, about, "higher", flattered=True, metric=name)
        cells = {
            method: share_cell([int(n) for n in of.values()], [int(n) for n in totals[method].values()])
            for method, of in counts.items()
        }
        # All methods share the denominators, so a test of the counts is a test of the shares.
        yield column, with_p_values(column, counts, cells)


@dataclass(frozen=True)
class Additivity(BenchMetric):
    """The share of the variance of the answers that a sum of effects explains, as `posterior` reports it."""

    def value(self, scored: ScoredInput) -> float | None:
        return None if scored.own.confidence is None else scored.own.confidence.additivity

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        values = by_method(inputs, partial(_stored, name))
        if any(values.values()):
            about = "how far the effects of single units add up to those of many; of methods that measure it"
            column = Column(name, name, about, "", metric=name)
            yield column, cells_of(column, values)


@dataclass(frozen=True)
class AboveRandom(CurveMetric):
    """AOPC as a share of the way from a random order to the best one found: a ratio of sums over inputs.

    The order of the method `random` is the random one, so it has to be measured, too.
    """

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        for plan in plans_of(inputs):
            known = [record for record in inputs if RANDOM in record.methods and _upper(record, plan) is not None]
            if not known or plan.order != "morf":
                continue
            level, by = name_level(plan, inputs)
            title = f"{self.title}, {plan_words(plan)}{by}"
            column = Column(f"{name} {plan}{level}", title, self.about, "higher", metric=name, plan=plan)
            gains = by_method(known, partial(_gain, plan))
            ways = [(_upper(record, plan) or 0.0) - aopc(record.curve(RANDOM, plan)) for record in known]
            if sum(ways) > 0:
                cells = {method: ratio_cell(list(of.values()), ways) for method, of in gains.items()}
                yield column, with_p_values(column, gains, cells)


def _gain(plan: Plan, record: InputResult, method: str) -> float:
    return aopc(record.curve(method, plan)) - aopc(record.curve(RANDOM, plan))


def _upper(record: InputResult, plan: Plan) -> float | None:
    """Return the AOPC of the best order known: that of the search, or of a method, if it is better."""
    searched = searched_bounds(record, plan)
    return None if searched is None else max(searched[1], *(aopc(record.curve(m, plan)) for m in record.methods))


def ratio_cell(gains: Sequence[float], ways: Sequence[float]) -> Estimate:
    """Return the ratio of the sums; the bootstrap draws inputs, each with both of its numbers.

    Where the random order happens to be the best, there is no way; samples of such inputs alone have no ratio.
    """
    pairs, least = np.array([gains, ways], dtype=np.float64).T, ROUNDING * max(ways)
    low, high = interval(pairs, lambda means: means[means[:, 1] > least, 0] / means[means[:, 1] > least, 1])
    return Estimate(sum(gains) / sum(ways), low, high, len(gains))


for _name, _metric in {
    "top-drop": TopDrop(),
    "lds": LinearDatamodelling(),
    "signs": Signs(),
    "additivity": Additivity(),
    "above-random": AboveRandom(
        "AOPC above random",
        "AOPC as a share of the way from a random order (0) to the best one found (1), over all inputs together",
        UP,
        aopc,
    ),
}.items():
    register_metric(_name, _metric)
