"""Protocols: what the presets choose, which curves they draw, and what they refuse."""

import json
from typing import Any

import pytest

import whichtoken as wt
from whichtoken.bench.protocol import METRIC_NAMES, PROTOCOLS
from whichtoken.bench.run import chosen_protocol
from whichtoken.core.perturb import Delete, Mask, Pad
from whichtoken.core.removal_steps import GRIDS, steps_of
from whichtoken.errors import BadSetting, UnknownName

PERTURBATIONS = {"delete": Delete(), "mask": Mask(), "pad": Pad()}


@pytest.mark.parametrize("preset", [None, "recommended", *PROTOCOLS])
def test_every_preset_builds_draws_curves_and_comes_back_from_json(preset: str | None) -> None:
    made = wt.protocol(preset)
    plans = made.plans()
    assert len(plans) == len(made.grids) * len(made.perturbations) * len(made.orders)
    assert set(made.metrics) <= set(METRIC_NAMES)
    assert chosen_protocol(preset or "recommended") == made
    assert wt.protocol(**json.loads(json.dumps(made.to_dict()))) == made


def test_without_a_preset_it_is_the_recommended_one() -> None:
    assert wt.protocol() == wt.protocol("recommended") == wt.Protocol()
    plans = wt.protocol().plans()
    assert [(plan.order, plan.perturbation) for plan in plans] == [
        ("morf", Delete()),
        ("lerf", Delete()),
        ("morf", Mask()),
        ("lerf", Mask()),
    ]
    assert {(plan.grid, plan.level, plan.shares_of, plan.keep_last) for plan in plans} == {
        ("tenths", "token", "content", False)
    }
    assert [(plan.order, plan.perturbation, plan.grid) for plan in wt.protocol().bounded()] == [
        ("morf", Delete(), "tenths")
    ]


# As docs/evaluation.md has them.
PAPERS: dict[str, dict[str, Any]] = {
    "contrast-cat": {
        "target": "predicted",
        "first": "delete",
        "min_tokens": 10,
        "absolute": False,
        "kendall": "order",
        "orders": ("morf", "lerf"),
        "sample": 2000,
    },
    "attcat": {
        "target": "gold",
        "first": "delete",
        "min_tokens": 10,
        "absolute": True,
        "kendall": "order",
        "orders": ("morf",),
        "sample": None,
    },
    "mask-lrp": {
        "target": "gold",
        "first": "pad",
        "min_tokens": 20,
        "absolute": False,
        "kendall": "scores",  # and it is not measured
        "orders": ("morf",),
        "sample": None,
    },
}


@pytest.mark.parametrize("preset", PAPERS)
def test_a_preset_makes_the_papers_choices(preset: str) -> None:
    made, paper = wt.protocol(preset), dict(PAPERS[preset])
    assert made.perturbations[0] == paper.pop("first")
    assert {name: getattr(made, name) for name in paper} == paper
    assert {"aopc", "log-odds"} <= set(made.metrics)
    assert ("kendall" in made.metrics) == (preset != "mask-lrp")
    assert ("pooled-auc" in made.metrics) == (preset == "contrast-cat")
    for plan in made.plans():  # shares of all tokens, and the loop stops one before the end of the ranking
        assert (plan.level, plan.shares_of, plan.keep_last) == ("token", "all", True)
        steps = steps_of(plan.grid, 45)
        assert steps.counts == (0, 5, 10, 15, 20, 25, 30, 35, 40, 45)  # 11.1 .. 100 %
    assert made.bounded() == []


def test_kendall_of_the_papers_is_of_all_tokens() -> None:
    assert [wt.protocol(name).kendall_of for name in ("contrast-cat", "attcat", "recommended")] == [
        "all",
        "all",
        "content",
    ]


