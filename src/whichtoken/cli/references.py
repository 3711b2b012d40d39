"""The commands `references build` and `references show`."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import whichtoken
from whichtoken.cli.inputs import parsed_settings
from whichtoken.cli.options import DEBUG, Columns, Model, Settings
from whichtoken.cli.subject import open_subject, say
from whichtoken.errors import UnknownName
from whichtoken.render.rows import visible

if TYPE_CHECKING:
    from whichtoken.models import Subject
    from whichtoken.references import ReferenceLibrary

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
    subject = open_subject(model, None)
    library = _build_library(subject, texts, out, _Building(column, label, settings or []))
    _say_summary(library.summary())
    say(f"written to {out}; use it with --references {out}")


@references_app.command("show", epilog=DEBUG, help="What a reference library holds.")
def references_show(folder: Annotated[Path, typer.Argument(metavar="FOLDER")]) -> None:
    _say_summary(whichtoken.references.load(folder).summary())


def _say_summary(summary: str) -> None:
    """A library may come from elsewhere, and so its labels."""
    typer.echo("\n".join(visible(line) for line in summary.split("\n")))


@dataclass(frozen=True)
class _Building:
    """How a corpus is read and which of its texts are kept."""

    columns: Sequence[str] | None
    label: str | None
    settings: Sequence[str]


def _build_library(subject: "Subject", source: Path, out: Path, options: _Building) -> "ReferenceLibrary":
    from whichtoken.references import Recipe, build

    settings = parsed_settings(options.settings)
    known = ["preset", *(f.name for f in fields(Recipe))]
    for setting in settings:
        if setting not in known:
            raise UnknownName("setting of references build", setting, known)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        library = build(subject, source, options.label, columns=options.columns, out=out, **settings)
    for warning in caught:
        say(str(warning.message))
    return library
