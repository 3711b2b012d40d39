"""The metrics of a benchmark, by name: what each measures of an input, and the columns that it gives. No torch.

Others can be registered; those that only papers use are in `reproduce`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from whichtoken.bench.results import InputResult, by_method
from whichtoken.bench.stats import Cells, cells_of, interval, tested
from whichtoken.metrics.curves import aopc, auc, log_odds, normalised
from whichtoken.metrics.ranks import kendall, precision_at_k, recall_at_k
from whichtoken.records import Attribution, Curve, Plan
from whichtoken.tables import Column, Estimate

ROUNDING = 1e-6  # of probabilities in single precision
ORDER_WORDS = {"morf": "highest first", "lerf": "lowest first", "random": "in random order"}
INSIDE = "answers inside"  # of columns without the inputs whose answer was cut off
Better: TypeAlias = Literal["higher", "lower", ""]
UP: Mapping[str, Better] = {"morf": "higher", "lerf": "lower", "random": ""}  # where more is lost
DOWN: Mapping[str, Better] = {"morf": "lower", "lerf": "higher", "random": ""}
Columns: TypeAlias = Iterable[tuple[Column, Cells]]


@dataclass(frozen=True)
class ScoredInput:
    """What a metric may look at beside the scores of one method."""

    own: Attribution
    other: Attribution | None  # of the next class, if there is one
    units: Callable[[Attribution], Sequence[float]]  # scores of what can be removed
    truth: Sequence[int] | None  # positions of the true answer's tokens
    k: int  # how many of the highest count


class BenchMetric(Protocol):
    """One name, and the columns that it gives."""

    on_curves: bool = False  # it is measured on curves, which therefore must be drawn
    between_classes: bool = False  # it needs explanations of another class
    needs_truth: bool = False
    eraser: str = ""  # the order of the ERASER curve that it is measured on

    def value(self, seen: ScoredInput) -> float | None:
        """What is measured of the scores themselves, and kept; None: nothing."""
        return None

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        """`name`: under which it is registered."""
        ...


@dataclass(frozen=True)
class CurveMetric(BenchMetric):
    """The mean over inputs of a function of their curves, for each plan."""

    title: str
    about: str
    better: Mapping[str, Better]  # by order
    measure: Callable[[Curve], float | None]
    on_curves: bool = True
    eraser: str = ""
    steps: str = ""  # "aopc" or "log-odds": what each step contributes, for mean curves
    absolute: bool = False  # and whether its sign counts

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        for plan in plans_of(inputs):
            if (plan.grid == "eraser") != bool(self.eraser) or self.eraser not in ("", plan.order):
                continue
            values = by_method(inputs, lambda one, method, plan=plan: self._measured(one, method, plan))  # type: ignore[misc]
            if any(values.values()):
                column = Column(
                    f"{name} {plan}", self._title(plan), self.about, self.better[plan.order], metric=name, plan=plan
                )
                yield column, cells_of(column, values)

    def _measured(self, one: InputResult, method: str, plan: Plan) -> float | None:
        return self.measure(one.curve(method, plan))

    def _title(self, plan: Plan) -> str:
        if self.eraser:
            return f"{self.title}, {plan.perturbation}"
        return f"{self.title}, {plan_words(plan)}"


@dataclass(frozen=True)
class NormalisedAopc(CurveMetric):
    """AOPC between the bounds of the input."""

    def _measured(self, one: InputResult, method: str, plan: Plan) -> float | None:
        bounds = bounds_of(one, plan)
        return None if bounds is None else normalised(aopc(one.curve(method, plan)), *bounds)


@dataclass(frozen=True)
class BetweenClasses(BenchMetric):
    """A rank correlation between the explanations of the explained class and the next one."""

    about: str = "Kendall's tau-b of the scores, between the explanations of the explained class and the next one"
    between_classes: bool = True

    def value(self, seen: ScoredInput) -> float | None:
        """None where there is nothing to compare: a constant ranks nothing, and 0 would read as if classes differed."""
        return None if seen.other is None else _tau(seen.units(seen.own), seen.units(seen.other))

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        values = by_method(inputs, lambda one, method: one.methods[method].values.get(name))
        if any(values.values()):
            column = Column(name, "Kendall's tau between classes", self.about, "lower", metric=name)
            yield column, cells_of(column, values)


@dataclass(frozen=True)
class AgreementMetric(BenchMetric):
    """Between methods: a table of its own, and no column."""

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        return ()


@dataclass(frozen=True)
class Precision(BenchMetric):
    """How many tokens of the true answer are among the k highest.

    `precision@k` is the mean count, as AttCAT reports it; `share@k` is all counts together by all lengths together,
    which Mask-LRP's code prints as precision: a recall.
    """

    needs_truth: bool = True

    def value(self, seen: ScoredInput) -> float | None:
        return None if seen.truth is None else float(precision_at_k(seen.own.scores, seen.truth, seen.k))

    def columns(self, name: str, inputs: Sequence[InputResult], k: int) -> Columns:
        known = [one for one in inputs if one.truth is not None]
        inside = [one for one in known if one.truth is not None and not one.truth.cut_off]
        yield from self._columns(name, known, k, "")
        if inside and len(inside) < len(known):
            yield from self._columns(name, inside, k, INSIDE)

    def _columns(self, name: str, inputs: Sequence[InputResult], k: int, which: str) -> Columns:
        counts = by_method(inputs, lambda one, method: one.methods[method].values.get(name))
        lengths = [one.truth.n_tokens for one in inputs if one.truth is not None]
        ending, title = (f" {which}", f", {which}") if which else ("", "")
        about = f"mean number of the answer's tokens among the {k} highest of the whole input"
        column = Column(f"precision@{k}{ending}", f"precision@{k}{title}", about, "higher", metric=f"precision@{k}")
        yield column, cells_of(column, counts)
        about = f"share of all answers' tokens that are among the {k} highest of their input: a micro recall"
        column = Column(f"share@{k}{ending}", f"share@{k}{title}", about, "higher", metric=f"share@{k}")
        cells = {method: share_cell([int(n) for n in of.values()], lengths) for method, of in counts.items()}
        # The denominators are the same for all methods, so that shares differ as counts do, and are tested by them.
        yield column, tested(column, counts, cells)


def share_cell(counts: Sequence[int], lengths: Sequence[int]) -> Estimate:
    """The ratio of the sums; its interval comes from drawing inputs, each with its count and its length."""
    pairs = np.array([counts, lengths], dtype=np.float64).T
    low, high = interval(pairs, lambda means: means[:, 0] / means[:, 1])
    return Estimate(recall_at_k(counts, lengths), low, high, len(counts))


METRICS: dict[str, BenchMetric] = {
    "aopc": CurveMetric("AOPC", "mean drop of the probability over the steps", UP, aopc, steps="aopc"),
    "log-odds": CurveMetric("log-odds", "mean of ln(p / p0) over the steps", DOWN, log_odds, steps="log-odds"),
    "auc": CurveMetric("AUC", "area under the probability curve", DOWN, auc),
    "normalised-aopc": NormalisedAopc(
        "normalised AOPC",
        "0: the lowest AOPC that any order of the tokens was found to have, 1: the highest",
        UP,
        aopc,
    ),
    "comprehensiveness": CurveMetric(
        "comprehensiveness",
        "mean drop without the highest 1, 5, 10, 20, 50 % of the tokens",
        {"morf": "higher"},
        aopc,
        eraser="morf",
    ),
    "sufficiency": CurveMetric(
        "sufficiency",
        "mean drop with only the highest 1, 5, 10, 20, 50 % of the tokens",
        {"lerf": "lower"},
        aopc,
        eraser="lerf",
    ),
    "kendall": BetweenClasses(),
    "agreement": AgreementMetric(),
    "precision": Precision(),
}


def register_metric(name: str, metric: BenchMetric) -> None:
    METRICS[name] = metric


def plans_of(inputs: Sequence[InputResult]) -> list[Plan]:
    return [one.plan for one in inputs[0].plans]


def plan_words(plan: Plan) -> str:
    grid = "" if plan.grid == "tenths" else f", {plan.grid}"
    return f"{plan.perturbation}, {ORDER_WORDS[plan.order]}{grid}"


def bounds_of(one: InputResult, plan: Plan) -> tuple[float, float] | None:
    """What the search found, or a method where it found more: each of them is an order that there is."""
    searched = searched_bounds(one, plan)
    if searched is None:
        return None
    there = found_by_methods(one, plan)
    low, high = min(searched[0], *there), max(searched[1], *there)
    return (low, high) if high - low > ROUNDING else None  # no order matters


def searched_bounds(one: InputResult, plan: Plan) -> tuple[float, float] | None:
    for held in one.plans:
        if held.plan.same_steps(plan) and held.lower is not None and held.upper is not None:
            return held.lower, held.upper
    return None


def found_by_methods(one: InputResult, plan: Plan) -> list[float]:
    """The AOPC of every order of these steps that a method gave, highest or lowest first."""
    alike = [held.plan for held in one.plans if held.plan.same_steps(plan)]
    return [aopc(one.curve(method, same)) for method in one.methods for same in alike]


def _tau(mine: Sequence[float], theirs: Sequence[float]) -> float | None:
    constant = min(len(set(mine)), len(set(theirs))) < 2
    return None if constant else kendall(mine, theirs)
