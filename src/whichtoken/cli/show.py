"""The command `show`: display saved results."""

from pathlib import Path
from typing import Annotated, Any

import typer

from whichtoken.cli.options import Differences, Format, How, LevelOption, Numbers, Out, make_look
from whichtoken.cli.outputs import sink_of, write_results
from whichtoken.cli.subject import say_written
from whichtoken.results import read_results


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    form: Format = None,
    out: Out = None,
    level: LevelOption = "word",
    difference: Differences = False,
    numbers: Numbers = False,
    how: How = "bilinear",
) -> None:
    from whichtoken.render.rows import group_results

    results: list[Any] = group_results(read_results(file))
    n_images = sum(next(iter(result.values())).picture is not None for result in results)
    look = make_look(level, difference, numbers, how)
    progress = write_results(results, sink_of(form, out, look, len(results) - n_images, n_images))
    if progress.finished:
        say_written(out)
