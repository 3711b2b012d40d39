"""From what was measured to the table: columns of metrics, means with intervals, tests, mean curves. No torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from whichtoken.bench.results import Measured, Scored
from whichtoken.bench.stats import RESAMPLES, SEED, cell, holm, paired_p
from whichtoken.metrics.curves import aopc, auc, log_odds, normalised, per_step, scaled_areas
from whichtoken.records import Curve
from whichtoken.tables import Agreement, BenchTable, Cell, Column, Line, Trend

ROUNDING = 1e-6  # of probabilities in single precision
CONTROLS = ("random", "refined-noise")
ORDER_WORDS = {"morf": "highest first", "lerf": "lowest first", "random": "in random order"}
Better: TypeAlias = Literal["higher", "lower", ""]
UP: Mapping[str, Better] = {"morf": "higher", "lerf": "lower", "random": ""}  # where more is lost
DOWN: Mapping[str, Better] = {"morf": "lower", "lerf": "higher", "random": ""}
Values = Mapping[str, Mapping[int, float]]  # by method, then by text
Cells = Mapping[str, Cell]  # by method


@dataclass(frozen=True)
class Asked:
    """What the table should have: metrics, the names of plans, and how AOPC and Kendall's tau are meant."""

    metrics: tuple[str, ...]
    plans: tuple[str, ...]
    absolute: bool = False
    kendall: str = "scores"


def summarise(texts: Sequence[Measured], asked: Asked) -> BenchTable:
    """Without title and facts: the caller knows what was run."""
    found = [(column, cells_of(column, values)) for column, values in _columns(texts, asked)]
    if "pooled-auc" in asked.metrics:
        found += _pooled(texts, asked)
    seconds = {m: _by_text(texts, m, lambda text, scored: scored.seconds) for m in texts[0].methods}
    evaluations = {m: _by_text(texts, m, lambda text, scored: scored.evaluations) for m in texts[0].methods}
    found += costs(seconds, evaluations, "text")
    lines = lines_of(found, {m: any(t.methods[m].searched for t in texts) for m in texts[0].methods})
    columns = [_flattered(column, lines) for column, _ in found]
    return BenchTable("", (), tuple(columns), tuple(lines), tuple(_trends(texts, asked)), (), _agreement(texts, lines))


def lines_of(found: Sequence[tuple[Column, Cells]], searched: Mapping[str, bool]) -> list[Line]:
    """One for each method, the best of the first column first. `searched`: by method."""
    lines = [
        Line(
            method=m,
            searched=searched[m],
            control=m.split("(")[0].split("@")[0].strip() in CONTROLS,
            cells={column.name: cells[m] for column, cells in found if m in cells},
        )
        for m in searched
    ]
    first = found[0][0]
    sign = -1 if first.better == "higher" else 1
    return sorted(lines, key=lambda line: sign * line.cells[first.name].mean if first.name in line.cells else np.inf)


def _flattered(column: Column, lines: Iterable[Line]) -> Column:
    deletion = column.name.split(" ")[1:2] == ["delete"]
    return replace(column, flattered=deletion and any(line.searched for line in lines))


def _columns(texts: Sequence[Measured], asked: Asked) -> Iterable[tuple[Column, Values]]:
    for metric in asked.metrics:
        for plan in asked.plans:
            how, order, grid = plan.split(" ")
            column = _column(metric, how, order, grid, asked)
            if column is not None and (values := _values(texts, plan, metric, asked)):
                yield column, values
    if "kendall" in asked.metrics:
        meant = "tau-b of the scores" if asked.kendall == "scores" else "tau of the arrays of positions, as the papers"
        about = f"Kendall's {meant}, between the explanations of the explained class and the next one"
        values = {m: _by_text(texts, m, lambda text, scored: scored.kendall) for m in texts[0].methods}
        if any(values.values()):
            yield Column("kendall", "Kendall's tau between classes", about, "lower"), values


