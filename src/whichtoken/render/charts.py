"""Matplotlib figures of a benchmark: curves, ablations, and agreement between methods."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichtoken.errors import UnknownName, UsageError
from whichtoken.render.bench_table import ARROWS, STAR, name_of, plain_title, require_table
from whichtoken.render.canvas import deliver, empty_figure, rgb_of, signed_colour_map
from whichtoken.render.palette import WHITE, Colour, ink, step_of
from whichtoken.render.rows import visible
from whichtoken.tables import Agreement, BenchTable, Estimate, Line, Trend

PROMINENT = 6  # methods in full colour: the eye cannot follow more
BANDS = 3  # methods with a band for their interval: more would cover each other
# The palette of Okabe and Ito, without black, and without yellow, which is invisible on white.
COLOURS: tuple[Colour, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
)
MARKERS = "os^DvPX<>*phd"  # 13 is coprime to 6 colours, so 78 lines get distinct pairs
GREYS: tuple[Colour, ...] = ((90, 90, 90), (140, 140, 140))
QUANTITIES = {"aopc": "mean drop of the {}", "log-odds": "mean of ln(p / p0)"}
READINGS = {"probability": "probability", "value": "predicted value"}
ORDERS = {"morf": "MoRF", "lerf": "LeRF"}
LONGEST = 36  # maximum length of a name


@dataclass(frozen=True)
class Stroke:
    """How the curves of a method are drawn."""

    colour: Colour
    marker: str
    dashes: str
    prominent: bool


def curves(table: BenchTable, path: str | Path | None = None) -> Any:
    """Draw one panel per trend: tuned methods dashed, controls grey and dotted, all except the first six pale.

    Return the path if given, else the matplotlib figure, which notebooks show.
    """
    return deliver(lambda: curves_figure(table), path)


def variants(table: BenchTable, column: str, path: str | Path | None = None) -> Any:
    """Draw one column of an ablation with intervals; on a numeric axis if all names end in `=number`.

    Return the path if given, else the matplotlib figure, which notebooks show.
    """
    return deliver(lambda: variants_figure(table, column), path)


def agreement(agreement: Agreement | BenchTable | None, path: str | Path | None = None) -> Any:
    """Draw a heat map with numbers, method by method.

    Return the path if given, else the matplotlib figure, which notebooks show.
    """
    found = agreement.agreement if isinstance(agreement, BenchTable) else agreement
    if not isinstance(found, Agreement):
        raise UsageError(
            "there is no agreement between methods here; measure it: wt.bench.run(..., metrics 'agreement')"
        )
    return deliver(lambda: agreement_figure(found), path)


def curves_figure(table: BenchTable) -> Any:
    """Return a matplotlib figure; `canvas.figure_bytes` encodes it."""
    require_table(table)
    if not table.trends:
        raise UsageError("this table has no curves: none of its metrics removes tokens step by step")
    orders = list(dict.fromkeys(trend.order for trend in table.trends))
    kinds = _kinds(table.trends)
    heights = list(dict.fromkeys(kinds))
    figure = empty_figure(4.1 * len(orders) + 2.4, 2.9 * len(heights) + 0.4)
    figure.set_layout_engine("constrained")
    grid = figure.subplots(len(heights), len(orders), squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)  # until a trend is drawn in it
    strokes = strokes_of(table.lines)
    for trend, kind in zip(table.trends, kinds, strict=True):
        axes = grid[heights.index(kind)][orders.index(trend.order)]
        axes.set_visible(True)
        _draw_trend(axes, trend, strokes)
        quantity = QUANTITIES.get(trend.metric, trend.metric).replace("{}", READINGS[table.reading])
        axes.set_ylabel(visible(quantity), fontsize=8, parse_math=False)
        axes.set_title(_title(trend, table), loc="left", fontsize=10, parse_math=False)
    drawn = [line for line in table.lines if any(line.method in trend.means for trend in table.trends)]
    legend = _legend(figure, drawn, strokes)
    notes = [f"{STAR} tuned on deletion (dashed)"] if any(line.tuned_on_deletion for line in drawn) else []
    notes += (
        [f"bands: 95 % intervals of the best {min(BANDS, len(drawn))}"]
        if any(trend.low for trend in table.trends)
        else []
    )
    if notes:
        legend.set_title("\n".join(notes), prop={"size": 8})
    return figure


def _kinds(trends: Sequence[Trend]) -> list[tuple[str, str, int]]:
    """Return the row of panels of each trend: metric, perturbation, and a count for trends that differ only in grid."""
    kinds: list[tuple[str, str, int]] = []
    counts = Counter[tuple[str, str, str]]()
    for trend in trends:
        key = (trend.metric, trend.perturbation, trend.order)
        kinds.append((trend.metric, trend.perturbation, counts[key]))
        counts[key] += 1
    return kinds


def strokes_of(lines: Sequence[Line]) -> dict[str, Stroke]:
    """Return the stroke of each method. `lines`: best first."""
    strokes: dict[str, Stroke] = {}
    for number, line in enumerate(line for line in lines if not line.control):
        prominent = number < PROMINENT
        colour = COLOURS[number % len(COLOURS)]
        strokes[line.method] = Stroke(
            colour if prominent else _pale(colour),
            MARKERS[number % len(MARKERS)],
            "--" if line.tuned_on_deletion else "-",
            prominent,
        )
    for number, line in enumerate(line for line in lines if line.control):
        strokes[line.method] = Stroke(GREYS[number % 2], MARKERS[number % len(MARKERS)], ":", False)
    return strokes


def _pale(colour: Colour) -> Colour:
    red, green, blue = (round(0.5 * (part + white)) for part, white in zip(colour, WHITE, strict=True))
    return red, green, blue


def _title(trend: Trend, table: BenchTable) -> str:
    words = {trend.metric, trend.order, trend.perturbation}
    better = next((column.better for column in table.columns if words <= set(column.name.split())), "")
    arrow = f"   {ARROWS[better]} {better} is better" if better else ""
    steps = "" if trend.grid == "tenths" else f", {trend.grid}"
    return visible(f"{ORDERS.get(trend.order, trend.order)}, {trend.perturbation}{steps}{arrow}")


def _draw_trend(axes: Any, trend: Trend, strokes: dict[str, Stroke]) -> None:
    percent = [100 * share for share in trend.removed]
    for method in [method for method, stroke in strokes.items() if stroke.prominent][:BANDS]:
        if method in trend.low:
            colour = rgb_of(strokes[method].colour)
            axes.fill_between(percent, trend.low[method], trend.high[method], color=colour, alpha=0.15, linewidth=0)
    for method, stroke in strokes.items():
        if method in trend.means:
            axes.plot(percent, trend.means[method], **_line_style(stroke))
    axes.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    axes.set_xlabel("% of tokens removed", fontsize=8)
    _plain(axes)


def _line_style(stroke: Stroke) -> dict[str, Any]:
    colour = rgb_of(stroke.colour)
    return {
        "color": colour,
        "linestyle": stroke.dashes,
        "linewidth": 1.8 if stroke.prominent else 0.9,
        "marker": stroke.marker,
        "markersize": 4.5 if stroke.prominent else 3.5,
        "markerfacecolor": colour if stroke.prominent else "white",
        "markeredgewidth": 0.8,
        "zorder": 3 if stroke.prominent else 2,
    }


def _legend(figure: Any, lines: Sequence[Line], strokes: dict[str, Stroke]) -> Any:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **_line_style(strokes[line.method])) for line in lines]
    legend = figure.legend(
        handles, ["-"] * len(lines), loc="outside right upper", frameon=False, fontsize=8, handlelength=3.2
    )
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set_parse_math(False)
        text.set_text(_short(name_of(line)))  # set afterwards: matplotlib drops legend names that start with _
    return legend


def variants_figure(table: BenchTable, column: str) -> Any:
    """Return a matplotlib figure; `canvas.figure_bytes` encodes it."""
    columns = {known.name: known for known in table.columns}
    if column not in columns:
        raise UnknownName("column", column, columns)
    lines = [line for line in table.lines if column in line.cells]
    if not lines:
        raise UsageError(f"no line of this table has a value for {column!r}")
    cells = [line.cells[column] for line in lines]
    setting, numbers = _numbers([line.method for line in lines])
    figure = empty_figure(max(4.5, 1.5 + 0.55 * len(lines)), 3.4)
    axes = figure.add_subplot()
    if setting:
        pairs = sorted(zip(numbers, cells, strict=True), key=lambda pair: pair[0])
        _bars(axes, [x for x, _ in pairs], [cell for _, cell in pairs], "-")
        _number_axis(axes, sorted(set(numbers)))
        axes.set_xlabel(visible(setting), fontsize=9, parse_math=False)
    else:
        _bars(axes, range(len(lines)), cells, "")
        names = [_short(name_of(line)) for line in lines]
        axes.set_xticks(range(len(lines)), names, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
        axes.set_xlim(-0.6, len(lines) - 0.4)
    better = columns[column].better
    title = plain_title(columns[column]) + (f" ({better} is better)" if better else "")
    axes.set_ylabel(title, fontsize=9, parse_math=False)
    axes.set_title(visible(table.title), loc="left", fontsize=10, parse_math=False)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    _plain(axes)
    if columns[column].flattered and any(line.tuned_on_deletion for line in lines):
        note = f"{STAR} tuned on this metric, which flatters them"
        axes.annotate(note, (0, 1), xycoords="axes fraction", fontsize=7, color="0.35", va="top")
    return figure


def _numbers(names: Sequence[str]) -> tuple[str, list[float]]:
    """Return the setting that all names share and its values; empty unless all names set the same one."""
    matches = [re.fullmatch(r"(.+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\)?", name) for name in names]
    settings = {match[1] for match in matches if match}
    if len(settings) != 1 or not all(matches):
        return "", []
    return settings.pop().replace("(", ": "), [float(match[2]) for match in matches if match]


def _number_axis(axes: Any, numbers: Sequence[float]) -> None:
    positive = [number for number in numbers if number > 0]
    if positive and numbers[0] >= 0 and numbers[-1] >= 30 * positive[0]:  # ticks 1, 2, 4 .. 128 would overlap
        axes.set_xscale("symlog", linthresh=positive[0])
    if len(numbers) <= 12:
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
        axes.set_xticks([], minor=True)


def _bars(axes: Any, places: Sequence[float], cells: Sequence[Estimate], line: str) -> None:
    means = [cell.mean for cell in cells]
    # A bootstrap interval need not contain the mean, and matplotlib rejects negative lengths.
    below = [max(0.0, cell.mean - cell.low) for cell in cells]
    above = [max(0.0, cell.high - cell.mean) for cell in cells]
    colour = rgb_of(COLOURS[0])
    axes.errorbar(places, means, (below, above), fmt=f"o{line}", color=colour, capsize=3, markersize=5, linewidth=1.4)


def agreement_figure(agreement: Agreement) -> Any:
    """Return a matplotlib figure; `canvas.figure_bytes` encodes it."""
    names, count = [_short(visible(name)) for name in agreement.methods], len(agreement.methods)
    figure = empty_figure(2.2 + 0.42 * count, 1.6 + 0.42 * count)
    axes = figure.add_subplot()
    image = axes.imshow(agreement.tau, signed_colour_map(), vmin=-1, vmax=1)
    axes.set_xticks(range(count), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8, parse_math=False)
    axes.set_yticks(range(count), names, fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("agreement: mean Kendall tau-b", loc="left", fontsize=10)
    for y, row in enumerate(agreement.tau):
        for x, tau in enumerate(row):
            colour = rgb_of(ink(step_of(tau)))
            axes.text(x, y, f"{tau:z.2f}", ha="center", va="center", fontsize=7, color=colour)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, ticks=(-1, 0, 1))
    bar.ax.set_yticklabels(["reversed", "unrelated", "the same"], fontsize=8)
    bar.outline.set_visible(False)
    return figure


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
