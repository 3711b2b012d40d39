"""The commands. Each parses, calls the library and prints; a new method or metric needs no line here."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import whichtoken
from whichtoken.cli import answers, inputs
from whichtoken.cli.bench import BenchCall, benchmark, call_from, changes_of, gates
from whichtoken.cli.heads import heads_app
from whichtoken.cli.options import (
    DEBUG,
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
    print_list,
)
from whichtoken.cli.outputs import put, read_results, sink_of, write_results
from whichtoken.cli.references import references_app
from whichtoken.cli.run import INTERRUPTED
from whichtoken.errors import UsageError
from whichtoken.render.rows import Look

app = typer.Typer(
    name="whichtoken",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Which tokens influenced a Transformer's output, and how far that answer can be trusted.",
    epilog=f"Try: whichtoken explain 'It is very slow.'   {DEBUG}",
)
app.add_typer(references_app, name="references", help="Reference texts, which Contrast-CAT contrasts with.")
app.add_typer(heads_app, name="heads", help="Syntactic and positional heads, through which Mask-LRP propagates.")


@app.callback(invoke_without_command=True)
def _whichtoken(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"whichtoken {whichtoken.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.command(epilog=DEBUG, help="Explain texts, answers or images: what in them speaks for the label, what against it.")
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
    words = inputs.Words(texts or (), pair, file, column or (), image or (), question, context)
    found = words.gather()
    inputs.check_against(against, found)
    sink = sink_of(form, out, _look(level, difference, numbers, how), len(found) - found.n_images, found.n_images)
    inputs.check_apart(out, found)
    if method == "auto" and settings:
        raise UsageError("-o changes a method, and what was measured would not hold for it; name the method instead")
    if benchmark_folder is not None and method != "auto":
        raise UsageError("--benchmark is what --method auto chooses by; add --method auto")
    if method not in (None, "auto"):
        inputs.built_methods(method or "", settings or [])  # a wrong word should not wait for the model
    subject = answers.opened(model, references, heads)
    why = answers.auto(subject, found, benchmark_folder) if method == "auto" else None
    methods = inputs.built_methods(why.method if why else method or answers.default_methods(subject), settings or [])
    chosen = answers.able(subject, methods) if method in (None, "all") else methods
    asked = answers.Asked(chosen, inputs.wanted_target(target, against), long, layers)
    progress = write_results(answers.with_reason(answers.explained(subject, found, asked), why), sink)
    if out is not None and progress.finished:
        answers.say(f"{progress.finished} of {len(found)} explained, in {out}")
    if progress.error is not None:
        raise progress.error
    if progress.interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command(epilog=DEBUG, help="Compare methods on one input: one line each, with how far its removal gets.")
def compare(
    text: Annotated[str | None, typer.Argument(metavar="TEXT")] = None,
    pair: Annotated[str | None, typer.Option("--pair", help="Second text of a pair.")] = None,
    image: Annotated[Path | None, typer.Option("--image", help="File of an image.")] = None,
    question: Annotated[str | None, typer.Option("--question", help="For a model that answers questions.")] = None,
    context: Annotated[str | None, typer.Option("--context", help="Where the answer is.")] = None,
    model: Model = None,
    methods: Annotated[str, typer.Option("--methods", help="Names, separated by commas; or all.")] = "all",
    target: Target = None,
    against: Against = None,
    references: References = None,
    heads: Heads = None,
    form: Format = None,
    out: Out = None,
    level: LevelOption = "word",
    settings: Settings = None,
    numbers: Numbers = False,
) -> None:
    if all(given is None for given in (text, image, question, context)):
        raise UsageError("give a TEXT, or --image FILE, or --question Q --context C; one of them")
    images = () if image is None else (image,)
    found = inputs.Words(() if text is None else (text,), pair, None, (), images, question, context).gather()
    inputs.check_against(against, found)
    if len(found) != 1:
        raise UsageError(f"compare shows one input, and here are {len(found)}; bench measures methods on many")
    built = inputs.built_methods(methods, settings or [])
    sink = sink_of(form, out, _look(level, False, numbers), 1 - found.n_images, found.n_images)
    subject = answers.opened(model, references, heads)
    chosen = answers.able(subject, built) if methods == "all" else built
    asked = answers.Asked(chosen, inputs.wanted_target(target, against), None, False)
    comparison = answers.compared(subject, found, asked)
    if sink.kind in ("json", "jsonl"):
        put(comparison.to_json(sink.kind == "jsonl"), out)
        return
    write_results([comparison.result], replace(sink, look=replace(sink.look, remarks=comparison.remarks())))
    if sink.kind == "terminal" and out is None:
        typer.echo(comparison.note)


def _look(level: str, differences: bool, numbers: bool, how: str = "bilinear") -> Look:
    return Look(level, differences, numbers, how=how)  # type: ignore[arg-type]  # Look says what is allowed


@app.command(
    epilog=f"Interrupted, the same command goes on where it stopped. {DEBUG}",
    help="Measure how faithful methods are on many inputs: a table with intervals and tests, curves, a report.",
)
def bench(
    data: Annotated[
        Path | None,
        typer.Option("--data", help="csv, tsv, jsonl, parquet or txt; questions in SQuAD's json; a folder of images."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="texts, qa or images; an error if the model is for another.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the results; a run goes on there.")] = None,
    model: Model = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Names, separated by commas; or all. By default all but the most expensive."),
    ] = None,
    settings: Settings = None,
    metrics: Annotated[str | None, typer.Option("--metrics", help="Names, separated by commas.")] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="recommended, or as a paper: contrast-cat, attcat, mask-lrp.")
    ] = "recommended",
    perturbation: Annotated[
        str | None, typer.Option("--perturbation", help="delete, mask, pad; of images black, mean.")
    ] = None,
    order: Annotated[str | None, typer.Option("--order", help="morf, lerf, random.")] = None,
    grid: Annotated[str | None, typer.Option("--grid", help="tenths, twentieths, all.")] = None,
    level: Annotated[
        str | None, typer.Option("--level", help="Remove by token (a patch of an image), word or pixel.")
    ] = None,
    min_tokens: Annotated[int | None, typer.Option("--min-tokens", help="Leave shorter inputs out.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Of qa: how many of the highest tokens count; 20.")] = None,
    sample: Annotated[int | None, typer.Option("--sample", help="Number of inputs; by default all.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the sample.")] = None,
    column: Columns = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of the labels.")] = None,
    references: References = None,
    heads: Heads = None,
    controls: Annotated[
        bool, typer.Option(help="Also measure random and, where words are deleted, refined-noise.")
    ] = True,
    ablation: Annotated[
        str | None, typer.Option("--ablation", help="Variants of one method instead; see the documentation.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option("--train", help="Texts with labels, for ablations that build libraries.")
    ] = None,
    attributions: Annotated[
        Path | None, typer.Option("--attributions", help="Also scores made elsewhere, as JSON lines.")
    ] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option("--fail-under", metavar="METRIC=VALUE", help="Exit 1 if a method is worse; repeatable."),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option("--spec", help="spec.json of a benchmark to make again; other options than --out are not read."),
    ] = None,
) -> None:
    asked = {"metrics": metrics, "perturbations": perturbation, "orders": order, "grids": grid, "level": level}
    more = {"min_tokens": min_tokens, "k": k, "sample": sample, "seed": seed}
    paths = [None if path is None else str(path) for path in (data, references, heads, train, attributions)]
    call = (
        call_from(spec, sample)
        if spec is not None
        else BenchCall(
            data=paths[0],
            column=tuple(column or ()),
            label=label,
            model=model,
            references=paths[1],
            heads=paths[2],
            methods=methods,
            settings=tuple(settings or ()),
            protocol=protocol,
            changes=changes_of({**asked, **more}),
            controls=controls,
            ablation=ablation,
            train=paths[3],
            attributions=paths[4],
            task=task,
        )
    )
    checks = gates(fail_under or [], call.metrics())  # a wrong word should not wait for the model
    answers.check_bench(out)
    table = benchmark(call, answers.opened_call(call), out, checks)
    print_list(answers.bench_page(table))
    if out is not None:
        answers.say(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir() if path.is_file()))}")
    failed = [line for gate in checks for line in gate.failures(table)]
    for line in failed:
        answers.say(line)
    if failed:
        raise typer.Exit(1)


@app.command(epilog=DEBUG, help="List the methods; or say more about one.")
def methods(name: Annotated[str | None, typer.Argument(metavar="NAME")] = None) -> None:
    print_list(answers.method_list() if name is None else answers.method_page(name))


@app.command(epilog=DEBUG, help="List the metrics that say how faithful an explanation is.")
def metrics() -> None:
    print_list(answers.metric_list())


@app.command(epilog=DEBUG, help="What whichtoken finds in a model: architecture, layers, labels, what is supported.")
def model(
    name: Annotated[str | None, typer.Argument(metavar="MODEL")] = None,
    references: References = None,
    heads: Heads = None,
) -> None:
    print_list(answers.model_page(answers.opened(name, references, heads)))


@app.command(epilog=DEBUG, help="Show results again that were saved as json or jsonl.")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    form: Format = None,
    out: Out = None,
    level: LevelOption = "word",
    difference: Differences = False,
    numbers: Numbers = False,
    how: How = "bilinear",
) -> None:
    from whichtoken.render.rows import grouped

    results: list[Any] = grouped(read_results(file))
    n_images = sum(next(iter(result.values())).picture is not None for result in results)
    look = _look(level, difference, numbers, how)
    write_results(results, sink_of(form, out, look, len(results) - n_images, n_images))
