"""Matplotlib figures: heat maps of methods and layers, and head masks. Matplotlib is optional."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from whichtoken.atomic_write import write_whole
from whichtoken.errors import UsageError, name_type
from whichtoken.heads.mask import HeadMask
from whichtoken.records import Attribution
from whichtoken.render import head_kinds
from whichtoken.render.palette import AGAINST, FOR, NEUTRAL, Colour, ink, ink_on, step_of
from whichtoken.render.pictures import overlay, plain, to_image
from whichtoken.render.rows import (
    IMAGES_IN_FIGURE,
    Effects,
    Level,
    Look,
    Panel,
    Results,
    ScoreRow,
    effects_of,
    format_output,
    group_results,
    layer_map,
    notes_of,
    panels,
)

KINDS = (".png", ".svg", ".pdf")


def plot(results: Results, path: str | Path, look: Look) -> Path:
    """Draw one method by layer if it has layers, one method on one image as a plain PNG, else all methods."""
    groups = group_results(results)
    if len(groups) == 1 and len(groups[0]) == 1:
        (attribution,) = groups[0].values()
        if attribution.picture is None and attribution.layers:
            return layers(attribution, path, level=look.level)
        if (
            attribution.picture is not None
            and not attribution.layers
            and check_figure_path(path).suffix.lower() == ".png"
        ):
            to_image(attribution, path, look.how)
            return Path(path).expanduser()
    return _plot_panel(results, path, look)


def methods(results: Results, path: str | Path, *, level: Level = "word", differences: bool = False) -> Path:
    """Draw one text, one row per method, each scaled to its strongest word."""
    return _plot_panel(results, path, Look(level, differences))


def _plot_panel(results: Results, path: str | Path, look: Look) -> Path:
    drawn = panels(results, look)
    if drawn and all(panel.picture is not None for panel in drawn):
        return save_figure(_overlays(drawn, look), check_figure_path(path))
    if len(drawn) != 1:
        raise UsageError(f"a figure shows one text, but these results have {len(drawn)}; choose one: results[0]")
    panel = drawn[0]
    rows = [*panel.rows, *panel.differences]
    where = check_figure_path(path)
    title = "\n".join([panel.head, *panel.notes])
    return save_figure(_heat_map(rows, title, effects_of({panel.reading})), where)


def _overlays(drawn: Sequence[Panel], look: Look) -> Any:
    """Draw one row per image: the image as the model reads it, then one overlay per method."""
    if len(drawn) > IMAGES_IN_FIGURE:
        raise UsageError(f"a figure shows up to {IMAGES_IN_FIGURE} images, but there are {len(drawn)}; choose some")
    lines = [_line(panel) for panel in drawn]
    width = max(len(line) for line in lines)
    figure = empty_figure(1.9 * width, 2.25 * len(lines))
    grid = figure.subplots(len(lines), width, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for panel, line, places in zip(drawn, lines, grid, strict=True):
        for (title, row), axes in zip(line, places, strict=False):
            assert panel.picture is not None, "checked by the caller"
            image = plain(panel.picture) if row is None else overlay(row, look.how)
            axes.imshow(np.asarray(image), interpolation="nearest")
            axes.set_title(title, loc="left", fontsize=8, parse_math=False)
    bar = figure.colorbar(_scale(), ax=list(grid.flat), pad=0.02, fraction=0.03, aspect=30, ticks=(-1, 0, 1))
    _name_ends(bar, effects_of({panel.reading for panel in drawn}))
    bar.outline.set_visible(False)
    if any(row.tuned_on_deletion for panel in drawn for row in panel.rows):
        figure.text(0.01, -0.02, "* tuned on the deletion curve", fontsize=7)
    return figure


def _line(panel: Panel) -> list[tuple[str, ScoreRow | None]]:
    """Return titles with their rows of scores; None: the image itself."""
    layers = [(f"{by_layer.name}, {row.name}", row) for by_layer in panel.layers for row in by_layer.rows]
    rows = [(_name(row), row) for row in (*panel.rows, *panel.differences)]
    return [(panel.head, None), *rows, *layers]


def layers(attribution: Attribution, path: str | Path, *, level: Level = "word") -> Path:
    """Draw one method, one row per layer and one for their sum. Needs `explain(..., layers=True)`."""
    by_layer = layer_map(attribution.method, attribution, level)
    if attribution.picture is not None:
        return _plot_panel(attribution, path, Look())
    where, effects = check_figure_path(path), effects_of({attribution.reading})
    head = f"{by_layer.name}: {attribution.label}  {format_output(attribution)}"
    title = "\n".join([head, *notes_of(attribution)])
    return save_figure(_heat_map(by_layer.rows, title, effects, line_before_last=True), where)


def heads(mask: HeadMask, path: str | Path) -> Path:
    """Draw which heads are syntactic, positional or both: one square per head, one row per layer."""
    if not isinstance(mask, HeadMask):
        raise UsageError(f"{name_type(mask)} is not a head mask; use wt.heads.build or wt.heads.load")
    where = check_figure_path(path)
    return save_figure(_head_squares(mask), where)


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
    figure.savefig(file, format=kind, bbox_inches="tight", dpi=160)
    return file.getvalue()


def _name(row: ScoreRow) -> str:
    return f"{row.name}{' *' if row.tuned_on_deletion else ''}{f'  {row.remark}' if row.remark else ''}"


def empty_figure(width: float, height: float) -> Any:
    """Return a figure of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install 'whichtoken[figures]'") from error
    return Figure(figsize=(width, height))


