"""The command `methods`: the list of methods, or a page about one. It does not import torch."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from whichtoken.catalogue import catalogue
from whichtoken.cli.options import print_list
from whichtoken.errors import UnknownName
from whichtoken.render.terminal import table_view


def methods(name: Annotated[str | None, typer.Argument(metavar="NAME")] = None) -> None:
    print_list(_method_list() if name is None else _method_page(name))


def _method_list() -> RenderableType:
    head = ("method", "paper", "reads", "asks the model for", "deterministic", "tuned on deletion")
    rows = [
        (e.name, e.paper, e.reads, e.asks, e.deterministic, "yes" if e.tuned_on_deletion else "no") for e in catalogue()
    ]
    notes = (
        "\nreads: of one forward and one backward pass that all methods share; d is the gradient. Relevance takes one "
        "more pass for each set of rules (in brackets). tuned on deletion: looks at the deletion curve, so "
        "deletion scores flatter it.\nMore: whichtoken methods NAME"
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
        ("asks", entry.asks),
        ("deterministic", entry.deterministic),
        ("tuned on deletion", "yes: its deletion scores flatter it" if entry.tuned_on_deletion else "no"),
        ("presets", ", ".join(f"{name}@{preset}" for preset in entry.presets) or "none"),
    ]
    settings = [(f"-o {key}=...", f"default {value}") for key, value in entry.settings.items()]
    return Group(Text(entry.about, style="bold"), table_view(("", ""), [*facts, *settings]))
