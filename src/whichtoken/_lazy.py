"""Import public names on first use, so that `import whichtoken` does not import torch.

The names are listed once, in the stub file (`__init__.pyi`) beside a package's `__init__.py`, where type checkers and
editors read them too.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str, init_file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package whose stub has only `from ... import x as x`."""
    stub = ast.parse(Path(init_file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module or package for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted(homes)

    return load, names, names()
