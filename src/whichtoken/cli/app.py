"""The commands. Each parses, calls the library and prints; a new method or metric needs no line here."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

import whichtoken
from whichtoken.atomic_write import check_writable
from whichtoken.cli import answers, inputs
from whichtoken.cli.bench import BenchCall, benchmark, call_from, changes_of, gates
from whichtoken.cli.heads import NO_HEADS, Corpus, rule_settings, shipped
from whichtoken.cli.outputs import FORMATS, put, read_results, sink_of, write_results
from whichtoken.cli.run import INTERRUPTED
from whichtoken.errors import UsageError
from whichtoken.render.rows import Look, visible

LINE = 200  # characters
DEBUG = "An error is one line; add --debug to see where it comes from."

app = typer.Typer(
    name="whichtoken",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Which tokens influenced a Transformer's output, and how far that answer can be trusted.",
    epilog=f"Try: whichtoken explain 'It is very slow.'   {DEBUG}",
)
references_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(references_app, name="references", help="Reference texts, which Contrast-CAT contrasts with.")
heads_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(heads_app, name="heads", help="Syntactic and positional heads, through which Mask-LRP propagates.")

Model = Annotated[
    str | None,
    typer.Option("--model", help="Folder or hub name of a classifier; by default the one that comes with whichtoken."),
]
References = Annotated[
    Path | None,
    typer.Option("--references", help="Folder of the model's reference library (see: references build)."),
]
Heads = Annotated[
    Path | None,
    typer.Option("--heads", help="File of the model's head mask (see: heads build)."),
]
Target = Annotated[
    str | None,
    typer.Option("--target", help="Label to explain, by name or index, or an answer; by default the predicted one."),
]
Against = Annotated[
    str | None,
    typer.Option("--against", help="With --target: why that label rather than this one."),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help=f"{', '.join(FORMATS)}; by default what the ending of --out says, or terminal."),
]
Out = Annotated[Path | None, typer.Option("--out", help="File to write, whole or not at all.")]
LevelOption = Annotated[str, typer.Option("--level", help="word, or token as the model reads them.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("-o", metavar="SETTING=VALUE", help="A setting of the methods (see: methods NAME); repeatable."),
]
Numbers = Annotated[bool, typer.Option("--numbers", help="Print shares beside the words.")]
Differences = Annotated[bool, typer.Option("--difference", help="Also the first method minus each other one.")]
How = Annotated[str, typer.Option("--how", help="Of images: bilinear, smooth between patches; or patch by patch.")]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Column of the texts in --file; twice for pairs. The usual names are found."),
]


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
    given = [texts, pair, file, column]
    if question is not None or context is not None:
        if against is not None:
            raise UsageError("--against compares two labels, and answers to a question have none; leave it out")
        found: inputs.Given = inputs.gather_question(question, context, [*given, image])
    else:
        found = inputs.gather_images(image, given) if image else inputs.gather(texts or [], pair, file, column or [])
    counts = (0, len(found)) if image else (len(found), 0)
    sink = sink_of(form, out, _look(level, difference, numbers, how), *counts)
    inputs.check_apart(out, [file, *(image or [])])
    if method == "auto" and settings:
        raise UsageError("-o changes a method, and what was measured would not hold for it; name the method instead")
    if benchmark_folder is not None and method != "auto":
        raise UsageError("--benchmark is what --method auto chooses by; add --method auto")
    inputs.built_methods(found.methods if method in (None, "auto") else method, settings or [])  # errors come first
    subject = answers.opened(model, references, heads)
    why = answers.auto(subject, found, benchmark_folder) if method == "auto" else None
    methods = inputs.built_methods(why.method if why else method or found.methods, settings or [])
    chosen = answers.able(subject, methods) if method in (None, "all") else methods
    asked = answers.Asked(chosen, inputs.wanted_target(target, against), long, layers)
    progress = write_results(answers.with_reason(answers.explained(subject, found, asked), why), sink)
    if out is not None and progress.finished:
        answers.say(f"{progress.finished} of {len(found)} explained, in {out}")
    if progress.error is not None:
        raise progress.error
    if progress.interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command(epilog=DEBUG, help="Compare methods on one text: one line each, with its deletion score for this text.")
def compare(
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    pair: Annotated[str | None, typer.Option("--pair", help="Second text of a pair.")] = None,
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
    found = inputs.gather([text], pair, None, [])
    built = inputs.built_methods(methods, settings or [])
    sink = sink_of(form, out, _look(level, False, numbers), 1)
    subject = answers.opened(model, references, heads)
    chosen = answers.able(subject, built) if methods == "all" else built
    asked = answers.Asked(chosen, inputs.wanted_target(target, against), "truncate", False)
    comparison = answers.compared(subject, found, asked)
    if sink.kind in ("json", "jsonl"):
        put(comparison.to_json(sink.kind == "jsonl"), out)
        return
    write_results([comparison.result], replace(sink, look=replace(sink.look, remarks=comparison.remarks())))
    if sink.kind == "terminal" and out is None:
        typer.echo(answers.DELETION_NOTE)


def _look(level: str, differences: bool, numbers: bool, how: str = "bilinear") -> Look:
    return Look(level, differences, numbers, how=how)  # type: ignore[arg-type]  # Look says what is allowed


def _list(shown: RenderableType) -> None:
    """A pipe has no width, so lines stay whole."""
    console = Console()
    (console if console.is_terminal else Console(width=LINE)).print(shown)


@app.command(
    epilog=f"Interrupted, the same command goes on where it stopped. {DEBUG}",
    help="Measure how faithful methods are on many texts: a table with intervals and tests, curves, a report.",
)
def bench(
    data: Annotated[
        Path | None, typer.Option("--data", help="Texts: csv, tsv, jsonl, parquet or txt; of qa, SQuAD's json.")
    ] = None,
    task: Annotated[str, typer.Option("--task", help="texts; or qa, for models that answer questions.")] = "texts",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the results; a run goes on there.")] = None,
    model: Model = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Names, separated by commas; or all. By default all but the dearest."),
    ] = None,
    settings: Settings = None,
    metrics: Annotated[str | None, typer.Option("--metrics", help="Names, separated by commas.")] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="recommended, or as a paper: contrast-cat, attcat, mask-lrp.")
    ] = "recommended",
    perturbation: Annotated[str | None, typer.Option("--perturbation", help="delete, mask, pad.")] = None,
    order: Annotated[str | None, typer.Option("--order", help="morf, lerf, random.")] = None,
    grid: Annotated[str | None, typer.Option("--grid", help="tenths, ninths, twentieths, all.")] = None,
    level: Annotated[str | None, typer.Option("--level", help="Remove token by token, or word by word.")] = None,
    min_tokens: Annotated[int | None, typer.Option("--min-tokens", help="Leave shorter texts out.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Of qa: how many of the highest tokens count; 20.")] = None,
    sample: Annotated[int | None, typer.Option("--sample", help="Number of texts; by default all.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the sample.")] = None,
    column: Columns = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of the labels.")] = None,
    references: References = None,
    heads: Heads = None,
    controls: Annotated[bool, typer.Option(help="Also measure random and, on texts, refined-noise.")] = True,
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
    table = benchmark(call, answers.opened_call(call), out)
    _list(answers.bench_page(table))
    if out is not None:
        answers.say(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir() if path.is_file()))}")
    failed = [line for gate in checks for line in gate.failures(table)]
    for line in failed:
        answers.say(line)
    if failed:
        raise typer.Exit(1)


@app.command(epilog=DEBUG, help="List the methods; or say more about one.")
def methods(name: Annotated[str | None, typer.Argument(metavar="NAME")] = None) -> None:
    _list(answers.method_list() if name is None else answers.method_page(name))


@app.command(epilog=DEBUG, help="List the metrics that say how faithful an explanation is.")
def metrics() -> None:
    _list(answers.metric_list())


@app.command(epilog=DEBUG, help="What whichtoken finds in a model: architecture, layers, labels, what is supported.")
def model(
    name: Annotated[str | None, typer.Argument(metavar="MODEL")] = None,
    references: References = None,
    heads: Heads = None,
) -> None:
    _list(answers.model_page(answers.opened(name, references, heads)))


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


@references_app.command("build", epilog=DEBUG, help="Scan texts like the training texts; keep those to contrast with.")
def references_build(
    texts: Annotated[Path, typer.Argument(metavar="FILE", help="csv, tsv, jsonl, parquet or txt.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make.")],
    model: Model = None,
    column: Columns = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of the labels.")] = None,
    settings: Settings = None,
) -> None:
    subject = answers.opened(model, None)
    library = answers.build_library(subject, texts, out, answers.Building(column, label, settings or []))
    _say_summary(library.summary())
    answers.say(f"written to {out}; use it with --references {out}")


@references_app.command("show", epilog=DEBUG, help="What a reference library holds.")
def references_show(folder: Annotated[Path, typer.Argument(metavar="FOLDER")]) -> None:
    _say_summary(whichtoken.load_references(folder).summary())


@heads_app.command("build", epilog=DEBUG, help="Read where heads point in a parsed corpus; choose those that qualify.")
def heads_build(
    out: Annotated[Path, typer.Option("--out", help="JSON file to make.")],
    conllu: Annotated[
        list[Path] | None,
        typer.Option("--conllu", help="Corpus in CoNLL-U format, as the Universal Dependencies are; repeatable."),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option("--text", help="Or a csv, tsv, jsonl, parquet or txt file, to be parsed by spaCy."),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", help="spaCy pipeline that parses --text; by default en_core_web_sm."),
    ] = None,
    model: Model = None,
    settings: Settings = None,
) -> None:
    corpus, chosen = Corpus(conllu or [], text, pipeline), rule_settings(settings or [])
    check_writable(out)
    sentences = corpus.sentences()
    mask = whichtoken.build_heads(answers.opened(model, None), sentences, corpus=corpus.name, out=out, **chosen)
    _show_heads(mask)
    answers.say(f"written to {out}; use it with --heads {out}")


@heads_app.command("show", epilog=DEBUG, help="What a head mask holds; by default that of the default model.")
def heads_show(
    file: Annotated[Path | None, typer.Argument(metavar="FILE")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Picture to write: png, svg or pdf.")] = None,
) -> None:
    from whichtoken.heads import read_heads

    mask = shipped() if file is None else read_heads(file)
    if out is not None:
        whichtoken.plot_heads(mask, out)
    _show_heads(mask)


def _show_heads(mask: "whichtoken.HeadMask") -> None:
    from whichtoken.render.terminal import heads_view

    _list(heads_view(mask))
    if not mask.n_selected:
        answers.say(NO_HEADS)


def _say_summary(summary: str) -> None:
    """A library may come from elsewhere, and so its labels."""
    typer.echo("\n".join(visible(line) for line in summary.split("\n")))
