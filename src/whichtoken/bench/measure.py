"""Measure some inputs: explain them with every method, remove parts, search for bounds. Runs the model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whichtoken._explain import explain_with
from whichtoken.bench._protocol import Protocol
from whichtoken.bench.external import External, ExternalScores, key_of
from whichtoken.bench.metrics import METRICS, ScoredInput
from whichtoken.bench.results import COVERAGE, InputResult, MethodResult, Part, PlanResult, Truth
from whichtoken.bench.selection import is_slow
from whichtoken.core.registry import method
from whichtoken.core.trace import Method
from whichtoken.errors import BadInput
from whichtoken.evaluate import (
    OpenInput,
    ablate,
    aopc_bounds,
    degrade_input,
    measure_effects,
    open_input,
    units_of,
)
from whichtoken.metrics.ablations import Ablations
from whichtoken.metrics.ranks import agreement
from whichtoken.models import LogitCache, bound_freed_memory
from whichtoken.records import Attribution, Curve, Plan
from whichtoken.references.coverage import stored_coverage
from whichtoken.targets import Class, Span
from whichtoken.tasks import Gold, Task

SLOW_AT_ONCE = 4  # inputs that slow methods explain together: their rounds of questions fill a batch

Results = Mapping[str, Attribution]


@dataclass(frozen=True)
class Item:
    """One input of a benchmark, with its gold label or answer."""

    number: int
    row: int
    id: str
    input: Any  # what the task encodes
    n_tokens: int
    gold: Gold | None = None


@dataclass(frozen=True)
class Bench:
    """What is measured. The task runs on a twin of the model, which the whole benchmark shares."""

    task: Task
    methods: Mapping[str, Method]
    protocol: Protocol
    external: External = field(default_factory=dict)  # by input, then by name

    def names_for(self, item: Item) -> set[str]:
        """Return the methods of an input's results, external ones included."""
        return {*self.methods, *self.external.get(key_of(item.input), {})}


def measure(bench: Bench, items: Sequence[Item], count: Callable[[], object] = lambda: None) -> Part:
    """Measure inputs with one logit cache: each sequence is evaluated once. Results do not depend on the grouping.

    `count` is called after each input.
    """
    cache, measured = LogitCache(bench.task.subject), list[InputResult]()
    for item, explained in _explain_in_turn(bench, items, cache):
        if _is_probable(next(iter(explained.own.values())), bench.protocol.min_probability):
            measured.append(_measure_item(bench, item, explained, cache))
        count()
    bound_freed_memory()
    return Part(tuple(measured), cache.tally.asked, cache.tally.evaluated)


def _explain_in_turn(bench: Bench, items: Sequence[Item], cache: LogitCache) -> "Iterator[tuple[Item, _Explained]]":
    """Explain inputs together; a few at a time if a method is slow, so that progress is seen."""
    size = SLOW_AT_ONCE if any(is_slow(method) for method in bench.methods.values()) else len(items)
    for first in range(0, len(items), size):
        group = items[first : first + size]
        explained = explain_items(bench, group, cache)
        others = _explain_other_classes(bench, group, explained, cache)
        predictions = _predictions(bench, group, explained, cache)
        yield from zip(group, map(_Explained, explained, others, predictions), strict=True)


def _is_probable(attribution: Attribution, least: float) -> bool:
    return attribution.probability is None or attribution.probability >= least


@dataclass(frozen=True)
class _Explained:
    own: Results
    others: "_OtherClasses"
    predicted: Attribution  # for the model's own prediction


def explain_items(bench: Bench, items: Sequence[Item], cache: LogitCache) -> list[Results]:
    """Return the attributions of each input by method, including those from external scores."""
    wants_gold = bench.protocol.target == "gold"
    targets = [
        item.gold.target
        if wants_gold and item.gold
        else bench.task.bench_target(bench.protocol.part, bench.protocol.generate)
        for item in items
    ]
    computed = _explain(bench, items, targets, cache)
    return [
        own
        | {
            name: _external_attribution(own, name, external)
            for name, external in bench.external.get(key_of(item.input), {}).items()
        }
        for item, own in zip(items, computed, strict=True)
    ]


