"""Methods by name: registering, finding, and building them from presets and settings."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from whichtoken.core.trace import Method
from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.settings import Presets, check_settings, make_settings

ENTRY_POINTS = "whichtoken.methods"  # group in which other packages name modules that register methods

_methods: dict[str, type[Method]] = {}
_M = TypeVar("_M", bound=type[Method])


def register(name: str, *, paper: str, presets: Presets | None = None) -> Callable[[_M], _M]:
    """Class decorator: make a method known under `name`. `presets`: settings that differ from the defaults, by name."""

    def add(method: _M) -> _M:
        method.name, method.paper, method.presets = name, paper, presets or {}
        if _methods.setdefault(name, method) is not method:
            raise UsageError(f"method {name!r} is registered already, by {_methods[name]!r}")
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
    """Build a method: `method("attcat", preset="repo", mask_special=False)`. Settings win over the preset."""
    cls = find(name)
    return make_settings(cls, name, cls.presets, preset, settings)


def parse(text: str, **settings: Any) -> Method:
    """`"attcat"` or `"attcat@repo"`, and settings that win over the preset."""
    name, at, preset = text.partition("@")
    return method(name, preset if at else None, **settings)


def check(built: Method) -> None:
    """Raise BadSetting when a setting does not have its declared type, choice or range."""
    check_settings(type(built), built.name, built.settings)


def chosen_methods(methods: Iterable[str | Method]) -> dict[str, Method]:
    """By the string that was passed, or by the method's label."""
    if isinstance(methods, str | Method):
        raise UsageError(f"methods is {methods!r}; put it in a list: [{methods!r}]")
    if not isinstance(methods, Iterable):
        raise BadSetting("methods", methods, "a list of method names")
    chosen: dict[str, Method] = {}
    for item in methods:
        if isinstance(item, type) or not isinstance(item, str | Method):
            raise BadSetting("methods", item, "method names, or what whichtoken.method(...) returns")
        method = parse(item) if isinstance(item, str) else item
        check(method)
        key = item if isinstance(item, str) else method.label
        if chosen.setdefault(key, method) != method:
            raise UsageError(f"two different methods are called {key!r}, and results have one name each; ask for one")
    if not chosen:
        raise BadSetting("methods", methods, "at least one method")
    return chosen


@cache
def _load_all() -> None:
    """Whichtoken's own methods come in by the same door as those of other packages."""
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
