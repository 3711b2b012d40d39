"""The folder of a benchmark: what was asked, each finished part, and in the end the table, curves, figures, report."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import opened_whole, write_whole
from whichtoken.bench.results import InputResult, MethodResult, Part, read_part
from whichtoken.decode import decode, read_json
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.render.bench_table import markdown
from whichtoken.tables import BenchTable

SCHEMA = 3
SPEC, TABLE, RESULTS, REPORT, MARKDOWN = "spec.json", "table.json", "results.parquet", "report.html", "table.md"


@dataclass(frozen=True)
class Kept:
    """A part that was kept, and the number of its last input."""

    last: int
    part: Part


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

    def longest_part(self, first: int, last: int) -> Kept | None:
        """What was kept of these inputs: of all of them, or of the first ones when the sample was smaller."""
        found = sorted((self.path / "parts").glob(f"{first:06d}-*.json"))
        ends = {int(path.stem.partition("-")[2]): path for path in found}
        fitting = [end for end in ends if end <= last]
        if not fitting:
            return None
        where = ends[max(fitting)]
        return Kept(max(fitting), read_part(read_json(where), where))

    def keep_part(self, first: int, last: int, part: Part) -> None:
        where = self.path / "parts" / f"{first:06d}-{last:06d}.json"
        write_whole(where, json.dumps(asdict(part), ensure_ascii=False))

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
    from whichtoken.render import charts

    if table.trends:
        charts.curves(table, folder / "curves.png")
    if table.agreement is not None:
        charts.agreement(table.agreement, folder / "agreement.png")


def draw_variants(table: BenchTable, folder: Path) -> None:
    """The first column, variant by variant, where matplotlib is installed."""
    if find_spec("matplotlib") is not None:
        from whichtoken.render import charts

        charts.variants(table, table.columns[0].name, folder / "variants.png")


def check_tools() -> None:
    """Before long work, not after it."""
    if find_spec("pyarrow") is None:
        raise UsageError(
            "a benchmark keeps its results in a parquet file, which needs pyarrow: pip install 'whichtoken[bench]'"
        )


def result_rows(inputs: Iterable[InputResult]) -> list[dict[str, Any]]:
    """For `results.parquet`: every curve in a row; where no curves were drawn, a row for each input and method."""
    return [
        {**_about(one, name, result), **curve}
        for one in inputs
        for name, result in one.methods.items()
        for curve in ([*_curves(one, result)] if one.plans else [{}])
    ]


def _about(one: InputResult, name: str, result: MethodResult) -> dict[str, Any]:
    truth = one.truth
    return {
        "number": one.number,
        "row": one.row,
        "id": one.id,
        "key": one.key,
        "label": one.label,
        "n_tokens": one.n_tokens,
        "n_cut": one.n_cut,
        "method": name,
        "tuned_on_deletion": result.tuned_on_deletion,
        **result.values,
        **({} if truth is None else {"length": truth.n_tokens, "cut_off": truth.cut_off, "right": truth.right}),
        "seconds": result.seconds,
        "evaluations": result.evaluations,
    }


def _curves(one: InputResult, result: MethodResult) -> Iterator[dict[str, Any]]:
    for held, probability in zip(one.plans, result.curves, strict=True):
        yield {
            "perturbation": held.plan.perturbation,
            "order": held.plan.order,
            "grid": held.plan.grid,
            "level": held.plan.level,
            "removed": list(held.removed),
            "probability": list(probability),
            "lower": held.lower,
            "upper": held.upper,
        }


def _write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with opened_whole(path) as file:
        parquet.write_table(pa.Table.from_pylist(list(rows)), file, compression="zstd")


def read_spec(path: Path) -> dict[str, Any]:
    found = read_json(path)
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
    found = read_json(where)
    if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA:
        raise BadArtifact(f"{where} is no table of a benchmark, schema {SCHEMA}")
    try:
        return decode(BenchTable, found)
    except BadArtifact as error:
        raise BadArtifact(f"{where} is no table of a benchmark: {error}") from error
