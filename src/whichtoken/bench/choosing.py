"""best_method: which method to use for a model, by what was measured; from a stored benchmark, or from a small one."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from whichtoken.bench.files import read_table
from whichtoken.bench.protocols import protocol
from whichtoken.bench.running import compare
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.models import Subject
from whichtoken.models.loading import DEFAULT
from whichtoken.registry import method, method_names
from whichtoken.tables import BenchTable, Line
from whichtoken.trace import Ask, Method
from whichtoken.writing import write_whole

NORMALISED, MASKED = "normalised-aopc delete morf tenths", "aopc mask morf tenths"
SMALL = 12  # texts of a small benchmark
SHIPPED = DEFAULT / "benchmark.json"


@dataclass(frozen=True)
class Choice:
    method: str
    why: str


def usual_methods(subject: Subject) -> list[str]:
    """What a benchmark runs when nothing else is asked for: what the model can run, without what asks it very often."""
    return [name for name in method_names() if not _dear(method(name)) and able(subject, method(name))]


def _dear(built: Method) -> bool:
    """Integrated gradients and TIS: dozens of passes, or hundreds of texts with tokens taken out."""
    asks = built.needs.asks
    return Ask.REMOVALS in asks or (Ask.PASSES in asks and Ask.HEADS not in asks)


def able(subject: Subject, built: Method) -> bool:
    lacking = {Ask.REFERENCES: subject.references is None, Ask.HEADS: subject.heads is None}
    return not any(lacking.get(ask, False) and built.settings.get(str(ask)) is None for ask in built.needs.asks)


def best_method(subject: Subject, texts: Iterable[Any] = (), benchmark: str | Path | None = None) -> Choice:
    """The method with the highest mean normalised AOPC; one that searched on deletions must also lead by mask.

    From `benchmark`, a folder that `compare(out=...)` made; else from what is stored for this model; else from a small
    benchmark on a few of the texts, which is then stored.
    """
    table, origin = _stored(subject, benchmark)
    names = [name for name in method_names() if able(subject, method(name))]
    if table is None:
        given = list(texts)[:SMALL]
        if not given:
            raise UsageError("there is no stored benchmark of this model; give texts to make a small one on")
        perturbations = ("delete",) if subject.fillers.mask is None else ("delete", "mask")
        how = protocol(perturbations=perturbations, metrics=("aopc", "normalised-aopc"), orders=("morf",), min_tokens=1)
        table = compare(subject, given, usual_methods(subject), protocol=how)
        origin = f"a small benchmark on {len(given)} text{'s' * (len(given) != 1)}"
        found = choose(table, origin, names)  # a table that nothing can be chosen from must not be stored
        _store(subject, table)
        return found
    return choose(table, origin, names)


def choose(table: BenchTable, origin: str, names: Sequence[str]) -> Choice:
    """Controls explain nothing, so they are never chosen."""
    there = [line for line in table.lines if not line.control and line.method in names and NORMALISED in line.cells]
    if not there:
        raise UsageError(f"{origin} has no normalised AOPC of a method that this model can run")
    there.sort(key=lambda line: -line.cells[NORMALISED].mean)
    honest = next((line for line in there if not line.searched), None)
    best = next(line for line in there if not line.searched or honest is None or _leads_by_mask(line, honest))
    found = best.cells[NORMALISED]
    measured = f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
    why = f"{best.method} has the highest normalised AOPC, {measured}, in {origin}"
    passed = [line.method for line in there[: there.index(best)]]
    if passed:
        why += f"; {', '.join(passed)} searched on deletions and did not lead by mask as well"
    return Choice(best.method, why)


def _leads_by_mask(line: Line, other: Line) -> bool:
    return MASKED in line.cells and MASKED in other.cells and line.cells[MASKED].mean > other.cells[MASKED].mean


def _stored(subject: Subject, benchmark: str | Path | None) -> tuple[BenchTable | None, str]:
    revision = subject.fingerprint()
    if benchmark is not None:
        given = read_table(benchmark)
        if dict(given.facts).get("revision") != revision:
            raise UsageError(f"{benchmark} is a benchmark of {dict(given.facts).get('model')}, not of this model")
        return given, f"{benchmark}"
    for where, name in ((SHIPPED, "the benchmark that comes with whichtoken"), (_place(subject), "a stored benchmark")):
        try:
            table = read_table(where) if where.is_file() else None
        except BadArtifact:  # of another version: made again
            table = None
        if table is not None and dict(table.facts).get("revision") == revision:
            return table, f"{name} ({dict(table.facts)['texts']})"
    return None, ""


def _store(subject: Subject, table: BenchTable) -> None:
    where = _place(subject)
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        write_whole(where, json.dumps(asdict(replace(table, trends=())), ensure_ascii=False))
    except (OSError, UsageError):
        return  # a home that cannot be written to: measured again next time


def _place(subject: Subject) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (
        cache / "whichtoken" / "benchmarks" / f"{hashlib.sha256(subject.fingerprint().encode()).hexdigest()[:24]}.json"
    )
