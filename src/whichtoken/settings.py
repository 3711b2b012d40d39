"""Dataclasses of settings: presets, and values checked against annotations and the metadata of fields. No torch."""

import math
import re
from collections.abc import Mapping
from dataclasses import Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from whichtoken.decode import fits
from whichtoken.errors import BadSetting, UnknownName

_T = TypeVar("_T")

Presets = Mapping[str, Mapping[str, object]]


def make_settings(cls: type[_T], owner: str, presets: Presets, preset: str | None, settings: Mapping[str, Any]) -> _T:
    """A dataclass of settings; those given win over the preset's, and the defaults are the recommended ones.

    UnknownName and BadSetting say what is wrong.
    """
    presets = {"recommended": {}, **presets}
    if preset is not None and preset not in presets:
        raise UnknownName(f"preset of {owner}", preset, presets)
    hints = {f.name: get_type_hints(cls)[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    for setting in settings:
        if setting not in hints:
            raise UnknownName(f"setting of {owner}", setting, hints)
    given = {name: tuple(v) if _wants_tuple(v, hints[name]) else v for name, v in settings.items()}
    chosen = {**presets[preset or "recommended"], **given}
    check_settings(cls, owner, chosen)
    return cls(**chosen)


def _wants_tuple(value: Any, hint: Any) -> bool:
    return isinstance(value, list) and not fits(value, hint) and fits(tuple(value), hint)


def check_settings(cls: type, owner: str, values: Mapping[str, object]) -> None:
    """Types as annotated. Metadata may add {"least": number}; for strings {"form": pattern, "forms": in words};
    {"shares": True}, for numbers that must be above 0 and at most 1; and {"how": in words} where a type does not say
    how to come by a value.
    """
    hints = get_type_hints(cls)
    for f in fields(cls):
        if f.name in values:
            value = values[f.name]
            if (allowed := _refused(f, hints[f.name], value)) is not None:
                raise BadSetting(f"{owner}: {f.name}", value, allowed)


def _refused(f: Field[Any], hint: Any, value: Any) -> str | None:
    """What would be allowed, if the value is not; otherwise None."""
    if isinstance(value, float) and not math.isfinite(value) and fits(0.5, hint):
        return "finite"
    if not fits(value, hint) or (isinstance(value, str) and not re.fullmatch(f.metadata.get("form", ".*"), value)):
        return _allowed(f, hint)
    if "least" in f.metadata and isinstance(value, int | float) and not value >= f.metadata["least"]:
        return f"at least {f.metadata['least']}"
    alone = isinstance(value, int | float) and fits(0.5, hint)  # a whole number may count something else
    shares = value if isinstance(value, tuple) else (value,) if alone else None
    if f.metadata.get("shares") and shares is not None and not (shares and all(0 < v <= 1 for v in shares)):
        return "one or more numbers above 0 and at most 1"
    return None


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
