"""Decode JSON into frozen dataclasses; pydantic checks the values, and errors are one line. No torch."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeVar

from whichtoken.boundary import describe_failure, read_text, while_reading
from whichtoken.errors import BadArtifact, WhichTokenError, show

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_T = TypeVar("_T")
Place = tuple[int | str, ...]  # the keys and indices that lead to a value
DEPTH = 64  # levels of nesting: far more than any artifact has, and far fewer than recursion allows


def read_json(path: Path) -> Any:
    """Return the parsed content of a JSON file; raise BadArtifact with the file's name if it cannot be read."""
    text = read_text(path)
    try:
        return parse_json(text)
    except BadArtifact as error:
        raise BadArtifact(f"{path} cannot be read: {error}") from error


def parse_json(text: str, what: str = "JSON") -> Any:
    """Parse strict JSON; what `json.loads` accepts and nothing here can use raises BadArtifact, see `check_plain`."""
    try:
        parsed = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadArtifact(f"expected {what}, found {text[:40]!r}: {describe_failure(error)}") from error
    check_plain(parsed)
    return parsed


def check_plain(parsed: Any) -> None:
    """Raise BadArtifact for infinity, numbers beyond 64 bits, halves of surrogate pairs and very deep nesting."""
    waiting: list[tuple[Place, Any]] = [((), [parsed])]
    while waiting:
        place, container = waiting.pop()
        if len(place) > DEPTH:
            raise BadArtifact(f"{_shown(place)} is nested too deeply: more than {DEPTH} levels")
        is_object = isinstance(container, dict)
        for key, value in container.items() if is_object else enumerate(container):
            if isinstance(value, dict | list):
                waiting.append(((*place, key), value))
            elif (wrong := _wrong_leaf(value)) or (is_object and (wrong := _wrong_leaf(key))):
                raise BadArtifact(f"{_shown((*place, key))} {wrong}")


def _wrong_leaf(value: str | float | None) -> str:
    """Return what is wrong with a string or number, or an empty string."""
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        return f"holds half of a surrogate pair, which is not a character: {value!r:.40}"
    if isinstance(value, float) and not math.isfinite(value):
        return "is infinite; numbers must be finite"
    if isinstance(value, int) and value.bit_length() > 63:
        return "is a whole number of more than 64 bits"
    return ""


def _shown(place: Place) -> str:
    """Return a place of `check_plain`, which puts everything into a list first."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place[1:])[:60]
    return path.removeprefix(".").encode(errors="backslashreplace").decode() or "it"


def decode_record(cls: type[_T], parsed: Any, schema: int, *, defaults: bool = False) -> _T:
    """Decode an object that also states its record type and schema; see `decode`."""
    name = cls.__name__
    stamp = (parsed.get("record"), parsed.get("schema")) if isinstance(parsed, dict) else (parsed, None)
    if stamp != (name, schema):
        record, number = (part if isinstance(part, str) else show(part, 40) for part in stamp)
        raise BadArtifact(f"expected the JSON of one {name}, schema {schema}; found {record:.40} of schema {number}")
    values = {key: value for key, value in parsed.items() if key not in ("record", "schema")}
    return decode(cls, values, defaults=defaults)


def decode(cls: type[_T], parsed: Any, *, defaults: bool = False) -> _T:
    """Build a dataclass and those nested in it from parsed JSON; raise BadArtifact if a value has the wrong type.

    Lists become tuples; an int fits a float, and True fits neither. With `defaults`, fields that have a default may be
    missing; otherwise the JSON must have every field. Errors of the dataclass's own checks become BadArtifact, too.
    """
    from pydantic import ValidationError

    hint: Any = cls
    with while_reading(cls.__name__):
        try:
            text = json.dumps([parsed], allow_nan=False)  # a number such as 1e999 is parsed as infinity
        except ValueError as error:
            raise BadArtifact(f"{cls.__name__}: {error}; numbers must be finite") from error
        try:
            (decoded,) = _adapter(hint).validate_json(text)
        except ValidationError as error:
            raise _first_error(cls.__name__, error, parsed) from error
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
    causes = [
        e.get("ctx", {}).get("error") for e in errors
    ]  # of a union, only the fitting type got so far as its check
    for cause in (cause for cause in causes if isinstance(cause, WhichTokenError)):
        return cause
    path = _format_path(first["loc"][1:], parsed)
    if first["type"] == "missing":
        return BadArtifact(f"{name}: {path} is missing")
    if first["type"] == "unexpected_keyword_argument":
        return BadArtifact(f"{name}: {path} is not a known field")
    same = [e["msg"] for e in errors if _format_path(e["loc"][1:], parsed) == path]  # one for each type of a union
    expected = ", or ".join(re.sub(r"^\w+ should (be|have) ", "", message) for message in same)
    return BadArtifact(f"{name}: {path or 'it'} is {show(first['input'], 60)}; expected {expected}")


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
