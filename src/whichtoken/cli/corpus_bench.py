"""The command `corpus bench`: the faithfulness benchmark over many files, with an engine's workers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from whichtoken.cli.bench_options import choose_protocol, parse_changes
from whichtoken.cli.completion import complete_methods, complete_metrics
from whichtoken.cli.corpus import (
    Data,
    EngineName,
    GpusPerWorker,
    ProgressLine,
    RayAddress,
    Workers,
    build_named,
    make_engine,
)
from whichtoken.cli.options import (
    METHODS,
    BatchSize,
    Columns,
    Device,
    Dtype,
    Heads,
    Model,
    References,
    Revision,
    Settings,
    SpecialTokens,
    Trust,
    print_list,
    single_value,
)
from whichtoken.cli.rows import Delimiter, InputFormat, LabelColumn
from whichtoken.cli.subject import say
from whichtoken.render.terminal import bench_view


def corpus_bench(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results; an interrupted job resumes there.")],
    column: Columns = None,
    label: LabelColumn = None,
    delimiter: Delimiter = None,
    input_format: InputFormat = None,
    model: Model = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            *METHODS,
            help="Comma-separated names; default: all except the most expensive, controls included.",
            autocompletion=complete_methods,
        ),
    ] = None,
    settings: Settings = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="Comma-separated names (see: metrics).", autocompletion=complete_metrics),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure 20 inputs by AOPC: a first answer.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Also search for the bounds of AOPC.")] = False,
    protocol: Annotated[str | None, typer.Option("--protocol", help="As in bench.")] = None,
    sample: Annotated[int | None, typer.Option("--sample", help="Number of inputs; default: all.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed of the sample.")] = None,
    min_tokens: Annotated[int | None, typer.Option("--min-tokens", help="Skip shorter inputs.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Truncate longer texts.")] = None,
    references: References = None,
    heads: Heads = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    special_tokens: SpecialTokens = "control",
    engine: EngineName = "local",
    ray_address: RayAddress = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    line = ProgressLine()
    chosen = make_engine(engine, workers, gpus_per_worker, ray_address, line)
    named = single_value("--method", methods)
    built: Any = build_named(named, settings)
    from whichtoken.bench._protocol import protocol as make_protocol
    from whichtoken.jobs.explaining import ModelChoice
    from whichtoken.jobs.files import CorpusFiles
    from whichtoken.jobs.measuring import bench_corpus

    changes: dict[str, str | int | None] = {"metrics": metrics, "sample": sample, "seed": seed}
    changes |= {"min_tokens": min_tokens, "max_tokens": max_tokens}
    how = make_protocol(choose_protocol(protocol, {"quick": quick, "full": full}), **parse_changes(changes))
    files = CorpusFiles(tuple(data), tuple(column or ()), label, delimiter=delimiter, input_format=input_format)
    library, mask = (None if path is None else str(path) for path in (references, heads))
    checked: Any = special_tokens  # by load
    choice = ModelChoice(model, revision, dtype, device, library, mask, trust, None, batch_size, checked)
    try:
        table = bench_corpus(files, out, choice, built, how, chosen)
    finally:
        line.close()
    print_list(bench_view(table))
    say(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir() if path.is_file()))}")
