"""The commands `references build` and `references show`."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import whichtoken
from whichtoken.cli.inputs import parse_settings
from whichtoken.cli.options import DEBUG, BatchSize, Columns, Device, Dtype, Model, Revision, Trust
from whichtoken.cli.rows import Delimiter, InputFormat, OnBadRowOption, RowOptions, failed_file
from whichtoken.cli.subject import Opening, open_subject, say
from whichtoken.data.sources import DataFile
from whichtoken.errors import UnknownName
from whichtoken.render.rows import visible

if TYPE_CHECKING:
    from whichtoken.models import Subject
    from whichtoken.references import ReferenceLibrary

references_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

RecipeSettings = Annotated[
    list[str] | None,
    typer.Option("-o", metavar="SETTING=VALUE", help="Change a setting, such as n, gamma or preset; repeatable."),
]


@references_app.command(
    "build", epilog=DEBUG, help="Scan texts similar to the training data and keep those that can serve as references."
)
def references_build(
    texts: Annotated[Path, typer.Argument(metavar="FILE", help="Texts: csv, tsv, jsonl, parquet or txt.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    model: Model = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    column: Columns = None,
    label: Annotated[str | None, typer.Option("--label", help="Column with the labels.")] = None,
    delimiter: Delimiter = None,
    input_format: InputFormat = None,
    on_bad_row: OnBadRowOption = "error",
    settings: RecipeSettings = None,
) -> None:
    rows = RowOptions(delimiter, input_format, on_bad_row)
    bad = rows.collector()
    source = rows.open(texts, bad)
    subject = open_subject(model, opening=Opening(trust, device, dtype, revision, batch_size))
    library = _build_library(subject, source, out, _Building(column, label, settings or []))
    _say_summary(library.summary())
    say(f"written to {out}; use it with --references {out}")
    bad.report(failed_file(out))


@references_app.command("show", epilog=DEBUG, help="Describe a reference library.")
def references_show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a reference library.")],
) -> None:
    _say_summary(whichtoken.references.load(folder).summary())


def _say_summary(summary: str) -> None:
    """Print a summary; labels of an untrusted library are made safe to print."""
    typer.echo("\n".join(visible(line) for line in summary.split("\n")))


@dataclass(frozen=True)
class _Building:
    """How a corpus is read and which texts are kept."""

    columns: Sequence[str] | None
    label: str | None
    settings: Sequence[str]


def _build_library(subject: "Subject", source: DataFile, out: Path, options: _Building) -> "ReferenceLibrary":
    from whichtoken.references import Recipe, build

    settings = parse_settings(options.settings)
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
