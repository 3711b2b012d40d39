"""The command `show`: display saved results."""

from pathlib import Path
from typing import Annotated, Any

import typer

from whichtoken.cli.options import Differences, Format, How, LevelOption, Numbers, Out, Spreadsheet, make_look
from whichtoken.cli.outputs import sink_of, write_results
from whichtoken.cli.prompts import ShownRow
from whichtoken.cli.subject import say_written
from whichtoken.errors import UsageError
from whichtoken.results import read_results


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Results that `explain --out` wrote.")],
    form: Format = None,
    out: Out = None,
    level: LevelOption = "word",
    difference: Differences = False,
    numbers: Numbers = False,
    how: How = "bilinear",
    row: ShownRow = None,
    spreadsheet: Spreadsheet = False,
) -> None:
    from whichtoken.render.review import by_input

    texts = by_input(read_results(file))
    if not texts:
        raise UsageError(f"{file} has no results")
    results: list[Any] = [group for text in texts for group in text.groups]
    n_images = sum(text.record.picture is not None for text in texts)
    look = make_look(level, difference, numbers, how, row)
    sink = sink_of(form, out, look, len(texts) - n_images, n_images, spreadsheet=spreadsheet)
    progress = write_results(results, sink)
    if progress.finished:
        say_written(out)
