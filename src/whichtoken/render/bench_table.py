"""A benchmark table as text, shared by terminal, Markdown and report. No torch."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from whichtoken.errors import UsageError, name_type
from whichtoken.identity import UNCHECKED
from whichtoken.render.rows import visible
from whichtoken.tables import BenchTable, Column, Estimate, Line

STAR = "*"
DAGGER = "†"
MARK = "•"
DASH = "\N{EN DASH}"
ARROWS = {"higher": "↑", "lower": "↓", "": ""}
SIGNIFICANT = 0.05
SECONDS = "seconds"  # the column without intervals: seconds vary with the machine's load, not only between inputs
ORDERS = "MoRF: most relevant first, LeRF: least relevant first; the order in which parts are removed"


@dataclass(frozen=True)
class CellText:
    """A cell as text. If nothing was measured, the mean is a dash and the other fields are empty."""

    mean: str = DASH
    interval: str = ""
    about: str = ""  # number of inputs, and p
    value: float | None = None  # sort key
    best: bool = False  # the best of its column
    close: bool = False  # not significantly worse than the best
    flattered: bool = False  # the method was tuned on the metric of this column


def facts(table: BenchTable) -> list[tuple[str, str]]:
    """Return what was run, as name and value; `short_hash` makes a value short."""
    known = dict(table.facts)
    unchecked = [("processor", UNCHECKED)] if "revision" in known and "processor" not in known else []
    return [(visible(name), visible(value)) for name, value in [*table.facts, *unchecked]]


def short_hash(text: str) -> str:
    """Cut hashes to 12 digits; the table file has all of them."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{8,}\b", r"\1…", text)


def require_table(table: object) -> None:
    """Raise UsageError if this is not a table."""
    if not isinstance(table, BenchTable):
        raise UsageError(f"{name_type(table)} is not a benchmark table; give what wt.bench.run returns")


def head(table: BenchTable) -> list[str]:
    return ["method", *(title_of(column) for column in table.columns)]


def title_of(column: Column) -> str:
    return " ".join(filter(None, (plain_title(column), ARROWS[column.better], DAGGER if column.flattered else "")))


def plain_title(column: Column) -> str:
    """Return the title without marks; tables of older versions call the two orders by other names."""
    return visible(column.title).replace("highest first", "MoRF").replace("lowest first", "LeRF")


def name_of(line: Line) -> str:
    return visible(line.method) + (f" {STAR}" if line.tuned_on_deletion else "")


def rows(table: BenchTable, short: bool = False) -> list[list[str]]:
    """Return a name and one text per column for each line. `short`: without intervals."""
    names = map(name_of, table.lines)
    return [
        [name, *(text_of(entry, short) for entry in line)] for name, line in zip(names, entries(table), strict=True)
    ]


def text_of(entry: CellText, short: bool = False) -> str:
    mean = entry.mean + (DAGGER if entry.flattered else "")
    return " ".join(filter(None, (mean, "" if short else entry.interval, MARK if entry.close else "")))


def entries(table: BenchTable) -> list[list[CellText]]:
    """Return the cells as [line][column]."""
    by_column = [list(_column_entries(column, table.lines, visible(table.unit))) for column in table.columns]
    return [[column[number] for column in by_column] for number in range(len(table.lines))]


def _column_entries(column: Column, lines: Sequence[Line], unit: str) -> Iterator[CellText]:
    cells = [line.cells[column.name] for line in lines if column.name in line.cells]
    finite = [cell.mean for cell in cells if isfinite(cell.mean)]
    decimals, tested = _decimals(finite), bool(column.better) and _is_tested(column, lines)
    best = (max if column.better == "higher" else min)(finite, default=None) if column.better else None
    for line in lines:
        cell = line.cells.get(column.name)
        if cell is None:
            yield CellText()
            continue
        low, mean, high = (f"{number:z,.{decimals}f}" for number in (cell.low, cell.mean, cell.high))
        yield CellText(
            mean=mean,
            interval="" if column.name == SECONDS else f"[{low}, {high}]",
            about=_about(cell, unit),
            value=cell.mean,
            best=cell.mean == best,
            # No mark without a test: it would imply that the other methods are significantly worse.
            close=tested and (cell.mean == best if cell.p is None else cell.p >= SIGNIFICANT),
            flattered=column.flattered and line.tuned_on_deletion,
        )


def _is_tested(column: Column, lines: Sequence[Line]) -> bool:
    return any(column.name in line.cells and line.cells[column.name].p is not None for line in lines)


def _decimals(means: Sequence[float]) -> int:
    """Return the same number of decimals for a whole column, so that decimal points line up."""
    largest = max(map(abs, means), default=0.0)
    return 0 if largest >= 10_000 else 1 if largest >= 100 else 5 if 0 < largest < 0.01 else 3


def _about(cell: Estimate, unit: str) -> str:
    n = f"{cell.n:,} {unit}{'s' * (cell.n != 1)}"
    return n if cell.p is None else f"{n}; p {'< 0.001' if cell.p < 0.001 else f'= {cell.p:.3f}'}"


def legend(table: BenchTable) -> list[str]:
    """Return the meaning of the marks in this table."""
    judged = [column for column in table.columns if column.better]
    directions = {column.better for column in judged}
    flattered = any(column.flattered for column in table.columns)
    lines = [f"[low, high]: 95 % bootstrap interval over {visible(table.unit)}s"]
    if table.trends or any(order in plain_title(column) for column in table.columns for order in ("MoRF", "LeRF")):
        lines.append(ORDERS)
    if directions:
        lines.append(", ".join(f"{ARROWS[way]} {way} is better" for way in sorted(directions)))
        lines.append(f"bold: best of its column; {MARK} not significantly worse than the best (p ≥ {SIGNIFICANT})")
        if not all(_is_tested(column, table.lines) for column in judged):
            lines.append(f"columns without {MARK} were not tested")
    if any(line.tuned_on_deletion for line in table.lines):
        lines.append(f"{STAR} tuned on the deletion curve")
        if flattered:
            lines.append(f"{DAGGER} tuned methods ({STAR}) were tuned on this metric, which flatters them")
    elif flattered:
        lines.append(f"{DAGGER} would flatter tuned methods; this table has none")
    return lines


def markdown(table: BenchTable) -> str:
    """Return a section of GitHub Markdown: facts, table, legend, column descriptions and notes."""
    body = zip(table.lines, entries(table), strict=True)
    lines = [_line([_escape(title) for title in head(table)]), _line(["---", *("---:" for _ in table.columns)])]
    lines += [_line([_escape(name_of(line)), *map(_mark_best, cells)]) for line, cells in body]
    abouts = [f"{title_of(column)}: {visible(column.about)}" for column in table.columns]
    parts = [
        f"## {_escape(table.title)}",
        *([_escape(table.verdict)] if table.verdict else []),
        _list([f"{name}: {short_hash(value)}" for name, value in facts(table)]),
        "\n".join(lines),
        _list(legend(table)),
        *(["Columns:", _list(abouts)] if abouts else []),
        *(["Notes:", _list(table.notes)] if table.notes else []),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {_escape(text)}" for text in texts)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mark_best(entry: CellText) -> str:
    return text_of(replace(entry, mean=f"**{entry.mean}**") if entry.best else entry)


def _escape(text: str) -> str:
    """Escape Markdown, with entities where some parsers ignore a backslash: HTML, formulas and cell borders."""
    text = re.sub(r"[\\`*_\[\]~#]", r"\\\g<0>", visible(text))
    return re.sub(r"[&<>|$]", lambda match: f"&#{ord(match[0])};", text)
