"""What there is to know about each method without running it: the list that the command line shows.

Methods need torch to be imported, and a list should not wait for it: `catalogue.json` holds what the registry says.
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
    """With the method's default settings."""

    name: str
    paper: str
    about: str
    reads: str  # of the shared pass; "d attention" is the gradient with respect to attention
    asks: str  # of the model after that
    deterministic: str  # "yes", or "by seed"
    tuned_on_deletion: bool  # it looks at the deletion curve that it may be judged by
    presets: tuple[str, ...]
    settings: Mapping[str, Any]  # that can be written down, and their defaults


def catalogue() -> tuple[MethodInfo, ...]:
    """Every method, by name. Imports torch only if other packages have registered methods."""
    if any(entry.value.partition(":")[0] != "whichtoken.methods" for entry in entry_points(group=GROUP)):
        return described()
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(MethodInfo(**{**entry, "presets": tuple(entry["presets"])}) for entry in stored)


def described() -> tuple[MethodInfo, ...]:
    """What the registry says now."""
    from whichtoken.core.registry import find, method_names

    return tuple(_entry(find(name)) for name in method_names())


def _entry(cls: Any) -> MethodInfo:
    import sys

    from whichtoken.core.trace import written

    method = cls()
    needs = method.needs
    settings = {f.name: written(f.default) for f in fields(cls) if "how" not in f.metadata}
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
    text = json.dumps([asdict(entry) for entry in described()], indent=1, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
