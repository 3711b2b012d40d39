"""What a benchmark keeps of each text: plain data that goes to JSON and back without loss. No torch."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from whichtoken.errors import BadArtifact


@dataclass(frozen=True)
class Scored:
    """One method on one text."""

    searched: bool
    seconds: float | None  # not known of scores made elsewhere
    evaluations: float | None
    kendall: float | None  # between the explanations of two classes
    curves: Mapping[str, tuple[float, ...]]  # probabilities, by the name of the plan: "delete morf tenths"


@dataclass(frozen=True)
class Measured:
    """One text."""

    number: int  # in the sample
    row: int  # in the data
    key: str
    label: str
    probability: float
    n_tokens: int
    n_cut: int
    removed: Mapping[str, tuple[float, ...]]  # fractions, by the name of the plan
    methods: Mapping[str, Scored]
    bounds: Mapping[str, tuple[float, float, bool]]  # lower, upper, exact
    agreement: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Part:
    """What was measured together."""

    texts: tuple[Measured, ...]
    asked: int  # sequences, by all methods, orders and metrics
    evaluated: int  # of them by the model

    def __add__(self, other: "Part") -> "Part":
        return Part(self.texts + other.texts, self.asked + other.asked, self.evaluated + other.evaluated)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_part(found: Any, where: object) -> Part:
    try:
        texts = [_text(text) for text in found["texts"]]
        return Part(tuple(texts), int(found["asked"]), int(found["evaluated"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadArtifact(
            f"{where} is no part of a benchmark: {error!r}; remove it, and it is measured again"
        ) from error


def _text(found: Mapping[str, Any]) -> Measured:
    methods = {
        name: Scored(**{**one, "curves": {plan: tuple(values) for plan, values in one["curves"].items()}})
        for name, one in found["methods"].items()
    }
    return Measured(
        **{
            **found,
            "methods": methods,
            "removed": {plan: tuple(values) for plan, values in found["removed"].items()},
            "bounds": {plan: tuple(values) for plan, values in found["bounds"].items()},
            "agreement": tuple(tuple(row) for row in found["agreement"]),
        }
    )


def every_text(parts: Iterable[Part]) -> list[Measured]:
    return sorted((text for part in parts for text in part.texts), key=lambda text: text.number)