def costs(seconds: Values, evaluations: Values, unit: str) -> Iterable[tuple[Column, Cells]]:
    """`unit`: what was measured, a "text"."""
    about = "its share of passes that methods share, and its own time; run with the others"
    column = Column("seconds", f"seconds per {unit}", about, "lower")
    yield column, cells_of(column, seconds)
    about = "passes and shortened texts that it would have taken alone"
    column = Column("evaluations", f"model evaluations per {unit}", about, "lower")
    yield column, cells_of(column, evaluations)


def _column(metric: str, how: str, order: str, grid: str, asked: Asked) -> Column | None:
    plan = f"{how} {order} {grid}"
    words = f"{how}, {ORDER_WORDS[order]}" + ("" if grid == "tenths" else f", {grid}")
    up, down = UP[order], DOWN[order]
    eraser = grid == "eraser"
    if metric == "aopc" and not eraser:
        size = "absolute change" if asked.absolute else "drop"
        return Column(f"aopc {plan}", f"AOPC, {words}", f"mean {size} of the probability over the steps", up)
    if metric == "log-odds" and not eraser:
        return Column(f"log-odds {plan}", f"log-odds, {words}", "mean of ln(p / p0) over the steps", down)
    if metric == "auc" and not eraser:
        return Column(f"auc {plan}", f"AUC, {words}", "area under the probability curve", down)
    if metric == "normalised-aopc" and not eraser:
        about = "0: the lowest AOPC that any order of the tokens was found to have, 1: the highest"
        return Column(f"normalised-aopc {plan}", f"normalised AOPC, {words}", about, up)
    if metric == "comprehensiveness" and eraser and order == "morf":
        about = "mean drop without the highest 1, 5, 10, 20, 50 % of the tokens"
        return Column(f"comprehensiveness {plan}", f"comprehensiveness, {how}", about, "higher")
    if metric == "sufficiency" and eraser and order == "lerf":
        about = "mean drop with only the highest 1, 5, 10, 20, 50 % of the tokens"
        return Column(f"sufficiency {plan}", f"sufficiency, {how}", about, "lower")
    return None


def _values(texts: Sequence[Measured], plan: str, metric: str, asked: Asked) -> Values:
    def measure(text: Measured, scored: Scored) -> float | None:
        curve = curve_of(text, scored, plan)
        if metric == "log-odds":
            return log_odds(curve)
        if metric == "auc":
            return auc(curve)
        if metric == "normalised-aopc":
            bounds = bounds_of(text, plan)
            return None if bounds is None else normalised(aopc(curve), *bounds)
        return aopc(curve, asked.absolute and metric == "aopc")

    found = {method: _by_text(texts, method, measure) for method in texts[0].methods}
    return found if any(found.values()) else {}


def bounds_of(text: Measured, plan: str) -> tuple[float, float] | None:
    """What the search found, or a method where it found more: each of them is an order that there is."""
    searched = searched_bounds(text, plan)
    if searched is None:
        return None
    there = found_by_methods(text, plan)
    low, high = min(searched[0], *there), max(searched[1], *there)
    return (low, high) if high - low > ROUNDING else None  # no order matters


def searched_bounds(text: Measured, plan: str) -> tuple[float, float] | None:
    return next((bounds[:2] for name, bounds in text.bounds.items() if _same_steps(name, plan)), None)


def found_by_methods(text: Measured, plan: str) -> list[float]:
    """The AOPC of every order of these steps that a method gave, highest or lowest first."""
    alike = [name for name in text.removed if _same_steps(name, plan)]
    return [aopc(curve_of(text, scored, name)) for scored in text.methods.values() for name in alike]


def _same_steps(one: str, other: str) -> bool:
    """Plans that differ in their order only: the bounds hold for any order."""
    return one.split(" ")[::2] == other.split(" ")[::2]


def _by_text(
    texts: Sequence[Measured], method: str, measure: Callable[[Measured, Scored], float | None]
) -> dict[int, float]:
    found = ((text.number, measure(text, text.methods[method])) for text in texts if method in text.methods)
    return {number: value for number, value in found if value is not None}


