"""The commands `corpus explain`, `bench`, `summary` and `plan`: whole corpora."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from whichtoken.atomic_write import check_writable
from whichtoken.cli.completion import complete_methods, one_of
from whichtoken.cli.inputs import build_methods, resolve_target
from whichtoken.cli.options import (
    DEBUG,
    METHODS,
    Against,
    BatchSize,
    Columns,
    Device,
    Dtype,
    Heads,
    Model,
    Reading,
    References,
    Revision,
    Settings,
    SpecialTokens,
    Target,
    Trust,
    print_list,
    single_value,
)
from whichtoken.cli.rows import Delimiter, IdColumn, InputFormat, Keep, LabelColumn
from whichtoken.cli.subject import say, say_written
from whichtoken.errors import UsageError
from whichtoken.render.rows import visible
from whichtoken.render.terminal import table_view

if TYPE_CHECKING:
    from whichtoken.jobs.work import Engine

corpus_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
EVERY = 30.0  # seconds between lines of progress that are not on a terminal

Data = Annotated[
    list[str], typer.Option("--data", help="Files, or a pattern in quotes: 'reviews/*.parquet'; csv, tsv, jsonl, txt.")
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", help="local (default): worker processes; ray: a cluster.", autocompletion=one_of("local", "ray")
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray-address", help="Running cluster: auto, or ray://HOST:PORT; default: one on this machine."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Number of workers, each with a copy of the model; default: one per CPU."),
]
GpusPerWorker = Annotated[
    float, typer.Option("--gpus-per-worker", min=0, help="With --engine ray; a fraction lets workers share a GPU.")
]


@dataclass
class ProgressLine:
    """Shows how far a job is: one line that changes on a terminal, else a line now and then."""

    shown: float = field(default_factory=monotonic)
    is_open: bool = False

    def __call__(self, progress: Any) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"\r\x1b[K{progress.describe()}", end="", file=sys.stderr, flush=True)
            self.is_open = True
        elif monotonic() - self.shown >= EVERY:
            self.shown = monotonic()
            say(progress.describe())

    def say(self, line: str) -> None:
        self.close()
        say(visible(line))

    def close(self) -> None:
        if self.is_open:
            print(file=sys.stderr)
            self.is_open = False


def make_engine(name: str, workers: int | None, gpus: float, address: str | None, line: ProgressLine) -> "Engine":
    from whichtoken.jobs.work import Engine

    return Engine(name, workers, gpus, address, say=line.say, show=line)


def build_named(names: str | None, settings: list[str] | None) -> list[Any] | None:
    """Return the methods; None for the default, which depends on the model and takes no settings."""
    if names is None and settings:
        raise UsageError(f"-o {settings[0]} changes a method; name it with --method")
    return None if names is None else build_methods(names, settings or [])


@corpus_app.command(
    "explain",
    epilog=f"If interrupted, run the same command again to resume. {DEBUG}",
    help="Explain every row of many files. Writes Parquet shards, failures.parquet and manifest.json.",
)
def corpus_explain(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results; an interrupted job resumes there.")],
    column: Columns = None,
    id_column: IdColumn = None,
    label: LabelColumn = None,
    keep: Keep = None,
    delimiter: Delimiter = None,
    input_format: InputFormat = None,
    model: Model = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            *METHODS,
            help="Comma-separated names, optionally name@preset; default: a single-pass method.",
            autocompletion=complete_methods,
        ),
    ] = None,
    settings: Settings = None,
    target: Target = None,
    against: Against = None,
    long: Annotated[
        str | None,
        typer.Option(
            "--long",
            help="Over-long texts: truncate (default), window or error.",
            autocompletion=one_of("truncate", "window", "error"),
        ),
    ] = None,
    references: References = None,
    heads: Heads = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    reading: Reading = None,
    special_tokens: SpecialTokens = "control",
    text: Annotated[bool, typer.Option("--text/--no-text", help="Store the texts next to their scores.")] = True,
    rows_per_part: Annotated[
        int, typer.Option("--rows-per-part", min=1, help="Rows per shard, which is what a killed worker loses.")
    ] = 256,
    max_failures: Annotated[
        int | None, typer.Option("--max-failures", min=0, help="Stop if more rows fail; default: no limit.")
    ] = None,
    engine: EngineName = "local",
    ray_address: RayAddress = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    line = ProgressLine()
    chosen = make_engine(engine, workers, gpus_per_worker, ray_address, line)
    named = single_value("--method", methods)
    built = build_named(named, settings)
    from whichtoken.jobs._corpus import ExplainOptions, explain_corpus
    from whichtoken.jobs.explaining import ModelChoice
    from whichtoken.jobs.files import CorpusFiles

    files = CorpusFiles(tuple(data), tuple(column or ()), label, id_column, tuple(keep or ()), delimiter, input_format)
    library, mask = (None if path is None else str(path) for path in (references, heads))
    checked: Any = (reading, long, special_tokens)  # by load and explain
    choice = ModelChoice(model, revision, dtype, device, library, mask, trust, checked[0], batch_size, checked[2])
    options = ExplainOptions(resolve_target(target, against), checked[1], text, rows_per_part, max_failures)
    started = monotonic()
    try:
        manifest = explain_corpus(files, out, choice, built, options, chosen)
    finally:
        line.close()
    seconds, n_shards = monotonic() - started, len(manifest.shards)
    say(
        f"{manifest.n_explained:,} of {manifest.n_rows:,} rows explained, {manifest.n_failed:,} failed; "
        f"{manifest.n_tokens:,} tokens, {manifest.n_results:,} results in {n_shards:,} shard{'s' * (n_shards != 1)}, "
        f"written to {out} in {seconds:,.1f} s"
    )
    if manifest.n_failed:
        say(f"the failed rows and the reasons are in {out / 'failures.parquet'}")


@corpus_app.command(
    "summary",
    epilog=DEBUG,
    help="Summarise the explanations of a corpus: words, shortcuts, mistakes, drift.",
)
def corpus_summary(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder written by corpus explain.")],
    method: Annotated[str | None, typer.Option("--method", help="Method to summarise, if the job has several.")] = None,
    before: Annotated[
        Path | None, typer.Option("--before", help="Folder of an earlier job: also show what has changed since.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Words per list.")] = 15,
    min_count: Annotated[
        int, typer.Option("--min-count", min=2, help="Minimum number of texts that a word occurs in.")
    ] = 5,
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", help="Also write a page (.html) or rows (.parquet); repeatable."),
    ] = None,
) -> None:
    from whichtoken.render.corpus import facts_of, tables_of, title_of, write_summary

    for path in out or ():
        if path.suffix.lower() not in (".html", ".parquet"):
            raise UsageError(f"--out {path}: a summary is a page or rows; use the extension .html or .parquet")
        check_writable(path)
    from whichtoken.jobs.summary import summarise_corpus

    summary = summarise_corpus(folder, method, before, top, min_count)
    for path in out or ():  # first, as the reader of standard output may leave early
        write_summary(summary, path)
    print_list(Text(title_of(summary), style="bold"))
    print_list(table_view(("", ""), facts_of(summary)))
    for table in tables_of(summary):
        content = table_view(table.head, table.rows) if table.rows else Text("none found")
        print_list(Group(Text(f"\n{table.title}", style="bold"), Text(table.note, style="dim"), content))
    for path in out or ():
        say_written(path)


@corpus_app.command(
    "plan", epilog=DEBUG, help="Plan a job for a cluster: bytes, shards, hours; simulate stragglers and failures."
)
def corpus_plan(
    texts: Annotated[float, typer.Option("--texts", help="Number of texts, such as 1e9.")] = 1e9,
    tokens_per_text: Annotated[float, typer.Option("--tokens-per-text", help="Mean length of a text.")] = 250.0,
    tokens_per_second: Annotated[
        float, typer.Option("--tokens-per-second", help="Speed of one worker; measure it on a part of the corpus.")
    ] = 50_000.0,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Number of workers.")] = 64,
    rows_per_part: Annotated[int, typer.Option("--rows-per-part", min=1, help="Number of texts in a shard.")] = 8192,
    methods: Annotated[int, typer.Option("--methods", min=1, help="Number of methods.")] = 1,
    bytes_per_token: Annotated[
        float, typer.Option("--bytes-per-token", help="Size of a shard, per token and method; measure it, too.")
    ] = 16.0,
    load_seconds: Annotated[
        float, typer.Option("--load-seconds", help="Time to start a worker and load the model.")
    ] = 60.0,
    hours_between_failures: Annotated[
        float, typer.Option("--hours-between-failures", help="Mean time between failures of one worker.")
    ] = 500.0,
    straggler_share: Annotated[float, typer.Option("--straggler-share", help="Share of slow workers.")] = 0.02,
    straggler_slowness: Annotated[
        float, typer.Option("--straggler-slowness", help="How many times as long a slow worker takes.")
    ] = 3.0,
    part_spread: Annotated[
        float, typer.Option("--part-spread", help="Standard deviation of the logarithm of a part's duration.")
    ] = 0.2,
    rows_read_per_second: Annotated[
        float,
        typer.Option("--rows-read-per-second", help="Speed at which the driver reads rows, before the workers start."),
    ] = 10_000.0,
    tokens_checked_per_second: Annotated[
        float,
        typer.Option("--tokens-checked-per-second", help="Speed at which a resumed job checks finished shards."),
    ] = 3e6,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Number of simulated runs.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the first run.")] = 0,
) -> None:
    from whichtoken.jobs.plan import ClusterPlan, simulate

    plan = ClusterPlan(
        texts,
        tokens_per_text,
        tokens_per_second,
        workers,
        rows_per_part,
        methods,
        bytes_per_token,
        load_seconds,
        hours_between_failures,
        straggler_share,
        straggler_slowness,
        part_spread,
        rows_read_per_second,
        tokens_checked_per_second,
    )
    print_list(table_view(("quantity", "formula", "value"), plan.formulas()))
    simulated = [simulate(plan, seed + number) for number in range(runs)]
    rows = [
        (
            str(seed + i),
            f"{run.hours:,.2f}",
            str(run.n_failures),
            f"{run.lost_hours:,.2f}",
            f"{60 * run.tail_hours:,.1f}",
        )
        for i, run in enumerate(simulated)
    ]
    head = ("seed", "hours", "workers that died", "worker hours lost", "tail, minutes")
    print_list(Group(Text("\nSimulated runs, after reading", style="bold"), table_view(head, rows)))
    mean = sum(run.hours for run in simulated) / runs
    print_list(Text(f"\nmean {mean:,.2f} h, {mean / plan.ideal_hours:.3f} times the ideal"))
