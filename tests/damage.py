"""Damage to files for `test_fuzz`: every function takes a random generator and the bytes of a valid file.

Structure is damaged more often than bytes: a JSON file with one value of another type reaches code that a file with a
flipped bit does not.
"""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Damage = Callable[[Random, bytes], bytes]
Place = tuple[int | str, ...]

_MARK = "replaced by raw text in the file"  # stands for what json.dumps cannot write

# As written in a JSON file; some are not JSON.
RAW = [
    "NaN", "-Infinity", "1e999", "-1e999", "9" * 5000, "-" + "9" * 4000, "1." + "1" * 5000, "1e-999999", "-0", "0x10",
    "[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 5000, "[" * 900 + "]" * 900, "[" * 200 + "]" * 200,
    '{"a":' * 300 + "1" + "}" * 300, '"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"a\0b"', '"open', "", "nul",
    '{"a": 1, "a": 2}', '"\\u001b[2J\\u202e\\u2028\\r\\n"', "1" + "0" * 400, '"' + "x" * 300_000 + '"',
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 2**64, 1.5, -1e308, 1e-320, "", " ", "NaN", "a", "é電",
    "\x1b[31m\n\r\0", "../../x", [], {}, [[]], [None], [0, 0], [1, -1], {"a": None}, [1.0] * 50, "0" * 50, "Class",
]  # fmt: skip
# Put between the bytes of a file of any kind.
TOKENS = [
    b"[[[[", b"NaN", b"1e999", b"9" * 5000, b"\\ud800", b'"', b'""', b"'", b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\r",
    b"\n", b"\r\n", b"\t", b",", b"\x85", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xff" * 16, b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x07", b"\x1b[2J", b"(", b")", b"{", b"}", b"x" * 200_000, b"-", b"#", b"\xc3",
]  # fmt: skip
LENGTHS = [0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]


