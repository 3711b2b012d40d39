"""Matplotlib figures: heat maps of methods and of layers, and head masks. The door of matplotlib, which is optional."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from whichtoken.atomic_write import write_whole
from whichtoken.errors import UsageError
from whichtoken.heads.mask import HeadMask
from whichtoken.records import Attribution
from whichtoken.render import head_kinds
from whichtoken.render.palette import AGAINST, FOR, NEUTRAL, Colour, ink, ink_on, step_of
from whichtoken.render.pictures import overlay, plain, to_image
from whichtoken.render.rows import IMAGES_IN_FIGURE, Level, Look, Panel, Results, ScoreRow, grouped, layer_map, panels

KINDS = (".png", ".svg", ".pdf")


def plot(results: Results, path: str | Path, look: Look) -> Path:
    """By layer if that was asked for of one method, else method by method; of one image and one method, just that."""
    found = grouped(results)
    if len(found) == 1 and len(found[0]) == 1:
        (shown,) = found[0].values()
        if shown.picture is None and shown.layers:
            return layers(shown, path, level=look.level)
        if shown.picture is not None and not shown.layers and checked(path).suffix.lower() == ".png":
            to_image(shown, path, look.how)
            return Path(path).expanduser()
    return _plot_panel(results, path, look)


def methods(results: Results, path: str | Path, *, level: Level = "word", differences: bool = False) -> Path:
    """One text, a line for each method; each line is scaled to its own strongest word."""
    return _plot_panel(results, path, Look(level, differences))


def _plot_panel(results: Results, path: str | Path, look: Look) -> Path:
    found = panels(results, look)
    if found and all(panel.picture is not None for panel in found):
        return written(_overlays(found, look), checked(path))
    if len(found) != 1:
        raise UsageError(f"a figure shows one text, and these results have {len(found)}; choose one: results[0]")
    panel = found[0]
    rows = [*panel.rows, *panel.differences]
    return _save(rows, f"{panel.label}  {panel.probability:.1%}", path, line_before_last=False)


def _overlays(found: Sequence[Panel], look: Look) -> Any:
    """A line for each image: as the model saw it, then method by method."""
    if len(found) > IMAGES_IN_FIGURE:
        raise UsageError(f"a figure shows up to {IMAGES_IN_FIGURE} images, and these are {len(found)}; choose some")
    lines = [_line(panel) for panel in found]
    width = max(len(line) for line in lines)
    figure = empty_figure(1.9 * width, 2.25 * len(lines))
    grid = figure.subplots(len(lines), width, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for panel, line, places in zip(found, lines, grid, strict=True):
        for (title, row), axes in zip(line, places, strict=False):
            assert panel.picture is not None, "checked by the caller"
            shown = plain(panel.picture) if row is None else overlay(row, look.how)
            axes.imshow(np.asarray(shown), interpolation="nearest")
            axes.set_title(title, loc="left", fontsize=8, parse_math=False)
    bar = figure.colorbar(_scale(), ax=list(grid.flat), pad=0.02, fraction=0.03, aspect=30, ticks=(-1, 0, 1))
    bar.ax.set_yticklabels(["against", "", "for"])
    bar.outline.set_visible(False)
    if any(row.tuned_on_deletion for panel in found for row in panel.rows):
        figure.text(0.01, -0.02, "* tuned on the deletion curve", fontsize=7)
    return figure


def _line(panel: Panel) -> list[tuple[str, ScoreRow | None]]:
    """Titles and what they stand on; None: the image itself."""
    layers = [(f"{one.name}, {row.name}", row) for one in panel.layers for row in one.rows]
    rows = [(_name(row), row) for row in (*panel.rows, *panel.differences)]
    return [(f"{panel.label}  {panel.probability:.1%}", None), *rows, *layers]


def layers(attribution: Attribution, path: str | Path, *, level: Level = "word") -> Path:
    """One method, a line for each layer and one for their sum. Needs `explain(..., layers=True)`."""
    found = layer_map(attribution.method, attribution, level)
    if attribution.picture is not None:
        return _plot_panel(attribution, path, Look())
    title = f"{found.name}: {attribution.label}  {attribution.probability:.1%}"
    return _save(found.rows, title, path, line_before_last=True)


def heads(mask: HeadMask, path: str | Path) -> Path:
    """Which heads are syntactic, positional or both: a square for each, layer by layer."""
    if not isinstance(mask, HeadMask):
        raise UsageError(f"a {type(mask).__name__} is no head mask; wt.heads.build and wt.heads.load give one")
    where = checked(path)
    return written(_squares(mask), where)


def _save(rows: Sequence[ScoreRow], title: str, path: str | Path, line_before_last: bool) -> Path:
    where = checked(path)
    return written(_heat_map(rows, title, line_before_last), where)


def checked(path: str | Path) -> Path:
    """UsageError if no figure can be written there."""
    where = Path(path).expanduser()
    if where.suffix.lower() not in KINDS:
        raise UsageError(f"{where}: a figure is written as {', '.join(KINDS)}; give the file one of these endings")
    return where


def written(figure: Any, where: Path) -> Path:
    return write_whole(where, drawn(figure, where.suffix[1:].lower()))


def drawn(figure: Any, kind: str) -> bytes:
    """`kind`: png, svg or pdf."""
    file = BytesIO()
    figure.savefig(file, format=kind, bbox_inches="tight", dpi=160)
    return file.getvalue()


def _name(row: ScoreRow) -> str:
    return f"{row.name}{' *' if row.tuned_on_deletion else ''}{f'  {row.remark}' if row.remark else ''}"


def empty_figure(width: float, height: float) -> Any:
    """Of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install 'whichtoken[figures]'") from error
    return Figure(figsize=(width, height))


