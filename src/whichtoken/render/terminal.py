"""Results in a terminal: words on a coloured background, or with numbers if there is no colour."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from whichtoken.render import bench_table, head_kinds
from whichtoken.render.answers import ShareTable
from whichtoken.render.groups import Results
from whichtoken.render.numbers import format_share
from whichtoken.render.palette import Colour, ink, ink_on, shade, step_of
from whichtoken.render.rows import (
    Effects,
    Level,
    Look,
    Panel,
    ScoreCell,
    ScoreRow,
    ShownReading,
    effects_of,
    format_output,
    panels,
    visible,
)
from whichtoken.render.trust import describe_uncertain
from whichtoken.tables import BenchTable

if TYPE_CHECKING:  # the package imports numpy, which would slow down `whichtoken --help`
    from whichtoken.heads.mask import HeadMask

TUNED, UNCERTAIN = "*", "?"
Numbers = Literal["", "shares", "intervals"]  # what is printed next to the words
SHOWN = 0.05  # smaller shares get no number
LONGEST_NAME = 36  # of a method in a benchmark table


def print_each(console: Console, results: Iterable[Results], look: Look) -> None:
    """Print each result as it arrives, then the legend."""
    tuned, readings, levels = False, set[ShownReading](), set[float]()
    for result in results:
        for panel in panels(result, look):
            console.print(panel_view(panel, _choose_numbers(console, look), look.level), soft_wrap=False)
            console.print()
            tuned = tuned or any(row.tuned_on_deletion for row in panel.rows)
            readings.add(panel.reading)
            marked = [cell.interval for row in panel.rows for cell in row.cells if mark_of(cell)]
            levels |= {interval.level for interval in marked if interval}
    if readings:
        console.print(legend_view(console, tuned, effects_of(readings), describe_uncertain(levels)))


def show_results(results: Iterable[Results], row: str | None = None) -> None:
    """Print results, or display them in a notebook. `row`: of answers, the part to show."""
    console = Console()
    if console.is_jupyter:
        from whichtoken.render.html import fragment

        display = import_module("IPython.display")
        shown: Any = results
        display.display(shown if row is None else display.HTML(fragment(shown, row)))
    else:
        print_each(console, results, Look(row=row))


def show_table(table: BenchTable) -> None:
    """Print a benchmark table, or display it in a notebook."""
    console = Console()
    if console.is_jupyter:
        import_module("IPython.display").display(table)
    else:
        console.print(bench_view(table, console.width))


def panel_view(panel: Panel, numbers: Numbers, level: Level) -> RenderableType:
    source = f"  {panel.source}" if panel.source else ""
    head = Text.assemble((panel.label, "bold"), f"  {format_output(panel)}", (f"  ({panel.model}){source}", "dim"))
    if panel.picture is not None:
        return image_view(head, panel, numbers)
    if panel.measure:
        return answer_view(panel, numbers, level)
    parts: list[RenderableType] = [head, _rows_view([*panel.rows, *panel.differences], numbers, level, side_of)]
    parts += [*map(Text, panel.trust), *_notes_view(panel)]
    for layers in panel.layers:
        parts += [Text(f"{layers.name}, by layer:", style="dim"), _rows_view(layers.rows, numbers, level)]
    return Group(*parts)


def _notes_view(panel: Panel) -> list[Text]:
    return [Text(note, style="bold" if note in panel.warnings else "dim") for note in panel.notes]


def answer_view(panel: Panel, numbers: Numbers, level: Level) -> RenderableType:
    """Return a language model's answer, the prompt coloured by each method, and the answer's parts and documents."""
    about = f"  {format_output(panel)}  ({panel.model}){f'  {panel.source}' if panel.source else ''}"
    parts: list[RenderableType] = [Text.assemble((panel.answer or panel.label, "bold"), (about, "dim"))]
    if panel.label.split() != panel.answer.split():
        parts.append(Text.assemble("explained: ", (panel.label, "bold")))
    for row in (*panel.rows, *panel.differences):
        parts += [Text(), Text.assemble(name_of(row), "  ", side_of(row))]
        parts.append(Padding(words_of(row, numbers, level, before="dim"), (0, 0, 0, 2)))
        parts += [Text(line, style="dim") for line in (row.reach,) if line]
    parts += [*map(Text, panel.trust), *_notes_view(panel)]
    if panel.parts:
        parts += [Text(), _answer_parts_view(panel)]
    for table in panel.shares:
        parts += [Text(), _shares_view(table)]
    return Group(*parts)


def _answer_parts_view(panel: Panel) -> Table:
    """Return a line for each part of the answer: its probability, and the prompt's strongest parts for it."""
    head = ["part of the answer", "probability", *(row.name for row in panel.parts[0].rows)]
    lines = [
        (Text(" ".join(part.text.split())), Text(part.chance, justify="right"), *map(side_of, part.rows))
        for part in panel.parts
    ]
    table = table_view(head, lines)
    table.columns[0].no_wrap, table.columns[0].max_width = False, 40
    return table


