"""The command `methods`: list the methods, or describe one. It does not import torch."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from whichtoken.catalogue import catalogue
from whichtoken.cli.completion import complete_method
from whichtoken.cli.options import print_list
from whichtoken.errors import UnknownName
from whichtoken.render.terminal import table_view


def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Method to describe; default: list all.", autocompletion=complete_method),
    ] = None,
) -> None:
    print_list(_method_list() if name is None else _method_page(name))


def _method_list() -> RenderableType:
    head = ("method", "paper", "reads", "also needs", "deterministic", "tuned on deletion")
    rows = [
        (e.name, e.paper, e.reads, e.asks, e.deterministic, "yes" if e.tuned_on_deletion else "no") for e in catalogue()
    ]
    notes = (
        "\nreads: tensors of the one forward and one backward pass that all methods share; d marks gradients. Each "
        "relevance rule set (in parentheses) takes one more pass. tuned on deletion: uses the deletion curve, which "
        "flatters its deletion scores.\nMore: whichtoken methods NAME"
    )
    return Group(table_view(head, rows), Text(notes, style="dim"))


def _method_page(name: str) -> RenderableType:
    entries = {entry.name: entry for entry in catalogue()}
    if name not in entries:
        raise UnknownName("method", name, entries)
    entry = entries[name]
    facts = [
        ("paper", entry.paper),
        ("reads", entry.reads),
        ("also needs", entry.asks),
        ("deterministic", entry.deterministic),
        ("tuned on deletion", "yes, which flatters its deletion scores" if entry.tuned_on_deletion else "no"),
        ("presets", ", ".join(f"{name}@{preset}" for preset in entry.presets) or "none"),
    ]
    settings = [(f"-o {key}=...", f"default {value}") for key, value in entry.settings.items()]
    return Group(Text(entry.about, style="bold"), table_view(("", ""), [*facts, *settings]))
