"""What all matplotlib figures share: empty figures, parts placed in inches, colours, files. Matplotlib is optional."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.errors import UsageError
from whichtoken.render.palette import AGAINST, FOR, NEUTRAL, Colour
from whichtoken.render.rows import Effects

KINDS = (".png", ".svg", ".pdf")
WIDEST, TALLEST = 14.0, 60.0  # inches of a figure
MARGIN = 0.12
TITLE_LINE, LEGEND_LINE = 0.2, 0.22  # inches; of letters of 10 and 8 points
BAR = 1.3  # width of the colours in a legend
DOTS_PER_INCH = 160
POINTS = 72  # per inch
TUNED = "* tuned on the deletion curve"


def deliver(draw: Callable[[], Any], path: str | Path | None) -> Any:
    """Draw a figure, write it to `path` and return the path; without a path, return the figure for a notebook."""
    if path is None:
        figure = draw()
        # Not a subclass of Figure: notebooks look for this method on the object itself. A partial can be pickled.
        figure._repr_png_ = partial(figure_bytes, figure, "png")
        return figure
    where = check_figure_path(path)
    return save_figure(draw(), where)


def check_figure_path(path: str | Path) -> Path:
    """Raise UsageError if the file ending is not that of a figure."""
    where = Path(path).expanduser()
    if where.suffix.lower() not in KINDS:
        raise UsageError(f"{where}: a figure is written as {', '.join(KINDS)}; use one of these file endings")
    return where


def save_figure(figure: Any, where: Path) -> Path:
    return write_whole(where, figure_bytes(figure, where.suffix[1:].lower()))


def figure_bytes(figure: Any, kind: str) -> bytes:
    """Return the encoded figure. `kind`: png, svg or pdf."""
    file = BytesIO()
    figure.savefig(file, format=kind, bbox_inches="tight", dpi=DOTS_PER_INCH)
    return file.getvalue()


def empty_figure(width: float, height: float) -> Any:
    """Return a figure of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install 'whichtoken[figures]'") from error
    return Figure(figsize=(width, height))


def add_axes(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Return axes of this size, in inches from the top left corner of the figure."""
    total_width, total_height = figure.get_size_inches()
    bottom = total_height - top - height
    return figure.add_axes((left / total_width, bottom / total_height, width / total_width, height / total_height))


def add_lines(figure: Any, left: float, top: float, lines: Sequence[str], size: float = 10) -> None:
    """Write lines of text, in inches from the top left corner of the figure."""
    width, height = figure.get_size_inches()
    step = TITLE_LINE * size / 10
    for number, line in enumerate(lines):
        y = 1 - (top + number * step) / height
        # Dollar signs in a text are not formulas.
        figure.text(left / width, y, line, fontsize=size, va="top", parse_math=False)


def add_legend(figure: Any, left: float, top: float, effects: Effects, marks: Sequence[str]) -> None:
    """Draw the meaning of the colours, and below it that of the marks."""
    below = text_width(effects.below, 8)
    add_lines(figure, left, top, [effects.below], 8)
    bar = add_axes(figure, left + below + 0.08, top + 0.03, BAR, 0.1)
    bar.set_label("legend")
    bar.imshow([[share / 20 for share in range(-20, 21)]], signed_colour_map(), vmin=-1, vmax=1, aspect="auto")
    bar.set_axis_off()
    add_lines(figure, left + below + BAR + 0.16, top, [effects.above], 8)
    for number, mark in enumerate(marks, 1):
        add_lines(figure, left, top + LEGEND_LINE * number, [mark], 8)


def legend_size(effects: Effects, marks: Sequence[str]) -> tuple[float, float]:
    """Return width and height of what `add_legend` draws."""
    words = text_width(effects.below, 8) + text_width(effects.above, 8)
    width = max([words + BAR + 0.16, *(text_width(mark, 8) for mark in marks)])
    return width, LEGEND_LINE * (1 + len(marks))


def wrap_title(lines: Sequence[str], width: float) -> list[str]:
    """Break lines of 10 points so that they fit into this width in inches."""
    broken: list[str] = []
    for line in lines:
        letters = max(20, int(len(line) * width / max(text_width(line, 10), 0.1)) - 2)
        broken += wrap(line, letters) or [""]
    return broken


def fit_text(text: str, size: float, width: float) -> str:
    """Shorten a text of this size in points until it fits into this width in inches."""
    whole = text_width(text, size)
    if whole <= width:
        return text
    kept = max(1, int(len(text) * width / whole))
    while kept > 1 and text_width(f"{text[:kept]}…", size) > width:
        kept -= 1
    return f"{text[:kept]}…"


@lru_cache(4096)
def text_width(text: str, size: float) -> float:
    """Return the width in inches of a text of this size in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    width, _, _ = TextToPath().get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / POINTS


def signed_colour_map() -> Any:
    """Return the colour map of signed shares, -1 to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("whichtoken", [rgb_of(colour) for colour in (AGAINST, NEUTRAL, FOR)])


def rgb_of(colour: Colour) -> tuple[float, ...]:
    return tuple(part / 255 for part in colour)
