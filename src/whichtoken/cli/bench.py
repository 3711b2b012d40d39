"""The command `bench`: from words to a benchmark, and from its table to an exit code."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtoken.cli.inputs import built_methods
from whichtoken.errors import BadArtifact, BadSetting, UnknownName, UsageError
from whichtoken.tables import BenchTable, in_order

if TYPE_CHECKING:
    from whichtoken.bench.protocol import Protocol
    from whichtoken.bench.questions import QuestionProtocol
    from whichtoken.models import Subject


SPELLED = {"perturbations": "perturbation", "orders": "order", "grids": "grid", "min_tokens": "min-tokens"}
OWN = "random (whichtoken)"
TASKS = ("texts", "qa")
OF_TEXTS = ("perturbations", "orders", "grids", "level", "metrics", "min_tokens")  # changes that only they can have


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
    task: str = "texts"

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownName("task", self.task, TASKS)
        if self.task == "qa":
            self._check_questions()
        elif "k" in self.changes:
            raise UsageError("--k is how many of the highest tokens are looked at for an answer; add --task qa")
        if self.data is None and self.attributions is None:
            raise UsageError("give the texts to measure on: --data FILE; or --attributions FILE, which holds its own")
        if self.ablation is not None and (self.methods is not None or self.settings):
            raise UsageError("--ablation has methods of its own; leave --methods and -o out")
        if self.ablation is not None and self.attributions is not None:
            raise UsageError("--ablation compares variants of one method; leave --attributions out")
        if self.train is not None and self.ablation is None:
            raise UsageError("--train is for ablations that build reference libraries; give --ablation too")
        for path in (self.data, self.train, self.attributions):
            if path is not None and not Path(path).is_file():
                raise UsageError(f"there is no file {path}")

    def _check_questions(self) -> None:
        if self.data is None:
            raise UsageError("give the questions to measure on, in SQuAD's form: --data FILE.json")
        given = {
            "--protocol": self.protocol != "recommended",
            "--column": bool(self.column),
            **{f"--{name}": getattr(self, name) is not None for name in ("label", "ablation", "train", "attributions")},
            **{f"--{SPELLED.get(name, name)}": name in self.changes for name in OF_TEXTS},
        }
        if any(given.values()):
            listed = ", ".join(option for option in given if given[option])
            raise UsageError(f"{listed}: for texts; --task qa counts the tokens of answers, so leave that out")

    def made(self) -> "Protocol":
        from whichtoken.bench.protocol import protocol

        return protocol(self.protocol, **self.changes)

    def made_for_questions(self) -> "QuestionProtocol":
        from whichtoken.bench.questions import question_protocol

        return question_protocol(**self.changes)

    def metrics(self) -> tuple[str, ...]:
        """What --fail-under may name: the first words of columns. An error if a word of the protocol is wrong."""
        from whichtoken.bench.protocol import METRIC_NAMES

        if self.task == "qa":
            k = self.made_for_questions().k
            return f"precision@{k}", f"share@{k}", "seconds", "evaluations"
        self.made()
        return *METRIC_NAMES, "seconds", "evaluations"

    def origin(self) -> dict[str, Any]:
        """For `spec.json`: the paths and words that the rest of it was made from."""
        made = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}
        if self.task == "texts":
            del made["task"]  # folders of texts that were begun before there were tasks go on
        changes = {key: value for key, value in self.changes.items() if key != "sample"}
        return {"call": {**made, "changes": changes}}


def call_from(path: Path, sample: int | None) -> BenchCall:
    """That of a `spec.json`, to make the same benchmark again."""
    from whichtoken.bench.folder import read_spec

    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = read_spec(path)
    call = spec.get("call")
    if not isinstance(call, dict):
        raise BadArtifact(
            f"{path} was not written by `whichtoken bench`, so the paths of model and texts are not in it"
        )
    size = spec.get("sample") if sample is None else sample
    try:
        changes = {**call["changes"], **({} if size is None else {"sample": size})}
        words: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in call.items()}
        return BenchCall(**(words | {"changes": changes}))
    except (KeyError, TypeError) as error:
        raise BadArtifact(f"{path} holds no call of `whichtoken bench`: {error!r}") from error


def benchmark(call: BenchCall, subject: "Subject", out: Path | None) -> BenchTable:
    from whichtoken.bench.external import read_given
    from whichtoken.bench.folder import Folder, draw_variants
    from whichtoken.bench.measure import Bench
    from whichtoken.bench.run import gather, run
    from whichtoken.data import Example, read_examples

    if call.task == "qa":
        return _questions(call, subject, out)
    how = call.made()
    given = {} if call.attributions is None else read_given(Path(call.attributions), subject)
    names = {name for of_text in given.values() for name in of_text}
    methods = chosen(call, subject, names)
    if twice := sorted(names & methods.keys()):
        raise UsageError(f"{', '.join(twice)}: measured here and scored in {call.attributions}; rename it there")
    bench = Bench(subject, methods, how, given)
    if call.data is None:
        examples: Any = [Example(texts, where=f"{call.attributions}, text {i}") for i, texts in enumerate(given)]
    else:
        examples = read_examples(call.data, call.label, list(call.column) or None)
    texts = gather(subject, examples, how, given or None)
    table = run(bench, texts, Folder.at(out), call.origin())
    if call.ablation is None:
        return table
    ordered = in_order(table, list(methods))
    if out is not None:
        draw_variants(ordered, out)
    return ordered


def _questions(call: BenchCall, subject: "Subject", out: Path | None) -> BenchTable:
    from whichtoken.bench.folder import Folder
    from whichtoken.bench.questions import gather_questions, question_bench, run_questions

    bench = question_bench(subject, chosen(call, subject, ()).values(), call.made_for_questions())
    return run_questions(bench, gather_questions(bench, call.data), Folder.at(out), call.origin())


def chosen(call: BenchCall, subject: "Subject", given: Collection[str]) -> dict[str, Any]:
    """By the name that tables show; `given`: names of what was scored elsewhere."""
    from whichtoken.bench import questions
    from whichtoken.bench.selection import able, usual_methods
    from whichtoken.bench.table import CONTROLS
    from whichtoken.core.registry import method
    from whichtoken.reproduce.ablations import ablation

    if call.ablation is not None:
        return ablation(call.ablation, subject, call.train)
    words, names = list(call.settings), call.methods
    if names is None and call.attributions is None:
        names = ",".join(name for name in usual_methods(subject) if name not in CONTROLS)
    built = built_methods(names, words) if names is not None else []
    if names == "all":
        built = [one for one in built if able(subject, one)]
    found = {one.label: one for one in built}
    if call.controls:
        controls = questions.CONTROLS if call.task == "qa" else CONTROLS
        found |= {name: method(name) for name in controls if name not in {*found, *given}}
    return found or {OWN: method("random")}  # what was scored elsewhere is laid on something scored here


@dataclass(frozen=True)
class Gate:
    """A value that every method must reach, controls excepted."""

    metric: str
    least: float

    def failures(self, table: BenchTable) -> list[str]:
        columns = [c for c in table.columns if self.metric in (c.name, c.name.split(" ")[0])]
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


def gates(words: Sequence[str], known: Sequence[str]) -> list[Gate]:
    """`known`: metrics. A wrong word should not wait for the benchmark."""
    found = []
    for word in words:
        metric, _, value = (part.strip() for part in word.partition("="))
        if metric.partition(" ")[0] not in known:
            raise UnknownName("metric of --fail-under", metric, known)
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
