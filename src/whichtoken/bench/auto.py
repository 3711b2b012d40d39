"""best_method: which method to use for a model, by what was measured; from a stored benchmark, or from a small one."""

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
from whichtoken.models import Subject
from whichtoken.models.loading import DEFAULT
from whichtoken.records import Plan
from whichtoken.tables import BenchTable, Column, Line
from whichtoken.tasks import task_for

RANKED_BY = {"normalised-aopc": "normalised AOPC", "aopc": "AOPC"}  # the first that a table has
MAIN = ("delete", "black")  # removals that methods are ranked by
MASKED = Plan("mask")
SMALL = 12  # inputs of a small benchmark
SHIPPED = DEFAULT / "benchmark.json"


@dataclass(frozen=True)
class BestMethod:
    method: str
    why: str


def best_method(subject: Subject, texts: Any = (), benchmark: str | Path | None = None) -> BestMethod:
    """The method with the highest mean normalised AOPC; one that was tuned on deletion must also lead by mask.

    From `benchmark`, a folder that `bench.run(out=...)` made; else from what is stored for this model; else from a
    small benchmark on a few of the inputs, which is then stored.
    """
    table, origin = _stored(subject, benchmark)
    task = task_for(subject)
    names = [name for name in method_names() if task.can_run(method(name)) is None]
    if table is None:
        given = list(islice(task.examples(texts, None, None), SMALL))
        if not given:
            raise UsageError(f"there is no stored benchmark of this model; give {task.unit}s to make a small one on")
        how = protocol(metrics=("aopc", "normalised-aopc"), orders=("morf",), min_tokens=1)
        bench = prepare(subject, None, how)
        table = run_sample(bench, gather(bench, given), None, {})
        origin = f"a small benchmark on {len(given)} {task.unit}{'s' * (len(given) != 1)}"
        found = choose(table, origin, names)  # a table that nothing can be chosen from must not be stored
        _store(subject, table)
        return found
    return choose(table, origin, names)


def choose(table: BenchTable, origin: str, names: Sequence[str]) -> BestMethod:
    """Controls explain nothing, so they are never chosen. Where no text was short enough for bounds: by plain AOPC."""
    lines = [line for line in table.lines if not line.control and line.method in names]
    known = [(c.name, title) for metric, title in RANKED_BY.items() for c in table.columns if _is_main(c, metric)]
    column, title = next(((c, t) for c, t in known if any(c in line.cells for line in lines)), (None, ""))
    if column is None:
        raise UsageError(f"{origin} has no AOPC of a method that this model can run; make one: whichtoken bench")
    there = sorted((line for line in lines if column in line.cells), key=lambda line: -line.cells[column].mean)
    honest = [line for line in there if not line.tuned_on_deletion]
    masked = next((c.name for c in table.columns if c.metric == "aopc" and c.plan == MASKED), None)
    best = next(line for line in there if not line.tuned_on_deletion or not honest or _leads(line, honest, masked))
    found = best.cells[column]
    why = f"{best.method} has the highest {title}, {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}], in {origin}"
    passed = [line.method for line in there[: there.index(best)]]
    if passed:
        why += f"; higher, but tuned on deletions, and not known to lead by mask: {', '.join(passed)}"
    return BestMethod(best.method, why)


def _is_main(column: Column, metric: str) -> bool:
    """By the usual removal, the most relevant first."""
    plan = column.plan
    main = plan is not None and (plan.order, plan.grid, plan.perturbation) in (("morf", "tenths", how) for how in MAIN)
    return column.metric == metric and main


def _leads(line: Line, honest: Sequence[Line], masked: str | None) -> bool:
    """Where it did not search, by mask, it must be ahead of all that did not search at all."""
    if masked is None or any(masked not in one.cells for one in (line, *honest)):
        return False
    return all(line.cells[masked].mean > other.cells[masked].mean for other in honest)


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
            return table, f"{name} ({table.facts[2][1]})"
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
    what = repr((subject.fingerprint(), default_methods(task_for(subject))))
    return cache / "whichtoken" / "benchmarks" / f"{hashlib.sha256(what.encode()).hexdigest()[:24]}.json"
