"""Options that several commands have, and how lists are printed."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from whichtoken.cli.outputs import FORMATS
from whichtoken.render.rows import Look

LINE = 200  # characters
DEBUG = "An error is one line; add --debug to see where it comes from."

Model = Annotated[
    str | None,
    typer.Option("--model", help="Folder or hub name of a classifier; by default the one that comes with whichtoken."),
]
References = Annotated[
    Path | None,
    typer.Option("--references", help="Folder of the model's reference library (see: references build)."),
]
Heads = Annotated[
    Path | None,
    typer.Option("--heads", help="File of the model's head mask (see: heads build)."),
]
Target = Annotated[
    str | None,
    typer.Option("--target", help="Label to explain, by name or index, or an answer; by default the predicted one."),
]
Against = Annotated[
    str | None,
    typer.Option("--against", help="With --target: why that label rather than this one."),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help=f"{', '.join(FORMATS)}; by default what the ending of --out says, or terminal."),
]
Out = Annotated[Path | None, typer.Option("--out", help="File to write, whole or not at all.")]
LevelOption = Annotated[str, typer.Option("--level", help="word, or token as the model reads them.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("-o", metavar="SETTING=VALUE", help="A setting of the methods (see: methods NAME); repeatable."),
]
Numbers = Annotated[bool, typer.Option("--numbers", help="Print shares beside the words.")]
Differences = Annotated[bool, typer.Option("--difference", help="Also the first method minus each other one.")]
How = Annotated[str, typer.Option("--how", help="Of images: bilinear, smooth between patches; or patch by patch.")]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Column of the texts in --file; twice for pairs. The usual names are found."),
]


def print_list(shown: RenderableType) -> None:
    """A pipe has no width, so lines stay whole."""
    console = Console()
    (console if console.is_terminal else Console(width=LINE)).print(shown)


def make_look(level: str, differences: bool, numbers: bool, how: str = "bilinear") -> Look:
    return Look(level, differences, numbers, how=how)  # type: ignore[arg-type]  # Look says what is allowed
