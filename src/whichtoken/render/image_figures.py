"""Figures of images: each image as the model reads it, and the scores of each method on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whichtoken.errors import UsageError
from whichtoken.records import Picture
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
    wrap_title,
)
from whichtoken.render.heat_maps import label_of
from whichtoken.render.pictures import overlay, plain
from whichtoken.render.rows import IMAGES_IN_FIGURE, Look, Panel, ScoreRow, effects_of
from whichtoken.render.titles import title_of

LETTERS = 8  # points
CAPTION, BETWEEN = 0.2, 0.15  # inches: of the line above a picture, and between pictures
LARGE, SMALL = 2.6, 1.85  # of the longer side of a picture, if there are few or many beside each other


@dataclass(frozen=True)
class Overlay:
    """A picture with its caption. `row`: its scores, or None for the picture alone."""

    caption: str
    picture: Picture
    row: ScoreRow | None

    def size(self, longer: float) -> tuple[float, float]:
        """Return width and height in inches, in the proportion of the picture."""
        largest = max(self.picture.width, self.picture.height)
        return longer * self.picture.width / largest, longer * self.picture.height / largest


def overlays_figure(panels: Sequence[Panel], look: Look) -> Any:
    """Draw one line per image: the image as the model reads it, then the scores of each method, wrapped if many."""
    if len(panels) > IMAGES_IN_FIGURE:
        raise UsageError(f"a figure shows up to {IMAGES_IN_FIGURE} images, but there are {len(panels)}; choose some")
    whole = [_overlays(panel) for panel in panels]
    longer = LARGE if max(map(len, whole)) <= 4 else SMALL
    per_line = int((WIDEST - 2 * MARGIN + BETWEEN) / (longer + BETWEEN))
    lines = [line[start : start + per_line] for line in whole for start in range(0, len(line), per_line)]
    effects = effects_of({panel.reading for panel in panels})
    marks = [TUNED] if any(row.tuned_on_deletion for panel in panels for row in panel.rows) else []
    legend_width, legend_height = legend_size(effects, marks)
    inner = max([*(len(line) * (longer + BETWEEN) - BETWEEN for line in lines), legend_width])
    title = wrap_title([title_of(panels), *(panels[0].trust if len(panels) == 1 else ())], inner)
    top = MARGIN + TITLE_LINE * len(title) + 0.1
    heights = [CAPTION + max(shown.size(longer)[1] for shown in line) + BETWEEN for line in lines]
    height = top + sum(heights) + legend_height + MARGIN
    if height > TALLEST:
        raise UsageError(
            f"{sum(map(len, lines))} pictures need a figure {height:.0f} inches high, but figures are at most "
            f"{TALLEST:.0f}; choose fewer images or methods"
        )
    figure = empty_figure(inner + 2 * MARGIN, height)
    add_lines(figure, MARGIN, MARGIN, title)
    for line, line_height in zip(lines, heights, strict=True):
        for number, shown in enumerate(line):
            _draw(figure, MARGIN + number * (longer + BETWEEN), top, shown, longer, look)
        top += line_height
    add_legend(figure, MARGIN, height - MARGIN - legend_height, effects, marks)
    return figure


def _overlays(panel: Panel) -> list[Overlay]:
    assert panel.picture is not None, "the panel of an image"
    rows = [(label_of(row), row) for row in (*panel.rows, *panel.differences)]
    layers = [(f"{by_layer.name}, {row.name}", row) for by_layer in panel.layers for row in by_layer.rows]
    captions: list[tuple[str, ScoreRow | None]] = [(panel.head, None), *rows, *layers]
    return [Overlay(caption, panel.picture, row) for caption, row in captions]


def _draw(figure: Any, left: float, top: float, shown: Overlay, longer: float, look: Look) -> None:
    add_lines(figure, left, top, [fit_text(shown.caption, LETTERS, longer)], LETTERS)
    axes = add_axes(figure, left, top + CAPTION, *shown.size(longer))
    image = plain(shown.picture) if shown.row is None else overlay(shown.row, look.how)
    axes.imshow(np.asarray(image), interpolation="nearest", aspect="auto")
    axes.set_axis_off()
