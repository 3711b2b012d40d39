"""What a benchmark stores for each input: plain data that survives a round trip through JSON. No torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whichtoken.checks import (
    check_count_fields,
    check_counts,
    check_lengths,
    check_probabilities,
    check_square,
    require,
)
from whichtoken.decode import decode
from whichtoken.errors import BadArtifact
from whichtoken.record_checks import check_steps
from whichtoken.records import Curve, Plan, Reading
from whichtoken.targets import Class

COVERAGE = "coverage"  # see references/coverage
FIX = "delete this file and run again, and these inputs are measured again"


@dataclass(frozen=True)
class MethodResult:
    """One method on one input."""

    tuned_on_deletion: bool
    seconds: float | None  # None for external scores
    evaluations: float | None
    # Of metrics that read the scores themselves, by metric; and under COVERAGE, if the method has references. Parts of
    # earlier versions do not have it.
    values: Mapping[str, float]
    curves: tuple[tuple[float, ...], ...]  # probabilities or predicted values, one curve per plan of the input


@dataclass(frozen=True)
class PlanResult:
    """One plan on one input: the fractions removed, and the bounds of AOPC over all orders."""

    plan: Plan
    removed: tuple[float, ...]  # fractions
    lower: float | None = None  # AOPC of the worst order found
    upper: float | None = None  # of the best; None: not searched
    exact: bool = False  # no order lies outside these bounds


@dataclass(frozen=True)
class Truth:
    """The gold answer of an input."""

    n_tokens: int
    cut_off: bool  # lost by truncation, wholly or partly; counted as the first token
    right: bool  # the model predicts the same span


@dataclass(frozen=True)
class InputResult:
    """One input and what every method scored on it."""

    number: int  # in the sample
    row: int  # in the data
    id: str  # in the data, if it has one
    key: str
    label: str  # the model's prediction
    probability: float | None  # None if the model predicts a value; the curves start with it
    n_tokens: int
    n_cut: int
    methods: Mapping[str, MethodResult]
    plans: tuple[PlanResult, ...] = ()
    agreement: tuple[tuple[float, ...], ...] = ()
    truth: Truth | None = None

    @property
    def reading(self) -> Reading:
        return "value" if self.probability is None else "probability"

    def curve(self, method: str, plan: Plan) -> Curve:
        """Return a method's curve, with only the fields that metrics read."""
        place = next(i for i, planned in enumerate(self.plans) if planned.plan == plan)
        outputs = self.methods[method].curves[place]
        return Curve(
            key=self.key,
            order=plan.order,
            perturbation=plan.perturbation,
            removed=self.plans[place].removed,
            probability=() if self.reading == "value" else outputs,
            label=self.label,
            target=Class(0),  # metrics do not read it
            method=method,
            settings={},
            model="",
            revision="",
            n_cut=self.n_cut,
            grid=plan.grid,
            level=plan.level,
            value=outputs if self.reading == "value" else (),
        )


@dataclass(frozen=True)
class Part:
    """Inputs that were measured together."""

    inputs: tuple[InputResult, ...]
    asked: int  # sequences requested by all methods, orders and metrics
    evaluated: int  # of those, evaluated by the model

    def __add__(self, other: "Part") -> "Part":
        return Part(self.inputs + other.inputs, self.asked + other.asked, self.evaluated + other.evaluated)


def read_part(stored: Any, where: object) -> Part:
    """Return a stored part; raise BadArtifact with the fix if a value has the wrong type or range."""
    try:
        part = decode(Part, stored)
        check_count_fields("Part", {"asked": part.asked, "evaluated": part.evaluated})
        for record in part.inputs:
            _check_input(record, f"input {record.number}")
    except BadArtifact as error:
        raise BadArtifact(f"{where} is not a part of a benchmark: {error}; {FIX}") from error
    return part


def _check_input(record: InputResult, name: str) -> None:
    counts = ("number", "row", "n_tokens", "n_cut")
    check_count_fields(name, {field: getattr(record, field) for field in counts})
    check_probabilities(f"{name}: probability", [record.probability])
    for planned in record.plans:
        check_steps(name, planned.removed, planned.plan.grid, planned.plan.order)
        both = (planned.lower is None) == (planned.upper is None)
        require(both and (planned.lower or 0) <= (planned.upper or 0), f"{name}: its lower bound exceeds the upper one")
    for method, result in record.methods.items():
        check_count_fields(f"{name}, {method}", {"seconds": result.seconds, "evaluations": result.evaluations})
        check_lengths(f"{name}, {method}", {"curves": result.curves, "plans": record.plans})
        for planned, curve in zip(record.plans, result.curves, strict=True):
            check_lengths(f"{name}, {method}", {"removed": planned.removed, "outputs": curve})
            if record.reading == "probability":
                check_probabilities(f"{name}, {method}: a probability", curve)
    if record.agreement:
        check_square(f"{name}: agreement", record.agreement, len(record.methods))
    if record.truth is not None:
        check_counts(f"{name}: truth.n_tokens", [record.truth.n_tokens])


def every_input(parts: Iterable[Part]) -> list[InputResult]:
    return sorted((record for part in parts for record in part.inputs), key=lambda record: record.number)


def by_method(
    inputs: Sequence[InputResult], measure: Callable[[InputResult, str], float | None]
) -> dict[str, dict[int, float]]:
    """Return the measured values by method and input number; inputs without a value are left out."""
    by_name = {}
    for method in inputs[0].methods:
        values = ((record.number, measure(record, method)) for record in inputs if method in record.methods)
        by_name[method] = {number: value for number, value in values if value is not None}
    return by_name
