"""Decode JSON into frozen dataclasses; pydantic checks the values, and errors are one line. No torch."""

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
    """Return the parsed content of a JSON file; raise BadArtifact with the file's name if it cannot be read."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadArtifact(f"{path} cannot be read: not UTF-8") from error
    except OSError as error:
        raise BadArtifact(f"{path} cannot be read: {error.strerror or error}") from error
    except BadArtifact as error:
        raise BadArtifact(f"{path} cannot be read: {error}") from error


def parse_json(text: str, what: str = "JSON") -> Any:
    """Parse strict JSON: NaN and Infinity, which `json.loads` accepts, raise BadArtifact."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadArtifact(f"expected {what}, found {text[:40]!r}: {error}") from error


def decode_record(cls: type[_T], parsed: Any, schema: int, *, defaults: bool = False) -> _T:
    """Decode an object that also states its record type and schema; see `decode`."""
    name = cls.__name__
    stamp = (parsed.get("record"), parsed.get("schema")) if isinstance(parsed, dict) else (f"{parsed!r:.40}", None)
    if stamp != (name, schema):
        raise BadArtifact(f"expected the JSON of one {name}, schema {schema}; found {stamp[0]} of schema {stamp[1]}")
    values = {key: value for key, value in parsed.items() if key not in ("record", "schema")}
    return decode(cls, values, defaults=defaults)


def decode(cls: type[_T], parsed: Any, *, defaults: bool = False) -> _T:
    """Build a dataclass and those nested in it from parsed JSON; raise BadArtifact if a value has the wrong type.

    Lists become tuples; an int fits a float, and True fits neither. With `defaults`, fields that have a default may be
    missing; otherwise the JSON must have every field. Errors of the dataclass's own checks propagate.
    """
    from pydantic import ValidationError

    hint: Any = cls
    try:
        text = json.dumps([parsed], allow_nan=False)  # a number such as 1e999 is parsed as infinity
        (decoded,) = _adapter(hint).validate_json(text)
    except ValidationError as error:
        raise _first_error(cls.__name__, error, parsed) from error
    except (ValueError, RecursionError) as error:
        raise BadArtifact(f"{cls.__name__}: {error}; numbers must be finite") from error
    if not defaults and (gap := next(_missing_fields(decoded, parsed), None)) is not None:
        raise BadArtifact(f"{cls.__name__}: {_format_path(gap, parsed)} is missing")
    record: _T = decoded
    return record


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value has the annotated type. An int fits float, True fits neither; NaN and infinity do not."""
    from pydantic import ValidationError

    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, SupportsFloat) and not isinstance(item, int | float):
            return False  # a tensor or NumPy's float32, which pydantic would convert
    try:
        _adapter(hint).validate_python((value,))
    except ValidationError:
        return False
    return True


@cache
def _adapter(hint: Any) -> "TypeAdapter[Any]":
    """Validate a one-item tuple: pydantic takes no configuration for a dataclass, but a tuple passes its own on."""
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
    one_item_tuple: Any = GenericAlias(tuple, (hint,))
    return TypeAdapter(one_item_tuple, config=config)


def _first_error(name: str, error: "ValidationError", parsed: Any) -> WhichTokenError:
    """Return a one-line error about the first invalid value."""
    errors = error.errors(include_url=False)
    first = errors[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, WhichTokenError):
        return cause
    path = _format_path(first["loc"][1:], parsed)
    if first["type"] == "missing":
        return BadArtifact(f"{name}: {path} is missing")
    if first["type"] == "unexpected_keyword_argument":
        return BadArtifact(f"{name}: {path} is not a known field")
    same = [e["msg"] for e in errors if _format_path(e["loc"][1:], parsed) == path]  # one for each type of a union
    expected = ", or ".join(re.sub(r"^\w+ should (be|have) ", "", message) for message in same)
    return BadArtifact(f"{name}: {path or 'it'} is {first['input']!r:.60}; expected {expected}")


def _format_path(place: Sequence[int | str], parsed: Any) -> str:
    """Format a location as `statistics.relations[0].name`, without the union types that pydantic adds to it."""
    path = ""
    for part in place:
        if isinstance(parsed, dict):
            path, parsed = f"{path}.{part}", parsed.get(part)
        elif isinstance(parsed, list) and isinstance(part, int):
            path, parsed = f"{path}[{part}]", parsed[part] if part < len(parsed) else None
    return path.removeprefix(".")


def _missing_fields(decoded: Any, parsed: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the fields that the JSON lacks and that therefore got their defaults."""
    if is_dataclass(decoded):
        for name in (f.name for f in fields(decoded)):
            if name in parsed:
                yield from _missing_fields(getattr(decoded, name), parsed[name], (*place, name))
            else:
                yield (*place, name)
    elif isinstance(decoded, tuple):
        for number, (item, source) in enumerate(zip(decoded, parsed, strict=True)):
            yield from _missing_fields(item, source, (*place, number))
    elif isinstance(decoded, dict):
        for key, item in decoded.items():
            yield from _missing_fields(item, parsed[key], (*place, key))


def _refuse_constant(constant: str) -> None:
    raise BadArtifact(f"the JSON holds {constant}; numbers must be finite")