def _external_attribution(own: Results, name: str, external: ExternalScores) -> Attribution:
    """Return external scores as an attribution; raise BadInput if they are for another class or model."""
    ours = next(iter(own.values()))
    if external.label not in (None, ours.label):
        raise BadInput(
            f"{external.where}: scores for {external.label!r}, but {ours.label!r} is measured; explain the latter"
        )
    if external.made_by is not None and not external.made_by.fits(ours.identity):
        raise BadInput(f"{external.where}: scores for a model other than {ours.model}; explain this one")
    return replace(
        ours,
        method=name,
        settings={"from": external.where},
        scores=external.scores,
        tuned_on_deletion=external.tuned_on_deletion,
        details={},
    )


def _explain(
    bench: Bench, items: Sequence[Item], targets: Sequence[Any], cache: LogitCache
) -> list[dict[str, Attribution]]:
    """Explain inputs that share a target together; return results in input order."""
    by_place: dict[int, dict[str, Attribution]] = {i: {} for i in range(len(items))}
    for target in dict.fromkeys(targets) if bench.methods else ():
        places = [i for i, own in enumerate(targets) if own == target]
        inputs = [items[i].input for i in places]
        results = explain_with(cache, inputs, bench.methods.values(), target, bench.task.bench_long)
        for i, result in zip(places, results, strict=True):
            by_place[i] = {name: result[method.label] for name, method in bench.methods.items()}
    return [by_place[i] for i in range(len(items))]


@dataclass(frozen=True)
class _OtherClasses:
    """The explanations of the classes that a metric compares the explained one with."""

    following: Results = field(default_factory=dict)
    remaining: Sequence[Results] = ()


def _explain_other_classes(
    bench: Bench, items: Sequence[Item], explained: Sequence[Results], cache: LogitCache
) -> list[_OtherClasses]:
    """Explain the other classes that the metrics need; one that several metrics need is explained once."""
    how, n_classes = bench.protocol, len(bench.task.subject.labels)
    records = [next(iter(results.values())) for results in explained]
    own = [record.target.label for record in records if isinstance(record.target, Class)]
    if n_classes < 2 or len(own) < len(items):
        return [_OtherClasses() for _ in items]
    following = [(int(label) + 1) % n_classes for label in own] if how.compares("next") else []
    remaining = [
        _remaining_classes(bench, item, record, cache) if how.compares("remaining") else []
        for item, record in zip(items, records, strict=True)
    ]
    wanted = dict.fromkeys(
        [*enumerate(following), *((i, label) for i, ranked in enumerate(remaining) for label in ranked)]
    )
    computed = _explain(bench, [items[i] for i, _ in wanted], [label for _, label in wanted], cache)
    results = dict(zip(wanted, computed, strict=True))
    return [
        _OtherClasses(results[i, following[i]] if following else {}, [results[i, label] for label in ranked])
        for i, ranked in enumerate(remaining)
    ]


def _remaining_classes(bench: Bench, item: Item, record: Attribution, cache: LogitCache) -> list[int]:
    """Return the classes other than the explained one, or the most probable of them if there are many.

    An input is ranked on its own, so that its classes do not depend on the batch.
    """
    labels, most = range(len(bench.task.subject.labels)), bench.protocol.other_classes
    ranked = list(labels)
    if len(labels) - 1 > most:
        opened = bench.task.reopen(record, item.input)
        (logits,) = cache.read([opened.row], opened.picks)
        ranked = logits.argsort(descending=True, stable=True).tolist()
    return [label for label in ranked if record.target != Class(label)][:most]


def _predictions(
    bench: Bench, items: Sequence[Item], explained: Sequence[Results], cache: LogitCache
) -> list[Attribution]:
    """Return an attribution for each prediction: by the cheap method `random`, if the gold answer was explained."""
    if bench.protocol.target == "predicted" or not any(item.gold and item.gold.positions for item in items):
        return [next(iter(results.values())) for results in explained]
    cheapest, inputs = method("random"), [item.input for item in items]
    target = bench.task.bench_target("sum", bench.protocol.generate)
    results = explain_with(cache, inputs, [cheapest], target, bench.task.bench_long)
    return [result[cheapest.label] for result in results]


