"""The folder of a benchmark: its specification, the finished parts, and finally table, curves, figures and report."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import open_whole, write_whole
from whichtoken.bench.results import COVERAGE, FIX, InputResult, MethodResult, Part, read_part
from whichtoken.boundary import while_reading
from whichtoken.decode import decode, read_json
from whichtoken.errors import BadArtifact, NotFinite, UsageError
from whichtoken.jobs.parts import Claim, PartFiles, check_hash, hash_content, seal, unseal
from whichtoken.jobs.parts import read_spec as read_job_spec
from whichtoken.render.bench_table import markdown
from whichtoken.tables import SCHEMA, BenchTable, check_table

PARTS = "parts"
SPEC, TABLE, RESULTS, REPORT, MARKDOWN = "spec.json", "table.json", "results.parquet", "report.html", "table.md"


@dataclass(frozen=True)
class Kept:
    """A saved part, with its file and the number of its last input."""

    path: Path
    last: int
    part: Part

    def check_complete(self, expected: Mapping[int, tuple[int, Collection[str]]], *, may_skip: bool) -> None:
        """Raise BadArtifact unless the part holds the expected inputs, measured with the expected methods.

        `expected`: by number, the row in the data and the methods. `may_skip`: the protocol skips improbable inputs.
        """
        numbers = [record.number for record in self.part.inputs]
        wanted = [number for number in expected if number <= self.last and (not may_skip or number in numbers)]
        if numbers != wanted:
            raise self._error(f"it holds the inputs {numbers!r:.60}, expected {wanted!r:.60}")
        for record in self.part.inputs:
            row, methods = expected[record.number]
            if record.row != row:
                raise self._error(f"input {record.number} is row {record.row} of the data, expected row {row}")
            if differing := sorted(set(methods) ^ set(record.methods)):
                raise self._error(
                    f"input {record.number} and the specification differ in methods: {', '.join(differing):.100}"
                )

    def _error(self, why: str) -> BadArtifact:
        return BadArtifact(f"{self.path} is not a complete part of this benchmark: {why}; {FIX}")


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
        Claim(SPEC, SCHEMA, "benchmark", PARTS, spec, size).take(self.path)

    @property
    def _parts(self) -> PartFiles:
        return PartFiles(self.path / PARTS, ".json", "a benchmark", FIX)

    def longest_part(self, first: int, last: int) -> Kept | None:
        """Return the longest saved part that starts at `first`; it may be shorter if the sample was smaller."""
        found = self._parts.longest(first, last)
        return None if found is None else Kept(found[1], found[0], _read_part(found[1]))

    def save_part(self, first: int, last: int, part: Part) -> None:
        """Save a part with a hash of its content, which is checked when the run is resumed."""
        try:
            text = seal(asdict(part))
        except ValueError as error:
            raise NotFinite(f"a result of inputs {first} to {last} is NaN or infinite") from error
        write_whole(self._parts.path(first, last), text)

    def finish(self, table: BenchTable, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write all results; `rows` go into `results.parquet`."""
        from whichtoken.render.report import curves_png, report_page

        curves = curves_png(table)
        write_whole(self.path / MARKDOWN, markdown(table))
        _write_rows(rows, self.path / RESULTS)
        write_whole(self.path / REPORT, report_page(table, curves))
        _write_figures(table, curves, self.path)
        write_whole(self.path / TABLE, table_json(table))  # last, because it makes the benchmark a finished one


def _write_figures(table: BenchTable, curves: bytes, folder: Path) -> None:
    """Write the figures if matplotlib is installed; if not, the report says so."""
    if curves:
        write_whole(folder / "curves.png", curves)
    if table.agreement is not None and find_spec("matplotlib") is not None:
        from whichtoken.render import charts

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
    inputs = list(inputs)
    names = [key for record in inputs for result in record.methods.values() for key in result.values]
    blank = dict.fromkeys(names)  # in every row, as the first one decides which columns there are
    return [
        {**_input_fields(record, name, result, blank), **curve}
        for record in inputs
        for name, result in record.methods.items()
        for curve in ([*_curve_fields(record, result)] if record.plans else [{}])
    ]


def _input_fields(record: InputResult, name: str, result: MethodResult, blank: Mapping[str, None]) -> dict[str, Any]:
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
        COVERAGE: None,
        **blank,
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


def _read_part(path: Path) -> Part:
    """Return a part whose content has the hash that it was saved with."""
    stored, claimed = unseal(read_json(path))
    part = read_part(stored, path)
    check_hash(path, claimed, hash_content(stored), FIX)
    return part


def read_spec(path: Path) -> dict[str, Any]:
    return read_job_spec(path, "benchmark", SCHEMA)


def table_json(table: BenchTable) -> str:
    return table.to_json()


def _add_defaults(stored: dict[str, Any], key: str, defaults: Mapping[str, Any]) -> None:
    """Add to each object of a list what tables of other versions leave out."""
    if isinstance(stored.get(key), list):
        stored[key] = [{**defaults, **part} if isinstance(part, dict) else part for part in stored[key]]


def read_table(path: str | Path) -> BenchTable:
    """Return the table of a finished benchmark. `path`: its folder, or the table file."""
    where = Path(path).expanduser()
    where = where / TABLE if where.is_dir() else where
    if not where.is_file():
        raise UsageError(f"there is no finished benchmark at {where}; run whichtoken bench --out FOLDER")
    stored = read_json(where)
    if not isinstance(stored, dict) or stored.pop("schema", None) != SCHEMA:
        raise BadArtifact(f"{where} is not a benchmark table of schema {SCHEMA}")
    with while_reading(f"{where} is not a benchmark table"):
        _add_defaults(stored, "trends", {"low": {}, "high": {}})
        _add_defaults(stored, "lines", {"tuned_on_mask": False})
        table = decode(BenchTable, {"reading": "probability", "verdict": "", **stored})
        check_table(table)
    return table
