"""Protocols: what the presets choose, which curves they draw, and what they refuse."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.tiny import question_subject

import whichtoken as wt
from whichtoken.bench._protocol import PRESETS, load_presets, resolve_protocol
from whichtoken.bench.metrics import METRICS
from whichtoken.core.removal_steps import GRIDS, OF_METRICS, find_grid
from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.records import Plan
from whichtoken.reproduce.protocols import Ninths
from whichtoken.tasks import Task, task_for

load_presets()
SubjectOf = Callable[..., wt.Subject]


@pytest.fixture
def task(subject_of: SubjectOf) -> Task:
    """Of texts, with all that a protocol may ask of a model."""
    return task_for(subject_of("bert"))


@pytest.mark.parametrize("preset", [None, "recommended", *PRESETS])
def test_every_preset_builds_draws_curves_and_comes_back_from_json(preset: str | None, task: Task) -> None:
    made = wt.bench.protocol(preset)
    suited = made.adapt_to(task)
    assert suited.perturbations is not None
    assert suited.metrics is not None
    plans = suited.plans()
    assert len(plans) == len(suited.grids) * len(suited.perturbations) * len(suited.orders)
    assert set(suited.metrics) <= set(METRICS)
    assert resolve_protocol(preset or "recommended") == made
    for one in (made, suited):
        assert wt.bench.protocol(**json.loads(json.dumps(one.to_dict()))) == one
    assert suited.adapt_to(task) == suited


def test_without_a_preset_it_is_the_recommended_one(task: Task) -> None:
    assert wt.bench.protocol() == wt.bench.protocol("recommended") == wt.bench.Protocol()
    suited = wt.bench.protocol().adapt_to(task)
    assert [(plan.order, plan.perturbation) for plan in suited.plans()] == [
        ("morf", "delete"),
        ("lerf", "delete"),
        ("morf", "mask"),
        ("lerf", "mask"),
    ]
    assert {(plan.grid, plan.level) for plan in suited.plans()} == {("tenths", "token")}
    tenths = find_grid("tenths")
    assert (tenths.words, tenths.n_spared([0.0], [1.0])) == ("the content tokens", 0)
    assert suited.bounded_plans() == []
    assert suited.metrics == ("aopc", "log-odds", "kendall", "agreement")
    assert (suited.min_tokens, suited.max_tokens) == (10, None)


def test_a_full_one_adds_bounds_and_a_quick_one_leaves_out_what_takes_time(task: Task) -> None:
    full, quick = (wt.bench.protocol(preset).adapt_to(task) for preset in ("full", "quick"))
    (plan,) = full.bounded_plans()
    assert (plan.order, plan.perturbation, plan.grid) == ("morf", "delete", "tenths")
    assert full.metrics == ("aopc", "log-odds", "normalised-aopc", "kendall", "agreement")
    assert full.plans() == wt.bench.protocol().adapt_to(task).plans()
    assert (quick.metrics, quick.sample, quick.bounded_plans()) == (("aopc",), 20, [])
    assert [(plan.order, plan.perturbation) for plan in quick.plans()] == [("morf", "delete"), ("morf", "mask")]
    named = wt.bench.protocol("quick", metrics=("auc",), sample=5).adapt_to(task)
    assert (named.metrics, named.sample) == (("auc",), 5)


def test_questions_are_quickly_measured_by_what_auto_reads_and_fully_by_their_own_metric() -> None:
    answers = task_for(question_subject())
    assert wt.bench.protocol("quick").adapt_to(answers).metrics == ("aopc",)
    assert wt.bench.protocol("full").adapt_to(answers).metrics == ("precision",)
    for name in ("kendall", "positions-kendall"):
        with pytest.raises(BadSetting, match=f"metrics='{name}' .* it compares classes, and questions have none"):
            wt.bench.protocol(metrics=(name,)).adapt_to(answers)


# As docs/evaluation.md has them.
PAPERS: dict[str, dict[str, Any]] = {
    "contrast-cat": {
        "target": "predicted",
        "first": "delete",
        "min_tokens": 10,
        "metrics": ("aopc", "log-odds", "positions-kendall", "pooled-auc"),
        "orders": ("morf", "lerf"),
        "sample": 2000,
    },
    "attcat": {
        "target": "gold",
        "first": "delete",
        "min_tokens": 10,
        "metrics": ("absolute-aopc", "log-odds", "positions-kendall"),
        "orders": ("morf",),
        "sample": None,
    },
    "mask-lrp": {
        "target": "gold",
        "first": "pad",
        "min_tokens": 20,
        "metrics": ("aopc", "log-odds"),
        "orders": ("morf",),
        "sample": None,
    },
}


@pytest.mark.parametrize("preset", PAPERS)
def test_a_preset_makes_the_papers_choices(preset: str, task: Task) -> None:
    made, paper = wt.bench.protocol(preset).adapt_to(task), dict(PAPERS[preset])
    assert made.perturbations is not None
    assert made.perturbations[0] == paper.pop("first")
    assert {name: getattr(made, name) for name in paper} == paper
    for plan in made.plans():  # shares of all tokens, and the loop stops one before the end of the ranking
        grid = find_grid(plan.grid)
        assert (plan.level, grid, grid.words) == ("token", Ninths(), "all tokens, special ones included")
        assert (grid.n_spared([3.0, 1.0], [2.0]), grid.n_spared([3.0, 1.0], [0.0])) == (1, 0)
        steps = grid.steps(43, 2, plan.order)
        assert steps.counts == (0, 5, 10, 15, 20, 25, 30, 35, 40, 45)  # 11.1 .. 100 %
    assert made.bounded_plans() == []


def test_attcats_paper_removes_0_to_100_percent_where_its_code_removes_ninths(task: Task) -> None:
    made = wt.bench.protocol("attcat-paper").adapt_to(task)
    assert (made.target, made.min_tokens, made.sample) == ("predicted", 10, None)
    assert made.metrics == ("aopc", "log-odds", "kendall", "positions-kendall")
    assert [(plan.perturbation, plan.order) for plan in made.plans()] == [("delete", "morf"), ("pad", "morf")]
    for plan in made.plans():
        grid = find_grid(plan.grid)
        steps = grid.steps(40, 2, plan.order)
        assert steps.removed == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        assert steps.counts[-1] == 40  # the last word, too; special tokens stay
        assert (grid.words, grid.n_spared([3.0, 1.0], [2.0])) == ("the content tokens", 0)


def test_a_plan_for_every_grid_perturbation_and_order(task: Task) -> None:
    made = wt.bench.protocol(grids=("all", "tenths"), perturbations=("pad", "delete"), orders=("lerf", "random"))
    plans = made.adapt_to(task).plans()
    assert [(plan.grid, plan.perturbation, plan.order) for plan in plans] == [
        (grid, how, order) for grid in ("all", "tenths") for how in ("pad", "delete") for order in ("lerf", "random")
    ]
    words = wt.bench.protocol(level="word").adapt_to(task)
    assert {plan.level for plan in words.plans()} == {"word"}
    assert all(task.removal(plan.perturbation).name == plan.perturbation for plan in plans)


@pytest.mark.parametrize("metric", ["comprehensiveness", "sufficiency"])
def test_metrics_of_eraser_bring_their_grid_once(metric: str, task: Task) -> None:
    order = {"comprehensiveness": "morf", "sufficiency": "lerf"}[metric]
    for preset in ("recommended", "attcat"):  # whatever its own orders and shares
        made = wt.bench.protocol(preset, metrics=("aopc", metric)).adapt_to(task)
        found = [plan for plan in made.plans() if plan.grid == "eraser"]
        assert {plan.order for plan in found} == {order}
        assert len(found) == 2  # one for each perturbation
    eraser = find_grid("eraser")
    assert (eraser.words, eraser.n_spared([0.0], [1.0])) == ("the content tokens", 0)
    assert {plan.grid for plan in wt.bench.protocol(metrics=("aopc",)).adapt_to(task).plans()} == {"tenths"}


@pytest.mark.parametrize("orders", [("morf",), ("lerf",), ("random",), ("morf", "lerf")])
def test_srg_brings_the_orders_that_are_missing(orders: tuple[Any, ...], task: Task) -> None:
    made = wt.bench.protocol(metrics=("aopc", "srg"), orders=orders, perturbations=("mask",)).adapt_to(task)
    found = [plan.order for plan in made.plans()]
    assert found == [*orders, *(order for order in ("morf", "lerf") if order not in orders)]
    assert {plan.order for plan in wt.bench.protocol(metrics=("aopc",), orders=orders).adapt_to(task).plans()} == {
        *orders
    }


def test_bounds_are_searched_for_once_and_only_if_asked(task: Task) -> None:
    made = wt.bench.protocol("full", perturbations=("mask", "delete"), grids=("all", "tenths"), orders=("lerf",))
    made = made.adapt_to(task)
    assert [(plan.perturbation, plan.grid) for plan in made.bounded_plans()] == [("mask", "all")]
    assert wt.bench.protocol(metrics=("aopc",)).adapt_to(task).bounded_plans() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"orders": ("mrf",)}, "unknown order 'mrf'; did you mean 'morf'"),
        ({"grids": ("tenth",)}, "unknown grid 'tenth'; did you mean 'tenths'"),
        ({"metrics": ("aopc", "acop")}, "unknown metric 'acop'; did you mean 'aopc'"),
        ({"metric": ("aopc",)}, "unknown setting of protocol 'metric'; did you mean 'metrics'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_unknown_names_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        wt.bench.protocol(**settings)


def test_what_the_task_does_not_have_is_refused(task: Task) -> None:
    with pytest.raises(UsageError, match="unknown perturbation 'burn'; known: delete, mask, pad"):
        wt.bench.protocol(perturbations=("burn",)).adapt_to(task)
    with pytest.raises(BadSetting, match="level='letter' is not allowed; it must be one of token, word"):
        wt.bench.protocol(level="letter").adapt_to(task)


@pytest.mark.parametrize("name", ["perturbations", "orders", "grids", "metrics"])
def test_empty_lists_are_refused(name: str) -> None:
    with pytest.raises(BadSetting, match=rf"{name}=\(\) is not allowed; it must be one or more"):
        wt.bench.protocol(None, **{name: ()})


@pytest.mark.parametrize(
    "settings",
    [
        {"sample": 0},
        {"min_tokens": 0},
        {"seed": -1},
        {"bounds_budget": -1},
        {"target": "golden"},
        {"k": 0},
        {"part": "middle"},
        {"level": 1},
        {"perturbations": "delete"},
        {"min_probability": float("nan")},
    ],
    ids=str,
)
def test_wrong_values_are_refused_also_in_a_protocol_made_by_hand(settings: dict[str, Any]) -> None:
    name = next(iter(settings))
    with pytest.raises(BadSetting, match=f"protocol: {name}="):
        wt.bench.protocol(**settings)
    if name != "perturbations":
        with pytest.raises(BadSetting, match=f"protocol: {name}="):
            resolve_protocol(wt.bench.Protocol(**settings))


def test_unknown_presets_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'contrast-cat'"):
        wt.bench.protocol("contrastcat")
    with pytest.raises(UnknownName, match="unknown protocol 'att-cat'; did you mean 'attcat'"):
        resolve_protocol("att-cat")


def test_bounds_that_cannot_be_are_refused_before_anything_is_measured(task: Task) -> None:
    with pytest.raises(BadSetting, match="without normalised-aopc"):
        wt.bench.protocol(grids=("ninths",), metrics=("aopc", "normalised-aopc"))
    with pytest.raises(BadSetting, match="without normalised-aopc"):
        wt.bench.protocol("full", grids=("ninths",)).adapt_to(task)  # it is among the usual metrics
    assert wt.bench.protocol(metrics=("aopc",), grids=("ninths",)).adapt_to(task).bounded_plans() == []


def test_what_can_be_chosen_is_what_there_is(task: Task) -> None:
    grids = tuple(grid for grid in GRIDS if grid not in OF_METRICS)
    everything = wt.bench.protocol(
        grids=grids, perturbations=("delete", "mask", "pad"), orders=("morf", "lerf", "random")
    )
    assert len(everything.adapt_to(task).plans()) == 45
    assert set(everything.adapt_to(task).plans()) == {
        Plan(how, order, grid)
        for how in ("delete", "mask", "pad")
        for order in ("morf", "lerf", "random")
        for grid in ("tenths", "tenths-to-all", "twentieths", "all", "ninths")
    }


def test_answers_are_looked_for_in_questions_only(subject_of: Callable[..., wt.Subject]) -> None:
    with pytest.raises(BadSetting, match="it needs gold answers, and texts have none"):
        wt.bench.run(
            subject_of("bert"), ["very slow film"], ["random"], protocol=wt.bench.protocol(metrics=("precision",))
        )


def test_after_the_last_step_of_attcats_paper_only_special_tokens_remain(subject_of: SubjectOf) -> None:
    subject, text = subject_of("bert"), "the slow film won but the actors did sleep"
    table = wt.bench.run(subject, [text], ["attcat", "gae"], protocol="attcat-paper")
    (curve,) = (t for t in table.trends if (t.metric, t.perturbation) == ("aopc", "delete"))
    assert curve.removed == tuple(k / 10 for k in range(11))
    whole, empty = (_probabilities(subject, words) for words in (text, ""))
    drop = max(whole) - empty[whole.index(max(whole))]
    assert curve.means["attcat"][-1] == curve.means["gae"][-1] == pytest.approx(drop, rel=1e-9)
    assert dict(table.facts)["steps"] == "tenths-to-all of the content tokens"
    assert table.columns[0].title == "AOPC, delete, MoRF, tenths-to-all"


def _probabilities(subject: wt.Subject, text: str) -> list[float]:
    with torch.no_grad():
        logits = subject.model(**subject.processor(text, return_tensors="pt")).logits
    probabilities: list[float] = logits.softmax(-1)[0].tolist()
    return probabilities
