"""The folder of a benchmark: what was asked, each finished part, and in the end the table, curves, figures, report."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from whichtoken.atomic_write import write_whole
from whichtoken.bench.results import Measured
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.render.bench_table import markdown
from whichtoken.tables import Agreement, BenchTable, Cell, Column, Line, Trend

SCHEMA = 1
SPEC, TABLE, RESULTS, REPORT, MARKDOWN = "spec.json", "table.json", "results.parquet", "report.html", "table.md"


class Keepable(Protocol):
    """What was measured together, as data; of texts, `measured.Part`."""

    def __add__(self, other: Self) -> Self: ...

    def to_dict(self) -> dict[str, Any]: ...


class Numbered(Protocol):
    """What is measured: a text, a question."""

    @property
    def number(self) -> int: ...

    @property
    def n_tokens(self) -> int: ...


P = TypeVar("P", bound=Keepable)
T = TypeVar("T", bound=Numbered)
Reader = Callable[[Any, object], P]  # from JSON, and where it stood


@dataclass(frozen=True)
class Kept(Generic[P]):
    """A part that was kept, and the number of its last text."""

    last: int
    part: P


@dataclass(frozen=True)
class Folder:
    path: Path

    @classmethod
    def at(cls, path: str | Path | None) -> "Folder | None":
        return None if path is None else cls(Path(path).expanduser())

    def claim(self, spec: Mapping[str, Any], size: Mapping[str, Any]) -> None:
        """Begin here, or go on here if the same was asked before; but not if it was something else.

        `size`: what may differ, as parts that were finished stay true.
        """
        wanted = json.loads(json.dumps({"schema": SCHEMA, **spec}))
        where = self.path / SPEC
        if where.exists():
            found = read_spec(where)
            differing = [k for k in sorted(wanted.keys() | found.keys() - size) if found.get(k) != wanted.get(k)]
            if differing:
                shown = "; ".join(f"{k} was {found.get(k)!r:.60}, now {wanted.get(k)!r:.60}" for k in differing)
                raise UsageError(f"{self.path} holds another benchmark ({shown}); choose another folder")
        elif self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is a file; give the name of a folder")
        elif self.path.exists() and any(not path.name.startswith(".") for path in self.path.iterdir()):
            raise UsageError(f"{self.path} holds other files; choose a folder that is empty, or not there yet")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(where, json.dumps({**wanted, **size}, indent=1, ensure_ascii=False) + "\n")
            (self.path / "parts").mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be made: {error.strerror or error}") from error

    def longest_part(self, first: int, last: int, read: Reader[P]) -> Kept[P] | None:
        """What was kept of these texts: of all of them, or of the first ones when the sample was smaller."""
        found = sorted((self.path / "parts").glob(f"{first:06d}-*.json"))
        ends = {int(path.stem.partition("-")[2]): path for path in found}
        fitting = [end for end in ends if end <= last]
        if not fitting:
            return None
        where = ends[max(fitting)]
        return Kept(max(fitting), read(_json(where), where))

    def keep_part(self, first: int, last: int, part: Keepable) -> None:
        where = self.path / "parts" / f"{first:06d}-{last:06d}.json"
        write_whole(where, json.dumps(part.to_dict(), ensure_ascii=False))

    def finish(self, table: BenchTable, rows: Sequence[Mapping[str, Any]]) -> None:
        """`rows`: of `results.parquet`."""
        from whichtoken.render.report import to_report

        write_whole(self.path / TABLE, table_json(table))
        write_whole(self.path / MARKDOWN, markdown(table))
        _write_rows(rows, self.path / RESULTS)
        to_report(table, self.path / REPORT)
        _figures(table, self.path)


def _figures(table: BenchTable, folder: Path) -> None:
    """Where matplotlib is installed; the report says it if it is not."""
    if find_spec("matplotlib") is None:
        return
    from whichtoken.render.charts import plot_agreement, plot_curves

    if table.trends:
        plot_curves(table, folder / "curves.png")
    if table.agreement is not None:
        plot_agreement(table.agreement, folder / "agreement.png")


def draw_variants(table: BenchTable, folder: Path) -> None:
    """The first column, variant by variant, where matplotlib is installed."""
    if find_spec("matplotlib") is not None:
        from whichtoken.render.charts import plot_variants

        plot_variants(table, table.columns[0].name, folder / "variants.png")


def check_tools() -> None:
    """Before long work, not after it."""
    if find_spec("pyarrow") is None:
        raise UsageError(
            "a benchmark keeps its results in a parquet file, which needs pyarrow: pip install 'whichtoken[bench]'"
        )


def curve_rows(texts: Iterable[Measured]) -> list[dict[str, Any]]:
    """Every curve, one in a row."""
    return [
        {
            "number": text.number,
            "row": text.row,
            "key": text.key,
            "label": text.label,
            "n_tokens": text.n_tokens,
            "n_cut": text.n_cut,
            "method": method,
            "searched": scored.searched,
            "perturbation": plan.split(" ")[0],
            "order": plan.split(" ")[1],
            "grid": plan.split(" ")[2],
            "removed": list(text.removed[plan]),
            "probability": list(probability),
            "kendall": scored.kendall,
            "seconds": scored.seconds,
            "evaluations": scored.evaluations,
            "lower": text.bounds[plan][0] if plan in text.bounds else None,
            "upper": text.bounds[plan][1] if plan in text.bounds else None,
        }
        for text in texts
        for method, scored in text.methods.items()
        for plan, probability in scored.curves.items()
    ]


def _write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    beside = path.with_name(f".{path.name}.part")
    parquet.write_table(pa.Table.from_pylist(list(rows)), beside, compression="zstd")
    beside.replace(path)


def read_spec(path: Path) -> dict[str, Any]:
    found = _json(path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise BadArtifact(f"{path} is no specification of a benchmark, schema {SCHEMA}")
    return found


def table_json(table: BenchTable) -> str:
    return json.dumps({"schema": SCHEMA, **asdict(table)}, ensure_ascii=False) + "\n"


def read_table(path: str | Path) -> BenchTable:
    """The table of a finished benchmark: its folder, or the file itself."""
    where = Path(path).expanduser()
    where = where / TABLE if where.is_dir() else where
    if not where.is_file():
        raise UsageError(f"there is no finished benchmark at {where}; whichtoken bench --out FOLDER makes one")
    found = _json(where)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise BadArtifact(f"{where} is no table of a benchmark, schema {SCHEMA}")
    try:
        return BenchTable(
            title=found["title"],
            facts=tuple((name, value) for name, value in found["facts"]),
            columns=tuple(Column(**column) for column in found["columns"]),
            lines=tuple(
                Line(**{**line, "cells": {name: Cell(**cell) for name, cell in line["cells"].items()}})
                for line in found["lines"]
            ),
            trends=tuple(
                Trend(
                    **{
                        **trend,
                        "removed": tuple(trend["removed"]),
                        "means": {method: tuple(values) for method, values in trend["means"].items()},
                    }
                )
                for trend in found["trends"]
            ),
            notes=tuple(found["notes"]),
            unit=found.get("unit", "text"),
            agreement=found["agreement"]
            and Agreement(tuple(found["agreement"]["methods"]), tuple(map(tuple, found["agreement"]["tau"]))),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadArtifact(f"{where} is no table of a benchmark: {error!r}") from error


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadArtifact(f"{path} cannot be read: {error}") from error