def _shares_view(table: ShareTable) -> RenderableType:
    """Return the shares of documents and their sentences in the answer and its parts."""
    several = len(table.columns) > 1
    head = ["rests on", *(("answer", *map(str, range(1, len(table.columns)))) if several else ("share",))]
    lines = [
        (
            Text(f"{'  ' * line.is_inside}{visible(line.name)}", "bold" if line.is_document else ""),
            *(Text(format_share(share), justify="right") for share in line.shares),
        )
        for line in table.lines
    ]
    shown = table_view(head, lines)
    shown.columns[0].no_wrap = False
    numbered = [Text(f"{number}: {visible(name)}", "dim") for number, name in enumerate(table.columns[1:], 1)]
    return Group(Text(f"{visible(table.method)}: which documents and sentences", "dim"), shown, *numbered)


def image_view(head: Text, panel: Panel, numbers: Numbers) -> RenderableType:
    """Return one grid of patches per method, side by side if they fit."""
    source = "" if panel.picture is None else visible(panel.picture.source)
    grids = [_grid_view(row, numbers, _beside(row)) for row in (*panel.rows, *panel.differences)]
    parts: list[RenderableType] = [
        head,
        Text(source, style="dim"),
        Columns(grids, padding=(0, 3)),
        *map(Text, panel.trust),
    ]
    for layers in panel.layers:
        maps = [_grid_view(row, numbers, Text()) for row in layers.rows]
        parts += [Text(f"{layers.name}, by layer:", style="dim"), Columns(maps, padding=(0, 3))]
    return Group(*parts)


def _grid_view(row: ScoreRow, numbers: Numbers, beside: Text) -> RenderableType:
    columns = row.picture.columns if row.picture is not None else len(row.cells)
    lines = [row.cells[first : first + columns] for first in range(0, len(row.cells), columns)]
    grid = Text("\n").join(Text.assemble(*(_patch(cell, numbers) for cell in line)) for line in lines)
    grid.no_wrap, grid.overflow = True, "ignore"
    return Group(name_of(row), grid, beside)


def _beside(row: ScoreRow) -> Text:
    """Return the remark, or the strongest patch; short, because grids stand side by side."""
    best = "".join(f"most: {cell.called}" for cell in row.strongest(1))
    return Text(row.remark) if row.remark else Text(row.unit or best or row.nothing, style="dim")


def _patch(cell: ScoreCell, numbers: Numbers) -> tuple[str, Style]:
    """Return a square of two characters, or a faint dot for 0, so that the grid stays visible."""
    style, mark = style_of(cell.share), mark_of(cell) or " "
    if numbers:
        return f"{cell.share:+.1f}{mark}", style
    return (f"{mark} ", style) if step_of(cell.share) else ("\N{MIDDLE DOT} ", Style(dim=True))


def mark_of(cell: ScoreCell) -> str:
    """Return the mark of an uncertain score. Where no score is shown, there is nothing to doubt."""
    return UNCERTAIN if cell.uncertain and abs(cell.share) >= SHOWN else ""


def legend_view(console: Console, tuned: bool, effects: Effects, uncertain: str) -> RenderableType:
    """Return what colours and marks mean. `uncertain`: why some scores are, if any is."""
    parts: list[RenderableType] = []
    below, above, what = effects.below, effects.above, effects.what
    if console.color_system and not console.no_color:
        scale = Text.assemble(*((f"{share:+.1f} ", style_of(share)) for share in (-1.0, -0.5, 0.0, 0.5, 1.0)))
        parts.append(Text.assemble(f"{below} {what} ", scale, f" {above} it; shares of the strongest in the row"))
    else:
        parts.append(Text(f"+ {above} {what}, - {below} it; shares of the strongest in the row"))
    if tuned:
        parts.append(Text(f"{TUNED} tuned on the deletion curve: its deletion scores flatter it", style="dim"))
    if uncertain:
        parts.append(Text(f"{UNCERTAIN} uncertain: {uncertain}", style="dim"))
    return Group(*parts)


def style_of(share: float) -> Style:
    step = step_of(share)
    return Style(color=_hex(ink(step)), bgcolor=_hex(shade(step))) if step else Style()


def words_of(row: ScoreRow, numbers: Numbers, level: Level, before: str = "") -> Text:
    """Return the coloured words, without parsing markup: a text may contain [bold].

    Of tokens that touch, every second is underlined, and without colours each has its number, so that one sees where
    they end. `before`: the style of what stands between them.
    """
    line, underline = Text(), False
    for cell, following in zip_longest(row.cells, row.cells[1:]):
        underline = level == "token" and not cell.before and not underline
        touches = level == "token" and following is not None and not following.before
        line.append(cell.before, before)
        line.append(cell.text, style_of(cell.share) + Style(underline=underline or None))
        if numbers and (abs(cell.share) >= SHOWN or touches):
            line.append(f"({_number_of(cell, numbers)})", "dim")
        elif mark := mark_of(cell):
            line.append(f"({mark})", "dim")
    return line


