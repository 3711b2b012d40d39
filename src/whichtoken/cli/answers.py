"""What the commands say: calls into the library, and the lists and pages that are not results."""

import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from whichtoken.catalogue import catalogue
from whichtoken.cli.inputs import Given, parsed_settings
from whichtoken.errors import UnknownName, UsageError, WhichTokenError
from whichtoken.metrics.curves import METRICS, WIDER, Metric, Wider, aopc
from whichtoken.records import Attribution, Curve
from whichtoken.render.rows import visible
from whichtoken.render.terminal import table_view

if TYPE_CHECKING:
    from whichtoken.bench.auto import Choice
    from whichtoken.cli.bench import BenchCall
    from whichtoken.models import Subject
    from whichtoken.references import ReferenceLibrary
    from whichtoken.tables import BenchTable
    from whichtoken.tasks import Reason

NO_HEADS = (
    "no head qualifies: Mask-LRP then passes relevance through residual connections only, and its scores will all be "
    "0, or the same where a model reads a mean (but for preset repo, which reads heads before the mask); "
    "lower thresholds (-o syntactic=... -o positional=...) or another corpus may help"
)

LIBRARIES = ("references", "heads")  # that a subject may have, as its field and as a command
POOLED = Wider(  # described here: a list should not wait for numpy, which the module of the metric imports
    "pooled-auc",
    "Han et al., UAI 2025 (deduced)",
    "area under the mean curve of AOPC or log-odds, all methods scaled together",
    "higher",
    "0 to 0.8",
)


@dataclass(frozen=True)
class Asked:
    methods: Sequence[Any]
    target: Any
    long: Any
    layers: bool


def say(line: str) -> None:
    """To people, not to pipes."""
    print(f"whichtoken: {line}", file=sys.stderr)


def opened(model: str | None, references: Path | None, heads: Path | None = None) -> "Subject":
    if references is not None and not references.is_dir():
        raise UsageError(f"there is no folder {references}; whichtoken references build makes it")
    if heads is not None and not heads.is_file():
        raise UsageError(f"there is no file {heads}; whichtoken heads build makes it")
    with Console(stderr=True).status(Text(visible(f"loading {model or 'the default model'}"))):  # on a terminal only
        from whichtoken.models import load

        return load(model, references=references, heads=heads)


def able(subject: "Subject", methods: Sequence[Any]) -> list[Any]:
    """Those that the model can run; which ones it cannot is said."""
    for reason, without in refused(subject, methods).items():
        listed = ", ".join(method.label for method in without)
        say(f"left out, because {reason.why}: {listed}{f' ({reason.fix})' if reason.fix else ''}")
    lost = [method for without in refused(subject, methods).values() for method in without]
    return [method for method in methods if method not in lost]


def refused(subject: "Subject", methods: Sequence[Any]) -> "dict[Reason, list[Any]]":
    """Methods that the model cannot run, by the reason."""
    from whichtoken.tasks import task_for

    task, found = task_for(subject), dict[Any, list[Any]]()
    for method in methods:
        reason = task.can_run(method)
        if reason is not None:
            found.setdefault(reason, []).append(method)
    return found


def default_methods(subject: "Subject") -> str:
    from whichtoken.tasks import task_for

    return task_for(subject).default_methods


def explained(subject: "Subject", given: Given, asked: Asked) -> Iterator[Mapping[str, Attribution]]:
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


def build_library(subject: "Subject", source: Path, out: Path, options: "Building") -> "ReferenceLibrary":
    from dataclasses import fields

    from whichtoken.references import Recipe
    from whichtoken.references.build import build_references

    settings = parsed_settings(options.settings)
    known = ["preset", *(f.name for f in fields(Recipe))]
    for setting in settings:
        if setting not in known:
            raise UnknownName("setting of references build", setting, known)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        library = build_references(subject, source, options.label, columns=options.columns, out=out, **settings)
    for warning in caught:
        say(str(warning.message))
    return library


@dataclass(frozen=True)
class Building:
    """How a corpus is read and which of its texts are kept."""

    columns: Sequence[str] | None
    label: str | None
    settings: Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """Methods on one text, the best first."""

    result: Mapping[str, Attribution]
    curves: Mapping[str, Curve]
    unit: str  # what was explained
    tokens: str  # and what its parts are called

    @property
    def word(self) -> str:
        return "deletion" if self._removal == "delete" else f"removal ({self._removal})"

    @property
    def _removal(self) -> str:
        return next(iter(self.curves.values())).perturbation

    @property
    def note(self) -> str:
        gone = "deleted" if self._removal == "delete" else "removed"
        return (
            f"{self.word}: mean drop of the probability when 10, 20 .. 90 % of the {self.tokens} are {gone}, the "
            f"highest scores first; one {self.unit} says little about a method"
        )

    def deletion(self, name: str) -> float:
        return aopc(self.curves[name])

    def remarks(self) -> dict[str, str]:
        """Which are best, of all and of those that did not search; there may be ties."""
        shown = {name: f"{self.deletion(name):+.3f}" for name in self.result}
        best = next(iter(shown.values()))
        honest = next((shown[name] for name in shown if not self.result[name].searched), None)
        marks = {
            name: ", best" if score == best else ", best that did not search"
            for name, score in shown.items()
            if score == best or (score == honest and not self.result[name].searched)
        }
        return {name: f"{self.word} {score}{marks.get(name, '')}" for name, score in shown.items()}

    def to_json(self, lines: bool) -> str:
        """A list of methods, or one method on each line."""
        rows = [
            {
                "method": name,
                "searched": attribution.searched,
                "metrics": {m.name: m.measure(self.curves[name]) for m in METRICS.values() if m.curve == "any"},
                "curve": json.loads(self.curves[name].to_json()),
                "attribution": json.loads(attribution.to_json()),
            }
            for name, attribution in self.result.items()
        ]
        written = [json.dumps(row, ensure_ascii=False) for row in rows]
        return "\n".join(written) + "\n" if lines else "[\n" + ",\n".join(written) + "\n]\n"


