"""The command `explain`: explain texts, questions or images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whichtoken.cli import inputs
from whichtoken.cli.inputs import CommandInputs
from whichtoken.cli.options import (
    Against,
    BatchSize,
    Columns,
    Device,
    Differences,
    Dtype,
    Format,
    Heads,
    How,
    LevelOption,
    Model,
    Numbers,
    Out,
    Reading,
    References,
    Revision,
    Settings,
    Target,
    Trust,
    make_look,
)
from whichtoken.cli.outputs import sink_of, write_results
from whichtoken.cli.run import INTERRUPTED
from whichtoken.cli.subject import NO_HEADS, Opening, keep_supported, open_subject, say
from whichtoken.errors import UsageError, WhichTokenError
from whichtoken.records import Attribution

if TYPE_CHECKING:
    from whichtoken.bench.auto import BestMethod
    from whichtoken.models import Subject


@dataclass(frozen=True)
class Request:
    """How inputs are explained."""

    methods: Sequence[Any]
    target: Any
    long: Any
    layers: bool


def explain(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Texts, or - to read one text per line from standard input."),
    ] = None,
    pair: Annotated[str | None, typer.Option("--pair", help="Second text of a pair.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Texts from a csv, tsv, jsonl, parquet or txt file."),
    ] = None,
    column: Columns = None,
    image: Annotated[list[Path] | None, typer.Option("--image", help="Image file; repeatable.")] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="Question, for a question-answering model.")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Context of the question, or - to read it from standard input.")
    ] = None,
    model: Model = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="Comma-separated names, optionally name@preset; or all; or auto."),
    ] = None,
    target: Target = None,
    against: Against = None,
    references: References = None,
    heads: Heads = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    reading: Reading = None,
    form: Format = None,
    out: Out = None,
    level: LevelOption = "word",
    settings: Settings = None,
    long: Annotated[
        str | None,
        typer.Option("--long", help="Over-long inputs: truncate (default), window (default for questions) or error."),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Include per-layer contributions, if the method provides them.")
    ] = False,
    difference: Differences = False,
    numbers: Numbers = False,
    how: How = "bilinear",
    benchmark_folder: Annotated[
        Path | None, typer.Option("--benchmark", help="With --method auto: a folder written by bench --out.")
    ] = None,
) -> None:
    typed = inputs.TypedInputs(texts or (), pair, file, column or (), image or (), question, context)
    items = typed.gather()
    inputs.check_against(against, items)
    sink = sink_of(form, out, make_look(level, difference, numbers, how), len(items) - items.n_images, items.n_images)
    inputs.check_not_overwritten(out, items)
    if method == "auto" and settings:
        raise UsageError(
            "-o changes a method, so the benchmark behind --method auto would not apply; name the method instead"
        )
    if benchmark_folder is not None and method != "auto":
        raise UsageError("--benchmark is only for --method auto; add --method auto")
    if method not in (None, "auto"):
        inputs.build_methods(method or "", settings or [])  # check names before loading the model
    opening = Opening(trust, device, dtype, revision, batch_size, reading)
    subject = open_subject(model, references, heads, opening)
    why = _choose_best(subject, items, benchmark_folder) if method == "auto" else None
    methods = inputs.build_methods(why.method if why else method or _default_methods(subject), settings or [])
    supported = keep_supported(subject, methods) if method in (None, "all") else methods
    request = Request(supported, inputs.resolve_target(target, against), long, layers)
    progress = write_results(_with_reason(explain_inputs(subject, items, request), why), sink)
    if out is not None and progress.finished:
        say(f"{progress.finished} of {len(items)} explained, written to {out}")
    if progress.error is not None:
        raise progress.error
    if progress.interrupted:
        raise typer.Exit(INTERRUPTED)


def explain_inputs(subject: "Subject", items: CommandInputs, request: Request) -> Iterator[Mapping[str, Attribution]]:
    """Yield the explanation of each input; errors name it by file and row, or by image file."""
    from whichtoken._explain import check_keyword, explain_each
    from whichtoken.core.trace import Ask

    needs_heads = any(Ask.HEADS in method.needs.asks for method in request.methods)
    if needs_heads and subject.heads is not None and not subject.heads.n_selected:
        say(NO_HEADS)
    check_keyword(subject, items.keyword)
    try:
        yield from explain_each(subject, items, request.methods, request.target, request.long, request.layers)
    except WhichTokenError as error:
        if error.index is not None:
            error.place = items.where(error.index)
        raise


def _choose_best(subject: "Subject", items: CommandInputs, benchmark: Path | None) -> "BestMethod":
    """Choose the most faithful method for this model and report why."""
    from whichtoken._explain import check_keyword
    from whichtoken.bench.auto import best_method

    check_keyword(subject, items.keyword)
    choice = best_method(subject, items, benchmark)
    say(f"auto: {choice.why}")
    return choice


def _default_methods(subject: "Subject") -> str:
    from whichtoken.tasks import task_for

    return task_for(subject).default_methods


def _with_reason(
    results: Iterator[Mapping[str, Attribution]], choice: "BestMethod | None"
) -> Iterator[Mapping[str, Attribution]]:
    """Yield results that record why --method auto chose their method."""
    for result in results:
        if choice is None:
            yield result
        else:
            yield {
                name: replace(attribution, details={**attribution.details, "auto": choice.why})
                for name, attribution in result.items()
            }
