"""Results as matplotlib figures: heat maps of methods, and of layers. The door of matplotlib, which is optional."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from whichtoken.errors import UsageError
from whichtoken.render.palette import AGAINST, FOR, NEUTRAL, ink, step_of
from whichtoken.render.rows import Level, Look, Results, Row, Shown, grouped, layer_map, panels
from whichtoken.writing import write_whole

KINDS = (".png", ".svg", ".pdf")


def plot(results: Results, path: str | Path, look: Look) -> Path:
    """By layer if that was asked for of one method, else method by method."""
    found = grouped(results)
    shown = next(iter(found[0].values())) if found else None
    if len(found) == 1 and len(found[0]) == 1 and shown is not None and shown.layers:
        return plot_layers(shown, path, level=look.level)
    return _plot_panel(results, path, look)


def plot_methods(results: Results, path: str | Path, *, level: Level = "word", differences: bool = False) -> Path:
    """One text, a line for each method; each line is scaled to its own strongest word."""
    return _plot_panel(results, path, Look(level, differences))


def _plot_panel(results: Results, path: str | Path, look: Look) -> Path:
    found = panels(results, look)
    if len(found) != 1:
        raise UsageError(f"a figure shows one text, and these results have {len(found)}; choose one: results[0]")
    panel = found[0]
    rows = [*panel.rows, *panel.differences]
    return _save(rows, f"{panel.label}  {panel.probability:.1%}", path, line_before_last=False)


def plot_layers(attribution: Shown, path: str | Path, *, level: Level = "word") -> Path:
    """One method, a line for each layer and one for their sum. Needs `explain(..., layers=True)`."""
    found = layer_map(attribution.method, attribution, level)
    title = f"{found.name}: {attribution.label}  {attribution.probability:.1%}"
    return _save(found.rows, title, path, line_before_last=True)


def _save(rows: Sequence[Row], title: str, path: str | Path, line_before_last: bool) -> Path:
    where = Path(path).expanduser()
    if where.suffix.lower() not in KINDS:
        raise UsageError(f"{where}: a figure is written as {', '.join(KINDS)}; give the file one of these endings")
    drawn = BytesIO()
    _heat_map(rows, title, line_before_last).savefig(
        drawn, format=where.suffix[1:].lower(), bbox_inches="tight", dpi=160
    )
    return write_whole(where, drawn.getvalue())


def _name(row: Row) -> str:
    return f"{row.name}{' *' if row.searched else ''}{f'  {row.remark}' if row.remark else ''}"


def _heat_map(rows: Sequence[Row], title: str, line_before_last: bool) -> Any:
    try:
        from matplotlib.colors import LinearSegmentedColormap, Normalize
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install 'whichtoken[figures]'") from error
    shares = [[cell.share for cell in row.cells] for row in rows]
    words = [cell.text for cell in rows[0].cells]
    ends = [tuple(c / 255 for c in colour) for colour in (AGAINST, NEUTRAL, FOR)]
    figure = Figure(figsize=(1.6 + 0.45 * len(words), 1.3 + 0.34 * len(rows)))
    axes = figure.add_subplot()
    image = axes.imshow(
        shares, LinearSegmentedColormap.from_list("whichtoken", ends), Normalize(-1, 1), aspect="auto", rasterized=True
    )
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
                colour = tuple(c / 255 for c in ink(step_of(share)))
                axes.text(x, y, f"{share:+.1f}", ha="center", va="center", fontsize=7, color=colour)
    bar = figure.colorbar(image, ax=axes, pad=0.02, ticks=(-1, 0, 1))
    bar.ax.set_yticklabels(["against", "", "for"])
    bar.outline.set_visible(False)
    if any(row.searched for row in rows):
        figure.text(0.01, -0.02, "* searched on the deletion curve", fontsize=7)
    return figure