def curve_of(text: Measured, scored: Scored, plan: str) -> Curve:
    how, order, grid = plan.split(" ")
    return Curve(
        key=text.key,
        order=order,  # type: ignore[arg-type]
        perturbation=how,
        removed=text.removed[plan],
        probability=scored.curves[plan],
        label=text.label,
        method="",
        settings={},
        model="",
        revision="",
        n_cut=text.n_cut,
        grid=grid,
    )


def cells_of(column: Column, values: Values) -> Cells:
    """Each method's mean; and the chance that the best is no better."""
    return tested(column, values, {m: cell(list(of_texts.values())) for m, of_texts in values.items() if of_texts})


def tested(column: Column, values: Values, cells: Cells) -> Cells:
    """With the chance that the best is no better, on the texts that both were measured on."""
    if not column.better or len(cells) < 2:
        return cells
    sign = 1 if column.better == "higher" else -1
    best = max(cells, key=lambda method: sign * cells[method].mean)
    others = [method for method in cells if method != best]
    ps = []
    for method in others:
        both = [number for number in values[best] if number in values[method]]
        ps.append(paired_p([values[best][n] for n in both], [values[method][n] for n in both]) if both else 1.0)
    return {**cells} | {method: replace(cells[method], p=p) for method, p in zip(others, holm(ps), strict=True)}


def _pooled(texts: Sequence[Measured], asked: Asked) -> Iterable[tuple[Column, Cells]]:
    """Contrast-CAT's scaling: one number for all texts, so its interval comes from resampling the texts as a whole."""
    methods = list(texts[0].methods)
    for plan in asked.plans:
        how, order, grid = plan.split(" ")
        steps = {len(text.removed[plan]) for text in texts}
        if len(steps) > 1 or grid == "eraser":
            continue
        for metric in ("aopc", "log-odds"):
            changes = np.array(
                [[per_step(curve_of(t, t.methods[m], plan), metric)[1:] for t in texts] for m in methods]
            )
            source = np.random.default_rng(SEED)
            drawn = np.array(
                [
                    _areas(methods, changes[:, source.integers(0, len(texts), len(texts))])
                    for _ in range(RESAMPLES // 10)
                ]
            )
            low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
            areas = _areas(methods, changes)
            better = (UP if metric == "aopc" else DOWN)[order]
            words = f"{'AOPC' if metric == 'aopc' else metric}, {how}, {ORDER_WORDS[order]}"
            about = "area under the mean curve, scaled by the lowest and highest value of all methods; at most 0.8"
            column = Column(f"pooled-auc {plan} {metric}", f"pooled AUC of {words}", about, better)
            cells = zip(methods, areas, low, high, strict=True)
            yield column, {m: Cell(float(a), float(lo), float(hi), len(texts)) for m, a, lo, hi in cells}


def _areas(methods: Sequence[str], changes: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[float]:
    """Of methods x texts x steps."""
    return list(scaled_areas(dict(zip(methods, changes.mean(1).tolist(), strict=True))).values())


def _trends(texts: Sequence[Measured], asked: Asked) -> Iterable[Trend]:
    for plan in asked.plans:
        how, order, grid = plan.split(" ")
        if grid == "eraser" or len({text.removed[plan] for text in texts}) > 1:
            continue  # texts of different lengths have different steps: there is no mean curve
        for metric in ("aopc", "log-odds"):
            if metric in asked.metrics:
                means = {}
                for method in texts[0].methods:
                    steps = np.array([per_step(curve_of(t, t.methods[method], plan), metric) for t in texts])
                    sizes = abs(steps) if asked.absolute and metric == "aopc" else steps
                    means[method] = tuple(sizes.mean(0).tolist())
                yield Trend(metric, order, how, texts[0].removed[plan], means, grid)


def _agreement(texts: Sequence[Measured], lines: Sequence[Line]) -> Agreement | None:
    if not texts[0].agreement:
        return None
    names, tables = [line.method for line in lines], []
    for text in texts:
        places = [list(text.methods).index(name) for name in names]  # parts may have been asked in another order
        tables.append(np.array(text.agreement)[places][:, places])
    return Agreement(tuple(names), tuple(tuple(row) for row in np.mean(tables, 0).tolist()))
