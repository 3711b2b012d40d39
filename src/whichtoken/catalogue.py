"""The catalogue of methods that the command line lists, readable without importing torch.

Importing a method imports torch, which is slow, so `catalogue.json` stores what the registry says about each one.
`make catalogue` writes it, and a test compares it with the registry.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "catalogue.json"
GROUP = "whichtoken.methods"


@dataclass(frozen=True)
class MethodInfo:
    """A description of one method, with its default settings."""

    name: str
    paper: str
    about: str
    reads: str  # tensors of the shared pass; "d attention" is the gradient with respect to attention
    asks: str  # what it requests from its probe after that pass
    deterministic: str  # "yes", or "by seed"
    tuned_on_deletion: bool  # it uses outputs without some words, by which it may be evaluated
    presets: tuple[str, ...]
    settings: Mapping[str, Any]  # the serialisable settings and their defaults


def catalogue() -> tuple[MethodInfo, ...]:
    """Return every method, sorted by name. Imports torch only if other packages have registered methods."""
    if any(entry.value.partition(":")[0] != "whichtoken.methods" for entry in entry_points(group=GROUP)):
        return describe_methods()
    return read_stored()


def read_stored() -> tuple[MethodInfo, ...]:
    """Return our own methods, sorted by name."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(MethodInfo(**{**entry, "presets": tuple(entry["presets"])}) for entry in stored)


def describe_methods() -> tuple[MethodInfo, ...]:
    """Describe every method in the registry."""
    from whichtoken.core.registry import find, method_names

    return tuple(_describe_method(find(name)) for name in method_names())


def _describe_method(cls: Any) -> MethodInfo:
    import sys

    from whichtoken.core.trace import describe_setting

    method = cls()
    needs = method.needs
    settings = {f.name: describe_setting(f.default) for f in fields(cls) if "how" not in f.metadata}
    under = sorted(f"relevance of {site} ({rules.name})" for rules, site in needs.relevance)
    parts = [*sorted(needs.values), *(f"d {site}" for site in sorted(needs.grads)), *under]
    return MethodInfo(
        name=cls.name,
        paper=cls.paper,
        about=(sys.modules[cls.__module__].__doc__ or "").strip().partition("\n")[0],
        reads=", ".join(parts) or "nothing",
        asks=", ".join(sorted(needs.asks)) or "nothing",
        deterministic="by seed" if "seed" in settings else "yes",
        tuned_on_deletion=method.tuned_on_deletion,
        presets=tuple(cls.presets),
        settings=settings,
    )


def write() -> None:
    text = json.dumps([asdict(entry) for entry in describe_methods()], indent=1, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
