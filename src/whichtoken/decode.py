"""JSON into frozen dataclasses: pydantic checks values against annotations; one line says what is wrong. No torch."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeVar

from whichtoken.errors import BadArtifact, WhichTokenError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_T = TypeVar("_T")
Place = tuple[int | str, ...]  # the keys and indices that lead to a value


def read_json(path: Path) -> Any:
    """What a file holds; BadArtifact names the file."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadArtifact(f"{path} cannot be read: not UTF-8") from error
    except OSError as error:
        raise BadArtifact(f"{path} cannot be read: {error.strerror or error}") from error
    except BadArtifact as error:
        raise BadArtifact(f"{path} cannot be read: {error}") from error


def parse_json(text: str, what: str = "JSON") -> Any:
    """JSON as it is defined: NaN and Infinity are refused, which Python's own reader would accept."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadArtifact(f"expected {what}, found {text[:40]!r}: {error}") from error


def decode_record(cls: type[_T], found: Any, schema: int, *, defaults: bool = False) -> _T:
    """As `decode`, of an object that also says which record and schema it is."""
    name = cls.__name__
    stamp = (found.get("record"), found.get("schema")) if isinstance(found, dict) else (f"{found!r:.40}", None)
    if stamp != (name, schema):
        raise BadArtifact(f"expected the JSON of one {name}, schema {schema}; found {stamp[0]} of schema {stamp[1]}")
    values = {key: value for key, value in found.items() if key not in ("record", "schema")}
    return decode(cls, values, defaults=defaults)


def decode(cls: type[_T], found: Any, *, defaults: bool = False) -> _T:
    """A dataclass, and those inside it, from parsed JSON; BadArtifact if any value does not fit its annotation.

    Lists become tuples; an int fits a float, and True fits neither. `defaults`: fields that have a default may be left
    out; otherwise the JSON must have every field. Errors of the dataclass's own checks are passed on.
    """
    from pydantic import ValidationError

    hint: Any = cls
    try:
        written = json.dumps([found], allow_nan=False)  # a number such as 1e999 is read as infinity
        (made,) = _adapter(hint).validate_json(written)
    except ValidationError as error:
        raise _refusal(cls.__name__, error, found) from error
    except (ValueError, RecursionError) as error:
        raise BadArtifact(f"{cls.__name__}: {error}; numbers must be finite") from error
    if not defaults and (gap := next(_gaps(made, found), None)) is not None:
        raise BadArtifact(f"{cls.__name__}: {_path(gap, found)} is missing")
    checked: _T = made
    return checked


def fits(value: Any, hint: Any) -> bool:
    """Whether a Python value has the annotated type. An int is a float, True is neither; NaN and infinity never fit."""
    from pydantic import ValidationError

    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, SupportsFloat) and not isinstance(one, int | float):
            return False  # a tensor or NumPy's float32, which pydantic would convert
    try:
        _adapter(hint).validate_python((value,))
    except ValidationError:
        return False
    return True


@cache
def _adapter(hint: Any) -> "TypeAdapter[Any]":
    """For a tuple with one item: pydantic takes no settings for a dataclass itself, but passes those of a tuple on."""
    from pydantic import ConfigDict, TypeAdapter

    how = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
    one_of_it: Any = GenericAlias(tuple, (hint,))
    return TypeAdapter(one_of_it, config=how)


def _refusal(name: str, error: "ValidationError", found: Any) -> WhichTokenError:
    """One line about the first place that is wrong."""
    errors = error.errors(include_url=False)
    first = errors[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, WhichTokenError):
        return cause
    path = _path(first["loc"][1:], found)
    if first["type"] == "missing":
        return BadArtifact(f"{name}: {path} is missing")
    if first["type"] == "unexpected_keyword_argument":
        return BadArtifact(f"{name}: {path} is not a known field")
    same = [one["msg"] for one in errors if _path(one["loc"][1:], found) == path]  # one for each type of a union
    expected = ", or ".join(re.sub(r"^\w+ should (be|have) ", "", message) for message in same)
    return BadArtifact(f"{name}: {path or 'it'} is {first['input']!r:.60}; expected {expected}")


def _path(place: Sequence[int | str], found: Any) -> str:
    """As one would write it: `statistics.relations[0].name`. What pydantic adds about types of a union is left out."""
    path = ""
    for part in place:
        if isinstance(found, dict):
            path, found = f"{path}.{part}", found.get(part)
        elif isinstance(found, list) and isinstance(part, int):
            path, found = f"{path}[{part}]", found[part] if part < len(found) else None
    return path.removeprefix(".")


def _gaps(made: Any, found: Any, place: Place = ()) -> Iterator[Place]:
    """Fields that the JSON does not have, so that their defaults were taken."""
    if is_dataclass(made):
        for name in (f.name for f in fields(made)):
            if name in found:
                yield from _gaps(getattr(made, name), found[name], (*place, name))
            else:
                yield (*place, name)
    elif isinstance(made, tuple):
        for number, (one, item) in enumerate(zip(made, found, strict=True)):
            yield from _gaps(one, item, (*place, number))
    elif isinstance(made, dict):
        for key, one in made.items():
            yield from _gaps(one, found[key], (*place, key))


def _refuse(constant: str) -> None:
    raise BadArtifact(f"the JSON holds {constant}; numbers must be finite")
