"""The command `explain`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whichtoken.cli import inputs
from whichtoken.cli.inputs import CommandInputs
from whichtoken.cli.options import (
    Against,
    Columns,
    Differences,
    Format,
    Heads,
    How,
    LevelOption,
    Model,
    Numbers,
    Out,
    References,
    Settings,
    Target,
    make_look,
)
from whichtoken.cli.outputs import sink_of, write_results
from whichtoken.cli.run import INTERRUPTED
from whichtoken.cli.subject import NO_HEADS, open_subject, runnable, say
from whichtoken.errors import UsageError, WhichTokenError
from whichtoken.records import Attribution

if TYPE_CHECKING:
    from whichtoken.bench.auto import BestMethod
    from whichtoken.models import Subject


@dataclass(frozen=True)
class Request:
    methods: Sequence[Any]
    target: Any
    long: Any
    layers: bool


def explain(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Texts; or - to read one from each line of standard input."),
    ] = None,
    pair: Annotated[str | None, typer.Option("--pair", help="Second text of a pair.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Texts from a csv, tsv, jsonl, parquet or txt file."),
    ] = None,
    column: Columns = None,
    image: Annotated[list[Path] | None, typer.Option("--image", help="File of an image; repeatable.")] = None,
    question: Annotated[str | None, typer.Option("--question", help="For a model that answers questions.")] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Where the answer is; or - to read it from standard input.")
    ] = None,
    model: Model = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="Names, separated by commas, with @preset if wanted; or all; or auto."),
    ] = None,
    target: Target = None,
    against: Against = None,
    references: References = None,
    heads: Heads = None,
    form: Format = None,
    out: Out = None,
    level: LevelOption = "word",
    settings: Settings = None,
    long: Annotated[
        str | None,
        typer.Option("--long", help="Too long texts: truncate, the default; window, that of contexts; or error."),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Also what each layer adds, where there is that.")] = False,
    difference: Differences = False,
    numbers: Numbers = False,
    how: How = "bilinear",
    benchmark_folder: Annotated[
        Path | None, typer.Option("--benchmark", help="With --method auto: the folder that bench --out made.")
    ] = None,
) -> None:
    words = inputs.TypedInputs(texts or (), pair, file, column or (), image or (), question, context)
    found = words.gather()
    inputs.check_against(against, found)
    sink = sink_of(form, out, make_look(level, difference, numbers, how), len(found) - found.n_images, found.n_images)
    inputs.check_apart(out, found)
    if method == "auto" and settings:
        raise UsageError("-o changes a method, and what was measured would not hold for it; name the method instead")
    if benchmark_folder is not None and method != "auto":
        raise UsageError("--benchmark is what --method auto chooses by; add --method auto")
    if method not in (None, "auto"):
        inputs.built_methods(method or "", settings or [])  # a wrong word should not wait for the model
    subject = open_subject(model, references, heads)
    why = _auto(subject, found, benchmark_folder) if method == "auto" else None
    methods = inputs.built_methods(why.method if why else method or _default_methods(subject), settings or [])
    chosen = runnable(subject, methods) if method in (None, "all") else methods
    asked = Request(chosen, inputs.wanted_target(target, against), long, layers)
    progress = write_results(_with_reason(explained(subject, found, asked), why), sink)
    if out is not None and progress.finished:
        say(f"{progress.finished} of {len(found)} explained, in {out}")
    if progress.error is not None:
        raise progress.error
    if progress.interrupted:
        raise typer.Exit(INTERRUPTED)


def explained(subject: "Subject", given: CommandInputs, asked: Request) -> Iterator[Mapping[str, Attribution]]:
    """Errors name an input as the user knows it: a text by file and row, an image by its file."""
    from whichtoken._explain import check_keyword, explain_each
    from whichtoken.core.trace import Ask

    asking = [method for method in asked.methods if Ask.HEADS in method.needs.asks]
    if asking and subject.heads is not None and not subject.heads.n_selected:
        say(NO_HEADS)
    check_keyword(subject, given.keyword)
    try:
        yield from explain_each(subject, given, asked.methods, asked.target, asked.long, asked.layers)
    except WhichTokenError as error:
        if error.index is not None:
            error.place = given.where(error.index)
        raise


def _auto(subject: "Subject", given: CommandInputs, benchmark: Path | None) -> "BestMethod":
    """The method that did best for this model, and why; said, because it may take a while to find out."""
    from whichtoken._explain import check_keyword
    from whichtoken.bench.auto import best_method

    check_keyword(subject, given.keyword)
    choice = best_method(subject, given, benchmark)
    say(f"auto: {choice.why}")
    return choice


def _default_methods(subject: "Subject") -> str:
    from whichtoken.tasks import task_for

    return task_for(subject).default_methods


def _with_reason(
    results: Iterator[Mapping[str, Attribution]], choice: "BestMethod | None"
) -> Iterator[Mapping[str, Attribution]]:
    """Results that say why their method was chosen, if nobody named one."""
    for result in results:
        if choice is None:
            yield result
        else:
            yield {key: replace(one, details={**one.details, "auto": choice.why}) for key, one in result.items()}
