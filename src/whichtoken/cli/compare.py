"""The command `compare`: compare methods on one input."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whichtoken.cli import inputs
from whichtoken.cli.completion import complete_methods
from whichtoken.cli.explain import Request, explain_inputs
from whichtoken.cli.inputs import CommandInputs
from whichtoken.cli.options import (
    METHODS,
    Against,
    BatchSize,
    Device,
    Dtype,
    Format,
    Heads,
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
    Token,
    Trust,
    make_look,
    single_value,
)
from whichtoken.cli.outputs import sink_of, write_results, write_text
from whichtoken.cli.prompts import (
    Chat,
    Continuation,
    Documents,
    Foil,
    Generate,
    PromptOptions,
    PromptText,
    Seed,
    Sources,
    System,
    Temperature,
    TopP,
)
from whichtoken.cli.subject import Opening, keep_supported, open_subject, say, say_written
from whichtoken.errors import UsageError
from whichtoken.metrics.curves import METRICS, Metric, aopc
from whichtoken.records import Attribution, Curve
from whichtoken.render.answers import name_measure

if TYPE_CHECKING:
    from whichtoken.core.trace import Method
    from whichtoken.models import Subject


def compare(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Text to explain.")] = None,
    pair: Annotated[str | None, typer.Option("--pair", help="Second text of a pair.")] = None,
    image: Annotated[Path | None, typer.Option("--image", help="Image file.")] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="Question, for a question-answering model.")
    ] = None,
    context: Annotated[str | None, typer.Option("--context", help="Context of the question.")] = None,
    prompt: PromptText = None,
    generate: Generate = None,
    continuation: Continuation = None,
    chat: Chat = False,
    system: System = None,
    documents: Documents = None,
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
            help="Comma-separated names, or all; default: all, except the most expensive ones for prompts.",
            autocompletion=complete_methods,
        ),
    ] = None,
    target: Target = None,
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
    numbers: Numbers = False,
    spreadsheet: Spreadsheet = False,
) -> None:
    sampling = {"temperature": temperature, "top_p": top_p, "seed": seed}
    about_prompt = PromptOptions(
        prompt, generate, continuation, chat, system, documents or (), None, sources, foil, sampling
    )
    if about_prompt.given and prompt is None:
        raise UsageError(f"{about_prompt.given[0]}: this is about a prompt, which is missing; give --prompt TEXT")
    if not texts and all(value is None for value in (image, question, context, prompt)):
        raise UsageError("give one of TEXT, --image FILE, --prompt TEXT, or --question Q --context C")
    images = () if image is None else (image,)
    typed = inputs.TypedInputs(texts or (), pair, None, (), images, question, context)
    answer = about_prompt.request() if about_prompt.given else None
    items = typed.gather() if answer is None else about_prompt.gather(typed)
    inputs.check_against(against, items)
    if len(items) != 1:
        raise UsageError(f"compare shows one input, but there are {len(items)}; to measure many, use bench")
    inputs.check_not_overwritten(out, items)
    names = single_value("--method", methods)
    built = inputs.build_methods(names or "all", settings or [])
    look = make_look(level, False, numbers)
    sink = sink_of(form, out, look, 1 - items.n_images, items.n_images, spreadsheet=spreadsheet)
    goal = inputs.resolve_target(target, against)
    opening = Opening(trust, device, dtype, revision, batch_size, reading, special_tokens)
    subject = open_subject(model, references, heads, opening)
    supported = keep_supported(subject, built) if names in (None, "all") else built
    if names is None and answer is not None:
        supported = _leave_out_expensive(supported)
    request = Request(supported, goal, None, False, token=token, answer=answer)
    comparison = compare_methods(subject, items, request)
    if sink.kind in ("json", "jsonl"):
        write_text(comparison.to_json(sink.kind == "jsonl"), out)
    else:
        write_results([comparison.result], replace(sink, look=replace(sink.look, remarks=comparison.remarks())))
    if not comparison.can_differ:
        say(comparison.note)
    elif sink.kind == "terminal" and out is None:
        typer.echo(comparison.note)
    say_written(out)


@dataclass(frozen=True)
class Comparison:
    """Methods on one input, best first."""

    result: Mapping[str, Attribution]
    curves: Mapping[str, Curve]
    unit: str  # of input, such as "text"
    tokens: str  # what its parts are called
    n_units: int  # parts that can be removed
    output: str  # what drops

    @property
    def can_differ(self) -> bool:
        """Whether the order of removal can make a difference."""
        return self.n_units > 1

    @property
    def word(self) -> str:
        return "deletion" if self._removal == "delete" else f"removal ({self._removal})"

    @property
    def _removal(self) -> str:
        return next(iter(self.curves.values())).perturbation

    @property
    def _are_values(self) -> bool:
        return bool(next(iter(self.curves.values())).value)

    @property
    def note(self) -> str:
        if not self.can_differ:
            return (
                f"there is nothing to compare: only one of the {self.tokens} of this {self.unit} can be removed, and "
                "every method removes it first"
            )
        gone = "deleted" if self._removal == "delete" else "removed"
        return (
            f"{self.word}: mean drop of the {self.output} when 10, 20 .. 90 % of the {self.tokens} are {gone}, the "
            f"highest scores first; one {self.unit} says little about a method"
        )

    def deletion(self, name: str) -> float:
        return aopc(self.curves[name])

    def remarks(self) -> dict[str, str]:
        """Return the score of each method, marking the best one and the best untuned one; there may be ties."""
        if not self.can_differ:
            return {}
        form = "+.4g" if self._are_values else "+.3f"
        scores = {name: f"{self.deletion(name):{form}}" for name in self.result}
        best = next(iter(scores.values()))
        best_untuned = next((scores[name] for name in scores if not self.result[name].tuned_on_deletion), None)
        marks = {
            name: ", best" if score == best else ", best untuned"
            for name, score in scores.items()
            if score == best or (score == best_untuned and not self.result[name].tuned_on_deletion)
        }
        return {name: f"{self.word} {score}{marks.get(name, '')}" for name, score in scores.items()}

    def _metrics(self) -> list[Metric]:
        if not self.can_differ:
            return []
        return [m for m in METRICS.values() if m.curve == "any" and not (m.needs_probability and self._are_values)]

    def to_json(self, lines: bool) -> str:
        """Return a JSON list of methods, or with `lines` one method per line."""
        rows = [
            {
                "method": name,
                "tuned_on_deletion": attribution.tuned_on_deletion,
                "metrics": {m.name: m.measure(self.curves[name]) for m in self._metrics()},
                "curve": json.loads(self.curves[name].to_json()),
                "attribution": json.loads(attribution.to_json()),
            }
            for name, attribution in self.result.items()
        ]
        encoded = [json.dumps(row, ensure_ascii=False) for row in rows]
        return "\n".join(encoded) + "\n" if lines else "[\n" + ",\n".join(encoded) + "\n]\n"


def compare_methods(subject: "Subject", items: CommandInputs, request: Request) -> Comparison:
    """Explain an input by each method and rank the methods. Of a prompt, its words or other sources are removed."""
    from whichtoken.evaluate import degrade, units_of
    from whichtoken.tasks import task_for

    task, answer = task_for(subject), request.answer
    if task.no_result and answer is None:  # the model decides how many results there are
        _check_single(subject, items, request, task.no_result)
    level, tokens = ("token", task.tokens) if answer is None else (answer.sources, f"{answer.sources}s")
    result = next(iter(explain_inputs(subject, items, request)))
    repeated = list(items) * len(result)
    curves = dict(zip(result, degrade(subject, list(result.values()), level=level, inputs=repeated), strict=True))
    ranked = sorted(result, key=lambda name: -aopc(curves[name]))
    best = result[ranked[0]]
    output = "probability" if best.value is None else task.value_name
    if answer is not None and answer.foil is not None:
        output = name_measure(best)
    n_units = len(units_of(task, best, level))
    return Comparison({name: result[name] for name in ranked}, curves, task.unit, tokens, n_units, output)


def _leave_out_expensive(methods: Sequence["Method"]) -> list["Method"]:
    """Return the methods that a benchmark runs by default, and report the others."""
    from whichtoken.bench.selection import is_expensive

    expensive = [method.label for method in methods if is_expensive(method)]
    if expensive:
        say(f"left out, because they run the model most often: {', '.join(expensive)} (name them, or --method all)")
    return [method for method in methods if not is_expensive(method)]


def _check_single(subject: "Subject", items: CommandInputs, request: Request, no_result: str) -> None:
    """Raise UsageError unless there is one entity; of several occurrences of a word, the first is compared."""
    from whichtoken.core.registry import method

    results = explain_inputs(subject, items, replace(request, methods=[method("random")]))
    labels = [next(iter(result.values())).label for result in results]
    if not labels:
        raise UsageError(no_result)
    if len(labels) > 1 and request.token is None:
        listed = ", ".join(labels)
        raise UsageError(
            f"compare shows one explanation, but there are {len(labels)}: {listed}; choose a word: --token"
        )
    if len(labels) > 1:
        say(f"{request.token!r} occurs {len(labels)} times; methods are compared on the first")
