"""The command `explain`: explain texts, questions, images, or answers to prompts."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whichtoken.cli import inputs, review
from whichtoken.cli.completion import complete_methods_or_auto, one_of
from whichtoken.cli.inputs import CommandInputs
from whichtoken.cli.options import (
    METHODS,
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
    SpecialTokens,
    Spreadsheet,
    Target,
    Targets,
    Token,
    Top,
    Trust,
    make_look,
    single_value,
)
from whichtoken.cli.outputs import Sink, sink_of, write_results
from whichtoken.cli.prompts import (
    Chat,
    Continuation,
    Documents,
    Foil,
    Generate,
    PromptOptions,
    PromptText,
    Rows,
    Seed,
    ShownRow,
    Sources,
    System,
    Temperature,
    TopP,
)
from whichtoken.cli.rows import (
    Delimiter,
    IdColumn,
    InputFormat,
    Keep,
    LabelColumn,
    OnBadRowOption,
    RowOptions,
    failed_file,
)
from whichtoken.cli.run import INTERRUPTED
from whichtoken.cli.subject import NO_HEADS, Opening, keep_supported, open_subject, say
from whichtoken.errors import BadInput, UsageError, WhichTokenError
from whichtoken.records import Attribution
from whichtoken.render.notes import warnings_of
from whichtoken.render.rows import visible
from whichtoken.targets import AnswerRequest

if TYPE_CHECKING:
    from whichtoken.bench.auto import BestMethod
    from whichtoken.models import Subject
    from whichtoken.tasks import Task

MOST_WARNINGS = 3  # lines about the inputs, if the results go to a file


@dataclass(frozen=True)
class Request:
    """How inputs are explained."""

    methods: Sequence[Any]
    target: Any
    long: Any
    layers: bool
    targets: Any = None
    token: str | None = None
    on_bad_input: Callable[[Any, WhichTokenError], None] | None = None
    remove_top: int = 0
    answer: AnswerRequest | None = None


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
    id_column: IdColumn = None,
    label: LabelColumn = None,
    keep: Keep = None,
    delimiter: Delimiter = None,
    input_format: InputFormat = None,
    on_bad_row: OnBadRowOption = "error",
    image: Annotated[list[Path] | None, typer.Option("--image", help="Image file; repeatable.")] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="Question, for a question-answering model.")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Context of the question, or - to read it from standard input.")
    ] = None,
    prompt: PromptText = None,
    generate: Generate = None,
    continuation: Continuation = None,
    chat: Chat = False,
    system: System = None,
    documents: Documents = None,
    rows: Rows = None,
    row: ShownRow = None,
    sources: Sources = None,
    foil: Foil = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    seed: Seed = None,
    model: Model = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            *METHODS,
            help="Comma-separated names, optionally name@preset; or all; or auto.",
            autocompletion=complete_methods_or_auto,
        ),
    ] = None,
    target: Target = None,
    targets: Targets = None,
    token: Token = None,
    against: Against = None,
    references: References = None,
    heads: Heads = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    reading: Reading = None,
    special_tokens: SpecialTokens = "control",
    form: Format = None,
    out: Out = None,
    level: LevelOption = "word",
    settings: Settings = None,
    long: Annotated[
        str | None,
        typer.Option(
            "--long",
            help="Over-long inputs: truncate (default), window (default for questions) or error.",
            autocompletion=one_of("truncate", "window", "error"),
        ),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Include per-layer contributions, if the method provides them.")
    ] = False,
    difference: Differences = False,
    numbers: Numbers = False,
    how: How = "bilinear",
    top: Top = None,
    spreadsheet: Spreadsheet = False,
    benchmark_folder: Annotated[
        Path | None, typer.Option("--benchmark", help="With --method auto: a folder written by bench --out.")
    ] = None,
) -> None:
    of_rows = RowOptions(delimiter, input_format, on_bad_row, id_column, label, tuple(keep or ()))
    bad, several = of_rows.collector(), inputs.parse_targets(targets, target, against)
    typed = inputs.TypedInputs(texts or (), pair, file, column or (), image or (), question, context, of_rows, bad)
    sampling = {"temperature": temperature, "top_p": top_p, "seed": seed}
    about_prompt = PromptOptions(
        prompt, generate, continuation, chat, system, documents or (), rows, sources, foil, sampling
    )
    answer = about_prompt.request() if about_prompt.given else None
    items = typed.gather() if answer is None else about_prompt.gather(typed)
    bad.n_rows = len(items) + len(bad)
    inputs.check_against(against, items)
    look, n_texts = make_look(level, difference, numbers, how, row), len(items) - items.n_images
    sink = sink_of(form, out, look, n_texts, items.n_images, spreadsheet=spreadsheet)
    inputs.check_not_overwritten(out, items)
    method = single_value("--method", methods)
    review.check_top(top, sink)
    if method == "auto" and settings:
        raise UsageError(
            "-o changes a method, so the benchmark behind --method auto would not apply; name the method instead"
        )
    if benchmark_folder is not None and method != "auto":
        raise UsageError("--benchmark is only for --method auto; add --method auto")
    if method not in (None, "auto"):
        inputs.build_methods(method or "", settings or [])  # check names before loading the model
    goal = inputs.resolve_target(target, against)
    opening = Opening(trust, device, dtype, revision, batch_size, reading, special_tokens)
    subject = open_subject(model, references, heads, opening)
    why = _choose_best(subject, items, benchmark_folder) if method == "auto" else None
    chosen = why.method if why else method or _default_method(subject, items, several)
    built = inputs.build_methods(chosen, settings or [])
    supported = keep_supported(subject, built) if method == "all" else built
    skip = bad.skip_input if bad.skip else None
    n_removed = review.choose_top(top, sink, subject, layers) if answer is None else top or 0
    request = Request(supported, goal, long, layers, several, token, skip, n_removed, answer)
    warnings = Counter[str]()
    explained = _count_warnings(explain_inputs(subject, items, request), warnings)
    progress = write_results(_with_reason(explained, why), sink)
    _say_warnings(warnings, sink)
    if out is not None and progress.finished:
        more = several is not None or progress.finished > len(items)  # a text may have several entities
        of = f"{len(items)} input{'s' * (len(items) != 1)}"
        done = f"{progress.finished} results for {of}" if more else f"{progress.finished} of {bad.n_rows or len(items)}"
        say(f"{done}{'' if more else ' explained'}, written to {out}")
    if not (progress.finished or progress.error or progress.interrupted or len(bad)):
        say(_task(subject).no_result)
    bad.report(failed_file(out))
    if progress.error is not None:
        raise progress.error
    if progress.interrupted:
        raise typer.Exit(INTERRUPTED)
    if len(bad) and not progress.finished:
        raise BadInput(f"none of the {bad.n_rows} rows can be used")


def explain_inputs(subject: "Subject", items: CommandInputs, request: Request) -> Iterator[Mapping[str, Attribution]]:
    """Yield the explanation of each input; errors name it by file and row, or by image file."""
    from whichtoken._explain import check_keyword, explain_each
    from whichtoken.core.trace import Ask

    needs_heads = any(Ask.HEADS in method.needs.asks for method in request.methods)
    if needs_heads and subject.heads is not None and not subject.heads.n_selected:
        say(NO_HEADS)
    check_keyword(subject, items.keyword)
    try:
        yield from explain_each(
            subject,
            items,
            request.methods,
            request.target,
            request.long,
            request.layers,
            targets=request.targets,
            token=request.token,
            on_bad_input=request.on_bad_input,
            remove_top=request.remove_top,
            answer=request.answer,
        )
    except WhichTokenError as error:
        if error.index is not None:
            error.place = items.where(error.index)
        raise


def _count_warnings(
    results: Iterator[Mapping[str, Attribution]], found: Counter[str]
) -> Iterator[Mapping[str, Attribution]]:
    """Yield results, and count the warnings about their inputs."""
    for result in results:
        found.update(warnings_of(next(iter(result.values()))))
        yield result


def _say_warnings(found: Counter[str], sink: Sink) -> None:
    if sink.kind != "terminal" or sink.out is not None:  # else they are next to the results
        for line, count in found.most_common(MOST_WARNINGS):
            say(visible(line) + (f" (in {count} results)" if count > 1 else ""))


def _choose_best(subject: "Subject", items: CommandInputs, benchmark: Path | None) -> "BestMethod":
    """Choose the most faithful method for this model and report why."""
    from whichtoken._explain import check_keyword
    from whichtoken.bench.auto import best_method

    check_keyword(subject, items.keyword)
    choice = best_method(subject, items, benchmark)
    say(f"auto: {choice.why}")
    return choice


def _default_method(subject: "Subject", items: CommandInputs, targets: Any) -> str:
    from whichtoken._explain import plan_targets

    task = _task(subject)
    return task.choose_method(len(items) * (1 if targets is None else len(plan_targets(task, None, targets))))


def _task(subject: "Subject") -> "Task":
    from whichtoken.tasks import task_for

    return task_for(subject)


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
