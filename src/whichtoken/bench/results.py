"""What a benchmark keeps of each input: plain data that goes to JSON and back without loss. No torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whichtoken.decode import decode
from whichtoken.errors import BadArtifact
from whichtoken.records import Curve, Plan
from whichtoken.targets import Class


@dataclass(frozen=True)
class MethodResult:
    """One method on one input."""

    tuned_on_deletion: bool
    seconds: float | None  # not known of scores made elsewhere
    evaluations: float | None
    values: Mapping[str, float]  # what metrics measured of the scores themselves, by metric
    curves: tuple[tuple[float, ...], ...]  # probabilities, for each plan of the input


@dataclass(frozen=True)
class PlanResult:
    """How one plan removes parts of one input, and how far any order could get."""

    plan: Plan
    removed: tuple[float, ...]  # fractions
    lower: float | None = None  # AOPC of the worst order that was found
    upper: float | None = None  # and of the best; None: it was not searched for
    exact: bool = False  # there is none worse or better


@dataclass(frozen=True)
class Truth:
    """What is right about an input: tokens that hold the answer."""

    n_tokens: int
    cut_off: bool  # the model's limit took some of them; the first token then stands for them
    right: bool  # the model said the same


@dataclass(frozen=True)
class InputResult:
    """One input."""

    number: int  # in the sample
    row: int  # in the data
    id: str  # its name in the data, if it has one
    key: str
    label: str  # what the model said
    probability: float
    n_tokens: int
    n_cut: int
    methods: Mapping[str, MethodResult]
    plans: tuple[PlanResult, ...] = ()
    agreement: tuple[tuple[float, ...], ...] = ()
    truth: Truth | None = None

    def curve(self, method: str, plan: Plan) -> Curve:
        """As far as metrics read it."""
        place = next(i for i, one in enumerate(self.plans) if one.plan == plan)
        return Curve(
            key=self.key,
            order=plan.order,
            perturbation=plan.perturbation,
            removed=self.plans[place].removed,
            probability=self.methods[method].curves[place],
            label=self.label,
            target=Class(0),  # metrics do not read it
            method=method,
            settings={},
            model="",
            revision="",
            n_cut=self.n_cut,
            grid=plan.grid,
            level=plan.level,
        )


@dataclass(frozen=True)
class Part:
    """What was measured together."""

    inputs: tuple[InputResult, ...]
    asked: int  # sequences, by all methods, orders and metrics
    evaluated: int  # of them by the model

    def __add__(self, other: "Part") -> "Part":
        return Part(self.inputs + other.inputs, self.asked + other.asked, self.evaluated + other.evaluated)


def read_part(found: Any, where: object) -> Part:
    try:
        return decode(Part, found)
    except BadArtifact as error:
        raise BadArtifact(f"{where} is no part of a benchmark: {error}; remove it, and it is measured again") from error


def every_input(parts: Iterable[Part]) -> list[InputResult]:
    return sorted((one for part in parts for one in part.inputs), key=lambda one: one.number)


def by_method(
    inputs: Sequence[InputResult], measure: Callable[[InputResult, str], float | None]
) -> dict[str, dict[int, float]]:
    """For each method and input, by number, what is measured; inputs without a value are left out."""
    found = {}
    for method in inputs[0].methods:
        values = ((one.number, measure(one, method)) for one in inputs if method in one.methods)
        found[method] = {number: value for number, value in values if value is not None}
    return found
