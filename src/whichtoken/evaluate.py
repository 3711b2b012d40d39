"""`degrade` removes parts of inputs in the order of an attribution and measures the prediction: a Curve for each.

Also the bounds of the AOPC over all removal orders. The code is the same for every task.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from whichtoken.core.perturb import Perturbation, Remainders
from whichtoken.core.picks import Picks
from whichtoken.core.removal_steps import Steps, find_grid
from whichtoken.errors import BadSetting, UsageError
from whichtoken.metrics.ablations import Ablations, draw_kept
from whichtoken.metrics.bounds import BUDGET, Bounds, find_bounds
from whichtoken.metrics.chains import Sets
from whichtoken.models import AnySubject, LogitCache, as_subject, bound_freed_memory, return_memory_after_call
from whichtoken.records import Attribution, Curve, Order, Plan
from whichtoken.results import Results, flatten
from whichtoken.tasks import Opened, Task, Unit, task_for

Patterns = NDArray[np.bool_]  # pattern x element: True where kept
INPUTS_AT_ONCE = 16  # inputs whose shortened versions fill batches together
TOLERANCE = 0.02  # a larger change in the probability of the whole input means that another input was explained;
# for predicted values, whose scale is unknown, as a share of the value or of its changes


def degrade(
    subject: AnySubject,
    attributions: Iterable[Attribution] | Results,
    perturbation: str | Perturbation | None = None,
    order: Order = "morf",
    grid: str = "tenths",
    level: str = "token",
    *,
    inputs: Sequence[Any] | None = None,
) -> list[Curve]:
    """Return the curve of each attribution: how the probability, or the predicted value,
    changes as more and more of the input is removed.

    `perturbation`: "delete" (the default), "mask" or "pad" for texts and for the context of questions; "black" (the
    default) or "mean" for images. `order`: most relevant first ("morf"), least relevant first ("lerf"), or "random".
    `grid`: "tenths" (10 .. 90 % of the content tokens), "tenths-to-all" (10 .. 100 %), "twentieths", "all" or "eraser".
    `level`: "token" (a patch, in images), "word" in texts, or "pixel" in images. Special tokens are never removed. Each
    distinct perturbed input is evaluated once for all attributions of that input.

    `inputs`: the inputs that were explained, as passed to `explain`; needed only for images whose records do not hold
    exactly what the model read, such as tensors.
    """
    records, items = flatten(attributions), None if inputs is None else list(inputs)
    if items is not None and len(items) != len(records):
        raise UsageError(
            f"{len(records)} attributions and {len(items)} inputs; give the same number of each, or no inputs"
        )
    task = task_for(as_subject(subject).with_twin())
    how = task.removal(perturbation)
    plan = Plan(how.name, order, grid, level)
    curves: dict[int, Curve] = {}
    by_input = sorted(range(len(records)), key=lambda i: _window_key(records[i]))
    groups = [list(places) for _, places in groupby(by_input, key=lambda i: _window_key(records[i]))]
    with tqdm(total=len(groups), desc="evaluating", unit=f" {task.unit}s", disable=None, delay=1, leave=False) as bar:
        for first in range(0, len(groups), INPUTS_AT_ONCE):
            chunk, cache = groups[first : first + INPUTS_AT_ONCE], LogitCache(task.subject)
            opened = [
                open_input(task, [records[i] for i in places], cache, None if items is None else items[places[0]])
                for places in chunk
            ]
            of_chunk = [[records[i] for i in places] for places in chunk]
            for places, made in zip(chunk, _degrade_together(cache, opened, of_chunk, plan, how), strict=True):
                curves.update(zip(places, made, strict=True))
                bar.update()
            bound_freed_memory()
    return_memory_after_call()
    return [curves[i] for i in range(len(records))]


def _degrade_together(
    cache: LogitCache,
    opened: Sequence["OpenInput"],
    attributions: Sequence[Sequence[Attribution]],
    plan: Plan,
    how: Perturbation,
) -> Iterator[list[Curve]]:
    """Yield the curves of each input; what is evaluated for all of them goes through the model in the same batches."""
    start = perf_counter()
    pairs = [(source, one) for source, own in zip(opened, attributions, strict=True) for one in own]
    cache.fill([source.request(_removal_patterns(source, one, plan)[1], how) for source, one in pairs])
    shared = (perf_counter() - start) / len(pairs)
    for source, own in zip(opened, attributions, strict=True):
        (curves,) = degrade_input(source, own, [plan], {plan: how})
        yield [replace(curve, seconds=curve.seconds + shared) for curve in curves]


def _input_key(record: Attribution) -> tuple[str, ...]:
    picture = record.picture
    return (*record.texts, "" if picture is None else f"{picture.source}\0{picture.png}", repr(record.target))


def _window_key(record: Attribution) -> tuple[str, ...]:
    """Return the key of an input and of the window in which it was explained."""
    return (*_input_key(record), *record.tokens)


@dataclass(frozen=True)
class OpenInput:
    """One explained input, ready to be perturbed: its row, the parts that can be removed and a logit cache."""

    task: Task
    record: Attribution  # any record of this input and target
    opened: Opened
    cache: LogitCache
    _units: dict[str, list[Unit]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        return self.opened.key

    def units(self, level: str) -> list[Unit]:
        """Return the removable units with the scores of `record`; other records of the input differ only in scores."""
        if level not in self._units:
            self._units[level] = units_of(self.task, self.record, level)
        return self._units[level]

    def keep(self, patterns: Patterns, how: Perturbation) -> list[float]:
        """Return the probability, or value, that remains under each pattern of kept elements."""
        outputs: list[float] = self.cache.probability(*self.request(patterns, how)).tolist()
        return outputs

    def request(self, patterns: Patterns, how: Perturbation) -> tuple[Remainders, Picks]:
        """Return what the cache is asked for: what remains under each pattern, and what to read from it."""
        rows = Remainders([self.opened.row] * len(patterns), list(patterns), how)
        index = torch.zeros(len(patterns), dtype=torch.long, device=self.cache.subject.device)
        picks = self.opened.picks.rows(index)
        if how.shortens:
            picks = picks.after_removal(torch.from_numpy(patterns).to(index.device))
        return rows, picks


def open_input(task: Task, attributions: Sequence[Attribution], cache: LogitCache, item: Any = None) -> OpenInput:
    """Reopen the input that these attributions explain; raise UsageError if input, target, model or tokens differ."""
    first, subject = attributions[0], task.subject
    if any(_input_key(other) != _input_key(first) for other in attributions):
        raise UsageError("these attributions explain different inputs or targets; degrade each input separately")
    if not all(other.identity.fits(subject.identity()) for other in attributions):
        raise UsageError(f"these attributions explain a model other than {subject.title}; use the model they explain")
    recorded = {other.reading for other in attributions}
    if recorded != {task.reading()}:
        raise UsageError(
            f"these attributions explain a {recorded.pop()}, but {subject.title} is read as a {task.reading()}; "
            "explain the input again, or give the model the other reading"
        )
    if any(other.tokens != first.tokens for other in attributions):
        raise UsageError("these attributions have different tokens; explain the input again, all methods in one call")
    return OpenInput(task, first, task.reopen(first, item), cache)


def units_of(task: Task, record: Attribution, level: str) -> list[Unit]:
    if level not in task.levels:
        raise BadSetting("level", level, f"one of {', '.join(task.levels)} for {task.unit}s")
    return task.units(record, level)


def degrade_input(
    source: OpenInput,
    attributions: Sequence[Attribution],
    plans: Sequence[Plan],
    removals: "dict[Plan, Perturbation] | None" = None,
) -> list[list[Curve]]:
    """Return, for each plan, the curve of each attribution of one input; all of them share the model's batches.

    `removals`: the perturbations of plans that cannot be found by name.
    """
    start = perf_counter()
    how = {plan: (removals or {}).get(plan) or source.task.removal(plan.perturbation) for plan in plans}
    requested: dict[Perturbation, list[Patterns]] = {}
    places: list[tuple[Perturbation, int, Steps]] = []
    for plan in plans:
        for attribution in attributions:
            steps, kept = _removal_patterns(source, attribution, plan)
            patterns = requested.setdefault(how[plan], [])
            places.append((how[plan], sum(map(len, patterns)), steps))
            patterns.append(kept)
    outputs = {removal: source.keep(np.concatenate(kept), removal) for removal, kept in requested.items()}
    seconds = (perf_counter() - start) / len(places)
    curves, order = [], [(plan, attribution) for plan in plans for attribution in attributions]
    for (plan, attribution), (removal, first, steps) in zip(order, places, strict=True):
        measured = tuple(outputs[removal][first : first + len(steps.counts)])
        _check_whole(attribution, measured)
        curves.append(_build_curve(source, attribution, plan, steps, measured, seconds))
    n = len(attributions)
    return [curves[i : i + n] for i in range(0, len(curves), n)]


def _check_whole(attribution: Attribution, outputs: tuple[float, ...]) -> None:
    """Raise UsageError if the image in a record (8 bits per channel) is not what was explained.

    Texts are not checked: records hold them exactly, and in half precision their probability may differ.
    """
    whole, recorded = outputs[0], attribution.output
    scale = 1.0 if attribution.value is None else max(abs(recorded), max(outputs) - min(outputs))
    if attribution.picture is not None and abs(whole - recorded) > TOLERANCE * scale:
        raise UsageError(
            f"the model gives {whole:.3f} for the whole input, but the attribution says "
            f"{recorded:.3f}, so another input was explained; give the inputs themselves (inputs=...)"
        )


def _build_curve(
    source: OpenInput,
    attribution: Attribution,
    plan: Plan,
    steps: Steps,
    outputs: tuple[float, ...],
    seconds: float,
) -> Curve:
    is_value = attribution.reading == "value"
    return Curve(
        key=source.key,
        order=plan.order,
        perturbation=plan.perturbation,
        removed=steps.removed,
        probability=() if is_value else outputs,
        label=attribution.label,
        target=attribution.target,
        method=attribution.method,
        settings=attribution.settings,
        model=source.task.subject.title,
        **vars(source.task.subject.identity()),
        n_cut=attribution.n_cut,
        grid=plan.grid,
        level=plan.level,
        tuned_on_deletion=attribution.tuned_on_deletion,
        seconds=seconds,
        value=outputs if is_value else (),
    )


def _removal_patterns(source: OpenInput, attribution: Attribution, plan: Plan) -> tuple[Steps, Patterns]:
    """Return the steps and what each keeps. Ties are broken by position; LeRF is the reverse of MoRF."""
    units = units_of(source.task, attribution, plan.level)
    if not units:
        raise UsageError(f"nothing can be removed from this {source.task.unit}; give a longer one")
    steps = find_grid(plan.grid).steps(len(units), source.opened.n_fixed, plan.order)
    ranked = _rank_units(source, attribution, plan, units)
    kept = np.ones((len(steps.counts), source.opened.n_elements), dtype=bool)
    for pattern, count in zip(kept, steps.counts, strict=True):
        pattern[[i for unit in ranked[:count] for i in unit.elements]] = False
    return steps, kept


def _rank_units(source: OpenInput, attribution: Attribution, plan: Plan, units: Sequence[Unit]) -> list[Unit]:
    """Return the units to remove, in the order of removal."""
    if plan.order == "random":
        shuffled = list(units)
        random.Random(f"{plan.seed} {source.key}").shuffle(shuffled)
        return shuffled
    ranked = sorted(units, key=lambda unit: -unit.score)
    ranked, sign = (ranked, 1) if plan.order == "morf" else (ranked[::-1], -1)
    special = source.opened.row.special
    fixed = [sign * score for score, stays in zip(attribution.scores, special, strict=True) if stays]
    spared = find_grid(plan.grid).n_spared([sign * unit.score for unit in ranked], fixed)
    return ranked[: len(ranked) - spared]


def aopc_bounds(source: OpenInput, plan: Plan | None = None, budget: float = BUDGET) -> Bounds:
    """Return the bounds of the AOPC over all removal orders of this input; the plan's own order is ignored.

    `budget`: evaluations for each removable unit and each step.
    """
    if not budget >= 0:
        raise BadSetting("budget", budget, "at least 0")
    how = plan or Plan(source.task.removal(None).name)
    grid, units, removal = find_grid(how.grid), source.units(how.level), source.task.removal(how.perturbation)
    if not grid.same_for_every_order:
        raise BadSetting("plan", how, "a plan with the same steps for every order: fractions of the content tokens")
    whole = source.keep(np.ones((1, source.opened.n_elements), dtype=bool), removal)[0]

    def measure_drops(sets: Sets) -> NDArray[np.float64]:
        return whole - np.array(source.keep(_patterns_without(source, units, sets), removal))

    counts = grid.steps(len(units), source.opened.n_fixed, "morf").counts[1:]
    probability = whole if source.record.reading == "probability" else None
    return find_bounds(len(units), counts, measure_drops, budget, probability)


def _patterns_without(source: OpenInput, units: Sequence[Unit], sets: Sets) -> Patterns:
    """Return what is kept if sets of units are removed."""
    patterns = np.ones((len(sets), source.opened.n_elements), dtype=bool)
    for pattern, removed in zip(patterns, sets, strict=True):
        pattern[[i for unit, gone in zip(units, removed, strict=True) if gone for i in unit.elements]] = False
    return patterns


def ablate(source: OpenInput, perturbation: str, level: str, n: int, seed: int) -> Ablations:
    """Remove n random sets of units, each unit with probability 1/2, or every set if there are not as many."""
    units = source.units(level)
    kept = draw_kept(len(units), n, f"{seed} {source.key} {level}")
    outputs = source.keep(_patterns_without(source, units, ~kept), source.task.removal(perturbation))
    return Ablations(kept, np.array(outputs))


def measure_effects(source: OpenInput, level: str) -> list[float]:
    """Return how far the log-odds, or the value, drop without each unit alone, by the task's own removal."""
    units = source.units(level)
    none_then_each = np.eye(len(units) + 1, len(units), -1, dtype=bool)
    patterns = _patterns_without(source, units, none_then_each)
    whole, *without = source.cache.log_odds(*source.request(patterns, source.task.removal(None))).tolist()
    return [whole - output for output in without]
