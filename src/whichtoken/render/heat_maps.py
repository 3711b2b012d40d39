"""Heat maps of words, one row per method or layer; the words of a long text are wrapped over several strips."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from whichtoken.errors import UsageError
from whichtoken.render.canvas import (
    MARGIN,
    TALLEST,
    TITLE_LINE,
    TUNED,
    WIDEST,
    add_axes,
    add_legend,
    add_lines,
    empty_figure,
    fit_text,
    legend_size,
    rgb_of,
    signed_colour_map,
    text_width,
    wrap_title,
)
from whichtoken.render.palette import ink, step_of
from whichtoken.render.rows import Effects, ScoreRow, uncertain_legend

LETTERS, NUMBERS = 9, 7  # points
ROW, WORDS, GAP = 0.27, 0.24, 0.14  # inches: height of a row, of the words above a strip, between two strips
NARROWEST = 0.38  # of a cell: room for a number
PADDING = 0.13  # on both sides of a word together
WIDEST_NAME = 2.6
SHOWN = 0.25  # smaller shares get no number
MOST_COLUMNS = 60  # parts of a long prompt


@dataclass(frozen=True)
class Strip:
    """The cells first, first + 1 ... of each row, on one line."""

    first: int
    words: tuple[str, ...]
    widths: tuple[float, ...]  # inches


def heat_map(rows: Sequence[ScoreRow], title: Sequence[str], effects: Effects, line_before_last: bool = False) -> Any:
    """Draw rows of words. `line_before_last`: the last row is a sum."""
    names = [fit_text(label_of(row), LETTERS, WIDEST_NAME) for row in rows]
    left = MARGIN + max(text_width(name, LETTERS) for name in names) + 0.1
    strips = wrap_words([cell.text for cell in rows[0].cells], WIDEST - left - MARGIN)
    marks = marks_of(rows)
    legend_width, legend_height = legend_size(effects, marks)
    inner = max([*(sum(strip.widths) for strip in strips), legend_width, 4.0])
    lines = wrap_title(title, left + inner - MARGIN)
    top = MARGIN + TITLE_LINE * len(lines) + 0.06
    step = WORDS + ROW * len(rows) + GAP
    height = top + step * len(strips) + legend_height + MARGIN
    _check_height(height, sum(len(strip.words) for strip in strips), len(rows))
    figure = empty_figure(left + inner + MARGIN, height)
    add_lines(figure, MARGIN, MARGIN, lines)
    for number, strip in enumerate(strips):
        place = (left, top + step * number + WORDS, sum(strip.widths), ROW * len(rows))
        _draw_strip(add_axes(figure, *place), strip, rows, names)
    if line_before_last:
        for axes in figure.axes:
            axes.axhline(len(rows) - 1, color="black", linewidth=1)
    add_legend(figure, left, height - MARGIN - legend_height, effects, marks)
    return figure


def strongest_columns(rows: Sequence[ScoreRow]) -> tuple[list[ScoreRow], str]:
    """Return rows of at most `MOST_COLUMNS` parts of a prompt, by their strongest share, and what was left out."""
    single = [place for place, cell in enumerate(rows[0].cells) if not cell.repeated]
    best = sorted(single, key=lambda place: -max(abs(row.cells[place].share) for row in rows))[:MOST_COLUMNS]
    kept = [
        replace(row, cells=tuple(replace(cell, text=cell.called) for cell in (row.cells[i] for i in sorted(best))))
        for row in rows
    ]
    left_out = f"the {len(best)} strongest of {len(single)} parts of the prompt" if len(best) < len(single) else ""
    return kept, left_out


def marks_of(rows: Sequence[ScoreRow]) -> list[str]:
    """Return the meaning of the marks in these rows."""
    uncertain = uncertain_legend(cell for row in rows for cell in row.cells if abs(cell.share) >= SHOWN)
    return [TUNED] * any(row.tuned_on_deletion for row in rows) + [f"? uncertain: {uncertain}"] * bool(uncertain)


def label_of(row: ScoreRow) -> str:
    return f"{row.name}{' *' if row.tuned_on_deletion else ''}{f'  {row.remark}' if row.remark else ''}"


def wrap_words(words: Sequence[str], room: float) -> list[Strip]:
    """Break words into lines of at most `room` inches; a word that is wider is shortened."""
    fitting = [fit_text(word, LETTERS, room - PADDING) for word in words]
    widths = [max(NARROWEST, text_width(word, LETTERS) + PADDING) for word in fitting]
    starts, used = [0], 0.0
    for number, width in enumerate(widths):
        if used + width > room and number > starts[-1]:
            starts.append(number)
            used = 0.0
        used += width
    ends = [*starts[1:], len(words)]
    return [
        Strip(start, tuple(fitting[start:end]), tuple(widths[start:end]))
        for start, end in zip(starts, ends, strict=True)
    ]


def _check_height(height: float, n_words: int, n_rows: int) -> None:
    if height > TALLEST:
        asked = f"{n_words} words in {n_rows} row{'s' * (n_rows != 1)} need a figure {height:.0f} inches high"
        raise UsageError(
            f"{asked}, but figures are at most {TALLEST:.0f}; write a page (to_html, --out NAME.html), or choose fewer "
            "methods"
        )


def _draw_strip(axes: Any, strip: Strip, rows: Sequence[ScoreRow], names: Sequence[str]) -> None:
    edges = [0.0]
    for width in strip.widths:
        edges.append(edges[-1] + width)
    centres = [(start + end) / 2 for start, end in pairwise(edges)]
    drawn = [row.cells[strip.first : strip.first + len(strip.words)] for row in rows]
    shares = [[cell.share for cell in line] for line in drawn]
    colours = {"cmap": signed_colour_map(), "vmin": -1, "vmax": 1}
    axes.pcolormesh(edges, range(len(rows) + 1), shares, edgecolors="white", linewidth=1, **colours)
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    # Dollar signs in a text are not formulas.
    axes.set_xticks(centres, strip.words, fontsize=LETTERS, parse_math=False)
    axes.set_yticks([number + 0.5 for number in range(len(rows))], names, fontsize=LETTERS, parse_math=False)
    axes.tick_params(length=0, pad=3)
    axes.spines[:].set_visible(False)
    for y, line in enumerate(drawn):
        for x, cell in zip(centres, line, strict=True):
            if abs(cell.share) >= SHOWN:
                number, colour = f"{cell.share:+.1f}{'?' * cell.uncertain}", rgb_of(ink(step_of(cell.share)))
                axes.text(x, y + 0.5, number, ha="center", va="center", fontsize=NUMBERS, color=colour)
