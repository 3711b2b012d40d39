"""What the commands say: calls into the library, and the lists and pages that are not results."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from whichtoken.catalogue import catalogue
from whichtoken.cli.inputs import Texts, built_methods
from whichtoken.errors import UnknownName
from whichtoken.metrics import METRICS, aopc
from whichtoken.records import Attribution, Curve
from whichtoken.render.terminal import table_view

if TYPE_CHECKING:
    from whichtoken.models import Subject

DEFAULTS = "contrast-cat,attcat"  # those of them that the model can run
DELETION_NOTE = (
    "deletion: mean drop of the probability when 10, 20 .. 90 % of the tokens are deleted, the highest scores first; "
    "one text says little about a method"
)

READOUTS = {"first": "the first token", "last": "the last token", "mean": "the mean of the tokens"}


@dataclass(frozen=True)
class Asked:
    methods: Sequence[Any]
    target: Any
    long: Any
    layers: bool


def say(line: str) -> None:
    """To people, not to pipes."""
    print(f"whichtoken: {line}", file=sys.stderr)


def opened(model: str | None, references: Path | None) -> "Subject":
    errors = Console(stderr=True)
    with errors.status(f"loading {model or 'the default model'}"):  # on a terminal only
        from whichtoken.models import load

        return load(model, references=references)


def defaults(subject: "Subject", settings: Sequence[str]) -> list[Any]:
    return able(subject, built_methods(DEFAULTS, settings))


def able(subject: "Subject", methods: Sequence[Any]) -> list[Any]:
    """Without the methods that need references, where there are none; which ones is said."""
    from whichtoken.trace import Ask

    if subject.references is not None:
        return list(methods)
    without = [method for method in methods if Ask.REFERENCES in method.needs.asks]
    if without:
        names = ", ".join(method.label for method in without)
        say(f"left out, because there is no reference library: {names} (see: whichtoken references build --help)")
    return [method for method in methods if method not in without]


def explained(subject: "Subject", texts: Texts, asked: Asked) -> Iterator[Mapping[str, Attribution]]:
    from whichtoken.explaining import explain_each

    return explain_each(subject, texts, asked.methods, asked.target, asked.long, asked.layers)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Comparison:
    """Methods on one text, the best first."""

    result: Mapping[str, Attribution]
    curves: Mapping[str, Curve]

    def deletion(self, name: str) -> float:
        return aopc(self.curves[name])

    def remarks(self) -> dict[str, str]:
        names = list(self.result)
        honest = next((name for name in names if not self.result[name].searched), None)
        marks = {honest: ", best that did not search", names[0]: ", best"}
        return {name: f"deletion {self.deletion(name):+.3f}{marks.get(name, '')}" for name in names}

    def to_json(self) -> str:
        rows = [
            {
                "method": name,
                "deletion": self.deletion(name),
                "searched": attribution.searched,
                "curve": json.loads(self.curves[name].to_json()),
                "attribution": json.loads(attribution.to_json()),
            }
            for name, attribution in self.result.items()
        ]
        return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def compared(subject: "Subject", texts: Texts, asked: Asked) -> Comparison:
    from whichtoken.evaluating import degrade

    result = next(iter(explained(subject, texts, asked)))
    curves = dict(zip(result, degrade(subject, list(result.values())), strict=True))
    ranked = sorted(result, key=lambda name: -aopc(curves[name]))
    return Comparison({name: result[name] for name in ranked}, curves)


def method_list() -> RenderableType:
    head = ("method", "paper", "reads", "asks the model for", "deterministic", "searched")
    rows = [(e.name, e.paper, e.reads, e.asks, e.deterministic, "yes" if e.searched else "no") for e in catalogue()]
    notes = (
        "\nreads: of one forward and one backward pass that all methods share; d is the gradient. searched: "
        "looks at the deletion curve, so deletion scores flatter it.\nMore: whichtoken methods NAME"
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
    rows = [(m.name, m.paper, m.about, m.better, m.span) for m in METRICS.values()]
    note = "\nbetter: when the most relevant tokens go first. Every metric is computed from the model's answers."
    return Group(table_view(head, rows), Text(note, style="dim"))


def model_page(subject: "Subject") -> RenderableType:
    from whichtoken.registry import method_names

    config, references = subject.model.config, subject.references
    row = subject.architecture
    facts = [
        ("model", subject.title),
        ("revision", subject.fingerprint()[:26]),
        ("architecture", f"{config.model_type} ({type(subject.model).__name__})"),
        ("layers", f"{subject.n_layers} blocks, {config.num_attention_heads} heads, {config.hidden_size} wide"),
        ("parameters", f"{sum(p.numel() for p in subject.model.parameters()):,}, in {subject.model.dtype}"),
        ("longest text", f"{subject.limit} tokens; longer ones are cut, or explained in windows (--long window)"),
        ("labels", ", ".join(f"{i} {label}" for i, label in enumerate(subject.labels))),
        ("probabilities", f"{subject.link.value} of the logits"),
        ("head reads", READOUTS[row.readout(config).value]),
        ("attention", f"read from {row.attention or 'the attention interface of transformers'}"),
        ("references", str(references) if references else "none; see: whichtoken references build --help"),
        ("methods", f"all {len(method_names())}{'' if references else ', once there are references'}"),
    ]
    return table_view(("", ""), [(Text(name, style="bold"), value) for name, value in facts])
