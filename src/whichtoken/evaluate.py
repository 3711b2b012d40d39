"""degrade: remove parts of an input in the order of an attribution and ask the model again, which gives a Curve.

And the bounds: how far any order of removal could get. The same for every task.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from whichtoken.core.perturb import Perturbation
from whichtoken.core.removal_steps import Steps, grid_of
from whichtoken.errors import BadSetting, UsageError
from whichtoken.metrics.bounds import WIDTH, Bounds, Sets, best_and_worst
from whichtoken.models import LogitCache, Subject
from whichtoken.records import Attribution, Curve, Order, Plan
from whichtoken.tasks import Opened, Task, Unit, task_for

Patterns = NDArray[np.bool_]  # pattern element: what is kept
DIFFERENT = 0.02  # in the probability of the whole input: it is not what was explained


def degrade(
    subject: Subject,
    attributions: Iterable[Attribution],
    perturbation: str | Perturbation | None = None,
    order: Order = "morf",
    grid: str = "tenths",
    level: str = "token",
    *,
    inputs: Sequence[Any] | None = None,
) -> list[Curve]:
    """The curve of each attribution: how its probability falls as ever more of the input is removed.

    `perturbation`: "delete" (the default), "mask" or "pad" for texts and for the context of questions; "black" (the
    default) or "mean" for images. `order`: the most relevant first ("morf"), the least ("lerf"), or at "random".
    `grid`: "tenths" (10 .. 90 % of the content tokens), "twentieths", "all" or "eraser". `level`: "token", which is a
    patch in an image; "word" in texts, "pixel" in images. Special tokens stay. Each distinct remainder is evaluated
    once, whichever attributions of an input ask.

    `inputs`: what each attribution explains, as it was given to `explain`; only needed for images that are not in
    their records as the model read them, such as tensors.
    """
    given, items = list(attributions), None if inputs is None else list(inputs)
    if items is not None and len(items) != len(given):
        raise UsageError(f"{len(given)} attributions and {len(items)} inputs; give as many of each, or no inputs")
    task = task_for(subject.twinned() if isinstance(subject, Subject) else subject)
    how = task.removal(perturbation)
    plan = Plan(how.name, order, grid, level)
    found: dict[int, Curve] = {}
    by_input = sorted(range(len(given)), key=lambda i: _same_input(given[i]))
    groups = [list(places) for _, places in groupby(by_input, key=lambda i: _same_input(given[i]))]
    for places in tqdm(groups, desc="evaluating", unit=f" {task.unit}s", disable=None, delay=1, leave=False):
        of_input = [given[i] for i in places]
        item = None if items is None else items[places[0]]
        opened = open_input(task, of_input, LogitCache(task.subject), item)
        found.update(zip(places, degrade_input(opened, of_input, [plan], {plan: how})[0], strict=True))
    return [found[i] for i in range(len(given))]


def _same_input(record: Attribution) -> tuple[str, ...]:
    picture = record.picture
    return (*record.texts, "" if picture is None else f"{picture.source}\0{picture.png}", repr(record.target))


@dataclass(frozen=True)
class OpenInput:
    """One input as it was explained, the model's answers to what is left of it, and which parts can go."""

    task: Task
    record: Attribution  # any of this input and target
    opened: Opened
    cache: LogitCache
    _units: dict[str, list[Unit]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        return self.opened.key

    def units(self, level: str) -> list[Unit]:
        """Of this record; others of the same input have the same ones with other scores."""
        if level not in self._units:
            self._units[level] = units_of(self.task, self.record, level)
        return self._units[level]

    def keep(self, patterns: Patterns, how: Perturbation) -> list[float]:
        """The probability that each pattern of kept elements leaves."""
        rows = [how(self.opened.row, pattern) for pattern in patterns]
        index = torch.zeros(len(patterns), dtype=torch.long, device=self.cache.subject.device)
        objective = self.opened.objective.rows(index)
        if how.shortens:
            objective = objective.after_removal(torch.from_numpy(patterns).to(index.device))
        found: list[float] = self.cache.probability(rows, objective).tolist()
        return found


def open_input(task: Task, attributions: Sequence[Attribution], cache: LogitCache, item: Any = None) -> OpenInput:
    """What these attributions, of one input and target, explain; UsageError if they do not belong together."""
    first, subject = attributions[0], task.subject
    if any(_same_input(other) != _same_input(first) for other in attributions):
        raise UsageError("these attributions are of different inputs or targets; degrade those of one input together")
    if any(other.revision != subject.fingerprint() for other in attributions):
        raise UsageError(f"these attributions are of another model than {subject.title}; use the one they explain")
    if any(other.tokens != first.tokens for other in attributions):
        raise UsageError("these attributions have different tokens; explain the input again, all methods together")
    return OpenInput(task, first, task.reopen(first, item), cache)


def units_of(task: Task, record: Attribution, level: str) -> list[Unit]:
    if level not in task.levels:
        raise BadSetting("level", level, f"one of {', '.join(task.levels)} for {task.unit}s")
    return task.units(record, level)


def degrade_input(
    given: OpenInput,
    attributions: Sequence[Attribution],
    plans: Sequence[Plan],
    removals: "dict[Plan, Perturbation] | None" = None,
) -> list[list[Curve]]:
    """For each plan, the curve of each attribution of one input; the model is asked about all of them together.

    `removals`: how plans remove, where their names do not say it.
    """
    start = perf_counter()
    how = {plan: (removals or {}).get(plan) or given.task.removal(plan.perturbation) for plan in plans}
    asked: dict[Perturbation, list[Patterns]] = {}
    places: list[tuple[Perturbation, int, Steps]] = []
    for plan in plans:
        for attribution in attributions:
            steps, kept = _kept(given, attribution, plan)
            patterns = asked.setdefault(how[plan], [])
            places.append((how[plan], sum(map(len, patterns)), steps))
            patterns.append(kept)
    known = {of: given.keep(np.concatenate(patterns), of) for of, patterns in asked.items()}
    seconds = (perf_counter() - start) / len(places)
    curves, order = [], [(plan, attribution) for plan in plans for attribution in attributions]
    for (plan, attribution), (of, first, steps) in zip(order, places, strict=True):
        probability = tuple(known[of][first : first + len(steps.counts)])
        _check_whole(attribution, probability[0])
        curves.append(_curve(given, attribution, plan, steps, probability, seconds))
    n = len(attributions)
    return [curves[i : i + n] for i in range(0, len(curves), n)]


def _check_whole(attribution: Attribution, probability: float) -> None:
    """Of a picture: a record holds it in 8 bits. Texts are in their records, and in half precision they may differ."""
    if attribution.picture is not None and abs(probability - attribution.probability) > DIFFERENT:
        raise UsageError(
            f"the model gives {probability:.3f} for the whole input, and the attribution says "
            f"{attribution.probability:.3f}: it is not what was explained; give the inputs themselves (inputs=...)"
        )


def _curve(
    given: OpenInput,
    attribution: Attribution,
    plan: Plan,
    steps: Steps,
    probability: tuple[float, ...],
    seconds: float,
) -> Curve:
    return Curve(
        key=given.key,
        order=plan.order,
        perturbation=plan.perturbation,
        removed=steps.removed,
        probability=probability,
        label=attribution.label,
        target=attribution.target,
        method=attribution.method,
        settings=attribution.settings,
        model=given.task.subject.title,
        revision=given.task.subject.fingerprint(),
        n_cut=attribution.n_cut,
        grid=plan.grid,
        level=plan.level,
        tuned_on_deletion=attribution.tuned_on_deletion,
        seconds=seconds,
    )


def _kept(given: OpenInput, attribution: Attribution, plan: Plan) -> tuple[Steps, Patterns]:
    """The steps, and what each keeps. Ties fall by position; the two orders are each other's reverse."""
    units = units_of(given.task, attribution, plan.level)
    if not units:
        raise UsageError(f"nothing can be removed of this {given.task.unit}; give a longer one")
    grid = grid_of(plan.grid)
    steps, ranked = grid.steps(len(units), given.opened.n_fixed, plan.order), _ranked(given, attribution, plan, units)
    kept = np.ones((len(steps.counts), given.opened.n_elements), dtype=bool)
    for pattern, count in zip(kept, steps.counts, strict=True):
        pattern[[i for unit in ranked[:count] for i in unit.elements]] = False
    return steps, kept


def _ranked(given: OpenInput, attribution: Attribution, plan: Plan, units: Sequence[Unit]) -> list[Unit]:
    """What may be removed, in the order in which it goes."""
    if plan.order == "random":
        shuffled = list(units)
        random.Random(f"{plan.seed} {given.key}").shuffle(shuffled)
        return shuffled
    ranked = sorted(units, key=lambda unit: -unit.score)
    ranked, sign = (ranked, 1) if plan.order == "morf" else (ranked[::-1], -1)
    special = given.opened.row.special
    fixed = [sign * score for score, stays in zip(attribution.scores, special, strict=True) if stays]
    spared = grid_of(plan.grid).n_spared([sign * unit.score for unit in ranked], fixed)
    return ranked[: len(ranked) - spared]


def aopc_bounds(given: OpenInput, plan: Plan | None = None, width: int = WIDTH) -> Bounds:
    """Of the AOPC that an order of this input's parts can have under the plan; its own order does not matter."""
    if width < 1:
        raise BadSetting("width", width, "at least 1")
    how = plan or Plan(given.task.removal(None).name)
    grid, units, removal = grid_of(how.grid), given.units(how.level), given.task.removal(how.perturbation)
    if not grid.same_for_every_order:
        raise BadSetting("plan", how, "one whose steps are the same for every order: shares of the content tokens")
    whole = given.keep(np.ones((1, given.opened.n_elements), dtype=bool), removal)[0]

    def ask(sets: Sets) -> NDArray[np.float64]:
        patterns = np.ones((len(sets), given.opened.n_elements), dtype=bool)
        for pattern, removed in zip(patterns, sets, strict=True):
            pattern[[i for unit, gone in zip(units, removed, strict=True) if gone for i in unit.elements]] = False
        return whole - np.array(given.keep(patterns, removal))

    counts = grid.steps(len(units), given.opened.n_fixed, "morf").counts[1:]
    return best_and_worst(len(units), counts, ask, width)
