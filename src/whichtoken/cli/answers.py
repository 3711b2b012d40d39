"""What the commands say: calls into the library, and the lists and pages that are not results."""

import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from whichtoken.catalogue import catalogue
from whichtoken.cli.heads import NO_HEADS
from whichtoken.cli.inputs import Given, Images, Texts, parsed_settings
from whichtoken.errors import BadInput, NotFinite, UnknownName, UsageError
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

DELETION_NOTE = (
    "deletion: mean drop of the probability when 10, 20 .. 90 % of the tokens are deleted, the highest scores first; "
    "one text says little about a method"
)

# What a subject may have or lack, as its field, as a command, and as methods ask for it; and in words.
LIBRARIES = {"references": "reference library", "heads": "head mask"}

READOUTS = {
    "first": "the first token",
    "last": "the last token",
    "mean": "the mean of the tokens",
    "first two": "the first two tokens",
    "first and patches": "the first token and the mean of the patches",
}


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
    left = list(methods)
    if refused := _refused(subject, left):
        listed = "; ".join(f"{label} ({reason})" for label, reason in refused.items())
        say(f"left out, because they cannot explain images: {listed}")
        return [method for method in left if method.label not in refused]
    for what, name in LIBRARIES.items():
        if without := waiting(subject, left, what):
            listed = ", ".join(method.label for method in without)
            say(f"left out, because there is no {name}: {listed} (see: whichtoken {what} build --help)")
            left = [method for method in left if method not in without]
    return left


def _refused(subject: "Subject", methods: Sequence[Any]) -> dict[str, str]:
    """Of a model of images: methods that cannot read them, and why."""
    from whichtoken.explaining.images import reason_against
    from whichtoken.models import Task

    if subject.task is not Task.IMAGES:
        return {}
    reasons = {method.label: reason_against(subject, method) for method in methods}
    return {label: reason for label, reason in reasons.items() if reason is not None}


def waiting(subject: "Subject", methods: Sequence[Any], what: str) -> list[Any]:
    """Methods that ask for references, or heads, and find none."""
    from whichtoken.bench.selection import lacks

    return [method for method in methods if lacks(subject, method, what)]


def explained(subject: "Subject", texts: Given, asked: Asked) -> Iterator[Mapping[str, Attribution]]:
    """Errors name a text as the user knows it, by file and row; an image by its file."""
    from whichtoken.core.trace import Ask
    from whichtoken.explaining import explain_each
    from whichtoken.explaining.calls import check_answers
    from whichtoken.explaining.images import each_image

    asking = [method for method in asked.methods if Ask.HEADS in method.needs.asks]
    if asking and subject.heads is not None and not subject.heads.n_selected:
        say(NO_HEADS)
    if isinstance(texts, Texts) and texts.asks:
        check_answers(subject)
    try:
        if isinstance(texts, Images):
            yield from each_image(subject, texts, asked.methods, asked.target, asked.layers)
        else:
            yield from explain_each(subject, texts, asked.methods, asked.target, asked.long, asked.layers)  # type: ignore[arg-type]
    except (BadInput, NotFinite) as error:
        number = re.search(r"\binput (\d+)", str(error))
        if number is None:
            raise
        named = str(error).replace(number[0], texts.where(int(number[1])), 1)
        raise type(error)(named) from error


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
        return {name: f"deletion {score}{marks.get(name, '')}" for name, score in shown.items()}

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


def compared(subject: "Subject", texts: Texts, asked: Asked) -> Comparison:
    from whichtoken.evaluating import degrade

    result = next(iter(explained(subject, texts, asked)))
    curves = dict(zip(result, degrade(subject, list(result.values())), strict=True))
    ranked = sorted(result, key=lambda name: -aopc(curves[name]))
    return Comparison({name: result[name] for name in ranked}, curves)


def auto(subject: "Subject", texts: Given, benchmark: Path | None) -> "Choice":
    """The method that did best for this model, and why; said, because it may take a while to find out."""
    if isinstance(texts, Images):
        raise UsageError("--method auto chooses by what methods do on texts; for images name methods")
    from whichtoken.bench.auto import best_method

    choice = best_method(subject, texts, benchmark)
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
    listed: list[Metric | Wider] = [*METRICS.values(), *WIDER.values()]
    rows = [(m.name, m.paper, m.about, m.better or "neither", m.span) for m in listed]
    note = "\nbetter: when the most relevant tokens go first. compare has those of one curve, bench has all of them."
    return Group(table_view(head, rows), Text(note, style="dim"))


def model_page(subject: "Subject") -> RenderableType:
    from whichtoken.core.registry import method, method_names
    from whichtoken.models import Task

    config, names = subject.model.config, method_names()
    if subject.task is Task.IMAGES:
        refused = _refused(subject, [method(name) for name in names])
        held, inputs = {}, _image_facts(subject)
        able = len(names) - len(refused)
        needed = "".join(f"; not {label}: {reason}" for label, reason in refused.items())
    else:
        lacking = {what: waiting(subject, [method(name) for name in names], what) for what in LIBRARIES}
        able = len(names) - len({one.label for without in lacking.values() for one in without})
        needed = "".join(f"; {', '.join(m.label for m in w)} needs {what}" for what, w in lacking.items() if w)
        held = {what: str(getattr(subject, what) or f"none; see: whichtoken {what} build --help") for what in LIBRARIES}
        cut = "longer ones are cut, or explained in windows (--long window)"
        if subject.task is Task.QUESTIONS:
            cut = "longer contexts are read in windows, or cut (--long truncate)"
        longest = f"{subject.limit} tokens; {cut}"
        inputs = [("longest text", longest)]
    row = subject.architecture
    facts = [
        ("model", subject.title),
        ("revision", subject.fingerprint()[:26]),
        ("architecture", f"{config.model_type} ({type(subject.model).__name__})"),
        ("layers", f"{subject.n_layers} blocks, {config.num_attention_heads} heads, {config.hidden_size} wide"),
        ("parameters", f"{sum(p.numel() for p in subject.model.parameters()):,}, in {subject.model.dtype}"),
        *inputs,
        *_said(subject),
        ("attention", f"read from {row.attention or 'the attention interface of transformers'}"),
        *held.items(),
        ("methods", f"{able} of {len(names)}{needed}"),
    ]
    return table_view(("", ""), [(Text(name, style="bold"), value) for name, value in facts])


def _said(subject: "Subject") -> list[tuple[str, str]]:
    """What the model's head says, and what it reads for it."""
    from whichtoken.models import Task

    if subject.task is Task.QUESTIONS:
        return [("answers questions", "for each token a logit that the answer starts, and one that it ends there")]
    return [
        ("labels", ", ".join(f"{i} {label}" for i, label in enumerate(subject.labels))),
        ("probabilities", f"{subject.link.value} of the logits"),
        ("head reads", READOUTS[subject.architecture.readout(subject.model).value]),
    ]


def _image_facts(subject: "Subject") -> list[tuple[str, str]]:
    from whichtoken.explaining.images import prefix_names

    size, patch = subject.image_size, subject.patch_size
    grid = " x ".join(str(whole // part) for whole, part in zip(size, patch, strict=True))
    other = ", or other multiples of a patch" if subject.architecture.image_sizes == "any" else ""
    channels = subject.model.config.num_channels
    return [
        ("image", f"{size[0]} x {size[1]} pixels of {channels} channels{other}; files are resized by its processor"),
        ("patches", f"{grid}, of {patch[0]} x {patch[1]} pixels"),
        ("before them", ", ".join(prefix_names(subject))),
    ]
