"""The command `compare`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whichtoken.cli import inputs
from whichtoken.cli.explain import Request, explained
from whichtoken.cli.inputs import CommandInputs
from whichtoken.cli.options import (
    Against,
    Format,
    Heads,
    LevelOption,
    Model,
    Numbers,
    Out,
    References,
    Settings,
    Target,
    make_look,
)
from whichtoken.cli.outputs import put, sink_of, write_results
from whichtoken.cli.subject import open_subject, runnable
from whichtoken.errors import UsageError
from whichtoken.metrics.curves import METRICS, aopc
from whichtoken.records import Attribution, Curve

if TYPE_CHECKING:
    from whichtoken.models import Subject


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
    found = inputs.TypedInputs(() if text is None else (text,), pair, None, (), images, question, context).gather()
    inputs.check_against(against, found)
    if len(found) != 1:
        raise UsageError(f"compare shows one input, and here are {len(found)}; bench measures methods on many")
    built = inputs.built_methods(methods, settings or [])
    sink = sink_of(form, out, make_look(level, False, numbers), 1 - found.n_images, found.n_images)
    subject = open_subject(model, references, heads)
    chosen = runnable(subject, built) if methods == "all" else built
    asked = Request(chosen, inputs.wanted_target(target, against), None, False)
    comparison = compared(subject, found, asked)
    if sink.kind in ("json", "jsonl"):
        put(comparison.to_json(sink.kind == "jsonl"), out)
        return
    write_results([comparison.result], replace(sink, look=replace(sink.look, remarks=comparison.remarks())))
    if sink.kind == "terminal" and out is None:
        typer.echo(comparison.note)


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
        honest = next((shown[name] for name in shown if not self.result[name].tuned_on_deletion), None)
        marks = {
            name: ", best" if score == best else ", best that did not search"
            for name, score in shown.items()
            if score == best or (score == honest and not self.result[name].tuned_on_deletion)
        }
        return {name: f"{self.word} {score}{marks.get(name, '')}" for name, score in shown.items()}

    def to_json(self, lines: bool) -> str:
        """A list of methods, or one method on each line."""
        rows = [
            {
                "method": name,
                "tuned_on_deletion": attribution.tuned_on_deletion,
                "metrics": {m.name: m.measure(self.curves[name]) for m in METRICS.values() if m.curve == "any"},
                "curve": json.loads(self.curves[name].to_json()),
                "attribution": json.loads(attribution.to_json()),
            }
            for name, attribution in self.result.items()
        ]
        written = [json.dumps(row, ensure_ascii=False) for row in rows]
        return "\n".join(written) + "\n" if lines else "[\n" + ",\n".join(written) + "\n]\n"


def compared(subject: "Subject", given: CommandInputs, asked: Request) -> Comparison:
    from whichtoken.evaluate import degrade
    from whichtoken.tasks import task_for

    result = next(iter(explained(subject, given, asked)))
    items = list(given) * len(result)
    curves = dict(zip(result, degrade(subject, list(result.values()), inputs=items), strict=True))
    ranked = sorted(result, key=lambda name: -aopc(curves[name]))
    task = task_for(subject)
    return Comparison({name: result[name] for name in ranked}, curves, task.unit, task.tokens)