def _measure_item(bench: Bench, item: Item, explained: _Explained, cache: LogitCache) -> InputResult:
    protocol, results, task = bench.protocol, explained.own, bench.task
    first, plans = next(iter(results.values())), protocol.plans()
    removes = bool(plans) or protocol.ablates or protocol.removes_each(task.reading())
    opened = open_input(task, list(results.values()), cache, item.input) if removes else None
    curves = degrade_input(opened, list(results.values()), plans) if opened is not None and plans else []
    ablations = {} if opened is None else _ablations(opened, protocol)
    effects = {} if opened is None else _effects(opened, protocol)
    methods = {
        name: MethodResult(
            tuned_on_deletion=attribution.tuned_on_deletion,
            seconds=attribution.seconds if name in bench.methods else None,
            evaluations=attribution.evaluations if name in bench.methods else None,
            values=_values(bench, item, explained, name, ablations, effects),
            curves=tuple(of_plan[place].outputs for of_plan in curves),
        )
        for place, (name, attribution) in enumerate(results.items())
    }
    agreements: tuple[tuple[float, ...], ...] = ()
    if "agreement" in (protocol.metrics or ()):
        agreements = agreement([_unit_scores(task, attribution) for attribution in results.values()])
    return InputResult(
        number=item.number,
        row=item.row,
        id=item.id,
        key="" if opened is None else opened.key,
        label=explained.predicted.label,
        probability=first.probability,
        n_tokens=item.n_tokens,
        n_cut=first.n_cut,
        methods=methods,
        plans=_plans(opened, plans, curves, protocol),
        agreement=agreements,
        truth=_truth(item.gold, explained.predicted),
    )


def _ablations(opened: OpenInput, protocol: Protocol) -> dict[str, Ablations]:
    """Return random ablations by level, the same for every method."""
    if not protocol.ablates:
        return {}
    how = (protocol.perturbations or ())[0]
    return {level: ablate(opened, how, level, protocol.ablations, protocol.seed) for level in protocol.levels}


def _effects(opened: OpenInput, protocol: Protocol) -> dict[str, list[float]]:
    """Return the effect of each word, or of each of the task's first units if it has no words; for every method."""
    if not protocol.removes_each(opened.task.reading()):
        return {}
    level = "word" if "word" in opened.task.levels else opened.task.levels[0]
    return {level: measure_effects(opened, level)}


def _values(
    bench: Bench,
    item: Item,
    explained: _Explained,
    name: str,
    ablations: Mapping[str, Ablations],
    effects: Mapping[str, Sequence[float]],
) -> dict[str, float]:
    scored = ScoredInput(
        own=explained.own[name],
        following=explained.others.following.get(name),
        remaining=[results[name] for results in explained.others.remaining if name in results],
        units=lambda attribution: _unit_scores(bench.task, attribution),
        truth=item.gold.positions if item.gold is not None and item.gold.positions else None,
        k=bench.protocol.k,
        ablations=ablations,
        units_at=lambda attribution, level: [unit.score for unit in units_of(bench.task, attribution, level)],
        effects=effects,
    )
    values: dict[str, float] = {}
    for metric in bench.protocol.metrics or ():
        values |= METRICS[metric].values_of(metric, scored)
    coverage = stored_coverage(scored.own.details)
    return values if coverage is None else {**values, COVERAGE: coverage}


def _unit_scores(task: Task, attribution: Attribution) -> list[float]:
    return [unit.score for unit in units_of(task, attribution, "token")]


def _truth(gold: Gold | None, predicted: Attribution) -> Truth | None:
    if gold is None or not gold.positions:
        return None
    ends = (gold.positions[0], gold.positions[-1])
    right = isinstance(predicted.target, Span) and (predicted.target.start, predicted.target.end) == ends
    return Truth(len(gold.positions), gold.cut_off, right and not gold.cut_off)


def _plans(
    opened: OpenInput | None, plans: Sequence[Plan], curves: Sequence[Sequence[Curve]], protocol: Protocol
) -> tuple[PlanResult, ...]:
    planned = {plan: PlanResult(plan, of_plan[0].removed) for plan, of_plan in zip(plans, curves, strict=True)}
    for plan in protocol.bounded_plans():
        if opened is not None and _size(opened, plan.level) <= protocol.bounds_up_to:
            bounds = aopc_bounds(opened, plan, protocol.bounds_budget)
            result = planned.get(plan) or next(other for other in planned.values() if other.plan.same_steps(plan))
            planned[result.plan] = replace(result, lower=bounds.lower, upper=bounds.upper, exact=bounds.exact)
    return tuple(planned.values())


def _size(opened: OpenInput, level: str) -> int:
    return len(opened.units(level))
