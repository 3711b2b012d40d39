"""Measuring some inputs: explain them with every method, degrade them, search for the best order. Runs the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whichtoken._explain import explain_with
from whichtoken.bench._protocol import Protocol
from whichtoken.bench.external import External, ExternalScores, key_of
from whichtoken.bench.metrics import METRICS, ScoredInput
from whichtoken.bench.results import InputResult, MethodResult, Part, PlanResult, Truth
from whichtoken.core.registry import method
from whichtoken.core.trace import Method
from whichtoken.errors import BadInput
from whichtoken.evaluate import OpenInput, aopc_bounds, degrade_input, open_input, units_of
from whichtoken.metrics.ranks import agreement
from whichtoken.models import LogitCache
from whichtoken.records import Attribution, Curve, Plan
from whichtoken.targets import Class, Span
from whichtoken.tasks import Gold, Task

Results = Mapping[str, Attribution]


@dataclass(frozen=True)
class Item:
    """One input of a benchmark."""

    number: int
    row: int
    id: str
    given: Any  # as the task encodes it
    n_tokens: int
    gold: Gold | None = None


@dataclass(frozen=True)
class Bench:
    """What is measured. The task is that of a twin, which the whole benchmark uses."""

    task: Task
    methods: Mapping[str, Method]
    protocol: Protocol
    given: External = field(default_factory=dict)  # scores made elsewhere


def measure(bench: Bench, items: Sequence[Item]) -> Part:
    """All of these inputs together; what is asked about one of them is asked once. Nothing depends on other inputs."""
    cache = LogitCache(bench.task.subject)
    found = explain_items(bench, items, cache)
    others = _other_class(bench, items, found, cache)
    said = _said(bench, items, found, cache)
    measured = [
        _measured(bench, item, _Explained(results, other, model), cache)
        for item, results, other, model in zip(items, found, others, said, strict=True)
        if next(iter(results.values())).probability >= bench.protocol.min_probability
    ]
    return Part(tuple(measured), cache.tally.asked, cache.tally.evaluated)


@dataclass(frozen=True)
class _Explained:
    own: Results
    other: Results  # of the next class
    said: Attribution  # what the model itself says of the input


def explain_items(bench: Bench, items: Sequence[Item], cache: LogitCache) -> list[Results]:
    """By method; attributions made elsewhere stand beside those made here."""
    gold = bench.protocol.target == "gold"
    targets = [
        item.gold.target if gold and item.gold else bench.task.bench_target(bench.protocol.part) for item in items
    ]
    made = _explained(bench, items, targets, cache)
    return [
        {**own, **{name: _laid_on(own, name, given) for name, given in bench.given.get(key_of(item.given), {}).items()}}
        for item, own in zip(items, made, strict=True)
    ]


def _laid_on(own: Results, name: str, given: ExternalScores) -> Attribution:
    """Scores made elsewhere, of the same input and class as those made here."""
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
        tuned_on_deletion=given.tuned_on_deletion,
        details={},
    )


def _explained(
    bench: Bench, items: Sequence[Item], targets: Sequence[Any], cache: LogitCache
) -> list[dict[str, Attribution]]:
    """Inputs with the same target go together, in their order."""
    found: dict[int, dict[str, Attribution]] = {i: {} for i in range(len(items))}
    for target in dict.fromkeys(targets) if bench.methods else ():
        places = [i for i, own in enumerate(targets) if own == target]
        inputs = [items[i].given for i in places]
        results = explain_with(cache, inputs, bench.methods.values(), target, bench.task.bench_long)
        for i, result in zip(places, results, strict=True):
            found[i] = {name: result[method.label] for name, method in bench.methods.items()}
    return [found[i] for i in range(len(items))]


def _other_class(
    bench: Bench, items: Sequence[Item], found: Sequence[Results], cache: LogitCache
) -> list[dict[str, Attribution]]:
    """Explanations of the class that follows the explained one, if a metric compares the two."""
    n_classes = len(bench.task.subject.labels)
    wanted = any(METRICS[name].between_classes for name in bench.protocol.metrics or ())
    own = [next(iter(results.values())).target for results in found]
    classes = [target.label for target in own if isinstance(target, Class) and isinstance(target.label, int)]
    if not wanted or n_classes < 2 or len(classes) < len(items):
        return [{} for _ in items]
    return _explained(bench, items, [(label + 1) % n_classes for label in classes], cache)


def _said(bench: Bench, items: Sequence[Item], found: Sequence[Results], cache: LogitCache) -> list[Attribution]:
    """What the model says of each input; where the truth was explained, the cheapest explanation there is tells it."""
    if bench.protocol.target == "predicted" or not any(item.gold and item.gold.positions for item in items):
        return [next(iter(results.values())) for results in found]
    quick, inputs = method("random"), [item.given for item in items]
    results = explain_with(cache, inputs, [quick], bench.task.bench_target("sum"), bench.task.bench_long)
    return [result[quick.label] for result in results]


def _measured(bench: Bench, item: Item, explained: _Explained, cache: LogitCache) -> InputResult:
    protocol, results, task = bench.protocol, explained.own, bench.task
    first, plans = next(iter(results.values())), protocol.plans()
    opened = open_input(task, list(results.values()), cache, item.given) if plans else None
    curves = degrade_input(opened, list(results.values()), plans) if opened is not None else []
    methods = {
        name: MethodResult(
            tuned_on_deletion=attribution.tuned_on_deletion,
            seconds=attribution.seconds if name in bench.methods else None,
            evaluations=attribution.evaluations if name in bench.methods else None,
            values=_values(bench, item, attribution, explained.other.get(name)),
            curves=tuple(of_plan[place].probability for of_plan in curves),
        )
        for place, (name, attribution) in enumerate(results.items())
    }
    alike: tuple[tuple[float, ...], ...] = ()
    if "agreement" in (protocol.metrics or ()):
        alike = agreement([_unit_scores(task, attribution) for attribution in results.values()])
    return InputResult(
        number=item.number,
        row=item.row,
        id=item.id,
        key="" if opened is None else opened.key,
        label=explained.said.label,
        probability=first.probability,
        n_tokens=item.n_tokens,
        n_cut=first.n_cut,
        methods=methods,
        plans=_plans(opened, plans, curves, protocol),
        agreement=alike,
        truth=_truth(item.gold, explained.said),
    )


def _values(bench: Bench, item: Item, own: Attribution, other: Attribution | None) -> dict[str, float]:
    positions = item.gold.positions if item.gold is not None and item.gold.positions else None
    seen = ScoredInput(own, other, lambda of: _unit_scores(bench.task, of), positions, bench.protocol.k)
    found = {name: METRICS[name].value(seen) for name in bench.protocol.metrics or ()}
    return {name: value for name, value in found.items() if value is not None}


def _unit_scores(task: Task, attribution: Attribution) -> list[float]:
    return [unit.score for unit in units_of(task, attribution, "token")]


def _truth(gold: Gold | None, said: Attribution) -> Truth | None:
    if gold is None or not gold.positions:
        return None
    ends = (gold.positions[0], gold.positions[-1])
    right = isinstance(said.target, Span) and (said.target.start, said.target.end) == ends
    return Truth(len(gold.positions), gold.cut_off, right and not gold.cut_off)


def _plans(
    opened: OpenInput | None, plans: Sequence[Plan], curves: Sequence[Sequence[Curve]], protocol: Protocol
) -> tuple[PlanResult, ...]:
    found = {plan: PlanResult(plan, of_plan[0].removed) for plan, of_plan in zip(plans, curves, strict=True)}
    for plan in protocol.bounded():
        if opened is not None and _size(opened, protocol.level) <= protocol.bounds_up_to:
            bounds = aopc_bounds(opened, plan, protocol.bounds_width)
            held = found.get(plan) or next(one for one in found.values() if one.plan.same_steps(plan))
            found[held.plan] = replace(held, lower=bounds.lower, upper=bounds.upper, exact=bounds.exact)
    return tuple(found.values())


def _size(opened: OpenInput, level: str) -> int:
    return max(len(opened.units("token")), len(opened.units(level)))
