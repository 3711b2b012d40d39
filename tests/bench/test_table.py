"""From what was measured to the table: invented curves, and every column worked out by hand."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest

import whichtoken as wt
from whichtoken.bench._protocol import load_presets
from whichtoken.bench.notes import Run, facts, notes
from whichtoken.bench.results import InputResult, MethodResult, Part, PlanResult, every_input
from whichtoken.bench.stats import holm, interval, paired_p
from whichtoken.bench.table import summarise
from whichtoken.metrics.curves import per_step
from whichtoken.records import Plan
from whichtoken.reproduce.pooled import STEPS, pooled_minmax_auc
from whichtoken.tables import BenchTable
from whichtoken.tasks import Task, task_for

load_presets()  # and with them the papers' metrics
TENTHS = tuple(k / 10 for k in range(10))
MORF, LERF, MASKED = Plan("delete", "morf"), Plan("delete", "lerf"), Plan("mask", "morf")
METHODS = ("attcat", "gae", "random", "contrast-cat")
TUNED = ("contrast-cat",)
N = 12


@pytest.fixture
def task(subject_of: Callable[..., wt.Subject]) -> Task:
    return task_for(subject_of("bert"))


def invented(
    plans: Mapping[Plan, tuple[float, ...]],
    methods: Sequence[str] = METHODS,
    tuned: Sequence[str] = TUNED,
    seed: int = 0,
) -> list[InputResult]:
    """`plans`: with the fractions removed. Later methods fall faster, so that lines have an order to be put into."""
    source = random.Random(seed)

    def scored(number: int, method: str) -> MethodResult:
        speed = 1 + methods.index(method)
        curves = tuple(
            tuple(0.9 - 0.08 * speed * share + 0.1 * source.random() for share in removed) for removed in plans.values()
        )
        tau = dict.fromkeys(("kendall", "positions-kendall"), 0.1 * speed - 0.01 * number)
        return MethodResult(method in tuned, 0.25 * speed, 10.0 * speed, tau, curves)

    return [
        InputResult(
            number=number,
            row=number,
            id="",
            key=str(number),
            label="positive",
            probability=0.9,
            n_tokens=12 + number,
            n_cut=0,
            methods={method: scored(number, method) for method in methods},
            plans=tuple(PlanResult(plan, removed) for plan, removed in plans.items()),
        )
        for number in range(N)
    ]


TEXTS = invented(dict.fromkeys((MORF, LERF, MASKED), TENTHS))


def table_of(*metrics: str, texts: Sequence[InputResult] = TEXTS) -> BenchTable:
    return summarise(texts, metrics, "text")


def curve_of(text: InputResult, method: str, plan: Plan) -> tuple[float, ...]:
    return text.curve(method, plan).probability


def with_bounds(text: InputResult, lower: float, upper: float, exact: bool) -> InputResult:
    """Of its first plan."""
    first, *rest = text.plans
    return replace(text, plans=(replace(first, lower=lower, upper=upper, exact=exact), *rest))


def column_of(table: BenchTable, name: str) -> dict[str, float]:
    return {line.method: line.cells[name].mean for line in table.lines if name in line.cells}


def drops(text: InputResult, method: str, plan: Plan) -> list[float]:
    first, *rest = curve_of(text, method, plan)
    return [first - p for p in rest]


def test_cells_have_the_mean_its_interval_and_a_corrected_test_against_the_best() -> None:
    table = table_of("aopc")
    for plan, better in ((MORF, 1), (MASKED, 1), (LERF, -1)):
        values = {m: [fmean(drops(text, m, plan)) for text in TEXTS] for m in METHODS}
        best = max(METHODS, key=lambda method: better * fmean(values[method]))
        others = [method for method in METHODS if method != best]
        ps = dict(zip(others, holm([paired_p(values[best], values[m]) for m in others]), strict=True))
        for line in table.lines:
            cell, own = line.cells[f"aopc {plan}"], values[line.method]
            assert cell.mean == pytest.approx(fmean(own))
            assert (cell.low, cell.high) == pytest.approx(interval(np.array(own)))
            assert cell.n == N
            assert cell.p == (None if line.method == best else pytest.approx(ps[line.method]))
    assert {column.name: column.better for column in table.columns} == {
        f"aopc {MORF}": "higher",
        f"aopc {LERF}": "lower",
        f"aopc {MASKED}": "higher",
        "seconds": "lower",
        "evaluations": "lower",
    }


def test_methods_that_are_alike_are_not_told_apart() -> None:
    same = [replace(t, methods={"a": t.methods["gae"], "b": t.methods["gae"]}) for t in TEXTS]
    table = table_of("aopc", "log-odds", texts=same)
    for column in table.columns:
        assert sorted([line.cells[column.name].p for line in table.lines], key=str) == [1.0, None]


def test_log_odds_auc_and_their_directions() -> None:
    table = table_of("log-odds", "auc")
    for method in METHODS:
        curves = [curve_of(text, method, MORF) for text in TEXTS]
        odds = [fmean(np.log(np.array(curve[1:]) / curve[0])) for curve in curves]
        areas = [sum((a + b) / 2 for a, b in pairwise(curve)) / 9 for curve in curves]
        assert column_of(table, f"log-odds {MORF}")[method] == pytest.approx(fmean(odds))
        assert column_of(table, f"auc {MORF}")[method] == pytest.approx(fmean(areas))
    better = {column.name: column.better for column in table.columns}
    for metric in ("log-odds", "auc"):
        assert (better[f"{metric} {MORF}"], better[f"{metric} {LERF}"]) == ("lower", "higher")


def test_absolute_changes_are_for_aopc_only() -> None:
    rising = [
        replace(t, methods={m: replace(s, curves=(s.curves[0][::-1],)) for m, s in t.methods.items()})
        for t in invented({MORF: TENTHS})
    ]
    table = table_of("absolute-aopc", "log-odds", texts=rising)
    plain = table_of("aopc", "log-odds", texts=rising)
    for method in METHODS:
        expected = fmean(fmean(map(abs, drops(text, method, MORF))) for text in rising)
        assert column_of(table, f"absolute-aopc {MORF}")[method] == pytest.approx(expected)
        assert column_of(plain, f"aopc {MORF}")[method] < expected
    assert column_of(table, f"log-odds {MORF}") == column_of(plain, f"log-odds {MORF}")
    assert "absolute" in table.columns[0].about
    assert "absolute" not in plain.columns[0].about


def test_comprehensiveness_and_sufficiency_by_hand() -> None:
    first, last = Plan("delete", "morf", "eraser"), Plan("delete", "lerf", "eraser")
    without, only = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5), (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)
    one = MethodResult(False, 1.0, 1.0, {}, ((0.8, 0.9, 0.7, 0.6, 0.5, 0.4), (0.8, 0.9, 0.7, 0.5, 0.3, 0.1)))
    plans = (PlanResult(first, without), PlanResult(last, only))
    texts = [replace(TEXTS[0], plans=plans, methods={"gae": one})]
    table = table_of("absolute-aopc", "comprehensiveness", "sufficiency", texts=texts)  # which is not for these
    assert column_of(table, f"comprehensiveness {first}")["gae"] == pytest.approx((-0.1 + 0.1 + 0.2 + 0.3 + 0.4) / 5)
    assert column_of(table, f"sufficiency {last}")["gae"] == pytest.approx((-0.1 + 0.1 + 0.3 + 0.5 + 0.7) / 5)
    assert [column.name for column in table.columns] == [
        f"comprehensiveness {first}",
        f"sufficiency {last}",
        "seconds",
        "evaluations",
    ]
    assert [column.better for column in table.columns[:2]] == ["higher", "lower"]
    assert table.trends == ()


def test_normalised_aopc_is_the_place_between_the_bounds_of_either_order() -> None:
    wide, narrow = (-0.4, 0.4, True), (0.08, 0.1, False)  # what was searched for holds all methods, or misses some
    searched = [narrow if i % 2 else wide for i in range(5)]
    bounded = [with_bounds(text, *bounds) for text, bounds in zip(TEXTS, searched, strict=False)]
    one = bounded[0].methods["gae"]
    flat = replace(one, curves=(one.curves[0],) * 3)  # whoever ranks, and from either end
    same = fmean(drops(bounded[0], "gae", MORF))
    alike = with_bounds(replace(TEXTS[5], methods=dict.fromkeys(METHODS, flat)), same, same + 1e-9, True)
    table = table_of("normalised-aopc", texts=[*bounded, alike, *TEXTS[6:]])

    def place(text: InputResult, method: str, plan: Plan) -> float:
        """Between what the search found, or any method in either order where that is more."""
        there = [fmean(drops(text, name, order)) for name in METHODS for order in (MORF, LERF)]
        lower, upper, _ = searched[text.number]
        low, high = min(lower, upper, *there), max(lower, upper, *there)
        return (fmean(drops(text, method, plan)) - low) / (high - low)

    for plan in (MORF, LERF):
        cells = {line.method: line.cells[f"normalised-aopc {plan}"] for line in table.lines}
        for method in METHODS:
            expected = fmean(place(text, method, plan) for text in bounded)
            assert cells[method].mean == pytest.approx(expected)
            assert cells[method].n == 5  # where no order matters, or nothing was searched, there is no place
    assert not any(column.name == f"normalised-aopc {MASKED}" for column in table.columns)
    assert f"aopc {MORF}" not in {column.name for column in table.columns}


def test_srg_is_aopc_of_morf_minus_aopc_of_lerf() -> None:
    grid = Plan("delete", "lerf", "twentieths"), Plan("delete", "morf", "twentieths"), Plan("delete", "random")
    words = Plan("delete", "morf", "tenths", "word"), Plan("delete", "lerf", "tenths", "word")
    texts = invented(dict.fromkeys((MORF, LERF, MASKED, *grid, *words), TENTHS))
    table = table_of("srg", texts=texts)
    names: dict[str, tuple[str, Plan, Plan]] = {
        "srg delete tenths token": ("SRG, delete, by token", MORF, LERF),
        "srg delete twentieths token": ("SRG, delete, twentieths, by token", grid[1], grid[0]),
        "srg delete tenths word": ("SRG, delete, by word", *words),
    }  # and none by mask, which has no LeRF curve
    assert {column.name: column.title for column in table.columns[:-2]} == {
        n: title for n, (title, *_) in names.items()
    }
    assert {(column.better, column.flattered) for column in table.columns[:-2]} == {("higher", True)}
    for name, (_, first, last) in names.items():
        for line in table.lines:
            gains = [fmean(drops(t, line.method, first)) - fmean(drops(t, line.method, last)) for t in texts]
            cell = line.cells[name]
            assert cell.mean == pytest.approx(fmean(gains))
            assert (cell.low, cell.high) == pytest.approx(interval(np.array(gains)))
        assert sorted(line.cells[name].p is None for line in table.lines) == [False, False, False, True]
    assert [column.name for column in table_of("srg").columns[:-2]] == ["srg delete tenths"]
    assert table.trends == ()


def test_pooled_areas_are_those_of_the_metric() -> None:
    table = table_of("aopc", "pooled-auc")
    for plan in (MORF, LERF, MASKED):
        curves = {m: [text.curve(m, plan) for text in TEXTS] for m in METHODS}
        for metric in STEPS:
            name = f"pooled-auc {plan} {metric}"
            expected = pooled_minmax_auc(curves, metric)
            assert column_of(table, name) == pytest.approx(expected)
            for line in table.lines:
                cell = line.cells[name]
                assert cell.low <= cell.mean <= cell.high
                assert (cell.n, cell.p) == (N, None)
            better = next(column.better for column in table.columns if column.name == name)
            assert better == ("higher" if (metric == "aopc") == (plan.order == "morf") else "lower")


def test_pooled_areas_come_before_costs_so_that_they_can_order_the_lines() -> None:
    table = table_of("pooled-auc")
    assert table.columns[0].name == f"pooled-auc {MORF} aopc"
    assert [column.name for column in table.columns[-2:]] == ["seconds", "evaluations"]
    areas = [line.cells[table.columns[0].name].mean for line in table.lines]
    assert areas == sorted(areas, reverse=True)


def test_curves_of_unequal_steps_are_not_averaged() -> None:
    plan = Plan("delete", "morf", "all")
    texts = [invented({plan: (0.0, 0.5, 1.0)})[0], invented({plan: (0.0, 1 / 3, 2 / 3, 1.0)})[1]]
    table = table_of("aopc", "pooled-auc", texts=texts)
    assert [column.name for column in table.columns] == [f"aopc {plan}", "seconds", "evaluations"]
    assert table.trends == ()


def test_trends_are_the_mean_changes_at_each_step() -> None:
    table = table_of("aopc", "log-odds")
    assert [(t.perturbation, t.order, t.metric) for t in table.trends] == [
        (how, order, metric)
        for how, order in (("delete", "morf"), ("delete", "lerf"), ("mask", "morf"))
        for metric in ("aopc", "log-odds")
    ]
    for trend in table.trends:
        assert trend.removed == TENTHS
        for method in METHODS:
            plan = Plan(trend.perturbation, trend.order, trend.grid)  # type: ignore[arg-type]
            steps = [per_step(text.curve(method, plan), trend.metric) for text in TEXTS]  # type: ignore[arg-type]
            assert trend.means[method] == pytest.approx([fmean(step) for step in zip(*steps, strict=True)])
            assert trend.means[method][0] == 0
    assert {trend.metric for trend in table_of("aopc").trends} == {"aopc"}
    assert table_of("auc").trends == ()


def test_deletion_flatters_those_that_searched_by_deletion() -> None:
    metrics = ("aopc", "log-odds", "auc", "pooled-auc", "kendall")
    table = table_of(*metrics)
    flattered = {column.name for column in table.columns if column.flattered}
    assert flattered == {column.name for column in table.columns if " delete " in column.name}
    assert {f"aopc {MORF}", f"log-odds {LERF}", f"pooled-auc {MORF} aopc"} <= flattered
    honest = table_of(*metrics, texts=invented(dict.fromkeys((MORF, MASKED), TENTHS), tuned=()))
    assert not any(column.flattered for column in honest.columns)


@pytest.mark.parametrize(("first", "rising"), [("aopc", False), ("log-odds", True), ("auc", True), ("kendall", True)])
def test_lines_are_in_the_order_of_the_first_column_the_best_first(first: str, rising: bool) -> None:
    table = table_of(first)
    values = [line.cells[table.columns[0].name].mean for line in table.lines]
    assert table.columns[0].name.split(" ")[0] == first
    assert values == sorted(values, reverse=not rising)
    assert len(set(values)) == len(METHODS)


def test_the_first_metric_asked_for_is_the_first_column() -> None:
    names = [column.name for column in table_of("log-odds", "aopc").columns]
    assert names == [f"{metric} {plan}" for metric in ("log-odds", "aopc") for plan in (MORF, LERF, MASKED)] + [
        "seconds",
        "evaluations",
    ]


def test_costs_and_kendall_are_means_over_texts() -> None:
    table = table_of("kendall")
    for method in METHODS:
        speed = 1 + METHODS.index(method)
        line = next(line for line in table.lines if line.method == method)
        assert line.cells["seconds"].mean == pytest.approx(0.25 * speed)
        assert line.cells["evaluations"].mean == pytest.approx(10 * speed)
        assert line.cells["kendall"].mean == pytest.approx(0.1 * speed - 0.01 * fmean(range(N)))
    assert "rank" not in table.columns[0].about
    papers = table_of("positions-kendall")
    assert "positions" in papers.columns[0].about
    assert column_of(papers, "positions-kendall") == column_of(table, "kendall")


def test_a_method_without_kendall_has_no_cell() -> None:
    texts = [
        replace(t, methods={m: replace(s, values={}) if m == "gae" else s for m, s in t.methods.items()}) for t in TEXTS
    ]
    table = table_of("kendall", "aopc", texts=texts)
    assert set(column_of(table, "kendall")) == set(METHODS) - {"gae"}
    assert set(column_of(table, f"aopc {MORF}")) == set(METHODS)


def test_controls_and_searched_methods_are_marked() -> None:
    methods = ("attcat", "random", "random(seed=3)", "refined-noise", "refined-noise@x", "randomised", "contrast-cat")
    table = table_of("aopc", texts=invented({MORF: TENTHS}, methods, ("contrast-cat", "refined-noise")))
    marked = {line.method for line in table.lines if line.control}
    assert marked == {"random", "random(seed=3)", "refined-noise", "refined-noise@x"}
    assert {line.method for line in table.lines if line.tuned_on_deletion} == {"contrast-cat", "refined-noise"}


def test_the_order_of_parts_does_not_change_the_table() -> None:
    texts = [replace(text, agreement=tuple(map(tuple, np.eye(4).tolist()))) for text in TEXTS]
    parts = [Part(tuple(texts[i : i + 5]), 0, 0) for i in range(0, N, 5)]
    metrics = ("aopc", "pooled-auc", "kendall")
    assert table_of(*metrics, texts=every_input(parts[::-1])) == table_of(*metrics, texts=texts)
    mixed = random.Random(1).sample(texts, N)
    assert every_input([Part(tuple(mixed), 0, 0)]) == texts


def test_the_order_of_texts_changes_no_mean() -> None:
    table, turned = table_of("aopc", "auc", "kendall"), table_of("aopc", "auc", "kendall", texts=TEXTS[::-1])
    assert [line.method for line in turned.lines] == [line.method for line in table.lines]
    for line, other in zip(table.lines, turned.lines, strict=True):
        for name, cell in line.cells.items():
            assert other.cells[name].mean == pytest.approx(cell.mean)
            assert (other.cells[name].low, other.cells[name].high) == pytest.approx((cell.low, cell.high), abs=0.01)


def test_agreement_follows_the_names_of_methods_not_their_order_in_a_part() -> None:
    """As in a folder where a second call named the methods in another order."""
    tau = {("attcat", "gae"): 0.5, ("attcat", "random"): -0.25, ("gae", "random"): 0.125}

    def with_order(text: InputResult, names: Sequence[str]) -> InputResult:
        table = tuple(tuple(1.0 if a == b else tau.get((a, b), tau.get((b, a), 0.0)) for b in names) for a in names)
        return replace(text, methods={name: text.methods[name] for name in names}, agreement=table)

    orders = [("attcat", "gae", "random"), ("random", "attcat", "gae"), ("gae", "random", "attcat")]
    found = table_of("aopc", texts=[with_order(text, orders[i % 3]) for i, text in enumerate(TEXTS)])
    assert found.agreement is not None
    assert found.agreement.methods == tuple(line.method for line in found.lines)
    for a, row in zip(found.agreement.methods, found.agreement.tau, strict=True):
        for b, value in zip(found.agreement.methods, row, strict=True):
            assert value == (1.0 if a == b else pytest.approx(tau.get((a, b), tau.get((b, a)))))
    assert table_of("aopc").agreement is None


def test_facts_say_what_was_run(task: Task) -> None:
    parts = [Part(tuple(TEXTS[:5]), 3000, 1000), Part(tuple(TEXTS[5:]), 1000, 1000)]
    cut = [replace(TEXTS[0], n_cut=3), *TEXTS[1:]]
    found = dict(facts(Run(task, wt.bench.protocol("attcat").adapt_to(task), cut, parts)))
    assert found == {
        "class": "the true one",
        "perturbation": "delete, pad, token by token",
        "steps": "ninths of all tokens, special ones included",
        "lengths": "12 to 23 tokens, mean 18; 1 texts cut",
        "evaluations": "4,000 perturbed texts requested, 2,000 evaluated: 50% shared",
    }
    other = dict(facts(Run(task, wt.bench.protocol(level="word").adapt_to(task), TEXTS, parts)))
    assert other["class"] == "the predicted one"
    assert other["perturbation"] == "delete, mask, word by word"
    assert other["steps"] == "tenths of the content tokens"


def test_notes_say_how_to_read_it(task: Task) -> None:
    held, above, below = (-1.0, 1.0, True), (-1.0, 0.0, True), (0.9, 1.0, False)  # every AOPC is within, or some is out
    bounded = [with_bounds(text, *bounds) for text, bounds in zip(TEXTS, (held, above, below), strict=False)]
    how = wt.bench.protocol().adapt_to(task)
    said = " ".join(notes(table_of("aopc"), Run(task, how, [*bounded, *TEXTS[3:]], [])))
    assert f"bounds for 3 of {N} texts, 2 of them exact" in said
    assert "in 2 texts a method's order was better or worse" in said
    assert "* tuned on deletion" in said
    assert "are controls" in said
    plain = table_of("aopc", texts=invented({MORF: TENTHS}, ("attcat", "gae"), ()))
    assert len(list(notes(plain, Run(task, how, TEXTS, [])))) == 1


def test_mean_curves_are_of_sizes_where_aopc_is_and_random_orders_have_no_direction() -> None:
    table = table_of("absolute-aopc")
    assert len(table.trends) == 3
    for trend in table.trends:
        plan = Plan(trend.perturbation, trend.order, trend.grid)  # type: ignore[arg-type]
        for method, means in trend.means.items():
            expected = [fmean(abs(drops(text, method, plan)[step]) for text in TEXTS) for step in range(9)]
            assert means[1:] == pytest.approx(expected)
    random_order = Plan("delete", "random")
    texts = invented({random_order: TENTHS}, ("attcat", "gae"), ())
    columns = table_of("aopc", "log-odds", "auc", texts=texts).columns
    assert [column.better for column in columns[:3]] == ["", "", ""]


def test_mean_curves_of_two_grids_can_be_told_apart() -> None:
    ninths = Plan("delete", "morf", "ninths")
    texts = invented({MORF: TENTHS, ninths: tuple(k / 9 for k in range(10))}, ("attcat", "gae"), ())
    trends = table_of("aopc", texts=texts).trends
    assert [trend.grid for trend in trends] == ["tenths", "ninths"]


def test_pooled_areas_of_random_orders_have_no_direction() -> None:
    table = table_of("pooled-auc", texts=invented({Plan("delete", "random"): TENTHS}, ("attcat", "gae"), ()))
    assert [column.better for column in table.columns[:2]] == ["", ""]


def test_trends_have_the_intervals_of_the_bootstrap_of_cells() -> None:
    for trend in table_of("aopc", "log-odds").trends:
        plan = Plan(trend.perturbation, trend.order, trend.grid)  # type: ignore[arg-type]
        assert set(trend.low) == set(trend.high) == set(METHODS)
        for method in ("gae", "random"):
            for step in range(len(TENTHS)):
                curves = [text.curve(method, plan) for text in TEXTS]
                values = np.array([per_step(curve, trend.metric)[step] for curve in curves])  # type: ignore[arg-type]
                expected = pytest.approx(interval(values), abs=1e-12)
                assert (trend.low[method][step], trend.high[method][step]) == expected
        assert any(trend.low["gae"][step] < trend.means["gae"][step] < trend.high["gae"][step] for step in range(1, 10))