def damage_bytes(draw: Random, content: bytes) -> bytes:
    """Flip bits, cut, repeat, delete or insert; one to three times."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        at, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
        kind = draw.randrange(7)
        if kind == 0 and content:
            flipped = bytearray(content)
            for _ in range(draw.choice([1, 2, 8])):
                flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
            content = bytes(flipped)
        elif kind == 1:
            content = content[:at]
        elif kind == 2:
            content = content[:end] + content[at:]
        elif kind == 3:
            content = content[:at] + content[min(end, at + draw.choice([1, 4, 100])) :]
        elif kind == 4:
            content = content[:at] + draw.choice(LENGTHS).to_bytes(8, "little")[: draw.choice([4, 8])] + content[at:]
        else:
            content = content[:at] + draw.choice(TOKENS) + content[at:]
    return content


def damage_json(draw: Random, content: bytes) -> bytes:
    """Change values, keys or items of a JSON document; now and then, its bytes."""
    if draw.random() < 0.15:
        return damage_bytes(draw, content)
    document, raw = json.loads(content), ""
    for _ in range(draw.choice([1, 1, 2, 3])):
        document, raw = _damage_node(draw, document, raw)
    text = json.dumps(document, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1]))
    return text.replace(json.dumps(_MARK), raw).encode("utf-8", "surrogatepass")


def damage_json_lines(draw: Random, content: bytes) -> bytes:
    """Damage one line as JSON, or the order of the lines."""
    lines = content.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    kind = draw.randrange(10)
    if kind == 0:
        return damage_bytes(draw, content)
    if kind == 1:
        lines.insert(draw.randrange(len(lines)), lines[at])
    elif kind == 2:
        del lines[at]
    else:
        lines[at] = damage_json(draw, lines[at]) + b"\n"
    return b"".join(lines)


def damage_cells(delimiter: bytes) -> Damage:
    """Return a function that changes cells or lines of a table in a text file, or its encoding."""

    def damage(draw: Random, content: bytes) -> bytes:
        kind = draw.randrange(9)
        if kind == 0:
            text = content.decode()
            return text.encode(draw.choice(["utf-16", "utf-16-le", "utf-32", "utf-7", "cp037"]), "replace")
        if kind == 1:
            return content.replace(b"\n", draw.choice([b"\r", b"\r\n", b"\n\n", b"\x0b", b"\x85", b""]))
        if kind == 2:
            return damage_bytes(draw, content)
        lines = content.split(b"\n")
        at = draw.randrange(len(lines))
        if kind == 3:
            lines[at], lines[-2] = lines[-2], lines[at]
            return b"\n".join(lines)
        cells = lines[at].split(delimiter)
        place = draw.randrange(len(cells))
        if kind == 4:
            cells.insert(place, cells[-1])
        elif kind == 5:
            del cells[place]
        else:
            raw = draw.choice([*TOKENS, *(value.encode() for value in RAW if len(value) < 10_000), b"", b" ", b"0"])
            cells[place] = draw.choice([raw, cells[place] + raw, b'"' + raw])
        lines[at] = delimiter.join(cells)
        return b"\n".join(lines)

    return damage


def damage_parquet(draw: Random, content: bytes) -> bytes:
    """Damage the footer, which holds lengths and types, or the pages of data."""
    length = int.from_bytes(content[-8:-4], "little")
    kind = draw.randrange(10)
    if kind == 0:
        return damage_bytes(draw, content)
    if kind == 1:
        return content[:-8] + draw.choice(LENGTHS).to_bytes(8, "little")[:4] + content[-4:]
    data, footer = content[: -8 - length], bytearray(content[-8 - length : -8])
    if kind < 6:  # pages and their headers, with a footer that still fits
        flipped = bytearray(data)
        for _ in range(draw.choice([1, 2, 8])):
            flipped[draw.randrange(4, len(flipped))] ^= 1 << draw.randrange(8)
        return bytes(flipped) + content[-8 - length :]
    for _ in range(draw.choice([1, 1, 2, 4])):
        at = draw.randrange(len(footer))
        huge = draw.choice(
            [b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x40"]
        )
        footer[at : at + 1] = draw.choice([bytes([draw.randrange(256)]), huge, bytes([footer[at] ^ 1]), b""])
        footer = footer or bytearray(b"\0")
    return data + bytes(footer) + len(footer).to_bytes(4, "little") + content[-4:]


def damage_safetensors(draw: Random, content: bytes) -> bytes:
    """Damage the header, which is JSON after its length, more often than the data."""
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    kind = draw.randrange(5)
    if kind == 0:
        return damage_bytes(draw, content)
    if kind == 1:
        return draw.choice([*LENGTHS, length - 1, length + 1]).to_bytes(8, "little") + header + data
    changed = damage_json(draw, header)
    return len(changed).to_bytes(8, "little") + changed + data


def _damage_node(draw: Random, document: Any, raw: str) -> tuple[Any, str]:
    """Damage one node; returns the document and the text that stands for the mark in it."""
    # Few nodes are containers, so half of the time one of those is chosen.
    nodes = list(_nodes(document))
    containers = [(place, node) for place, node in nodes if isinstance(node, list | dict) and node]
    place, node = draw.choice(containers if containers and draw.random() < 0.5 else nodes)
    if isinstance(node, dict) and node and draw.random() < 0.8:
        return _put(document, place, _damage_object(draw, node)), raw
    if isinstance(node, list) and node and draw.random() < 0.8:
        return _put(document, place, _damage_list(draw, node)), raw
    kind = draw.randrange(5)
    if kind == 0 and not raw:
        return _put(document, place, _MARK), draw.choice(RAW)
    if kind == 1:
        return _put(document, place, draw.choice(nodes)[1]), raw  # a value from elsewhere
    if kind == 2 and isinstance(node, int | float):
        return _put(document, place, draw.choice([-node, node + 1, node * 1000, float(node), str(node)])), raw
    return _put(document, place, draw.choice(VALUES)), raw


def _damage_object(draw: Random, node: dict[str, Any]) -> dict[str, Any]:
    keys = list(node)
    one, other = draw.choice(keys), draw.choice(keys)
    kind = draw.randrange(4)
    if kind == 0:
        return {key: value for key, value in node.items() if key != one}
    if kind == 1:
        return {**node, one: node[other], other: node[one]}
    if kind == 2:
        return {**node, draw.choice(["", "x", "\ud800", "__class__", one.upper(), "a\nb", "k" * 5000]): node[one]}
    return {(draw.choice(["", "x", "9"]) if key == one else key): value for key, value in node.items()}


def _damage_list(draw: Random, node: list[Any]) -> list[Any]:
    at = draw.randrange(len(node))
    kind = draw.randrange(5)
    if kind == 0:
        return node[:at] + node[at + 1 :]
    if kind == 1:
        return [*node, node[at]]
    if kind == 2:
        return node[::-1]
    if kind == 3:
        return [*node[:at], draw.choice(VALUES), *node[at + 1 :]]
    return node * draw.choice([0, 2, 50])


def _nodes(document: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    yield place, document
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in parts:
        yield from _nodes(value, (*place, key))


def _put(document: Any, place: Place, value: Any) -> Any:
    """Return a copy of the document with another value in one place."""
    if not place:
        return value
    copied: Any = dict(document) if isinstance(document, dict) else list(document)
    copied[place[0]] = _put(copied[place[0]], place[1:], value)
    return copied
