"""The command `bench`: turn options into a benchmark, and its table into an exit code."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whichtoken.cli.bench_gates import Gate, gate_names, parse_gates
from whichtoken.cli.bench_options import choose_protocol, parse_changes, read_prompts
from whichtoken.cli.completion import complete_methods, complete_metrics, one_of, some_of
from whichtoken.cli.inputs import build_methods
from whichtoken.cli.options import (
    METHODS,
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
    Trust,
    print_list,
    single_value,
)
from whichtoken.cli.rows import BadRows, Delimiter, InputFormat, OnBadRowOption, RowOptions
from whichtoken.cli.subject import Opening, open_subject, say
from whichtoken.errors import UsageError
from whichtoken.render.terminal import bench_view
from whichtoken.tables import BenchTable, order_lines

if TYPE_CHECKING:
    from whichtoken.bench._protocol import Protocol
    from whichtoken.models import Subject
    from whichtoken.tasks import Task


OWN = "random (whichtoken)"
FAILED = "failed.jsonl"  # rows that were skipped
CURVE_OPTIONS = {"perturbations": "--perturbation", "orders": "--order", "grids": "--grid", "level": "--level"}


def bench(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="csv, tsv, jsonl, parquet or txt file; SQuAD json for questions; folder of images."
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts", help="For models that generate text: a file with a column prompt or messages, such as jsonl."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="Check that the model is for texts, qa, tokens, images or generate (prompts).",
            autocompletion=one_of("texts", "qa", "tokens", "images", "generate"),
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the results; an interrupted run resumes there.")
    ] = None,
    model: Model = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            *METHODS,
            help="Comma-separated names, or all; default: all except the most expensive.",
            autocompletion=complete_methods,
        ),
    ] = None,
    settings: Settings = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="Comma-separated names (see: metrics).", autocompletion=complete_metrics),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure 20 inputs by AOPC, with the cheap methods: a first answer.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Also search for the bounds of AOPC, which takes most of the time.")
    ] = False,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            help="recommended (default), or that of a paper: contrast-cat, attcat, attcat-paper, mask-lrp.",
            autocompletion=one_of("recommended", "contrast-cat", "attcat", "attcat-paper", "mask-lrp"),
        ),
    ] = None,
    perturbation: Annotated[
        str | None,
        typer.Option(
            "--perturbation",
            help="delete, mask or pad; for images black or mean.",
            autocompletion=some_of("delete", "mask", "pad", "black", "mean"),
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order", help="Removal order: morf, lerf or random.", autocompletion=some_of("morf", "lerf", "random")
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            "--grid",
            help="Removal steps: tenths, tenths-to-all, twentieths or all.",
            autocompletion=some_of("tenths", "tenths-to-all", "twentieths", "all"),
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            help="Units of removal: token (image patch), word or pixel; for prompts also sentence, document and, for "
            "example, word-but-last-word.",
            autocompletion=some_of("token", "word", "pixel", "sentence", "document"),
        ),
    ] = None,
    min_tokens: Annotated[int | None, typer.Option("--min-tokens", help="Skip shorter inputs.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Truncate longer texts.")] = None,
    generate: Annotated[
        int | None, typer.Option("--generate", help="For prompts: maximum number of tokens in an answer; default: 32.")
    ] = None,
    ablations: Annotated[
        int | None, typer.Option("--ablations", help="For the metric lds: random removals per input; default: 32.")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="For qa: how many of the top tokens count; default: 20.")] = None,
    sample: Annotated[int | None, typer.Option("--sample", help="Number of inputs; default: all.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed of the sample.")] = None,
    column: Columns = None,
    label: Annotated[str | None, typer.Option("--label", help="Column with the labels.")] = None,
    delimiter: Delimiter = None,
    input_format: InputFormat = None,
    on_bad_row: OnBadRowOption = "error",
    references: References = None,
    heads: Heads = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    reading: Reading = None,
    special_tokens: SpecialTokens = "control",
    controls: Annotated[
        bool, typer.Option(help="Also measure random and, if words are deleted, refined-noise.")
    ] = True,
    ablation: Annotated[
        str | None, typer.Option("--ablation", help="Compare variants of one method instead (see docs/evaluation.md).")
    ] = None,
    train: Annotated[
        Path | None, typer.Option("--train", help="Labelled texts, for ablations that build reference libraries.")
    ] = None,
    attributions: Annotated[
        Path | None, typer.Option("--attributions", help="Also measure external scores, in JSON lines.")
    ] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option("--fail-under", metavar="METRIC=VALUE", help="Exit with code 1 if a method is worse; repeatable."),
    ] = None,
) -> None:
    protocol_options = {
        "metrics": metrics,
        "perturbations": perturbation,
        "orders": order,
        "grids": grid,
        "level": level,
    }
    more = {"min_tokens": min_tokens, "max_tokens": max_tokens, "k": k, "sample": sample, "seed": seed}
    more |= {"generate": generate, "ablations": ablations}
    if prompts is not None:
        data, task = read_prompts(prompts, data, task), "generate"
    paths = [None if path is None else str(path) for path in (data, references, heads, train, attributions)]
    call = BenchCall(
        data=paths[0],
        column=tuple(column or ()),
        label=label,
        model=model,
        references=paths[1],
        heads=paths[2],
        methods=single_value("--method", methods),
        settings=tuple(settings or ()),
        protocol=choose_protocol(protocol, {"quick": quick, "full": full}),
        changes=parse_changes({**protocol_options, **more}),
        controls=controls,
        ablation=ablation,
        train=paths[3],
        attributions=paths[4],
        task=task,
        delimiter=delimiter,
        input_format=input_format,
        on_bad_row=on_bad_row,
    )
    bad = call.rows.collector()
    gates = parse_gates(fail_under or [], call.metrics())  # before loading the model
    if out is not None:
        from whichtoken.bench.folder import check_tools

        check_tools()
    opening = Opening(trust, device, dtype, revision, batch_size, reading, special_tokens)
    subject = open_subject(model, references, heads, opening)
    table = benchmark(call, subject, out, gates, bad)
    print_list(bench_view(table))
    _remember(subject, table)
    bad.report(None if out is None else out / FAILED)
    if out is not None:
        say(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir() if path.is_file()))}")
    failed = [line for gate in gates for line in gate.failures(table)]
    for line in failed:
        say(line)
    if failed:
        raise typer.Exit(1)


def _remember(subject: "Subject", table: BenchTable) -> None:
    """Store the benchmark for `explain --method auto`, and say what that will use."""
    from whichtoken.bench.auto import OWN, remember

    used = remember(subject, table)
    if used:
        say(f"explain --method auto {'will use this benchmark' if used == OWN else f'keeps using {used}'}")


@dataclass(frozen=True)
class BenchCall:
    """The options of a call as typed, which `spec.json` records."""

    data: str | None
    column: tuple[str, ...]
    label: str | None
    model: str | None
    references: str | None
    heads: str | None
    methods: str | None
    settings: tuple[str, ...]
    protocol: str
    changes: Mapping[str, Any]  # of the protocol
    controls: bool
    ablation: str | None
    train: str | None
    attributions: str | None
    task: str | None = None
    delimiter: str | None = None
    input_format: str | None = None
    on_bad_row: str = "error"

    def __post_init__(self) -> None:
        if self.data is None and self.attributions is None:
            raise UsageError(
                "give the inputs to measure on: --data FILE, or --attributions FILE, which contains the texts"
            )
        if self.ablation is not None and (self.methods is not None or self.settings):
            raise UsageError("--ablation chooses the methods; leave out --methods and -o")
        if self.ablation is not None and self.attributions is not None:
            raise UsageError("--ablation compares variants of one method; leave out --attributions")
        if self.train is not None and self.ablation is None:
            raise UsageError("--train is for ablations that build reference libraries; add --ablation")
        for path in (self.data, self.train, self.attributions):
            if path is not None and not Path(path).exists():
                raise UsageError(f"there is no file {path}")
        named = [option for option, value in (("--column", self.column), ("--label", self.label)) if value]
        if named and self.data is not None and (Path(self.data).is_dir() or Path(self.data).suffix.lower() == ".json"):
            raise UsageError(f"{', '.join(named)}: {self.data} has no columns; leave the option out")
        if self.data is None and self.rows.given:
            raise UsageError(f"{', '.join(self.rows.given)}: this applies to the rows of --data, which is missing")

    @property
    def rows(self) -> RowOptions:
        return RowOptions(self.delimiter, self.input_format, self.on_bad_row)

    def build_protocol(self) -> "Protocol":
        from whichtoken.bench._protocol import protocol

        return protocol(self.protocol, **self.changes)

    def metrics(self) -> tuple[str, ...]:
        """Return the names that --fail-under accepts; raise if a protocol option is wrong."""
        from whichtoken.bench.metrics import METRICS

        return gate_names(METRICS, self.build_protocol().k)

    def origin(self) -> dict[str, Any]:
        """Return the options as typed, for `spec.json`."""
        options = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}
        for key in ("delimiter", "input_format", "on_bad_row"):  # as in folders of versions without these options
            if options[key] == getattr(BenchCall, key):
                del options[key]
        changes = {key: value for key, value in self.changes.items() if key != "sample"}
        return {"call": {**options, "changes": changes}}


def benchmark(
    call: BenchCall,
    subject: "Subject",
    out: Path | None,
    gates: Sequence[Gate] = (),
    bad: BadRows | None = None,
) -> BenchTable:
    """Run the benchmark. `gates` are checked for metrics that are not measured; `bad` collects skipped rows."""
    from whichtoken.bench._run import gather, prepare, run_sample
    from whichtoken.bench.external import read_external_scores
    from whichtoken.bench.folder import Folder, draw_variants
    from whichtoken.tasks import BenchInput, task_for

    task, bad = task_for(subject), BadRows() if bad is None else bad
    _check_task(call, task)
    protocol = call.build_protocol()
    _check_effect(call, protocol.adapt_to(task), gates, task)
    external = {} if call.attributions is None else read_external_scores(Path(call.attributions), task)
    names = {name for of_text in external.values() for name in of_text}
    methods = choose_methods(call, subject, names)
    if duplicates := sorted(names & methods.keys()):
        raise UsageError(
            f"{', '.join(duplicates)}: measured here and also scored in {call.attributions}; rename it there"
        )
    bench = prepare(subject, methods, protocol, external)
    if call.data is None:
        examples: Any = [BenchInput(texts, where=f"{call.attributions}, text {i}") for i, texts in enumerate(external)]
    else:
        file = call.rows.open(Path(call.data), bad)
        examples = bench.task.examples(file, call.label, list(call.column) or None)
    sample = gather(bench, examples, external or None, bad)
    bad.n_rows = sample.n_found + len(bad)
    table = run_sample(bench, sample, Folder.at(out), call.origin())
    if call.ablation is None:
        return table
    ordered = order_lines(table, list(methods))
    if out is not None:
        draw_variants(ordered, out)
    return ordered


def _check_task(call: BenchCall, task: "Task") -> None:
    if call.task not in (None, task.name):
        conflict = (
            f"{task.subject.title} {task.describe_purpose()}, which is --task {task.name}, not --task {call.task}"
        )
        raise UsageError(f"{conflict}; leave out --task, or give another --model")


def _check_effect(call: BenchCall, protocol: "Protocol", gates: Sequence[Gate], task: "Task") -> None:
    """Raise for options without effect, and for gates on metrics that are not measured."""
    from whichtoken.bench.metrics import is_measurable

    if "k" in call.changes and "precision" not in (protocol.metrics or ()):
        raise UsageError("--k is for the metric precision, which is not measured here; leave it out")
    if "ablations" in call.changes and not protocol.ablates:
        raise UsageError("--ablations is for the metric lds, which is not measured here; leave it out")
    if "generate" in call.changes and not protocol.asks_for_text(task):
        raise UsageError(
            f"--generate is for models that generate text, but {task.subject.title} "
            f"{task.describe_purpose()}; leave it out"
        )
    idle = [option for name, option in CURVE_OPTIONS.items() if name in call.changes and not protocol.plans()]
    if idle:
        listed = ", ".join(idle)
        raise UsageError(f"{listed}: no metric here measures curves; leave it out, or add --metrics aopc")
    measured = [name for name in protocol.metrics or () if is_measurable(name, task.reading())]
    for gate in gates:
        gate.check(gate_names(measured, protocol.k))


def choose_methods(call: BenchCall, subject: "Subject", external: Collection[str]) -> dict[str, Any]:
    """Return the methods by their name in tables. `external`: names of external scores."""
    from whichtoken.bench.selection import default_methods
    from whichtoken.bench.table import CONTROLS
    from whichtoken.core.registry import method
    from whichtoken.reproduce.ablations import ablation
    from whichtoken.tasks import task_for

    if call.ablation is not None:
        return ablation(call.ablation, subject, call.train)
    task, words, names = task_for(subject), list(call.settings), call.methods
    protocol = call.build_protocol().adapt_to(task)
    defaults = default_methods(task, bool(protocol.plans()), protocol.effort)
    if names is None and call.attributions is None:
        names = ",".join(name for name in defaults if name not in CONTROLS)
    built = build_methods(names, words) if names is not None else []
    if names == "all":
        built = [candidate for candidate in built if task.can_run(candidate) is None]
    methods = {candidate.label: candidate for candidate in built}
    if call.controls:
        controls = [name for name in CONTROLS if name in defaults and name not in {*methods, *external}]
        methods |= {name: method(name) for name in controls}
    return methods or {OWN: method("random")}  # external scores need one attribution computed here
