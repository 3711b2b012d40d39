"""Options of `bench` that choose the protocol and the inputs, as typed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whichtoken.errors import UsageError


def choose_protocol(named: str | None, flags: Mapping[str, bool]) -> str:
    """Return the name of the protocol, which is chosen by one option only. `flags`: options that stand for one."""
    chosen = [f"--{name}" for name, given in flags.items() if given]
    options = [*chosen, *([] if named is None else ["--protocol"])]
    if len(options) > 1:
        raise UsageError(f"{' and '.join(options)} each choose what is measured; give only one of them")
    return chosen[0].removeprefix("--") if chosen else named or "recommended"


def read_prompts(prompts: Path, data: Path | None, task: str | None) -> Path:
    """Return the file of --prompts, which stands for --data FILE --task generate."""
    given = [option for option, value in (("--data", data), ("--task", task)) if value is not None]
    if given:
        raise UsageError(f"--prompts and {' and '.join(given)} both say what the inputs are; give only one of them")
    return prompts


def parse_changes(words: Mapping[str, str | int | None]) -> dict[str, Any]:
    """Return the options that change the protocol; lists are split at commas. Of several levels, the first leads."""
    lists = ("perturbations", "orders", "grids", "metrics", "level")
    changes: dict[str, Any] = {
        name: tuple(part.strip() for part in str(value).split(",") if part.strip()) if name in lists else value
        for name, value in words.items()
        if value is not None
    }
    if levels := changes.pop("level", ()):
        changes |= {"level": levels[0]} | ({"further_levels": levels[1:]} if len(levels) > 1 else {})
    return changes
