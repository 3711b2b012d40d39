"""The option --fail-under of `bench`: values that every method must reach."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, nan

from whichtoken.core.removal_steps import TOP
from whichtoken.errors import BadSetting, UnknownName
from whichtoken.tables import BenchTable


@dataclass(frozen=True)
class Gate:
    """A value that every method except controls must reach."""

    metric: str
    least: float

    def check(self, known: Sequence[str]) -> None:
        if self.metric.partition(" ")[0] not in known:
            raise UnknownName("metric of --fail-under", self.metric, known)

    def failures(self, table: BenchTable) -> list[str]:
        columns = [c for c in table.columns if self.metric in (c.name, c.metric)]
        if not columns:
            raise UnknownName("metric of --fail-under", self.metric, [column.name for column in table.columns])
        column = columns[0]
        sign = -1 if column.better == "lower" else 1
        relation = "above" if column.better == "lower" else "below"
        judged = [line for line in table.lines if not line.control and column.name in line.cells]
        values = {line.method: line.cells[column.name].mean for line in judged}
        return [
            f"{method}: {column.title} is {value:.3f}, {relation} {self.least:g}"
            for method, value in values.items()
            if sign * value < sign * self.least
        ]


def gate_names(metrics: Iterable[str], k: int) -> tuple[str, ...]:
    """Return the names that --fail-under accepts for these metrics: the first words of their columns."""
    counted = {"precision": (f"precision@{k}", f"share@{k}"), "top-drop": tuple(f"top-drop@{count}" for count in TOP)}
    return *(word for name in metrics for word in counted.get(name, (name,))), "seconds", "evaluations"


def parse_gates(words: Sequence[str], known: Sequence[str]) -> list[Gate]:
    """Parse METRIC=VALUE. `known`: names of metrics."""
    gates = []
    for word in words:
        metric, _, value = (part.strip() for part in word.partition("="))
        Gate(metric, nan).check(known)
        try:
            least = float(value)
        except ValueError:
            least = nan
        if isnan(least):
            raise BadSetting("--fail-under", word, "metric=number, such as aopc=0.4")
        gates.append(Gate(metric, least))
    return gates