def signed_colour_map() -> Any:
    """Return the colour map of signed shares, -1 to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("whichtoken", [rgb_of(colour) for colour in (AGAINST, NEUTRAL, FOR)])


def _scale() -> Any:
    """Return a colour scale for figures without a heat map."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(-1, 1), signed_colour_map())


def _head_squares(mask: HeadMask) -> Any:
    kinds = head_kinds.kinds(mask)
    n_layers, n_heads = len(kinds), len(kinds[0])
    size = 0.34 if max(n_layers, n_heads) <= 16 else 0.2  # inches of a square
    figure = empty_figure(1.8 + size * n_heads, 1.0 + size * n_layers)
    axes = figure.add_subplot()
    axes.imshow([[head_kinds.COLOURS[kind] for kind in row] for row in kinds])
    axes.set_xticks(range(n_heads), range(1, n_heads + 1))
    axes.set_yticks(range(n_layers), range(1, n_layers + 1))
    axes.set_xticks([x - 0.5 for x in range(1, n_heads)], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, n_layers)], minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="head", ylabel="block")
    axes.set_title(head_kinds.title(mask, "\n"), loc="left", fontsize=10, parse_math=False)
    for y, row in enumerate(kinds):
        for x, kind in enumerate(row):
            if kind is not head_kinds.Kind.NEITHER:
                ground = rgb_of(ink_on(head_kinds.COLOURS[kind]))
                axes.text(x, y, head_kinds.LETTERS[kind], ha="center", va="center", fontsize=8, color=ground)
    _legend(axes, head_kinds.legend_kinds(mask))
    return figure


def _legend(axes: Any, kinds: Sequence[head_kinds.Kind]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=rgb_of(head_kinds.COLOURS[kind]), edgecolor="0.8", label=kind) for kind in kinds]
    axes.legend(
        handles=patches, loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, frameon=False, fontsize=8
    )


def rgb_of(colour: Colour) -> tuple[float, ...]:
    return tuple(part / 255 for part in colour)


def _name_ends(bar: Any, effects: Effects) -> None:
    bar.ax.set_yticklabels([effects.below, "", effects.above])


def _heat_map(rows: Sequence[ScoreRow], title: str, effects: Effects, line_before_last: bool = False) -> Any:
    words = [cell.text for cell in rows[0].cells]
    figure = empty_figure(1.6 + 0.45 * len(words), 1.3 + 0.34 * len(rows))
    shares = [[cell.share for cell in row.cells] for row in rows]
    axes = figure.add_subplot()
    image = axes.imshow(shares, signed_colour_map(), vmin=-1, vmax=1, aspect="auto", rasterized=True)
    # Dollar signs in a text are not formulas.
    axes.set_xticks(range(len(words)), words, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows], parse_math=False)
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if line_before_last:
        axes.axhline(len(rows) - 1.5, color="black", linewidth=1)
    for y, line in enumerate(shares):
        for x, share in enumerate(line):
            if abs(share) >= 0.25:
                colour = rgb_of(ink(step_of(share)))
                axes.text(x, y, f"{share:+.1f}", ha="center", va="center", fontsize=7, color=colour)
    bar = figure.colorbar(image, ax=axes, pad=0.02, ticks=(-1, 0, 1))
    _name_ends(bar, effects)
    bar.outline.set_visible(False)
    if any(row.tuned_on_deletion for row in rows):
        figure.text(0.01, -0.02, "* tuned on the deletion curve", fontsize=7)
    return figure
