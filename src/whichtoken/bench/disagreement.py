"""Where two methods of a benchmark differ most: inputs on which one is much more faithful than the other. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichtoken.bench.folder import RESULTS, SPEC, check_tools, read_spec
from whichtoken.boundary import while_reading
from whichtoken.data.examples import read_examples
from whichtoken.errors import BadArtifact, UnknownName, UsageError, WhichTokenError
from whichtoken.metrics.curves import aopc
from whichtoken.records import Curve, Plan
from whichtoken.targets import Class

COLUMNS = ("number", "row", "id", "key", "label", "method", "perturbation", "order", "grid", "level", "removed")


@dataclass(frozen=True)
class Disagreement:
    """One input, and the curves of two methods on it."""

    number: int
    row: int
    id: str
    label: str
    first: Curve
    second: Curve

    @property
    def difference(self) -> float:
        return aopc(self.first) - aopc(self.second)


def read_curves(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of `results.parquet` of a finished benchmark: one per input, method and plan."""
    path = folder / RESULTS
    if not path.is_file():
        return []
    check_tools()
    from pyarrow import parquet

    with while_reading(path):
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        if rows and not set(COLUMNS) <= set(rows[0]):
            return []  # a benchmark without curves
    return rows


def first_plan(rows: Sequence[Mapping[str, Any]]) -> Plan:
    """Return the plan that inputs are compared by: the first one of most relevant first."""
    plans = list(dict.fromkeys(_plan(row) for row in rows))
    if not plans:
        raise UsageError("this benchmark has no curves by input")
    return next((plan for plan in plans if plan.order == "morf"), plans[0])


def _plan(row: Mapping[str, Any]) -> Plan:
    return Plan(row["perturbation"], row["order"], row["grid"], row["level"])


def disagreements(rows: Sequence[Mapping[str, Any]], first: str, second: str, plan: Plan) -> list[Disagreement]:
    """Return the inputs that both methods were measured on, the largest difference of AOPC first."""
    known = list(dict.fromkeys(str(row["method"]) for row in rows))
    for name in (first, second):
        if name not in known:
            raise UnknownName("method of this benchmark", name, known)
    by_input: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        if row["method"] in (first, second) and _plan(row) == plan:
            by_input.setdefault(row["number"], {})[row["method"]] = row
    both = [pair for pair in by_input.values() if {first, second} <= pair.keys()]
    made = [_disagreement(pair[first], pair[second]) for pair in both]
    return sorted(made, key=lambda one: (-abs(one.difference), one.number))


def _disagreement(first: Mapping[str, Any], second: Mapping[str, Any]) -> Disagreement:
    return Disagreement(first["number"], first["row"], first["id"], first["label"], _curve(first), _curve(second))


def _curve(row: Mapping[str, Any]) -> Curve:
    """Return a curve with the fields that metrics read."""
    try:
        return Curve(
            key=row["key"],
            order=row["order"],
            perturbation=row["perturbation"],
            removed=tuple(row["removed"]),
            probability=tuple(row.get("probability") or ()),
            label=row["label"],
            target=Class(0),
            method=row["method"],
            settings={},
            model="",
            revision="",
            n_cut=0,
            grid=row["grid"],
            level=row["level"],
            tuned_on_deletion=bool(row.get("tuned_on_deletion")),
            value=tuple(row.get("value") or ()),
        )
    except TypeError as error:
        raise BadArtifact(f"{RESULTS} has a row without a curve") from error


def read_texts(folder: Path, data: Path | None = None) -> dict[int, tuple[str, ...]]:
    """Return the texts of a benchmark by row, from the file that it was measured on; none if that cannot be read.

    A folder stores rows and not texts. `data`: the file, if it is no longer where the benchmark found it.
    """
    spec = read_spec(folder / SPEC) if (folder / SPEC).is_file() else {}
    call: Mapping[str, Any] = spec.get("call") or {}
    named = data or (Path(call["data"]) if isinstance(call.get("data"), str) else None)
    if named is None or not named.is_file():
        return {}
    try:
        return dict(enumerate(example.texts for example in _examples(named, call)))
    except WhichTokenError:
        if data is not None:
            raise
        return {}


def _examples(file: Path, call: Mapping[str, Any]) -> Iterable[Any]:
    columns, delimiter = call.get("column") or None, call.get("delimiter")
    return read_examples(file, None, columns, delimiter=delimiter)
