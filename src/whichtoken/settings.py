"""Values against annotations: whether they fit, for the few kinds of annotation that records and settings have."""

import math
import re
from collections.abc import Mapping
from dataclasses import Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from whichtoken.errors import BadSetting, UnknownName

_T = TypeVar("_T")


def has_type(value: Any, hint: Any) -> bool:
    """An int is a float, True is neither."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin in (Union, UnionType):
        return any(has_type(value, part) for part in parts)
    if origin is tuple:
        whole = isinstance(value, tuple) and (parts[-1] is ... or len(value) == len(parts))
        return whole and all(has_type(item, parts[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, origin or hint) and (hint is bool or not isinstance(value, bool))


Presets = Mapping[str, Mapping[str, object]]


def build(cls: type[_T], owner: str, presets: Presets, preset: str | None, settings: Mapping[str, Any]) -> _T:
    """A dataclass of settings; those given win over the preset's, and the defaults are the recommended ones.

    UnknownName and BadSetting say what is wrong.
    """
    presets = {"recommended": {}, **presets}
    if preset is not None and preset not in presets:
        raise UnknownName(f"preset of {owner}", preset, presets)
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for setting in settings:
        if setting not in known:
            raise UnknownName(f"setting of {owner}", setting, known)
    hints = get_type_hints(cls)
    given = {name: tuple(v) if _wants_tuple(v, hints[name]) else v for name, v in settings.items()}
    chosen = {**presets[preset or "recommended"], **given}
    check_settings(cls, owner, chosen)
    return cls(**chosen)


def _wants_tuple(value: Any, hint: Any) -> bool:
    return isinstance(value, list) and not has_type(value, hint) and has_type(tuple(value), hint)


def check_settings(cls: type, owner: str, values: Mapping[str, object]) -> None:
    """Types as annotated. Metadata may add {"least": number}; for strings {"form": pattern, "forms": in words};
    {"shares": True}, for numbers that must be above 0 and at most 1; and {"how": in words} where a type does not say
    how to come by a value.
    """
    hints = get_type_hints(cls)
    for f in fields(cls):
        if f.name in values:
            _check(f, hints[f.name], f"{owner}: {f.name}", values[f.name])


def _check(f: Field[Any], hint: Any, setting: str, value: Any) -> None:
    if not has_type(value, hint):
        raise BadSetting(setting, value, _allowed(f, hint))
    if isinstance(value, str) and not re.fullmatch(f.metadata.get("form", ".*"), value):
        raise BadSetting(setting, value, _allowed(f, hint))
    if isinstance(value, float) and not math.isfinite(value):
        raise BadSetting(setting, value, "finite")
    if "least" in f.metadata and isinstance(value, int | float) and not value >= f.metadata["least"]:
        raise BadSetting(setting, value, f"at least {f.metadata['least']}")
    alone = isinstance(value, int | float) and has_type(0.5, hint)  # a whole number may count something else
    shares = value if isinstance(value, tuple) else (value,) if alone else None
    if f.metadata.get("shares") and shares is not None and not (shares and all(0 < v <= 1 for v in shares)):
        raise BadSetting(setting, value, "one or more numbers above 0 and at most 1")


def _allowed(f: Field[Any], hint: Any) -> str:
    if "how" in f.metadata:
        return str(f.metadata["how"])
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    said = []
    for part in parts:
        if get_origin(part) is Literal:
            choices = ", ".join(repr(choice) for choice in get_args(part))
            said.append(f"one of {choices}" if len(get_args(part)) > 1 else choices)
        elif part is str and "forms" in f.metadata:
            said.append(f.metadata["forms"])
        else:
            said.append("None" if part is NoneType else f"of type {_name(part)}")
    return ", or ".join(said)


def _name(hint: Any) -> str:
    return str(hint) if get_args(hint) else getattr(hint, "__name__", str(hint))
