"""Replies as JSON. No torch."""

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from whichtoken.records import Attribution


def to_bytes(reply: Any) -> bytes:
    """Encode a reply on one line; records are written as `to_json` writes them."""
    return json.dumps(_plain(reply), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Attribution):
        return json.loads(value.to_json())
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(part) for name, part in vars(value).items()}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
