"""Switch parts of an input off and watch the output: the explanation, checked by hand.

An input is encoded and opened once; after that, each state costs a single pass of what remains.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from whichtoken._explain import plan, run
from whichtoken.core.rows import Row
from whichtoken.evaluate import OpenInput, Patterns, open_input
from whichtoken.models import LogitCache
from whichtoken.records import Attribution
from whichtoken.render.numbers import format_remaining
from whichtoken.render.rows import cells, visible
from whichtoken.tasks import Task
from whichtoken.web.asked import read_input, read_target
from whichtoken.web.facts import levels_of
from whichtoken.web.limits import Limits, too_large
from whichtoken.web.replies import LabelView, PredictReply, SwitchedView
from whichtoken.web.schema import PredictRequest
from whichtoken.web.served import Served
from whichtoken.web.views import part_view

CHEAPEST = "random"  # the method whose record an input is opened from: it costs one pass
MOST_LABELS = 10


@dataclass(frozen=True)
class SwitchableInput:
    """An input that was explained, once for each thing that is explained about it."""

    task: Task
    sources: tuple[OpenInput, ...]
    labels: tuple[LabelView, ...]  # of the whole input


@dataclass(frozen=True)
class SwitchJob:
    """A request, read and checked."""

    model: Served
    item: Any
    target: Any
    level: str
    removal: str | None
    states: tuple[frozenset[int], ...]
    key: str  # of input and target


def plan_switching(model: Served, asked: PredictRequest, limits: Limits) -> SwitchJob:
    states = [asked.off] if asked.states is None else asked.states
    if len(states) > limits.states:
        raise too_large("the request", len(states), limits.states, "states")
    item = read_input(model, asked.input, limits)
    target = read_target(model, asked)
    model.task.removal(asked.removal)
    levels = levels_of(model.task)
    level = asked.level if asked.level in levels else levels[0]
    key = hashlib.sha256(repr((asked.input, asked.target, asked.token)).encode(errors="replace")).hexdigest()
    return SwitchJob(model, item, target, level, asked.removal, tuple(map(frozenset, states)), key)


def switch(job: SwitchJob) -> PredictReply:
    """Measure the output in each state. For the thread of clicks."""
    opened = job.model.keep(job.key, lambda: open_record(job.model.for_clicks, job.item, job.target))
    task = opened.task
    explained = tuple(_switched_view(source, job) for source in opened.sources)
    if not opened.sources:
        return PredictReply((), (), (), None, task.no_result)
    first, last = opened.sources[0], opened.labels
    if job.states and job.states[-1]:
        patterns, _ = _patterns(first, replace(job, states=job.states[-1:]))
        last = _labels(task, task.removal(job.removal)(first.opened.row, patterns[0]))
    return PredictReply(explained, last, opened.labels, first.record.predicted, "")


def open_record(task: Task, item: Any, target: Any) -> SwitchableInput:
    """Explain an input by the cheapest method, and open it for evaluations."""
    cache = LogitCache(task.subject)
    job = replace(plan(task.subject, [CHEAPEST], target), cache=cache)
    records = [result[CHEAPEST] for result in run(job, [item])]
    sources = tuple(open_input(job.task, [record], cache, item) for record in records)
    return SwitchableInput(job.task, sources, _labels(job.task, sources[0].opened.row) if sources else ())


def removable_tokens(task: Task, record: Attribution, level: str) -> set[tuple[int, ...]]:
    """Return the tokens of each part that can be removed."""
    return {unit.tokens for unit in task.units(record, level)} if level in task.levels else set()


def _patterns(source: OpenInput, job: SwitchJob) -> tuple[Patterns, list[float]]:
    """Return what each state keeps, and the share of the parts that it removes."""
    units = source.units(job.level)
    patterns = np.ones((len(job.states), source.opened.n_elements), dtype=bool)
    shares = []
    for pattern, off in zip(patterns, job.states, strict=True):
        gone = [unit for unit in units if unit.tokens and off.issuperset(unit.tokens)]
        pattern[[element for unit in gone for element in unit.elements]] = False
        shares.append(len(gone) / len(units) if units else 0.0)
    return patterns, shares


def _switched_view(source: OpenInput, job: SwitchJob) -> SwitchedView:
    record = source.record
    patterns, shares = _patterns(source, job)
    outputs = source.keep(patterns, source.task.removal(job.removal)) if len(patterns) else []
    removable = removable_tokens(source.task, record, job.level)
    return SwitchedView(
        label=visible(record.label),
        target=asdict(record.target),
        reading=record.reading,
        whole=record.output,
        whole_shown=format_remaining(record, record.output),
        outputs=tuple(outputs),
        shown=tuple(format_remaining(record, output) for output in outputs),
        removed=tuple(shares),
        cells=tuple(part_view(cell, removable) for cell in cells(record, job.level)),  # type: ignore[arg-type]
    )


def _labels(task: Task, row: Row) -> tuple[LabelView, ...]:
    """Return the most probable labels of what remains of an input."""
    subject = task.subject
    logits = subject.logits(subject.batch([row if len(row) else subject.empty_row]))
    labels = enumerate(task.label_probabilities(logits[0]))
    views = [LabelView(visible(label), index, probability) for index, (label, probability) in labels]
    return tuple(sorted(views, key=lambda view: -view.probability)[:MOST_LABELS])