def test_a_plan_for_every_grid_perturbation_and_order() -> None:
    made = wt.protocol(grids=("all", "tenths"), perturbations=("pad", "delete"), orders=("lerf", "random"))
    assert [(plan.grid, plan.name, plan.order) for plan in made.plans()] == [
        (grid, how, order) for grid in ("all", "tenths") for how in ("pad", "delete") for order in ("lerf", "random")
    ]
    words = wt.protocol(level="word")
    assert {plan.level for plan in words.plans()} == {"word"}
    assert all(plan.perturbation == PERTURBATIONS[plan.name] for plan in made.plans())


@pytest.mark.parametrize("metric", ["comprehensiveness", "sufficiency"])
def test_metrics_of_eraser_bring_their_grid_once(metric: str) -> None:
    order = {"comprehensiveness": "morf", "sufficiency": "lerf"}[metric]
    for preset in ("recommended", "attcat"):  # whatever its own orders and shares
        found = [plan for plan in wt.protocol(preset, metrics=("aopc", metric)).plans() if plan.grid == "eraser"]
        assert {(plan.order, plan.shares_of, plan.keep_last) for plan in found} == {(order, "content", False)}
        assert len(found) == 2  # one for each perturbation
    assert {plan.grid for plan in wt.protocol(metrics=("aopc",)).plans()} == {"tenths"}


def test_bounds_are_searched_for_once_and_only_if_asked() -> None:
    made = wt.protocol(perturbations=("mask", "delete"), grids=("all", "tenths"), orders=("lerf",))
    assert [(plan.name, plan.grid) for plan in made.bounded()] == [("mask", "all")]
    assert wt.protocol(metrics=("aopc",)).bounded() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"perturbations": ("burn",)}, "unknown perturbation 'burn'; known: delete, mask, pad"),
        ({"orders": ("mrf",)}, "unknown order 'mrf'; did you mean 'morf'"),
        ({"grids": ("tenth",)}, "unknown grid 'tenth'; did you mean 'tenths'"),
        ({"metrics": ("aopc", "acop")}, "unknown metric 'acop'; did you mean 'aopc'"),
        ({"metric": ("aopc",)}, "unknown setting of protocol 'metric'; did you mean 'metrics'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_unknown_names_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        wt.protocol(**settings)


@pytest.mark.parametrize("name", ["perturbations", "orders", "grids", "metrics"])
def test_empty_lists_are_refused(name: str) -> None:
    with pytest.raises(BadSetting, match=rf"{name}=\(\) is not allowed; it must be one or more of"):
        wt.protocol(None, **{name: ()})


@pytest.mark.parametrize(
    "settings",
    [
        {"sample": 0},
        {"min_tokens": 0},
        {"seed": -1},
        {"bounds_width": 0},
        {"target": "golden"},
        {"kendall": "ranks"},
        {"level": "letter"},
        {"perturbations": "delete"},
        {"min_probability": float("nan")},
    ],
    ids=str,
)
def test_wrong_values_are_refused_also_in_a_protocol_made_by_hand(settings: dict[str, Any]) -> None:
    name = next(iter(settings))
    with pytest.raises(BadSetting, match=f"protocol: {name}="):
        wt.protocol(**settings)
    if name != "perturbations":
        with pytest.raises(BadSetting, match=f"protocol: {name}="):
            chosen_protocol(wt.Protocol(**settings))


def test_unknown_presets_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'contrast-cat'"):
        wt.protocol("contrastcat")
    with pytest.raises(UnknownName, match="unknown protocol 'att-cat'; did you mean 'attcat'"):
        chosen_protocol("att-cat")


@pytest.mark.parametrize("settings", [{"shares_of": "all"}, {"keep_last": True}], ids=str)
def test_bounds_that_cannot_be_are_refused_before_anything_is_measured(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="without normalised-aopc"):
        wt.protocol(**settings)
    assert wt.protocol(metrics=("aopc",), **settings).bounded() == []


def test_what_can_be_chosen_is_what_there_is() -> None:
    grids = tuple(grid for grid in GRIDS if grid != "eraser")
    everything = wt.protocol(grids=grids, perturbations=("delete", "mask", "pad"), orders=("morf", "lerf", "random"))
    assert len(everything.plans()) == 36
