"""Methods by name: registering, finding, and building them from presets and settings."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from whichtoken.errors import BadSetting, UnknownName, UsageError
from whichtoken.trace import Method

ENTRY_POINTS = "whichtoken.methods"  # group in which other packages name modules that register methods

_methods: dict[str, type[Method]] = {}
_M = TypeVar("_M", bound=type[Method])


def register(method: _M) -> _M:
    """Class decorator: make the method known under its `name`."""
    if _methods.setdefault(method.name, method) is not method:
        raise UsageError(f"method {method.name!r} is registered already, by {_methods[method.name]!r}")
    return method


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
    chosen: dict[str, object] = {}
    if preset is not None and preset != "recommended":  # the defaults are the recommended settings
        if preset not in cls.presets:
            raise UnknownName(f"preset of {name}", preset, ["recommended", *cls.presets])
        chosen = dict(cls.presets[preset])
    known = [f.name for f in fields(cls)]
    for setting in settings:
        if setting not in known:
            raise UnknownName(f"setting of {name}", setting, known)
    _check(cls, {**chosen, **settings})
    return cls(**{**chosen, **settings})


def parse(text: str) -> Method:
    """`"attcat"` or `"attcat@repo"`."""
    name, at, preset = text.partition("@")
    return method(name, preset if at else None)


def check(built: Method) -> None:
    """Raise BadSetting when a setting does not have its declared type, choice or range."""
    _check(type(built), built.settings)


def _check(cls: type[Method], settings: Mapping[str, object]) -> None:
    hints = get_type_hints(cls)
    for f in fields(cls):
        if f.name not in settings:
            continue
        value, hint, setting = settings[f.name], hints[f.name], f"{cls.name}: {f.name}"
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise BadSetting(setting, value, "one of " + ", ".join(repr(choice) for choice in get_args(hint)))
        elif not isinstance(value, (int | float) if hint is float else hint) or (
            isinstance(value, bool) and hint is not bool
        ):
            raise BadSetting(setting, value, f"of type {getattr(hint, '__name__', hint)}")
        elif "least" in f.metadata and value < f.metadata["least"]:
            raise BadSetting(setting, value, f"at least {f.metadata['least']}")


@cache
def _load_all() -> None:
    """Whichtoken's own methods come in by the same door as those of other packages."""
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
