"""The folder of a benchmark: its specification, the finished parts, and finally table, curves, figures and report."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import open_whole, write_whole
from whichtoken.bench.results import InputResult, MethodResult, Part, read_part
from whichtoken.decode import decode, read_json
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.render.bench_table import markdown
from whichtoken.tables import BenchTable

SCHEMA = 3
SPEC, TABLE, RESULTS, REPORT, MARKDOWN = "spec.json", "table.json", "results.parquet", "report.html", "table.md"


@dataclass(frozen=True)
class Kept:
    """A saved part, with the number of its last input."""

    last: int
    part: Part


@dataclass(frozen=True)
class Folder:
    path: Path

    @classmethod
    def at(cls, path: str | Path | None) -> "Folder | None":
        return None if path is None else cls(Path(path).expanduser())

    def claim(self, spec: Mapping[str, Any], size: Mapping[str, Any]) -> None:
        """Start a run here, or resume it if the specification is the same; raise UsageError if it differs.

        `size`: entries that may differ, because finished parts stay valid.
        """
        requested = json.loads(json.dumps({"schema": SCHEMA, **spec}))
        where = self.path / SPEC
        if where.exists():
            stored = read_spec(where)
            differing = [
                k for k in sorted(requested.keys() | stored.keys() - size) if stored.get(k) != requested.get(k)
            ]
            if differing:
                changes = "; ".join(f"{k} was {stored.get(k)!r:.60}, now {requested.get(k)!r:.60}" for k in differing)
                raise UsageError(f"{self.path} holds another benchmark ({changes}); choose another folder")
        elif self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is a file; give the name of a folder")
        elif self.path.exists() and any(not path.name.startswith(".") for path in self.path.iterdir()):
            raise UsageError(f"{self.path} holds other files; choose an empty or new folder")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(where, json.dumps({**requested, **size}, indent=1, ensure_ascii=False) + "\n")
            (self.path / "parts").mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be created: {error.strerror or error}") from error

    def longest_part(self, first: int, last: int) -> Kept | None:
        """Return the longest saved part that starts at `first`; it may be shorter if the sample was smaller."""
        paths = sorted((self.path / "parts").glob(f"{first:06d}-*.json"))
        ends = {int(path.stem.partition("-")[2]): path for path in paths}
        fitting = [end for end in ends if end <= last]
        if not fitting:
            return None
        where = ends[max(fitting)]
        return Kept(max(fitting), read_part(read_json(where), where))

    def save_part(self, first: int, last: int, part: Part) -> None:
        where = self.path / "parts" / f"{first:06d}-{last:06d}.json"
        write_whole(where, json.dumps(asdict(part), ensure_ascii=False))

    def finish(self, table: BenchTable, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write all results; `rows` go into `results.parquet`."""
        from whichtoken.render.report import to_report

        write_whole(self.path / TABLE, table_json(table))
        write_whole(self.path / MARKDOWN, markdown(table))
        _write_rows(rows, self.path / RESULTS)
        to_report(table, self.path / REPORT)
        _draw_figures(table, self.path)


def _draw_figures(table: BenchTable, folder: Path) -> None:
    """Draw the figures if matplotlib is installed; if not, the report says so."""
    if find_spec("matplotlib") is None:
        return
    from whichtoken.render import charts

    if table.trends:
        charts.curves(table, folder / "curves.png")
    if table.agreement is not None:
        charts.agreement(table.agreement, folder / "agreement.png")


def draw_variants(table: BenchTable, folder: Path) -> None:
    """Draw the first column for every variant, if matplotlib is installed."""
    if find_spec("matplotlib") is not None:
        from whichtoken.render import charts

        charts.variants(table, table.columns[0].name, folder / "variants.png")


def check_tools() -> None:
    """Raise UsageError if pyarrow is missing; called before any long work."""
    if find_spec("pyarrow") is None:
        raise UsageError("a benchmark writes a parquet file, which needs pyarrow: pip install 'whichtoken[bench]'")


def result_rows(inputs: Iterable[InputResult]) -> list[dict[str, Any]]:
    """Return the rows of `results.parquet`: one per curve, or one per input and method if there are no curves."""
    return [
        {**_input_fields(record, name, result), **curve}
        for record in inputs
        for name, result in record.methods.items()
        for curve in ([*_curve_fields(record, result)] if record.plans else [{}])
    ]


def _input_fields(record: InputResult, name: str, result: MethodResult) -> dict[str, Any]:
    truth = record.truth
    return {
        "number": record.number,
        "row": record.row,
        "id": record.id,
        "key": record.key,
        "label": record.label,
        "n_tokens": record.n_tokens,
        "n_cut": record.n_cut,
        "method": name,
        "tuned_on_deletion": result.tuned_on_deletion,
        **result.values,
        **({} if truth is None else {"length": truth.n_tokens, "cut_off": truth.cut_off, "right": truth.right}),
        "seconds": result.seconds,
        "evaluations": result.evaluations,
    }


def _curve_fields(record: InputResult, result: MethodResult) -> Iterator[dict[str, Any]]:
    for planned, outputs in zip(record.plans, result.curves, strict=True):
        yield {
            "perturbation": planned.plan.perturbation,
            "order": planned.plan.order,
            "grid": planned.plan.grid,
            "level": planned.plan.level,
            "removed": list(planned.removed),
            record.reading: list(outputs),
            "lower": planned.lower,
            "upper": planned.upper,
        }


def _write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with open_whole(path) as file:
        parquet.write_table(pa.Table.from_pylist(list(rows)), file, compression="zstd")


def read_spec(path: Path) -> dict[str, Any]:
    spec = read_json(path)
    if not isinstance(spec, dict) or spec.get("schema") != SCHEMA:
        raise BadArtifact(f"{path} is not a benchmark specification of schema {SCHEMA}")
    return spec


def table_json(table: BenchTable) -> str:
    values = {"schema": SCHEMA, **asdict(table)}
    if table.reading == "probability":
        del values["reading"]  # so that older versions can read the tables of classifiers
    return json.dumps(values, ensure_ascii=False) + "\n"


def read_table(path: str | Path) -> BenchTable:
    """Return the table of a finished benchmark. `path`: its folder, or the table file."""
    where = Path(path).expanduser()
    where = where / TABLE if where.is_dir() else where
    if not where.is_file():
        raise UsageError(f"there is no finished benchmark at {where}; run whichtoken bench --out FOLDER")
    stored = read_json(where)
    if not isinstance(stored, dict) or stored.pop("schema", None) != SCHEMA:
        raise BadArtifact(f"{where} is not a benchmark table of schema {SCHEMA}")
    try:
        return decode(BenchTable, {"reading": "probability", **stored})
    except BadArtifact as error:
        raise BadArtifact(f"{where} is not a benchmark table: {error}") from error
