"""best_method: which method to use for a model, by what was measured; from a stored benchmark, or from a small one."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.bench.folder import read_table, table_json
from whichtoken.bench.protocol import protocol
from whichtoken.bench.run import compare
from whichtoken.bench.selection import able, usual_methods
from whichtoken.core.registry import method, method_names
from whichtoken.data import read_examples
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.models import Subject
from whichtoken.models.loading import DEFAULT
from whichtoken.tables import BenchTable, Line

NORMALISED, PLAIN, MASKED = "normalised-aopc delete morf tenths", "aopc delete morf tenths", "aopc mask morf tenths"
RANKED_BY = {NORMALISED: "normalised AOPC", PLAIN: "AOPC"}
SMALL = 12  # texts of a small benchmark
SHIPPED = DEFAULT / "benchmark.json"


@dataclass(frozen=True)
class Choice:
    method: str
    why: str


def best_method(subject: Subject, texts: Any = (), benchmark: str | Path | None = None) -> Choice:
    """The method with the highest mean normalised AOPC; one that searched on deletions must also lead by mask.

    From `benchmark`, a folder that `compare(out=...)` made; else from what is stored for this model; else from a small
    benchmark on a few of the texts (which may be what `compare` takes), which is then stored.
    """
    table, origin = _stored(subject, benchmark)
    names = [name for name in method_names() if able(subject, method(name))]
    if table is None:
        given = [example.texts for example in islice(read_examples(texts), SMALL)]
        if not given:
            raise UsageError("there is no stored benchmark of this model; give texts to make a small one on")
        perturbations = ("delete",) if subject.fillers.mask is None else ("delete", "mask")
        how = protocol(perturbations=perturbations, metrics=("aopc", "normalised-aopc"), orders=("morf",), min_tokens=1)
        table = compare(subject, given, protocol=how)
        origin = f"a small benchmark on {len(given)} text{'s' * (len(given) != 1)}"
        found = choose(table, origin, names)  # a table that nothing can be chosen from must not be stored
        _store(subject, table)
        return found
    return choose(table, origin, names)


def choose(table: BenchTable, origin: str, names: Sequence[str]) -> Choice:
    """Controls explain nothing, so they are never chosen. Where no text was short enough for bounds: by plain AOPC."""
    lines = [line for line in table.lines if not line.control and line.method in names]
    column, title = next(
        ((c, title) for c, title in RANKED_BY.items() if any(c in line.cells for line in lines)), (None, "")
    )
    if column is None:
        raise UsageError(f"{origin} has no AOPC of a method that this model can run; make one: whichtoken bench")
    there = sorted((line for line in lines if column in line.cells), key=lambda line: -line.cells[column].mean)
    honest = [line for line in there if not line.searched]
    best = next(line for line in there if not line.searched or not honest or _leads_by_mask(line, honest))
    found = best.cells[column]
    why = f"{best.method} has the highest {title}, {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}], in {origin}"
    passed = [line.method for line in there[: there.index(best)]]
    if passed:
        why += f"; higher, but searched on deletions, and not known to lead by mask: {', '.join(passed)}"
    return Choice(best.method, why)


def _leads_by_mask(line: Line, honest: Sequence[Line]) -> bool:
    """Where it did not search, it must be ahead of all that did not search at all."""
    if any(MASKED not in one.cells for one in (line, *honest)):
        return False
    return all(line.cells[MASKED].mean > other.cells[MASKED].mean for other in honest)


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
        write_whole(where, table_json(replace(table, trends=())))
    except (OSError, UsageError):
        return  # a home that cannot be written to: measured again next time


def _place(subject: Subject) -> Path:
    """For this model, and for what it could run: with a reference library more methods can be measured."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    what = repr((subject.fingerprint(), usual_methods(subject)))
    return cache / "whichtoken" / "benchmarks" / f"{hashlib.sha256(what.encode()).hexdigest()[:24]}.json"
