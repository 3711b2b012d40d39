"""explain_corpus: plan a job over many files, let an engine do its parts, and complete the folder.

(The module is not called `explain_corpus`, so that `wt.jobs.explain_corpus` can only be the function.)
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whichtoken import __version__
from whichtoken._explain import AnyTarget, check_keyword, plan
from whichtoken.core.registry import resolve_methods
from whichtoken.core.trace import Method, describe_setting
from whichtoken.errors import BadInput, ShardFailed, UsageError
from whichtoken.flat import check_parquet
from whichtoken.jobs.explaining import ExplainWork, ModelChoice
from whichtoken.jobs.files import (
    BlockIndex,
    CorpusFiles,
    block_files,
    make_stamp,
    read_index,
    write_blocks,
)
from whichtoken.jobs.local import plan_workers
from whichtoken.jobs.manifest import CorpusManifest, write_manifest
from whichtoken.jobs.parts import Claim, hash_content, lock_folder
from whichtoken.jobs.progress import JobProgress
from whichtoken.jobs.shards import (
    FAILURES,
    SCHEMA,
    SHARDS,
    FailedRow,
    ShardInfo,
    ShardStamp,
    hash_settings,
    read_info,
    read_shard,
    shard_files,
    write_failures,
)
from whichtoken.jobs.work import Engine, Range, run_parts
from whichtoken.models import LongTexts
from whichtoken.tasks import task_for

SPEC = "spec.json"
ROWS_PER_PART = 256


@dataclass(frozen=True)
class ExplainOptions:
    """How the rows of a corpus are explained and stored."""

    target: AnyTarget = None
    long: LongTexts | None = None
    keeps_text: bool = True
    rows_per_part: int = ROWS_PER_PART
    max_failures: int | None = None  # of rows; None: any number


@dataclass(frozen=True)
class _Planned:
    """A job that was checked: its folder, its work, and the parts that are not finished."""

    folder: Path
    index: BlockIndex
    work: ExplainWork
    claim: Claim
    infos: dict[Range, ShardInfo] = field(default_factory=dict)


def explain_corpus(
    files: CorpusFiles | str | Path | Iterable[str | Path],
    out: str | Path,
    model: ModelChoice | str | None = None,
    methods: str | Method | Iterable[str | Method] | None = None,
    options: ExplainOptions | None = None,
    engine: Engine | None = None,
) -> CorpusManifest:
    """Explain every row of many files, on worker processes or on Ray, and write Parquet shards and a manifest.

    `files`: paths or patterns ("reviews/*.parquet"), or a `CorpusFiles` that also names columns. `out`: a folder; the
    same call resumes an interrupted job there and ends with the same content, and another call is refused. `model`: a
    folder or hub name, which every worker loads, or a `ModelChoice`. `methods`: as in `explain`; by default a method of
    one pass. `engine.show` is called with a `JobProgress` after every part. Rows that cannot be explained are listed in
    `failures.parquet`.

    In a script, call it under `if __name__ == "__main__":`, because worker processes import the script.
    """
    choice = model if isinstance(model, ModelChoice) else ModelChoice(model)
    where, how, engine = Path(out).expanduser(), options or ExplainOptions(), engine or Engine()
    corpus = CorpusFiles.of(files, where)
    prepared = _prepare(corpus, where, choice, methods, how, engine)
    with lock_folder(_make_folder(where)):
        planned = _stage(prepared, corpus, how, engine.say)
        missing = _find_missing(planned)
        kept = list(planned.infos.values())
        progress = JobProgress(
            planned.index.n_rows,
            sum(info.last - info.first + 1 for info in kept),
            plan_workers(engine, len(missing)),
            how.max_failures,
            engine.show,
            failed=sum(len(info.failures) for info in kept),
        )
        try:
            progress.check_failures()
            run_parts(engine, planned.work, missing, progress)
        except ShardFailed:
            _list_failures(planned)
            raise
        return _finish(planned)


def _prepare(
    corpus: CorpusFiles,
    folder: Path,
    choice: ModelChoice,
    methods: str | Method | Iterable[str | Method] | None,
    how: ExplainOptions,
    engine: Engine,
) -> _Planned:
    """Check everything that can be checked before the files are read: files, folder, model and methods.

    Nothing keeps the model, so that its memory is free while the workers run.
    """
    check_parquet()
    make_stamp(corpus, how.rows_per_part)
    subject = choice.open_for_planning(engine)
    check_keyword(subject, "texts")
    chosen = resolve_methods(task_for(subject).choose_method(None) if methods is None else methods)
    job = plan(subject, list(chosen.values()), how.target, how.long)
    described: dict[str, Any] = {
        key: {
            "method": m.name,
            "settings": {name: describe_setting(value) for name, value in m.settings.items()},
            "tuned_on_deletion": m.tuned_on_deletion,
        }
        for key, m in job.methods.items()
    }
    spec = {
        "version": __version__,
        "model": subject.title,
        **vars(subject.identity()),
        "dtype": str(subject.model.dtype).removeprefix("torch."),
        "reading": choice.reading,
        **({} if choice.special_tokens == "control" else {"special_tokens": choice.special_tokens}),
        "references": str(subject.references),
        "heads": str(subject.heads),
        "methods": described,
        "target": None if how.target is None else str(how.target),
        "long": how.long,
        "columns": {"texts": corpus.columns, "label": corpus.label, "id": corpus.id, "keep": corpus.keep},
        "keeps_text": how.keeps_text,
        "rows_per_part": how.rows_per_part,
    }
    # The rows are not known yet; a folder of another job is refused before they are read.
    claim = Claim(SPEC, SCHEMA, "corpus job", SHARDS, spec, {})
    replace(claim, size={"rows": None}).check(folder)
    settings = {key: hash_settings(of["method"], of["settings"]) for key, of in described.items()}
    stamp = ShardStamp(__version__, "", corpus.keep, how.keeps_text, settings)
    work = ExplainWork(
        choice.for_workers(engine),
        subject.identity(),
        job.methods,
        str(folder.resolve()),
        {},
        stamp,
        how.target,
        how.long,
        corpus.label is not None,
    )
    return _Planned(folder, BlockIndex({}, "", 0, 0, (), ()), work, claim)


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror or error}") from error
    return folder


def _stage(prepared: _Planned, corpus: CorpusFiles, how: ExplainOptions, say: Callable[[str], None]) -> _Planned:
    """Read the rows into blocks, unless an earlier run did, and claim the folder."""
    folder = prepared.folder
    index = read_index(folder, make_stamp(corpus, how.rows_per_part))
    blocks, shards = block_files(folder), shard_files(folder)
    if index is None or not all(blocks.path(*r).is_file() or shards.path(*r).is_file() for r in index.ranges):
        index = write_blocks(corpus, folder, how.rows_per_part, say)
    claim = replace(prepared.claim, spec={**prepared.claim.spec, "rows": index.digest})
    try:
        claim.check(folder)
    except UsageError:  # the folder is that of other rows
        _clear_blocks(folder)
        raise
    claim.take(folder)
    stamp = replace(prepared.work.stamp, spec=hash_content(json.loads(json.dumps(claim.spec))))
    hashes = dict(zip(index.ranges, index.hashes, strict=True))
    return replace(prepared, index=index, claim=claim, work=replace(prepared.work, stamp=stamp, hashes=hashes))


def _find_missing(planned: _Planned) -> list[Range]:
    """Return the parts that have no shard; the shards that are there must be whole and of this job."""
    shards = shard_files(planned.folder)
    missing = []
    shards.check_known(set(planned.index.ranges))
    for part in planned.index.ranges:
        if shards.path(*part).is_file():
            planned.infos[part] = read_shard(shards.path(*part), planned.work.stamp.spec)[1]
        else:
            missing.append(part)
    return missing


def _list_failures(planned: _Planned) -> None:
    """Write which rows of the finished parts failed, although the job is not finished."""
    paths = [shard_files(planned.folder).path(*part) for part in planned.index.ranges]
    write_failures(
        planned.folder / FAILURES, [failed for path in paths if path.is_file() for failed in read_info(path).failures]
    )


def _finish(planned: _Planned) -> CorpusManifest:
    """Check that every part is there, write the failures and the manifest, and remove the blocks.

    The parts of this run are not read again: on a large corpus, one process would take as long as all workers.
    """
    shards, infos = shard_files(planned.folder), dict(planned.infos)
    for part in planned.index.ranges:
        if part not in infos:
            infos[part] = read_info(shards.path(*part), planned.work.stamp.spec)
    ordered = [infos[part] for part in planned.index.ranges]
    failures: list[FailedRow] = [failed for info in ordered for failed in info.failures]
    n_rows = planned.index.n_rows
    write_failures(planned.folder / FAILURES, failures)
    if len(failures) == n_rows:
        first = failures[0]
        raise BadInput(f"none of the {n_rows:,} rows can be explained; the first: {first.file}, {first.reason}")
    manifest = CorpusManifest(
        version=__version__,
        spec_sha256=planned.work.stamp.spec,
        spec=json.loads(json.dumps(planned.claim.spec)),
        model=planned.claim.spec["model"],
        revision=planned.claim.spec["revision"],
        n_rows=n_rows,
        n_explained=n_rows - len(failures),
        n_failed=len(failures),
        n_results=sum(info.n_results for info in ordered),
        n_tokens=sum(info.n_tokens for info in ordered),
        shards=tuple((shards.path(*part).name, infos[part].sha256) for part in planned.index.ranges),
    )
    write_manifest(planned.folder, manifest)
    _clear_blocks(planned.folder)
    return manifest


def _clear_blocks(folder: Path) -> None:
    """Remove the blocks: they hold texts, which the job may not store."""
    for path in block_files(folder).paths():
        with suppress(OSError):
            path.unlink()