def compared(subject: "Subject", given: Given, asked: Asked) -> Comparison:
    from whichtoken.evaluate import degrade
    from whichtoken.tasks import task_for

    result = next(iter(explained(subject, given, asked)))
    items = list(given) * len(result)
    curves = dict(zip(result, degrade(subject, list(result.values()), inputs=items), strict=True))
    ranked = sorted(result, key=lambda name: -aopc(curves[name]))
    task = task_for(subject)
    return Comparison({name: result[name] for name in ranked}, curves, task.unit, task.tokens)


def auto(subject: "Subject", given: Given, benchmark: Path | None) -> "Choice":
    """The method that did best for this model, and why; said, because it may take a while to find out."""
    from whichtoken._explain import check_keyword
    from whichtoken.bench.auto import best_method

    check_keyword(subject, given.keyword)
    choice = best_method(subject, given, benchmark)
    say(f"auto: {choice.why}")
    return choice


def with_reason(
    results: Iterator[Mapping[str, Attribution]], choice: "Choice | None"
) -> Iterator[Mapping[str, Attribution]]:
    """Results that say why their method was chosen, if nobody named one."""
    for result in results:
        if choice is None:
            yield result
        else:
            yield {key: replace(one, details={**one.details, "auto": choice.why}) for key, one in result.items()}


def check_bench(out: Path | None) -> None:
    if out is not None:
        from whichtoken.bench.folder import check_tools

        check_tools()


def opened_call(call: "BenchCall") -> "Subject":
    return opened(call.model, *(None if path is None else Path(path) for path in (call.references, call.heads)))


def bench_page(table: "BenchTable") -> RenderableType:
    from whichtoken.render.terminal import bench_view

    return bench_view(table)


def method_list() -> RenderableType:
    head = ("method", "paper", "reads", "asks the model for", "deterministic", "searched")
    rows = [(e.name, e.paper, e.reads, e.asks, e.deterministic, "yes" if e.searched else "no") for e in catalogue()]
    notes = (
        "\nreads: of one forward and one backward pass that all methods share; d is the gradient. Relevance takes one "
        "more pass for each set of rules (in brackets). searched: looks at the deletion curve, so deletion scores "
        "flatter it.\nMore: whichtoken methods NAME"
    )
    return Group(table_view(head, rows), Text(notes, style="dim"))


def method_page(name: str) -> RenderableType:
    entries = {entry.name: entry for entry in catalogue()}
    if name not in entries:
        raise UnknownName("method", name, entries)
    entry = entries[name]
    facts = [
        ("paper", entry.paper),
        ("reads", entry.reads),
        ("asks", entry.asks),
        ("deterministic", entry.deterministic),
        ("searched", "yes: its deletion scores flatter it" if entry.searched else "no"),
        ("presets", ", ".join(f"{name}@{preset}" for preset in entry.presets) or "none"),
    ]
    settings = [(f"-o {key}=...", f"default {value}") for key, value in entry.settings.items()]
    return Group(Text(entry.about, style="bold"), table_view(("", ""), [*facts, *settings]))


def metric_list() -> RenderableType:
    head = ("metric", "paper", "what it says", "better", "range")
    listed: list[Metric | Wider] = [*METRICS.values(), *WIDER.values(), POOLED]
    rows = [(m.name, m.paper, m.about, m.better or "neither", m.span) for m in listed]
    note = "\nbetter: when the most relevant tokens go first. compare has those of one curve, bench has all of them."
    return Group(table_view(head, rows), Text(note, style="dim"))


def model_page(subject: "Subject") -> RenderableType:
    from whichtoken.core.registry import method, method_names
    from whichtoken.tasks import task_for

    config, names = subject.model.config, method_names()
    lacking = refused(subject, [method(name) for name in names])
    able = len(names) - sum(map(len, lacking.values()))
    without = "".join(f"; not {', '.join(m.label for m in ms)}: {reason.why}" for reason, ms in lacking.items())
    held = [(name, getattr(subject, name)) for name in LIBRARIES]
    makes = any(reason.library for reason in lacking) or any(library for _, library in held)
    libraries = [(name, str(library or f"none; see: whichtoken {name} build --help")) for name, library in held]
    reads = subject.architecture.attention or "the attention interface of transformers"
    facts = [
        ("model", subject.title),
        ("revision", subject.fingerprint()[:26]),
        ("architecture", f"{config.model_type} ({type(subject.model).__name__})"),
        ("layers", f"{subject.n_layers} blocks, {config.num_attention_heads} heads, {config.hidden_size} wide"),
        ("parameters", f"{sum(p.numel() for p in subject.model.parameters()):,}, in {subject.model.dtype}"),
        *task_for(subject).facts(),
        ("attention", f"read from {reads}"),
        *(libraries if makes else []),
        ("methods", f"{able} of {len(names)}{without}"),
    ]
    return table_view(("", ""), [(Text(name, style="bold"), value) for name, value in facts])
