"""The list of commands. Each command has its own file, which parses, calls the library and prints."""

from typing import Annotated

import typer

import whichtoken
from whichtoken.cli.bench import bench
from whichtoken.cli.compare import compare
from whichtoken.cli.corpus import corpus_app
from whichtoken.cli.corpus_bench import corpus_bench
from whichtoken.cli.explain import explain
from whichtoken.cli.heads import heads_app
from whichtoken.cli.methods import methods
from whichtoken.cli.metrics import metrics
from whichtoken.cli.model import model
from whichtoken.cli.options import DEBUG
from whichtoken.cli.references import references_app
from whichtoken.cli.serve import serve
from whichtoken.cli.show import show

app = typer.Typer(
    name="whichtoken",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Find out which tokens influenced a Transformer's output, and how far to trust the explanation.",
    epilog=f"Try: whichtoken explain 'It is very slow.' {DEBUG}",
)

COMMANDS = (
    (explain, "Explain texts, answers or images. Shows which tokens support the label and which oppose it.", ""),
    (compare, "Compare methods on one input. Prints one line per method, with its deletion score.", ""),
    (
        bench,
        "Measure faithfulness on many inputs. Produces a table with intervals and tests, curves and a report.",
        "If interrupted, run the same command again to resume. ",
    ),
    (methods, "List the methods, or describe one.", ""),
    (metrics, "List the metrics of faithfulness.", ""),
    (model, "Describe a model. Lists its architecture, layers, labels and supported methods.", ""),
    (show, "Show results saved as json or jsonl.", ""),
    (serve, "Open a web page for exploring explanations.", ""),
)
for _command, _help, _note in COMMANDS:
    app.command(help=_help, epilog=f"{_note}{DEBUG}")(_command)
corpus_app.command(
    "bench",
    help="Measure faithfulness on many files, with several workers. Writes the folder that bench writes.",
    epilog=f"If interrupted, run the same command again to resume. {DEBUG}",
)(corpus_bench)
app.add_typer(corpus_app, name="corpus", help="Explain and measure whole corpora, and summarise the explanations.")
app.add_typer(references_app, name="references", help="Build or show references for Contrast-CAT.")
app.add_typer(heads_app, name="heads", help="Build or show the head mask for Mask-LRP.")


@app.callback(invoke_without_command=True)
def _whichtoken(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"whichtoken {whichtoken.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
