"""best_method: choose the most faithful method for a model from a stored benchmark, or from a small new one."""

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
from whichtoken.core.registry import method, method_names
from whichtoken.errors import BadArtifact, UsageError
from whichtoken.models import AnySubject, Subject, as_subject
from whichtoken.models.loading import DEFAULT
from whichtoken.records import Plan
from whichtoken.tables import BenchTable, Column, Line
from whichtoken.tasks import task_for

RANKED_BY = {"normalised-aopc": "normalised AOPC", "aopc": "AOPC"}  # by the first of these that the table has
MAIN = ("delete", "black")  # methods are ranked by these removals
MASKED = Plan("mask")
SMALL = 12  # number of inputs of a small benchmark
SHIPPED = DEFAULT / "benchmark.json"


@dataclass(frozen=True)
class BestMethod:
    method: str
    why: str


def best_method(subject: AnySubject, texts: Any = (), benchmark: str | Path | None = None) -> BestMethod:
    """Return the method with the highest mean normalised AOPC; one tuned on deletion must also lead by mask.

    The numbers come from `benchmark`, a folder written by `bench.run(out=...)`; else from the benchmark stored for
    this model; else from a small benchmark on a few of the inputs, which is then stored.
    """
    opened = as_subject(subject)
    table, origin = _read_stored(opened, benchmark)
    task = task_for(opened)
    names = [name for name in method_names() if task.can_run(method(name)) is None]
    if table is None:
        examples = list(islice(task.examples(texts, None, None), SMALL))
        if not examples:
            raise UsageError(f"there is no stored benchmark of this model; pass {task.unit}s to run a small one on")
        how = protocol(metrics=("aopc", "normalised-aopc"), orders=("morf",), min_tokens=1)
        bench = prepare(opened, None, how)
        table = run_sample(bench, gather(bench, examples), None, {})
        origin = f"a small benchmark on {len(examples)} {task.unit}{'s' * (len(examples) != 1)}"
        choice = choose(table, origin, names)  # first: a table without a usable method must not be stored
        _store(opened, table)
        return choice
    return choose(table, origin, names)


def choose(table: BenchTable, origin: str, names: Sequence[str]) -> BestMethod:
    """Choose the best line that is not a control; by plain AOPC if no input was short enough for bounds."""
    lines = [line for line in table.lines if not line.control and line.method in names]
    known = [(c.name, title) for metric, title in RANKED_BY.items() for c in table.columns if _is_main(c, metric)]
    column, title = next(((c, t) for c, t in known if any(c in line.cells for line in lines)), (None, ""))
    if column is None:
        raise UsageError(f"{origin} has no AOPC for a method that this model supports; run whichtoken bench")
    ranked = sorted((line for line in lines if column in line.cells), key=lambda line: -line.cells[column].mean)
    untuned = [line for line in ranked if not line.tuned_on_deletion]
    masked = next((c.name for c in table.columns if c.metric == "aopc" and c.plan == MASKED), None)
    best = next(line for line in ranked if not line.tuned_on_deletion or not untuned or _leads(line, untuned, masked))
    cell = best.cells[column]
    why = f"{best.method} has the highest {title}, {cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}], in {origin}"
    rejected = [line.method for line in ranked[: ranked.index(best)]]
    if rejected:
        why += f"; higher, but tuned on deletion and not known to lead by mask: {', '.join(rejected)}"
    return BestMethod(best.method, why)


def _is_main(column: Column, metric: str) -> bool:
    """Whether the column holds this metric for the main removal, MoRF."""
    plan = column.plan
    main = plan is not None and (plan.order, plan.grid, plan.perturbation) in (("morf", "tenths", how) for how in MAIN)
    return column.metric == metric and main


def _leads(line: Line, untuned: Sequence[Line], masked: str | None) -> bool:
    """Whether a tuned method beats every untuned one by mask, which it was not tuned on."""
    if masked is None or any(masked not in other.cells for other in (line, *untuned)):
        return False
    return all(line.cells[masked].mean > other.cells[masked].mean for other in untuned)


def _read_stored(subject: Subject, benchmark: str | Path | None) -> tuple[BenchTable | None, str]:
    revision = subject.fingerprint()
    if benchmark is not None:
        table = read_table(benchmark)
        if dict(table.facts).get("revision") != revision:
            raise UsageError(f"{benchmark} is a benchmark of {dict(table.facts).get('model')}, not of this model")
        if table.reading != (reading := task_for(subject).reading()):
            raise UsageError(f"{benchmark} measures a {table.reading}, but {subject.title} is read as a {reading}")
        return table, f"{benchmark}"
    for where, name in (
        (SHIPPED, "the benchmark that comes with whichtoken"),
        (_cache_path(subject), "a stored benchmark"),
    ):
        try:
            stored = read_table(where) if where.is_file() else None
        except BadArtifact:  # written by another version: measured again
            stored = None
        if stored is not None and dict(stored.facts).get("revision") == revision:
            return stored, f"{name} ({dict(stored.facts).get(f'{stored.unit}s', 'size unknown')})"
    return None, ""


def _store(subject: Subject, table: BenchTable) -> None:
    where = _cache_path(subject)
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        write_whole(where, table_json(replace(table, trends=())))
    except (OSError, UsageError):
        return  # the cache is not writable: measured again next time


def _cache_path(subject: Subject) -> Path:
    """Return the cache file for this model and the methods it supports, which a reference library may extend."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    task = task_for(subject)
    reading = () if task.reading() == "probability" else (task.reading(),)
    identity = repr((subject.fingerprint(), default_methods(task), *reading))
    return cache / "whichtoken" / "benchmarks" / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"
