"""Options shared by several commands, and how lists are printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from whichtoken.cli.completion import one_of
from whichtoken.cli.outputs import FORMATS
from whichtoken.errors import UsageError
from whichtoken.render.rows import Look

LINE = 200  # width of a line in a pipe
METHODS = ("--method", "--methods")  # either name, on every command that takes methods
DEBUG = "Errors are printed as one line; add --debug for the traceback."

Model = Annotated[
    str | None,
    typer.Option("--model", help="Folder or Hugging Face name of a model; default: the bundled classifier."),
]
Trust = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that comes with the model; it can do anything you can."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="Device to run the model on, such as cuda or mps; default: the CPU."),
]
Dtype = Annotated[
    str,
    typer.Option("--dtype", help="Precision: float16, bfloat16, float32 or float64; auto: as stored."),
]
Revision = Annotated[
    str | None,
    typer.Option("--revision", help="Branch, tag or commit of a model on the hub."),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", help="Maximum number of rows that the model reads at once, to save memory."),
]
References = Annotated[
    Path | None,
    typer.Option("--references", help="Folder of the model's reference library (see: references build)."),
]
Heads = Annotated[
    Path | None,
    typer.Option("--heads", help="File of the model's head mask (see: heads build)."),
]
Reading = Annotated[
    str | None,
    typer.Option(
        "--reading",
        help="Read a model's single output as a probability (sigmoid) or a value; default: by its configuration.",
        autocompletion=one_of("probability", "value"),
    ),
]
SpecialTokens = Annotated[
    str,
    typer.Option(
        "--special-tokens",
        help="How special tokens in your texts, such as [SEP], are read: control (default, as in the model's pipeline) "
        "or text.",
        autocompletion=one_of("control", "text"),
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Label (name or index) or answer to explain; default: the predicted one. For prompts: logit or logprob.",
    ),
]
Targets = Annotated[
    str | None,
    typer.Option("--targets", help="Explain several labels, each on its own: comma-separated, or all."),
]
Token = Annotated[
    str | None,
    typer.Option("--token", help="Word whose label is explained, for a token classifier; default: every entity."),
]
Against = Annotated[
    str | None,
    typer.Option("--against", help="With --target: explain why that label and not this one."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"{', '.join(FORMATS)}; default: by the extension of --out, else terminal.",
        autocompletion=one_of(*FORMATS),
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Output file; written completely or not at all.")]
Spreadsheet = Annotated[
    bool,
    typer.Option(
        "--spreadsheet",
        help="For csv: put an apostrophe before texts that a spreadsheet would read as formulas, such as =1+1.",
    ),
]
LevelOption = Annotated[
    str,
    typer.Option("--level", help="Show scores per word or per token.", autocompletion=one_of("word", "token")),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-o", metavar="SETTING=VALUE", help="Change a setting of the methods (see: methods NAME); repeatable."
    ),
]
Numbers = Annotated[
    bool,
    typer.Option(
        "--numbers", help="Print scores next to the words, as shares of the strongest, with intervals if known."
    ),
]
Differences = Annotated[bool, typer.Option("--difference", help="Also show the first method minus each other method.")]
How = Annotated[
    str,
    typer.Option(
        "--how",
        help="For images: bilinear (smooth between patches) or patch.",
        autocompletion=one_of("bilinear", "patch"),
    ),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        min=0,
        help="Measure the output without the strongest word, the two strongest, up to N; default: 3 on a review page.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Column with the texts; repeat for pairs. Common names are recognised."),
]


def single_value(option: str, given: Sequence[str] | None) -> str | None:
    """Return the value of an option that has two names; raise UsageError if it is given twice with different values."""
    values = list(dict.fromkeys(given or ()))
    if len(values) > 1:
        listed = ", ".join(repr(value) for value in values)
        raise UsageError(f"{option} has more than one value: {listed}; separate names by commas: {','.join(values)}")
    return values[0] if values else None


def print_list(content: RenderableType) -> None:
    """Print to the terminal; in a pipe, use a fixed width so that lines are not wrapped."""
    console = Console()
    (console if console.is_terminal else Console(width=LINE)).print(content)


def make_look(level: str, differences: bool, numbers: bool, how: str = "bilinear", row: str | None = None) -> Look:
    return Look(level, differences, numbers, how=how, row=row)  # type: ignore[arg-type]  # checked by Look
