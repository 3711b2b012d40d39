"""The commands `references build` and `references show`."""

from pathlib import Path
from typing import Annotated

import typer

import whichtoken
from whichtoken.cli import answers
from whichtoken.cli.options import DEBUG, Columns, Model, Settings
from whichtoken.render.rows import visible

references_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@references_app.command("build", epilog=DEBUG, help="Scan texts like the training texts; keep those to contrast with.")
def references_build(
    texts: Annotated[Path, typer.Argument(metavar="FILE", help="csv, tsv, jsonl, parquet or txt.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make.")],
    model: Model = None,
    column: Columns = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of the labels.")] = None,
    settings: Settings = None,
) -> None:
    subject = answers.opened(model, None)
    library = answers.build_library(subject, texts, out, answers.Building(column, label, settings or []))
    _say_summary(library.summary())
    answers.say(f"written to {out}; use it with --references {out}")


@references_app.command("show", epilog=DEBUG, help="What a reference library holds.")
def references_show(folder: Annotated[Path, typer.Argument(metavar="FOLDER")]) -> None:
    _say_summary(whichtoken.load_references(folder).summary())


def _say_summary(summary: str) -> None:
    """A library may come from elsewhere, and so its labels."""
    typer.echo("\n".join(visible(line) for line in summary.split("\n")))
