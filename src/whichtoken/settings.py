"""Build settings dataclasses from presets and check values against annotations and field metadata. No torch."""

import math
import re
from collections.abc import Mapping
from dataclasses import Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from whichtoken.decode import fits
from whichtoken.errors import BadSetting, UnknownName

_T = TypeVar("_T")

Presets = Mapping[str, Mapping[str, object]]


def make_settings(cls: type[_T], owner: str, presets: Presets, preset: str | None, settings: Mapping[str, Any]) -> _T:
    """Build a settings dataclass; `settings` override the preset, and the defaults are the recommended values.

    Raises UnknownName or BadSetting.
    """
    presets = {"recommended": {}, **presets}
    if preset is not None and preset not in presets:
        raise UnknownName(f"preset of {owner}", preset, presets)
    hints = {f.name: _hints_of(cls)[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    for setting in settings:
        if setting not in hints:
            raise UnknownName(f"setting of {owner}", setting, hints)
    overrides = {name: tuple(v) if _wants_tuple(v, hints[name]) else v for name, v in settings.items()}
    values = {**presets[preset or "recommended"], **overrides}
    check_settings(cls, owner, values)
    return cls(**values)


@cache  # methods are built and checked several times in each call
def _hints_of(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls)


def _wants_tuple(value: Any, hint: Any) -> bool:
    return isinstance(value, list) and not fits(value, hint) and fits(tuple(value), hint)


def check_settings(cls: type, owner: str, values: Mapping[str, object]) -> None:
    """Raise BadSetting unless every value has its annotated type and satisfies the metadata of its field.

    Metadata: {"least": number}; for strings {"form": pattern, "forms": its description}; {"shares": True} for numbers
    above 0 and at most 1; {"how": text} to say how to obtain a value where the type does not tell.
    """
    hints = _hints_of(cls)
    for f in fields(cls):
        if f.name in values:
            value = values[f.name]
            if (allowed := _violated_rule(f, hints[f.name], value)) is not None:
                raise BadSetting(f"{owner}: {f.name}", value, allowed)


def _violated_rule(f: Field[Any], hint: Any, value: Any) -> str | None:
    """Return what is allowed if the value is not, otherwise None."""
    if isinstance(value, float) and not math.isfinite(value) and fits(0.5, hint):
        return "finite"
    if isinstance(value, int) and value.bit_length() > 63:
        return "a number of at most 64 bits"
    if not fits(value, hint) or (isinstance(value, str) and not re.fullmatch(f.metadata.get("form", ".*"), value)):
        return _describe_allowed(f, hint)
    if "least" in f.metadata and isinstance(value, int | float) and not value >= f.metadata["least"]:
        return f"at least {f.metadata['least']}"
    is_share = isinstance(value, int | float) and fits(0.5, hint)  # in a field of integers it is a count instead
    shares = value if isinstance(value, tuple) else (value,) if is_share else None
    if f.metadata.get("shares") and shares is not None and not (shares and all(0 < v <= 1 for v in shares)):
        return "one or more numbers above 0 and at most 1"
    return None


def _describe_allowed(f: Field[Any], hint: Any) -> str:
    if "how" in f.metadata:
        return str(f.metadata["how"])
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    choices = []
    for part in parts:
        if get_origin(part) is Literal:
            literals = ", ".join(repr(literal) for literal in get_args(part))
            choices.append(f"one of {literals}" if len(get_args(part)) > 1 else literals)
        elif part is str and "forms" in f.metadata:
            choices.append(f.metadata["forms"])
        else:
            choices.append("None" if part is NoneType else f"of type {_type_name(part)}")
    return ", or ".join(choices)


def _type_name(hint: Any) -> str:
    return str(hint) if get_args(hint) else getattr(hint, "__name__", str(hint))
