"""A chart of the strongest words of one attribution with the intervals of their scores. Matplotlib is optional."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whichtoken.errors import UsageError, name_type
from whichtoken.records import Attribution
from whichtoken.render.canvas import (
    MARGIN,
    TITLE_LINE,
    add_axes,
    add_lines,
    deliver,
    empty_figure,
    fit_text,
    rgb_of,
    text_width,
    wrap_title,
)
from whichtoken.render.numbers import format_share
from whichtoken.render.palette import AGAINST, FOR
from whichtoken.render.rows import Look, Panel, ScoreCell, effects_of, panels
from whichtoken.render.titles import name_of

MOST_WORDS = 20
LETTERS = 9  # points
ROW, BARS, BELOW = 0.26, 4.6, 0.55  # inches: height of a bar, width of the chart, room for the axis
WIDEST_WORD = 2.2


def intervals(record: Attribution, path: str | Path | None = None) -> Any:
    """Draw the strongest words (of an image: patches), at most 20, with the intervals of their scores.

    Needs a method that says how sure it is. Return the path if given, else the matplotlib figure, which notebooks show.
    """
    return deliver(lambda: _intervals_figure(record), path)


def _intervals_figure(record: Attribution) -> Any:
    if not isinstance(record, Attribution):
        raise UsageError(f"intervals draws one attribution, such as results[0]['posterior'], not {name_type(record)}")
    if record.confidence is None:
        raise UsageError(f"{record.name or record.method} does not say how sure it is, so its scores have no intervals")
    (panel,) = panels(record, Look())
    shown = sorted(panel.rows[0].cells, key=lambda cell: -abs(cell.score))[:MOST_WORDS]
    names = [fit_text(cell.called, LETTERS, WIDEST_WORD) for cell in shown]
    left = MARGIN + max((text_width(name, LETTERS) for name in names), default=0.0) + 0.12
    title = wrap_title(_title(panel, len(shown)), left + BARS - MARGIN)
    top, height = MARGIN + TITLE_LINE * len(title) + 0.1, ROW * max(len(shown), 1)
    figure = empty_figure(left + BARS + MARGIN, top + height + BELOW)
    add_lines(figure, MARGIN, MARGIN, title)
    axes = add_axes(figure, left, top, BARS, height)
    _draw_bars(axes, shown, names)
    effects = effects_of({panel.reading})
    above, below = f"{effects.above} {effects.what}", f"{effects.below} it"
    line = f"{format_share(record.confidence.level)} interval"
    axes.set_xlabel(f"score with its {line}: above 0 {above}, below 0 {below}", fontsize=LETTERS - 1)
    return figure


def _title(panel: Panel, n_shown: int) -> list[str]:
    (row,) = panel.rows
    units = "patches" if panel.picture is not None else "words"
    count = f"the {n_shown} strongest of {len(row.cells)} {units}" if n_shown < len(row.cells) else ""
    tuned = "tuned on the deletion curve" if row.tuned_on_deletion else ""
    return [name_of(panel), ", ".join(filter(None, (row.name, tuned, count))), *panel.trust, *panel.notes]


def _draw_bars(axes: Any, shown: Sequence[ScoreCell], names: Sequence[str]) -> None:
    """Draw a bar per score, paler if it is uncertain, and a line for its interval."""
    places = range(len(shown))
    colours = [(*rgb_of(FOR if cell.score > 0 else AGAINST), 0.4 if cell.uncertain else 1.0) for cell in shown]
    axes.barh(places, [cell.score for cell in shown], height=0.66, color=colours)
    for place, cell in zip(places, shown, strict=True):
        if cell.interval is not None:
            ends = [cell.interval.low, cell.interval.high]
            axes.plot(ends, [place, place], color="black", linewidth=1.2, marker="|", markersize=6)
    axes.axvline(0, color="black", linewidth=0.8)
    # Dollar signs in a text are not formulas.
    axes.set_yticks(places, names, fontsize=LETTERS, parse_math=False)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=LETTERS - 1)
    axes.spines[["top", "left", "right"]].set_visible(False)
