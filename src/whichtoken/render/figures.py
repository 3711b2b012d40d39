"""Matplotlib figures: heat maps of methods and layers, and head masks. Matplotlib is optional."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whichtoken.errors import UsageError, name_type
from whichtoken.heads.mask import HeadMask
from whichtoken.records import Attribution
from whichtoken.render import head_kinds
from whichtoken.render.answers import with_sources
from whichtoken.render.canvas import deliver, empty_figure, rgb_of
from whichtoken.render.groups import Results, group_results
from whichtoken.render.heat_maps import heat_map, strongest_columns
from whichtoken.render.image_figures import overlays_figure
from whichtoken.render.palette import ink_on
from whichtoken.render.rows import Level, Look, effects_of, layer_map, panels
from whichtoken.render.titles import name_of
from whichtoken.targets import SourceLevel


def plot(results: Results, path: str | Path, look: Look) -> Path:
    """Draw one method by layer if it has layers, else all methods."""
    return Path(deliver(lambda: draw(results, look), path))


def draw(results: Results, look: Look) -> Any:
    """Return the figure of one method by layer if it has layers, else of all methods."""
    groups = group_results(results)
    if len(groups) == 1 and len(groups[0]) == 1:
        (attribution,) = groups[0].values()
        if attribution.layers:
            return _layers_figure(attribution, look.level)
        if attribution.generated is not None and look.row is None:
            return _answer_figure(attribution, None, look.level)
    return _panel_figure(results, look)


def methods(
    results: Results, path: str | Path | None = None, *, level: Level = "word", differences: bool = False
) -> Any:
    """Draw one text, one row per method, each scaled to its strongest word.

    Return the path if given, else the matplotlib figure, which notebooks show.
    """
    return deliver(lambda: _panel_figure(results, Look(level, differences)), path)


def _panel_figure(results: Results, look: Look) -> Any:
    drawn = panels(results, look)
    if drawn and all(panel.picture is not None for panel in drawn):
        return overlays_figure(drawn, look)
    if len(drawn) != 1:
        raise UsageError(f"a figure shows one text, but these results have {len(drawn)}; choose one: results[0]")
    (panel,) = drawn
    rows = [*panel.rows, *panel.differences]
    rows, left_out = strongest_columns(rows) if panel.measure else (rows, "")
    title = [name_of(panel), *panel.trust, *panel.notes, *filter(None, [left_out])]
    return heat_map(rows, title, effects_of({panel.reading}))


def answer(attribution: Attribution, path: str | Path | None = None, *, sources: SourceLevel | None = None) -> Any:
    """Draw the answer of a language model: one row for each part of it that was explained, one column for each part of
    the prompt. `sources`: "token", "word", "sentence" or "document"; the default is as in `explain`.

    Of a long prompt, the strongest columns are drawn. Return the path if given, else the matplotlib figure.
    """
    return deliver(lambda: _answer_figure(attribution, sources, "word"), path)


def _answer_figure(attribution: Attribution, sources: SourceLevel | None, level: Level) -> Any:
    if not isinstance(attribution, Attribution):
        raise UsageError(f"answer draws one attribution, such as results[0]['attn-lrp'], not {name_type(attribution)}")
    record = with_sources(attribution, sources)
    (panel,) = panels(record, Look(level))
    parts = [replace(part.rows[0], name=part.text, remark=part.chance) for part in panel.parts]
    rows, left_out = strongest_columns(parts or panel.rows)
    title = [name_of(panel), f"{panel.rows[0].name}; probabilities of the parts beside them" * bool(parts)]
    return heat_map(rows, [*filter(None, [*title, left_out]), *panel.trust, *panel.notes], effects_of({panel.reading}))


def layers(attribution: Attribution, path: str | Path | None = None, *, level: Level = "word") -> Any:
    """Draw one method, one row per layer and one for their sum. Needs `explain(..., layers=True)`.

    Return the path if given, else the matplotlib figure, which notebooks show.
    """
    return deliver(lambda: _layers_figure(attribution, level), path)


def _layers_figure(attribution: Attribution, level: Level) -> Any:
    if not isinstance(attribution, Attribution):
        raise UsageError(f"layers draws one attribution, such as results[0]['attcat'], not {name_type(attribution)}")
    by_layer = layer_map(attribution.method, attribution, level)
    (panel,) = panels(attribution, Look(level))
    if panel.picture is not None:
        return overlays_figure([panel], Look())
    title = [name_of(panel), f"{by_layer.name}, by layer", *panel.notes]
    return heat_map(by_layer.rows, title, effects_of({panel.reading}), line_before_last=True)


def heads(mask: HeadMask, path: str | Path | None = None) -> Any:
    """Draw which heads are syntactic, positional or both: one square per head, one row per layer.

    Return the path if given, else the matplotlib figure, which notebooks show.
    """
    if not isinstance(mask, HeadMask):
        raise UsageError(f"{name_type(mask)} is not a head mask; use wt.heads.build or wt.heads.load")
    return deliver(lambda: _head_squares(mask), path)


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