def for_and_against() -> Any:
    """The colour map of signed shares, -1 to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("whichtoken", [rgb_of(colour) for colour in (AGAINST, NEUTRAL, FOR)])


def _scale() -> Any:
    """What a colour bar is drawn of where there is no map."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(-1, 1), for_and_against())


def _squares(mask: HeadMask) -> Any:
    found = head_kinds.kinds(mask)
    n_layers, n_heads = len(found), len(found[0])
    size = 0.34 if max(n_layers, n_heads) <= 16 else 0.2  # inches of a square
    figure = empty_figure(1.8 + size * n_heads, 1.0 + size * n_layers)
    axes = figure.add_subplot()
    axes.imshow([[head_kinds.COLOURS[kind] for kind in row] for row in found])
    axes.set_xticks(range(n_heads), range(1, n_heads + 1))
    axes.set_yticks(range(n_layers), range(1, n_layers + 1))
    axes.set_xticks([x - 0.5 for x in range(1, n_heads)], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, n_layers)], minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="head", ylabel="block")
    axes.set_title(head_kinds.title(mask, "\n"), loc="left", fontsize=10, parse_math=False)
    for y, row in enumerate(found):
        for x, kind in enumerate(row):
            if kind is not head_kinds.Kind.NEITHER:
                ground = rgb_of(ink_on(head_kinds.COLOURS[kind]))
                axes.text(x, y, head_kinds.LETTERS[kind], ha="center", va="center", fontsize=8, color=ground)
    _legend(axes, head_kinds.present(mask))
    return figure


def _legend(axes: Any, shown: Sequence[head_kinds.Kind]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=rgb_of(head_kinds.COLOURS[kind]), edgecolor="0.8", label=kind) for kind in shown]
    axes.legend(
        handles=patches, loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, frameon=False, fontsize=8
    )


def rgb_of(colour: Colour) -> tuple[float, ...]:
    return tuple(part / 255 for part in colour)


def _heat_map(rows: Sequence[ScoreRow], title: str, line_before_last: bool) -> Any:
    words = [cell.text for cell in rows[0].cells]
    figure = empty_figure(1.6 + 0.45 * len(words), 1.3 + 0.34 * len(rows))
    shares = [[cell.share for cell in row.cells] for row in rows]
    axes = figure.add_subplot()
    image = axes.imshow(shares, for_and_against(), vmin=-1, vmax=1, aspect="auto", rasterized=True)
    # A text may hold dollar signs, which are no formulas.
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
    bar.ax.set_yticklabels(["against", "", "for"])
    bar.outline.set_visible(False)
    if any(row.tuned_on_deletion for row in rows):
        figure.text(0.01, -0.02, "* tuned on the deletion curve", fontsize=7)
    return figure
