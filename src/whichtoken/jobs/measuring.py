"""Measure how faithful methods are on a corpus: the parts of a benchmark, done by an engine's workers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from whichtoken.bench._protocol import Protocol, resolve_protocol
from whichtoken.bench._run import (
    Sample,
    complete_group,
    gather,
    prepare,
    read_saved,
    run_sample,
    specification,
    split_groups,
)
from whichtoken.bench.folder import Folder, check_tools
from whichtoken.bench.measure import Bench, Item
from whichtoken.core.trace import Method
from whichtoken.data.sources import BadRow, DataFile
from whichtoken.errors import BadArtifact
from whichtoken.identity import Identity
from whichtoken.jobs.explaining import ModelChoice
from whichtoken.jobs.files import CorpusFiles
from whichtoken.jobs.local import plan_workers
from whichtoken.jobs.parts import lock_folder
from whichtoken.jobs.progress import JobProgress
from whichtoken.jobs.work import DoPart, Engine, Range, Receipt, run_parts
from whichtoken.models import Subject
from whichtoken.tables import BenchTable
from whichtoken.tasks import BenchInput


@dataclass(frozen=True)
class BenchWork:
    """A benchmark over files. Each worker draws the same sample, so that a part is named by its inputs' numbers."""

    model: ModelChoice
    identity: Identity
    methods: Mapping[str, Method]
    protocol: Protocol
    files: CorpusFiles
    folder: str
    digest: str  # of the sample

    def read(self, first: int, last: int) -> Any:
        import pyarrow as pa

        return pa.table({"number": range(first, last + 1)})

    def open(self) -> DoPart:
        bench, sample, _ = draw_sample(self.model.open_alone(self.identity), self.methods, self.protocol, self.files)
        if sample.digest != self.digest:
            raise BadArtifact(f"{', '.join(self.files.patterns):.100}: the rows have changed since the job was planned")
        return partial(self.measure_part, bench, {_range(group): group for group in split_groups(sample.items)})

    def measure_part(self, bench: Bench, groups: Mapping[Range, list[Item]], table: Any, part: Range) -> Receipt:
        folder, group = Folder(Path(self.folder)), groups[part]
        complete_group(bench, group, read_saved(bench, group, folder), folder)
        return Receipt(*part, len(table), 0, sum(item.n_tokens for item in group))


@dataclass
class SkippedRows:
    """Rows that a benchmark leaves out, because they cannot be used."""

    rows: list[BadRow] = field(default_factory=list)

    def __call__(self, bad: BadRow) -> None:
        self.rows.append(bad)


def bench_corpus(
    files: CorpusFiles | str | Path | Iterable[str | Path],
    out: str | Path,
    model: ModelChoice | str | None = None,
    methods: str | Method | Iterable[str | Method] | None = None,
    protocol: str | Protocol = "recommended",
    engine: Engine | None = None,
) -> BenchTable:
    """Measure how faithful methods are on the rows of many files, as `wt.bench.run` does, with an engine's workers.

    The folder is that of a benchmark: `whichtoken bench` can show it, and an interrupted job resumes there. Rows that
    cannot be used are left out. `files`, `model` and `engine` as in `explain_corpus`; `methods` and `protocol` as in
    `wt.bench.run`.
    """
    check_tools()
    choice = model if isinstance(model, ModelChoice) else ModelChoice(model)
    engine, how, where = engine or Engine(), resolve_protocol(protocol), Path(out).expanduser()
    corpus = CorpusFiles.of(files, where)
    bench, sample, skipped = draw_sample(choice.open_for_planning(engine), methods, how, corpus)
    folder, subject = Folder(where), bench.task.subject
    origin = {"corpus": {"columns": list(corpus.columns), "label": corpus.label}}
    folder.claim(specification(bench, sample, origin), {"sample": bench.protocol.sample})
    with lock_folder(where):
        groups = list(split_groups(sample.items))
        saved = {_range(group): read_saved(bench, group, folder) for group in groups}
        missing = [part for part, kept in saved.items() if kept is None or kept.last < part[1]]
        kept_rows = len(sample.items) - sum(last - first + 1 for first, last in missing)
        progress = JobProgress(len(sample.items), kept_rows, plan_workers(engine, len(missing)), show=engine.show)
        work = BenchWork(
            choice.for_workers(engine),
            subject.identity(),
            bench.methods,
            how,
            corpus.make_absolute(),
            str(where.resolve()),
            sample.digest,
        )
        run_parts(engine, work, missing, progress)
        if skipped.rows:
            engine.say(
                f"{len(skipped.rows):,} rows cannot be used and are left out; the first: {skipped.rows[0].error}"
            )
        return run_sample(bench, sample, folder, origin)


def draw_sample(
    subject: Subject, methods: Any, protocol: Protocol, files: CorpusFiles
) -> tuple[Bench, Sample, SkippedRows]:
    """Return the benchmark and its inputs, from all files in order."""
    bench, skipped = prepare(subject, methods, protocol), SkippedRows()

    def examples() -> Iterator[BenchInput]:
        for path in files.find():
            file = DataFile(path, files.input_format, files.delimiter, skipped)
            yield from bench.task.examples(file, files.label, list(files.columns) or None)

    return bench, gather(bench, examples(), on_bad_row=skipped), skipped


def _range(group: list[Item]) -> Range:
    return group[0].number, group[-1].number
