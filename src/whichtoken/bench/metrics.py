"""The metrics of a benchmark, by name: what each measures on an input, and the columns it produces. No torch.

More can be registered; metrics that only papers use are in `reproduce`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal, Protocol, TypeAlias

import numpy as np

from whichtoken.bench.results import InputResult, by_method
from whichtoken.bench.stats import Cells, Values, cells_of, interval, with_p_values
from whichtoken.core.removal_steps import OF_METRICS
from whichtoken.metrics.ablations import Ablations
from whichtoken.metrics.curves import aopc, auc, log_odds, normalise
from whichtoken.metrics.ranks import kendall, precision_at_k, recall_at_k
from whichtoken.records import Attribution, Curve, Order, Plan, Reading
from whichtoken.tables import Column, Estimate

ROUNDING = 1e-6  # rounding error of single-precision probabilities, and relative error of predicted values
ORDER_WORDS = {"morf": "MoRF", "lerf": "LeRF", "random": "random order"}
INSIDE = "answers inside"  # marks columns that exclude inputs whose answer was truncated
Better: TypeAlias = Literal["higher", "lower", ""]
UP: Mapping[str, Better] = {"morf": "higher", "lerf": "lower", "random": ""}  # metrics of lost probability
DOWN: Mapping[str, Better] = {"morf": "lower", "lerf": "higher", "random": ""}
OtherClasses: TypeAlias = Literal["", "next", "remaining"]
Columns: TypeAlias = Iterable[tuple[Column, Cells]]


@dataclass(frozen=True)
class ScoredInput:
    """The scores of one method on one input, with what a metric may compare them to."""

    own: Attribution
    following: Attribution | None  # the explanation of the next class, if a metric needs it
    remaining: Sequence[Attribution]  # those of the remaining classes, or the most probable of them, if needed
    units: Callable[[Attribution], Sequence[float]]  # returns the scores of the removable units
    truth: Sequence[int] | None  # token positions of the gold answer
    k: int  # how many of the top tokens count
    ablations: Mapping[str, Ablations] = field(default_factory=dict)  # by level, if a metric needs them
    units_at: Callable[[Attribution, str], Sequence[float]] | None = None  # as `units`, at a level
    effects: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by level, if a metric needs them


class BenchMetric(Protocol):
    """A registered metric and the columns it produces."""

    on_curves: bool = False  # measured on degradation curves
    between_classes: OtherClasses = ""  # the other classes whose explanations it needs
    needs_truth: bool = False
    needs_probability: bool = False  # cannot be measured on predicted values
    own_curve: tuple[str, Order] | None = None  # grid and order of its curve, if it needs a certain one
    orders: tuple[Order, ...] = ()  # of the curves that it needs, whatever the protocol's orders are
    ablates: bool = False  # needs random ablations
    removes_each: bool = False  # needs the effect of each unit: the drop of the log-odds if it alone is removed

    def values_of(self, name: str, scored: ScoredInput) -> Mapping[str, float]:
        """Return what is stored of an input and a method, by the name of the metric or of its variants."""
        value = self.value(scored)
        return {} if value is None else {name: value}

    def value(self, scored: ScoredInput) -> float | None:
        """Return what the metric reads from the scores themselves, or None."""
        return None

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        """Yield the columns. `name`: the registered name of the metric."""
        ...


@dataclass(frozen=True)
class CurveMetric(BenchMetric):
    """The mean over inputs of a function of their curves, one column per plan."""

    title: str
    about: str
    better: Mapping[str, Better]  # by order
    measure: Callable[[Curve], float | None]
    on_curves: bool = True
    own_curve: tuple[str, Order] | None = None
    steps: str = ""  # "aopc" or "log-odds": the contribution of each step, for mean curves
    absolute: bool = False  # mean curves of absolute values
    about_values: str = ""  # `about` for predicted values, if it differs
    needs_probability: bool = False

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        if self.needs_probability and inputs[0].reading == "value":
            return
        about = self.about_values if inputs[0].reading == "value" and self.about_values else self.about
        for plan in plans_of(inputs):
            own = (plan.grid, plan.order) if plan.grid in OF_METRICS else None
            if own != self.own_curve:
                continue
            values = self.values(inputs, plan)
            if any(values.values()):
                level, by = name_level(plan, inputs)
                title = f"{self._title(plan)}{by}"
                curves = f"{name} {self._name(plan)}{level}"
                column = Column(curves, title, about, self.better[plan.order], metric=name, plan=plan)
                yield column, cells_of(column, values)

    def values(self, inputs: Sequence[InputResult], plan: Plan) -> Values:
        return by_method(inputs, lambda record, method: self._value(record, method, plan))

    def _value(self, record: InputResult, method: str, plan: Plan) -> float | None:
        return self.measure(record.curve(method, plan))

    def _name(self, plan: Plan) -> str:
        return str(plan)

    def _title(self, plan: Plan) -> str:
        if self.own_curve is not None:
            return f"{self.title}, {plan.perturbation}"
        return f"{self.title}, {plan_words(plan)}"


@dataclass(frozen=True)
class NormalisedAopc(CurveMetric):
    """AOPC scaled to the bounds of the input."""

    def _value(self, record: InputResult, method: str, plan: Plan) -> float | None:
        bounds = bounds_of(record, plan)
        return None if bounds is None else normalise(aopc(record.curve(method, plan)), *bounds)


@dataclass(frozen=True)
class SymmetricRelevanceGain(CurveMetric):
    """AOPC if the highest scores are removed first, minus AOPC if the lowest are.

    This is SRG of Blücher, Vielhaben and Strodthoff, TMLR 2024. A column belongs to two plans and is marked by the
    MoRF one.
    """

    orders: tuple[Order, ...] = ("morf", "lerf")

    def _value(self, record: InputResult, method: str, plan: Plan) -> float | None:
        opposite = replace(plan, order="lerf")
        if plan.order != "morf" or opposite not in plans_of([record]):
            return None
        return aopc(record.curve(method, plan)) - aopc(record.curve(method, opposite))

    def _name(self, plan: Plan) -> str:
        return f"{plan.perturbation} {plan.grid}"

    def _title(self, plan: Plan) -> str:
        return f"{self.title}, {plan.perturbation}{_grid_words(plan)}"


@dataclass(frozen=True)
class BetweenClasses(BenchMetric):
    """The mean rank correlation between the explanations of the explained class and each remaining one.

    This is equation 15 of AttCAT (Qiang et al., NeurIPS 2022), but of ranks. Of many classes, the most probable count.
    """

    title: str = "Kendall's tau between classes"
    about: str = (
        "Kendall's tau-b of the scores, between the explanations of the explained class and of each remaining class "
        "(of many, the most probable ones); the mean over these classes"
    )
    between_classes: OtherClasses = "remaining"

    def value(self, scored: ScoredInput) -> float | None:
        """Leave out constant scores: they have no ranking, and 0 would suggest that the classes differ."""
        own = scored.units(scored.own)
        taus = [_tau(own, scored.units(other)) for other in scored.remaining]
        ranked = [tau for tau in taus if tau is not None]
        return fmean(ranked) if ranked else None

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        values = by_method(inputs, lambda record, method: record.methods[method].values.get(name))
        if any(values.values()):
            column = Column(name, self.title, self.about, "lower", metric=name)
            yield column, cells_of(column, values)


@dataclass(frozen=True)
class AgreementMetric(BenchMetric):
    """Rank correlation between methods: a separate table, without a column."""

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        return ()


@dataclass(frozen=True)
class Precision(BenchMetric):
    """How many tokens of the gold answer are among the k highest.

    `precision@k` is the mean count, as AttCAT reports it; `share@k` is the sum of counts over the sum of answer
    lengths, a recall that Mask-LRP's code prints as precision.
    """

    needs_truth: bool = True

    def value(self, scored: ScoredInput) -> float | None:
        return None if scored.truth is None else float(precision_at_k(scored.own.scores, scored.truth, scored.k))

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        known = [record for record in inputs if record.truth is not None]
        inside = [record for record in known if record.truth is not None and not record.truth.cut_off]
        yield from self._columns(name, known, k, "")
        if inside and len(inside) < len(known):
            yield from self._columns(name, inside, k, INSIDE)

    def _columns(self, name: str, inputs: Sequence[InputResult], k: int, which: str) -> Columns:
        counts = by_method(inputs, lambda record, method: record.methods[method].values.get(name))
        lengths = [record.truth.n_tokens for record in inputs if record.truth is not None]
        ending, title = (f" {which}", f", {which}") if which else ("", "")
        about = f"mean number of the answer's tokens among the {k} highest of the whole input"
        column = Column(f"precision@{k}{ending}", f"precision@{k}{title}", about, "higher", metric=f"precision@{k}")
        yield column, cells_of(column, counts)
        about = f"share of all answers' tokens that are among the {k} highest of their input: a micro recall"
        column = Column(f"share@{k}{ending}", f"share@{k}{title}", about, "higher", metric=f"share@{k}")
        cells = {method: share_cell([int(n) for n in of.values()], lengths) for method, of in counts.items()}
        # All methods share the denominators, so a test of the counts is a test of the shares.
        yield column, with_p_values(column, counts, cells)


def share_cell(counts: Sequence[int], lengths: Sequence[int]) -> Estimate:
    """Return the ratio of the sums; the bootstrap draws inputs, each with its count and its length."""
    pairs = np.array([counts, lengths], dtype=np.float64).T
    low, high = interval(pairs, lambda means: means[:, 0] / means[:, 1])
    return Estimate(recall_at_k(counts, lengths), low, high, len(counts))


METRICS: dict[str, BenchMetric] = {
    "aopc": CurveMetric(
        "AOPC",
        "mean drop of the probability over the steps",
        UP,
        aopc,
        steps="aopc",
        about_values="mean drop of the predicted value over the steps",
    ),
    "log-odds": CurveMetric(
        "log-odds", "mean of ln(p / p0) over the steps", DOWN, log_odds, steps="log-odds", needs_probability=True
    ),
    "auc": CurveMetric(
        "AUC",
        "area under the probability curve",
        DOWN,
        auc,
        about_values="area under the change of the predicted value",
    ),
    "normalised-aopc": NormalisedAopc(
        "normalised AOPC",
        "AOPC scaled so that 0 is the lowest AOPC found for any order of the tokens and 1 the highest",
        UP,
        aopc,
    ),
    "srg": SymmetricRelevanceGain(
        "SRG", "symmetric relevance gain: AOPC of MoRF minus AOPC of LeRF", {"morf": "higher"}, aopc
    ),
    "comprehensiveness": CurveMetric(
        "comprehensiveness",
        "mean drop without the highest 1, 5, 10, 20, 50 % of the tokens",
        {"morf": "higher"},
        aopc,
        own_curve=("eraser", "morf"),
    ),
    "sufficiency": CurveMetric(
        "sufficiency",
        "mean drop with only the highest 1, 5, 10, 20, 50 % of the tokens",
        {"lerf": "lower"},
        aopc,
        own_curve=("eraser", "lerf"),
    ),
    "kendall": BetweenClasses(),
    "agreement": AgreementMetric(),
    "precision": Precision(),
}


def register_metric(name: str, metric: BenchMetric) -> None:
    METRICS[name] = metric


def is_measurable(name: str, reading: Reading) -> bool:
    """Return whether a metric can be measured on probabilities, or on predicted values."""
    metric = METRICS[name]
    return reading == "probability" or not (metric.needs_probability or metric.between_classes)


def plans_of(inputs: Sequence[InputResult]) -> list[Plan]:
    return [planned.plan for planned in inputs[0].plans]


def name_level(plan: Plan, inputs: Sequence[InputResult]) -> tuple[str, str]:
    """Return the level of a plan, for the name of a column and for its title; nothing if there is only one level."""
    several = len({own.level for own in plans_of(inputs)}) > 1
    return (f" {plan.level}", f", by {plan.level}") if several else ("", "")


def plan_words(plan: Plan) -> str:
    return f"{plan.perturbation}, {ORDER_WORDS[plan.order]}{_grid_words(plan)}"


def _grid_words(plan: Plan) -> str:
    return "" if plan.grid == "tenths" else f", {plan.grid}"


def bounds_of(record: InputResult, plan: Plan) -> tuple[float, float] | None:
    """Return the bounds of AOPC: those of the search, widened by any method whose order lies outside them."""
    searched = searched_bounds(record, plan)
    if searched is None:
        return None
    reached = aopc_of_methods(record, plan)
    low, high = min(searched[0], *reached), max(searched[1], *reached)
    outputs = [output for result in record.methods.values() for curve in result.curves for output in curve]
    scale = 1.0 if record.reading == "probability" else max(map(abs, outputs))
    return (low, high) if high - low > ROUNDING * scale else None  # None: the order makes no difference


def searched_bounds(record: InputResult, plan: Plan) -> tuple[float, float] | None:
    for planned in record.plans:
        if planned.plan.same_steps(plan) and planned.lower is not None and planned.upper is not None:
            return planned.lower, planned.upper
    return None


def aopc_of_methods(record: InputResult, plan: Plan) -> list[float]:
    """Return the AOPC of every method's order with the same steps, MoRF or LeRF."""
    alike = [planned.plan for planned in record.plans if planned.plan.same_steps(plan)]
    return [aopc(record.curve(method, same)) for method in record.methods for same in alike]


def _tau(own: Sequence[float], other: Sequence[float]) -> float | None:
    constant = min(len(set(own)), len(set(other))) < 2
    return None if constant else kendall(own, other)