def _number_of(cell: ScoreCell, numbers: Numbers) -> str:
    interval = f" {cell.interval.shares}" if cell.interval and numbers == "intervals" else ""
    return f"{cell.share:+.2f}{mark_of(cell)}{interval}"


def table_view(head: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a plain table, for the lists of the command line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(head):
        table.add_column(title, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    return table


def bench_view(table: BenchTable, width: int = 100) -> RenderableType:
    """Return the columns that fit, the first with intervals; the others are listed as being in the report."""
    names = [Text(bench_table.name_of(line), style="dim" if line.control else "cyan") for line in table.lines]
    for name in names:
        name.truncate(LONGEST_NAME, overflow="ellipsis")
    left = width - max((name.cell_len for name in names), default=0)
    head, columns = ["method"], list[list[Text]]()
    for title, entries in zip(bench_table.head(table)[1:], _by_column(table), strict=True):
        cells = _bench_cells(entries, short=bool(columns))
        needed = max((len(word) for word in title.split()), default=0)
        needed = max([needed, *(cell.cell_len for cell in cells)])
        left -= needed + 2
        if left < 0 and columns:
            break
        head.append(escape("\n".join(wrap(title, needed))))
        columns.append(cells)
    parts: list[RenderableType] = [Text(visible(table.title), style="bold")]
    parts += [Text(f"{name}: {bench_table.short_hash(value)}", "dim") for name, value in bench_table.facts(table)]
    parts += [Text(), table_view(head, zip(names, *columns, strict=True)), Text()]
    hidden = [bench_table.plain_title(column) for column in table.columns[len(columns) :]]
    if hidden:
        columns_of = f"{len(hidden)} more column{'s' * (len(hidden) != 1)}, in the report that --out FOLDER writes"
        parts.append(Text(f"{columns_of}: {'; '.join(hidden)}"))
    return Group(
        *parts,
        *(Text(note, style="dim") for note in (*bench_table.legend(table), *map(visible, table.notes))),
        *([Text(visible(table.verdict), style="bold")] if table.verdict else []),
    )


def _by_column(table: BenchTable) -> list[list[bench_table.CellText]]:
    lines = bench_table.entries(table)
    return [[line[number] for line in lines] for number in range(len(table.columns))]


def _bench_cells(entries: Sequence[bench_table.CellText], short: bool) -> list[Text]:
    widest = max((len(entry.mean) for entry in entries), default=0)
    return [
        Text(bench_table.text_of(replace(entry, mean=entry.mean.rjust(widest)), short), "bold" if entry.best else "")
        for entry in entries
    ]


def heads_view(mask: "HeadMask") -> RenderableType:
    """Return a grid of letters with a legend, and the statistics of the corpus."""
    grid = Table.grid(padding=(0, 1))
    kinds = head_kinds.kinds(mask)
    grid.add_row(Text("head", style="dim"), *(Text(f"{i:>2}", style="dim") for i in range(1, len(kinds[0]) + 1)))
    for number, row in enumerate(kinds, 1):
        grid.add_row(
            Text(f"block {number}", style="dim"), *(Text(f" {head_kinds.LETTERS[k]}", _ground(k)) for k in row)
        )
    legend = Text.assemble(
        *(p for k in head_kinds.legend_kinds(mask) for p in ((head_kinds.LETTERS[k], _ground(k)), f" {k}  "))
    )
    parts: list[RenderableType] = [Text(head_kinds.title(mask), style="bold"), grid, legend, Text()]
    parts.append(Text(head_kinds.corpus_line(mask), style="dim"))
    for titles, rows in (
        (head_kinds.RELATIONS, head_kinds.relation_rows(mask)),
        (head_kinds.REASONS, head_kinds.reason_rows(mask)),
    ):
        parts += [Text(), table_view(titles, rows)] if rows else []
    return Group(*parts)


def _ground(kind: head_kinds.Kind) -> Style:
    colour = head_kinds.COLOURS[kind]
    return Style() if kind is head_kinds.Kind.NEITHER else Style(color=_hex(ink_on(colour)), bgcolor=_hex(colour))


def side_of(row: ScoreRow) -> Text:
    """Return the text beside a row: its remark, or its strongest words."""
    top = ", ".join(f"{cell.called} {cell.share:+.2f}{mark_of(cell)}" for cell in row.strongest())
    return Text(row.remark) if row.remark else Text(top or row.nothing, style="dim")


def name_of(row: ScoreRow) -> Text:
    return Text.assemble((row.name, "cyan"), (f" {TUNED}" if row.tuned_on_deletion else "", "dim"))


def _rows_view(
    rows: Sequence[ScoreRow], numbers: Numbers, level: Level, beside: Callable[[ScoreRow], Text] | None = None
) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, max_width=40)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(name_of(row), words_of(row, numbers, level), *([beside(row)] if beside else []))
    return table


def _choose_numbers(console: Console, look: Look) -> Numbers:
    """Return intervals if numbers were requested, and shares if there is no colour to show them."""
    if look.numbers:
        return "intervals"
    return "shares" if not console.color_system or console.no_color else ""


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
