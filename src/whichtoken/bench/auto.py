"""best_method: choose the most faithful method for a model from a stored benchmark, or from a small new one.

`remember` stores a benchmark for it.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.bench._protocol import protocol
from whichtoken.bench._run import gather, prepare, run_sample
from whichtoken.bench.folder import read_table, table_json
from whichtoken.bench.selection import default_methods
from whichtoken.bench.verdict import main_columns, rank
from whichtoken.core.registry import method, method_names
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.identity import read_identity
from whichtoken.models import AnySubject, Subject, as_subject
from whichtoken.models.loading import DEFAULT
from whichtoken.tables import BenchTable
from whichtoken.tasks import task_for

SMALL = 12  # number of inputs of a small benchmark
SHIPPED = DEFAULT / "benchmark.json"
OWN, OF_MODEL = "a stored benchmark", "the benchmark that comes with whichtoken"


@dataclass(frozen=True)
class BestMethod:
    method: str
    why: str


def best_method(subject: AnySubject, texts: Any = (), benchmark: str | Path | None = None) -> BestMethod:
    """Return the method with the highest mean normalised AOPC; one tuned on deletion must also lead by mask.

    The numbers come from `benchmark`, a folder written by `bench.run(out=...)`; else from the benchmark stored for
    this model (by `remember`, or with the default model; the larger one); else from a small benchmark on a few of the
    inputs, which is then stored.
    """
    opened = as_subject(subject)
    table, origin = _read_stored(opened, benchmark)
    task = task_for(opened)
    names = [name for name in method_names() if task.can_run(method(name)) is None]
    if table is None:
        examples = list(islice(task.examples(texts, None, None), SMALL))
        if not examples:
            raise UsageError(f"there is no stored benchmark of this model; pass {task.unit}s to run a small one on")
        how = protocol(metrics=("aopc", "normalised-aopc"), orders=("morf",), min_tokens=1, further_levels=())
        bench = prepare(opened, None, how)
        table = run_sample(bench, gather(bench, examples), None, {})
        origin = f"a small benchmark on {len(examples)} {task.unit}{'s' * (len(examples) != 1)}"
        choice = choose(table, origin, names)  # first: a table without a usable method must not be stored
        _store(opened, table)
        return choice
    return choose(table, origin, names)


def choose(table: BenchTable, origin: str, names: Sequence[str]) -> BestMethod:
    """Choose the best line that is not a control; by plain AOPC if no input was short enough for bounds."""
    ranking = rank(table, main_columns(table), names)
    if ranking is None:
        raise UsageError(f"{origin} has no AOPC for a method that this model supports; run whichtoken bench")
    method, cell = ranking.best.method, ranking.cell
    why = f"{method} has the highest {ranking.title}, {cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}], in {origin}"
    if rejected := [line.method for line in ranking.rejected]:
        why += f"; higher, but tuned on deletion and not known to lead by mask: {', '.join(rejected)}"
    return BestMethod(method, why)


def remember(subject: Subject, table: BenchTable) -> str:
    """Store a benchmark for `best_method` unless it knows a larger one; return what it will use.

    "" if the table cannot serve: it needs AOPC of every method that a quick benchmark measures.
    """
    task = task_for(subject)
    measured = {line.method for line in table.lines if any(c.name in line.cells for c in main_columns(table))}
    if not measured.issuperset(default_methods(task, effort="quick")):
        return ""
    known, name = _largest_stored(subject)
    if known is not None and _size(known) > _size(table):
        return f"{name}, which is larger"
    return OWN if _store(subject, table) else ""


def _size(table: BenchTable) -> tuple[int, int]:
    """Return how many inputs were measured, and how many methods: of two tables, the one with more inputs is larger."""
    cells = [
        line.cells[column.name].n for column in main_columns(table) for line in table.lines if column.name in line.cells
    ]
    return max(cells, default=0), len(table.lines)


def _read_stored(subject: Subject, benchmark: str | Path | None) -> tuple[BenchTable | None, str]:
    if benchmark is not None:
        table = read_table(benchmark)
        facts = dict(table.facts)
        if change := read_identity(facts).describe_change(subject.title, subject.identity()):
            raise UsageError(f"{benchmark} is a benchmark of {facts.get('model')}, not of this model: {change}")
        if table.reading != (reading := task_for(subject).reading()):
            raise UsageError(f"{benchmark} measures a {table.reading}, but {subject.title} is read as a {reading}")
        return table, f"{benchmark}{read_identity(facts).note}"
    stored, name = _largest_stored(subject)
    if stored is None:
        return None, ""
    facts = dict(stored.facts)
    return stored, f"{name} ({facts.get(f'{stored.unit}s', 'size unknown')}{read_identity(facts).note})"


def _largest_stored(subject: Subject) -> tuple[BenchTable | None, str]:
    """Return the larger of the benchmark that comes with this model and the user's own, and what it is called."""
    identity, found = subject.identity(), list[tuple[BenchTable, str]]()
    for where, name in ((SHIPPED, OF_MODEL), (_cache_path(subject), OWN)):
        try:
            stored = read_table(where) if where.is_file() else None
        except BadArtifact:  # written by another version: measured again
            stored = None
        if stored is not None and read_identity(dict(stored.facts)).fits(identity):
            found.append((stored, name))
    return max(found, key=lambda known: _size(known[0]), default=(None, ""))


def _store(subject: Subject, table: BenchTable) -> bool:
    """Write a table to the user's cache; return whether that was possible."""
    where = _cache_path(subject)
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        write_whole(where, table_json(replace(table, trends=())))
    except (OSError, UsageError):
        return False  # the cache is not writable: measured again next time
    return True


def _cache_path(subject: Subject) -> Path:
    """Return the cache file for this model and the methods it supports, which a reference library may extend."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    task = task_for(subject)
    reading = () if task.reading() == "probability" else (task.reading(),)
    identity = repr((subject.fingerprint(), default_methods(task), *reading))
    return cache / "whichtoken" / "benchmarks" / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"
