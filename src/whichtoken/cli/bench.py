"""The command `bench`: from options to a benchmark, and from its table to an exit code."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whichtoken.cli.inputs import built_methods
from whichtoken.cli.options import Columns, Heads, Model, References, Settings, print_list
from whichtoken.cli.subject import open_subject, say
from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.render.terminal import bench_view
from whichtoken.tables import BenchTable, in_order

if TYPE_CHECKING:
    from whichtoken.bench._protocol import Protocol
    from whichtoken.models import Subject
    from whichtoken.tasks import Task


OWN = "random (whichtoken)"
OF_CURVES = {"perturbations": "--perturbation", "orders": "--order", "grids": "--grid", "level": "--level"}


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
) -> None:
    asked = {"metrics": metrics, "perturbations": perturbation, "orders": order, "grids": grid, "level": level}
    more = {"min_tokens": min_tokens, "k": k, "sample": sample, "seed": seed}
    paths = [None if path is None else str(path) for path in (data, references, heads, train, attributions)]
    call = BenchCall(
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
    checks = gates(fail_under or [], call.metrics())  # a wrong word should not wait for the model
    if out is not None:
        from whichtoken.bench.folder import check_tools

        check_tools()
    table = benchmark(call, open_subject(model, references, heads), out, checks)
    print_list(bench_view(table))
    if out is not None:
        say(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir() if path.is_file()))}")
    failed = [line for gate in checks for line in gate.failures(table)]
    for line in failed:
        say(line)
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class BenchCall:
    """What the user asked for, in words; as `spec.json` keeps it, so that it can be asked for again."""

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

    def __post_init__(self) -> None:
        if self.data is None and self.attributions is None:
            raise UsageError("give the inputs to measure on: --data FILE; or --attributions FILE, which holds its own")
        if self.ablation is not None and (self.methods is not None or self.settings):
            raise UsageError("--ablation has methods of its own; leave --methods and -o out")
        if self.ablation is not None and self.attributions is not None:
            raise UsageError("--ablation compares variants of one method; leave --attributions out")
        if self.train is not None and self.ablation is None:
            raise UsageError("--train is for ablations that build reference libraries; give --ablation too")
        for path in (self.data, self.train, self.attributions):
            if path is not None and not Path(path).exists():
                raise UsageError(f"there is no file {path}")
        named = [option for option, given in (("--column", self.column), ("--label", self.label)) if given]
        if named and self.data is not None and (Path(self.data).is_dir() or Path(self.data).suffix.lower() == ".json"):
            raise UsageError(f"{', '.join(named)}: {self.data} has no columns; leave that out")

    def made(self) -> "Protocol":
        from whichtoken.bench._protocol import protocol

        return protocol(self.protocol, **self.changes)

    def metrics(self) -> tuple[str, ...]:
        """What --fail-under may name. An error if a word of the protocol is wrong."""
        from whichtoken.bench.metrics import METRICS

        return gated(METRICS, self.made().k)

    def origin(self) -> dict[str, Any]:
        """For `spec.json`: the paths and words that the rest of it was made from."""
        made = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}
        if self.task is None:
            del made["task"]  # folders that were begun before there were tasks go on
        changes = {key: value for key, value in self.changes.items() if key != "sample"}
        return {"call": {**made, "changes": changes}}


def benchmark(call: BenchCall, subject: "Subject", out: Path | None, checks: "Sequence[Gate]" = ()) -> BenchTable:
    """`checks`: what the table will have to pass."""
    from whichtoken.bench._run import gather, prepare, run_sample
    from whichtoken.bench.external import read_external_scores
    from whichtoken.bench.folder import Folder, draw_variants
    from whichtoken.tasks import BenchInput, task_for

    task = task_for(subject)
    _check_task(call, task)
    how = call.made()
    _check_effect(call, how.suited_to(task), checks)
    given = {} if call.attributions is None else read_external_scores(Path(call.attributions), task)
    names = {name for of_text in given.values() for name in of_text}
    methods = chosen(call, subject, names)
    if twice := sorted(names & methods.keys()):
        raise UsageError(f"{', '.join(twice)}: measured here and scored in {call.attributions}; rename it there")
    bench = prepare(subject, methods, how, given)
    if call.data is None:
        examples: Any = [BenchInput(texts, where=f"{call.attributions}, text {i}") for i, texts in enumerate(given)]
    else:
        examples = bench.task.examples(call.data, call.label, list(call.column) or None)
    table = run_sample(bench, gather(bench, examples, given or None), Folder.at(out), call.origin())
    if call.ablation is None:
        return table
    ordered = in_order(table, list(methods))
    if out is not None:
        draw_variants(ordered, out)
    return ordered


def _check_task(call: BenchCall, task: "Task") -> None:
    if call.task not in (None, task.name):
        found = f"{task.subject.title} {task.reads}, which is --task {task.name}, and --task {call.task} was given"
        raise UsageError(f"{found}; leave it out, or give another --model")


def _check_effect(call: BenchCall, how: "Protocol", checks: "Sequence[Gate]") -> None:
    """Options that would change nothing are refused, and so are gates of what is not measured."""
    if "k" in call.changes and "precision" not in (how.metrics or ()):
        raise UsageError("--k is how many of the highest tokens count as found in an answer; this measures none")
    idle = [option for name, option in OF_CURVES.items() if name in call.changes and not how.plans()]
    if idle:
        listed = ", ".join(idle)
        raise UsageError(f"{listed}: how parts are removed, and no metric looks at that; add --metrics aopc")
    for gate in checks:
        gate.check(gated(how.metrics or (), how.k))


def chosen(call: BenchCall, subject: "Subject", given: Collection[str]) -> dict[str, Any]:
    """By the name that tables show; `given`: names of what was scored elsewhere."""
    from whichtoken.bench.selection import default_methods
    from whichtoken.bench.table import CONTROLS
    from whichtoken.core.registry import method
    from whichtoken.reproduce.ablations import ablation
    from whichtoken.tasks import task_for

    if call.ablation is not None:
        return ablation(call.ablation, subject, call.train)
    task, words, names = task_for(subject), list(call.settings), call.methods
    usual = default_methods(task, curves=bool(call.made().suited_to(task).plans()))
    if names is None and call.attributions is None:
        names = ",".join(name for name in usual if name not in CONTROLS)
    built = built_methods(names, words) if names is not None else []
    if names == "all":
        built = [one for one in built if task.can_run(one) is None]
    found = {one.label: one for one in built}
    if call.controls:
        controls = [name for name in CONTROLS if name in usual and name not in {*found, *given}]
        found |= {name: method(name) for name in controls}
    return found or {OWN: method("random")}  # what was scored elsewhere is laid on something scored here


@dataclass(frozen=True)
class Gate:
    """A value that every method must reach, controls excepted."""

    metric: str
    least: float

    def check(self, known: Sequence[str]) -> None:
        if self.metric.partition(" ")[0] not in known:
            raise UnknownName("metric of --fail-under", self.metric, known)

    def failures(self, table: BenchTable) -> list[str]:
        columns = [c for c in table.columns if self.metric in (c.name, c.metric)]
        if not columns:
            raise UnknownName("metric of --fail-under", self.metric, [column.name for column in table.columns])
        column = columns[0]
        sign = -1 if column.better == "lower" else 1
        relation = "above" if column.better == "lower" else "below"
        judged = [line for line in table.lines if not line.control and column.name in line.cells]
        values = {line.method: line.cells[column.name].mean for line in judged}
        return [
            f"{method}: {column.title} is {value:.3f}, {relation} {self.least:g}"
            for method, value in values.items()
            if sign * value < sign * self.least
        ]


def gated(metrics: Iterable[str], k: int) -> tuple[str, ...]:
    """What --fail-under may name where these metrics are measured: the first words of their columns."""
    counted = {"precision": (f"precision@{k}", f"share@{k}")}
    return *(word for name in metrics for word in counted.get(name, (name,))), "seconds", "evaluations"


def gates(words: Sequence[str], known: Sequence[str]) -> list[Gate]:
    """`known`: metrics. A wrong word should not wait for the benchmark."""
    found = []
    for word in words:
        metric, _, value = (part.strip() for part in word.partition("="))
        Gate(metric, nan).check(known)
        try:
            least = float(value)
        except ValueError:
            least = nan
        if isnan(least):
            raise BadSetting("--fail-under", word, "metric=number, such as aopc=0.4")
        found.append(Gate(metric, least))
    return found


def changes_of(words: Mapping[str, str | int | None]) -> dict[str, Any]:
    """Options that change the protocol: lists are separated by commas."""
    lists = ("perturbations", "orders", "grids", "metrics")
    return {
        name: tuple(part.strip() for part in str(value).split(",") if part.strip()) if name in lists else value
        for name, value in words.items()
        if value is not None
    }
