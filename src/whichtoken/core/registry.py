"""The registry of methods: register them, find them by name, and build them from presets and settings."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from whichtoken.core.trace import Method
from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.settings import Presets, check_settings, make_settings

ENTRY_POINTS = "whichtoken.methods"  # group in which packages list modules that register methods

_methods: dict[str, type[Method]] = {}
_M = TypeVar("_M", bound=type[Method])


def register(name: str, *, paper: str, presets: Presets | None = None) -> Callable[[_M], _M]:
    """Register the decorated class as method `name`. `presets`: for each, settings that differ from the defaults."""

    def add(method: _M) -> _M:
        method.name, method.paper, method.presets = name, paper, presets or {}
        if _methods.setdefault(name, method) is not method:
            raise UsageError(f"method {name!r} is already registered, by {_methods[name]!r}")
        return method

    return add


def method_names() -> tuple[str, ...]:
    _load_all()
    return tuple(sorted(_methods))


def find(name: str) -> type[Method]:
    if name not in _methods:
        _load_all()
    if name not in _methods:
        raise UnknownName("method", name, method_names())
    return _methods[name]


def method(name: str, preset: str | None = None, **settings: Any) -> Method:
    """Build a method: `method("attcat", preset="repo", mask_special=False)`. Settings override the preset."""
    cls = find(name)
    return make_settings(cls, name, cls.presets, preset, settings)


def parse(text: str, **settings: Any) -> Method:
    """Build a method from `"attcat"` or `"attcat@repo"`, with settings that override the preset."""
    name, at, preset = text.partition("@")
    return method(name, preset if at else None, **settings)


def check(method: Method) -> None:
    """Raise BadSetting if a setting does not have its declared type, choice or range."""
    check_settings(type(method), method.name, method.settings)


def split_names(text: str) -> list[str]:
    """Split "attcat,gae@repo" at commas, except those within parentheses."""
    return [name for part in re.split(r",(?![^()]*\))", text) if (name := part.strip())]


def resolve_methods(methods: str | Method | Iterable[str | Method]) -> dict[str, Method]:
    """Return the methods, keyed by the name that was passed or by the method's label; a string may list several."""
    if isinstance(methods, str):
        methods = split_names(methods)
    elif isinstance(methods, Method) and not isinstance(methods, type):
        methods = [methods]
    if not isinstance(methods, Iterable) or isinstance(methods, Mapping):
        raise BadSetting("methods", methods, "a list of names; settings are given by whichtoken.method(name, ...)")
    resolved: dict[str, Method] = {}
    for item in methods:
        if isinstance(item, type) or not isinstance(item, str | Method):
            raise BadSetting("methods", item, "a list of names, or of results of whichtoken.method(...)")
        if item == "auto":
            raise BadSetting("methods", item, "a name: whichtoken.bench.best_method(subject, texts).method chooses one")
        method = parse(item) if isinstance(item, str) else item
        check(method)
        key = item if isinstance(item, str) else method.label
        if resolved.setdefault(key, method) != method:
            raise UsageError(f"two different methods are called {key!r}, but results are keyed by name; pass only one")
    if not resolved:
        raise BadSetting("methods", methods, "at least one method")
    return resolved


@cache
def _load_all() -> None:
    """Load the methods of all packages; whichtoken's own come through the same entry points."""
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
