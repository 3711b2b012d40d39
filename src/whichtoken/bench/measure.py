"""Measuring some texts: explain them with every method, degrade them, search for the best order. Runs the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from whichtoken.bench.external import Given, GivenScores
from whichtoken.bench.protocol import Protocol
from whichtoken.bench.results import Measured, Part, Scored
from whichtoken.core.trace import Method
from whichtoken.errors import BadInput, UsageError
from whichtoken.evaluating import Plan, Text, aopc_bounds, as_text, degrade_text
from whichtoken.explaining import explain_with
from whichtoken.metrics.ranks import agreement, kendall
from whichtoken.models import Answers, Subject
from whichtoken.models import Task as Answering
from whichtoken.records import Attribution

Results = Mapping[str, Attribution]


@dataclass(frozen=True)
class Task:
    """One text of a benchmark."""

    number: int
    row: int
    texts: tuple[str, ...]
    n_tokens: int
    label: int | None = None  # the class to explain; None: the predicted one


@dataclass(frozen=True)
class Bench:
    subject: Subject
    methods: Mapping[str, Method]
    protocol: Protocol
    given: Given = field(default_factory=dict)  # scores made elsewhere

    def __post_init__(self) -> None:
        if self.subject.task is Answering.QUESTIONS:
            raise UsageError(
                f"{self.subject.title} answers questions, and texts were to be measured; give questions with their "
                "answers: whichtoken bench --task qa --data FILE.json, or wt.compare_questions"
            )


def measure(bench: Bench, tasks: Sequence[Task]) -> Part:
    """All of these texts together; what is asked about one of them is asked once. Nothing depends on other texts."""
    answers = Answers(bench.subject)
    found = explain_tasks(bench, tasks, answers)
    two = "kendall" in bench.protocol.metrics and len(bench.subject.labels) > 1
    others = _other_class(bench, tasks, found, answers) if two else [{} for _ in tasks]
    measured = [
        _measured(bench, task, results, other, answers)
        for task, results, other in zip(tasks, found, others, strict=True)
        if next(iter(results.values())).probability >= bench.protocol.min_probability
    ]
    return Part(tuple(measured), answers.tally.asked, answers.tally.evaluated)


def explain_tasks(bench: Bench, tasks: Sequence[Task], answers: Answers) -> list[Results]:
    """By method; attributions made elsewhere stand beside those made here."""
    made = _explained(bench, tasks, [task.label for task in tasks], answers)
    return [
        {**own, **{name: _laid_on(own, name, given) for name, given in bench.given.get(task.texts, {}).items()}}
        for task, own in zip(tasks, made, strict=True)
    ]


def _laid_on(own: Results, name: str, given: GivenScores) -> Attribution:
    """Scores made elsewhere, of the same text and class as those made here."""
    model = next(iter(own.values()))
    if given.label not in (None, model.label):
        raise BadInput(
            f"{given.where}: scores for {given.label!r}, and {model.label!r} is measured; explain that class"
        )
    if given.revision not in (None, model.revision):
        raise BadInput(f"{given.where}: scores of another model than {model.model}; explain this one")
    return replace(
        model,
        method=name,
        settings={"from": given.where},
        scores=given.scores,
        searched=given.searched,
        details={},
    )


def _explained(
    bench: Bench, tasks: Sequence[Task], labels: Sequence[int | None], answers: Answers
) -> list[dict[str, Attribution]]:
    """Texts of the same class go together, in their order."""
    found: dict[int, dict[str, Attribution]] = {i: {} for i in range(len(tasks))}
    for label in dict.fromkeys(labels) if bench.methods else ():
        places = [i for i, own in enumerate(labels) if own == label]
        inputs = [tasks[i].texts for i in places]
        results = explain_with(answers, inputs, bench.methods.values(), label)  # type: ignore[arg-type]
        for i, result in zip(places, results, strict=True):
            found[i] = {name: result[method.label] for name, method in bench.methods.items()}
    return [found[i] for i in range(len(tasks))]


def _other_class(
    bench: Bench, tasks: Sequence[Task], found: Sequence[Results], answers: Answers
) -> list[dict[str, Attribution]]:
    """Explanations of the class that follows the explained one."""
    names = bench.subject.labels
    own = [names.index(next(iter(results.values())).label) for results in found]
    return _explained(bench, tasks, [(label + 1) % len(names) for label in own], answers)


def _measured(bench: Bench, task: Task, results: Results, other: Results, answers: Answers) -> Measured:
    text, protocol = as_text(list(results.values()), answers), bench.protocol
    plans = protocol.plans()
    curves = degrade_text(text, list(results.values()), plans)
    names = [plan_name(plan) for plan in plans]
    content = [i for i in range(text.n_tokens) if protocol.kendall_of == "all" or i in set(text.content)]
    methods = {
        method: Scored(
            searched=attribution.searched,
            seconds=attribution.seconds if method in bench.methods else None,
            evaluations=attribution.evaluations if method in bench.methods else None,
            kendall=_tau(attribution, other.get(method), content, protocol),
            curves={name: of_plan[place].probability for name, of_plan in zip(names, curves, strict=True)},
        )
        for place, (method, attribution) in enumerate(results.items())
    }
    first = text.attribution
    alike: tuple[tuple[float, ...], ...] = ()
    if "agreement" in protocol.metrics:
        alike = agreement([[a.scores[i] for i in text.content] for a in results.values()])
    return Measured(
        number=task.number,
        row=task.row,
        key=text.key,
        label=first.label,
        probability=first.probability,
        n_tokens=text.n_tokens,
        n_cut=first.n_cut,
        removed={name: of_plan[0].removed for name, of_plan in zip(names, curves, strict=True)},
        methods=methods,
        bounds=_bounds(text, protocol),
        agreement=alike,
    )


def plan_name(plan: Plan) -> str:
    return f"{plan.name} {plan.order} {plan.grid}"


def _bounds(text: Text, protocol: Protocol) -> dict[str, tuple[float, float, bool]]:
    if len(text.content) > protocol.bounds_up_to:
        return {}
    found = {plan_name(plan): aopc_bounds(text, plan, protocol.bounds_width) for plan in protocol.bounded()}
    return {name: (bounds.lower, bounds.upper, bounds.exact) for name, bounds in found.items()}


def _tau(own: Attribution, other: Attribution | None, places: Sequence[int], protocol: Protocol) -> float | None:
    """None where there is nothing to compare: a constant ranks nothing, and 0 would read as if classes differed."""
    if other is None:
        return None
    mine, theirs = ([one.scores[i] for i in places] for one in (own, other))
    constant = min(len(set(mine)), len(set(theirs))) < 2
    return None if constant else kendall(mine, theirs, on=protocol.kendall)
