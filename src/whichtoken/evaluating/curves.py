"""degrade: remove tokens in the order of an attribution and ask the model again, which gives a Curve."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import perf_counter
from typing import Literal, get_args

import torch
from torch import Tensor
from tqdm.auto import tqdm

from whichtoken.core.perturb import Delete, Perturbation
from whichtoken.core.removal_steps import Steps, steps_of
from whichtoken.errors import BadSetting
from whichtoken.evaluating.inputs import Text, as_text, perturbation_of
from whichtoken.models import Answers, Subject
from whichtoken.records import Attribution, Curve, Order

Level = Literal["token", "word"]


@dataclass(frozen=True)
class Plan:
    """How texts are degraded. The last three settings are for protocols of papers; see docs/evaluation.md."""

    order: Order = "morf"  # the most relevant first, the least, or at random
    perturbation: Perturbation = field(default_factory=Delete)
    grid: str = "tenths"
    level: Level = "token"  # or words, whose score is the sum over their tokens
    shares_of: Literal["content", "all"] = "content"  # special tokens count in the shares, though they stay
    keep_last: bool = False  # the authors' code never removes what is ranked last, be it a word or a special token
    seed: int = 0  # of the random order

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise BadSetting("order", self.order, "'morf', the most relevant first, 'lerf', the least, or 'random'")
        if self.level not in get_args(Level):
            raise BadSetting("level", self.level, "'token' or 'word'")
        steps_of(self.grid, 1)

    @property
    def name(self) -> str:
        """Of its perturbation."""
        return type(self.perturbation).__name__.lower()


def degrade(
    subject: Subject,
    attributions: Iterable[Attribution],
    perturbation: str | Perturbation = "delete",
    order: Order = "morf",
    grid: str = "tenths",
    level: Level = "token",
) -> list[Curve]:
    """The curve of each attribution: how its probability falls as ever more of the text is removed.

    `perturbation`: "delete", "mask" or "pad". `order`: the most relevant first ("morf"), the least ("lerf"), or at
    "random". `grid`: "tenths" (10 .. 90 % of the content tokens), "ninths", "twentieths", "all" or "eraser". `level`:
    "token" or "word". Special tokens stay. Each distinct shortened text is evaluated once, whichever attributions of
    it ask.
    """
    plan = Plan(order, perturbation_of(perturbation), grid, level)
    given, found = list(attributions), dict[int, Curve]()
    by_text = sorted(range(len(given)), key=lambda i: (given[i].texts, given[i].label))
    groups = [list(places) for _, places in groupby(by_text, key=lambda i: (given[i].texts, given[i].label))]
    for places in tqdm(groups, desc="evaluating", unit=" texts", disable=None, delay=1, leave=False):
        text = as_text([given[i] for i in places], Answers(subject))
        found.update(zip(places, degrade_text(text, [given[i] for i in places], [plan])[0], strict=True))
    return [found[i] for i in range(len(given))]


def degrade_text(text: Text, attributions: Sequence[Attribution], plans: Sequence[Plan]) -> list[list[Curve]]:
    """For each plan, the curve of each attribution of one text; the model is asked about all of them together."""
    start = perf_counter()
    asked: dict[Perturbation, list[Tensor]] = {}
    places: list[tuple[Perturbation, int, Steps]] = []
    for plan in plans:
        for attribution in attributions:
            steps, kept = _kept_tokens(text, attribution, plan)
            patterns = asked.setdefault(plan.perturbation, [])
            places.append((plan.perturbation, len(patterns), steps))
            patterns += kept
    known = {how: text.keep(torch.stack(patterns), how) for how, patterns in asked.items()}
    seconds = (perf_counter() - start) / len(places)
    curves = [
        _curve(text, attribution, plan, steps, known[how][first : first + len(steps.counts)], seconds)
        for (plan, attribution), (how, first, steps) in zip(
            ((plan, attribution) for plan in plans for attribution in attributions), places, strict=True
        )
    ]
    n = len(attributions)
    return [curves[i : i + n] for i in range(0, len(curves), n)]


def _curve(
    text: Text, attribution: Attribution, plan: Plan, steps: Steps, probability: Sequence[float], seconds: float
) -> Curve:
    return Curve(
        key=text.key,
        order=plan.order,
        perturbation=plan.name,
        removed=steps.removed,
        probability=tuple(probability),
        label=attribution.label,
        method=attribution.method,
        settings=attribution.settings,
        model=text.answers.subject.title,
        revision=text.answers.subject.fingerprint(),
        n_cut=attribution.n_cut,
        grid=plan.grid,
        level=plan.level,
        searched=attribution.searched,
        seconds=seconds,
    )


def units_of(text: Text, level: Level) -> list[tuple[int, ...]]:
    """What is removed together."""
    return list(text.words) if level == "word" else [(i,) for i in text.content]


def _kept_tokens(text: Text, attribution: Attribution, plan: Plan) -> tuple[Steps, list[Tensor]]:
    """The steps, and which tokens each keeps. Ties fall by position; the two orders are each other's reverse."""
    n_units = len(units_of(text, plan.level))
    total = n_units + (text.n_tokens - len(text.content) if plan.shares_of == "all" else 0)
    steps, ranked = steps_of(plan.grid, total, keeps_top=plan.order == "lerf"), _ranked(text, attribution, plan)
    found = []
    for count in steps.counts:
        kept = torch.ones(text.n_tokens, dtype=torch.bool)
        kept[[i for unit in ranked[:count] for i in unit]] = False
        found.append(kept)
    return steps, found


def _ranked(text: Text, attribution: Attribution, plan: Plan) -> list[tuple[int, ...]]:
    """What may be removed, in the order in which it goes."""
    units, scores = units_of(text, plan.level), attribution.scores
    if plan.order == "random":
        random.Random(f"{plan.seed} {text.key}").shuffle(units)
        return units
    ranked = sorted(units, key=lambda unit: -sum(scores[i] for i in unit))
    ranked = ranked if plan.order == "morf" else ranked[::-1]
    if plan.keep_last:
        specials = [scores[i] for i in range(text.n_tokens) if i not in set(text.content)]
        sign = 1 if plan.order == "morf" else -1
        last = sign * sum(scores[i] for i in ranked[-1])
        if all(sign * score > last for score in specials):
            return ranked[:-1]
    return ranked
