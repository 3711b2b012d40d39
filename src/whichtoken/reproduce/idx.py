"""Reading images and labels in the format of MNIST and Fashion-MNIST."""

import gzip
import struct
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from whichtoken.boundary import while_reading
from whichtoken.errors import BadInput


def read_idx(path: str | Path) -> Any:
    """Return the array in an idx file of bytes (MNIST's format), gzipped or not."""
    with while_reading(path, BadInput), Path(path).expanduser().open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        return _read_array(gzip.open(file) if packed else file, path)


def _read_array(file: "IO[bytes] | gzip.GzipFile", path: str | Path) -> Any:
    """Read what the shape says and no more, so that a small gzipped file cannot fill the memory."""
    start = file.read(4)
    if start[:3] != b"\0\0\x08" or len(start) < 4:
        raise BadInput(f"{path} is not an idx file of bytes: it begins with {start!r}")
    shape = struct.unpack(f">{start[3]}I", file.read(4 * start[3]))
    content = bytearray(file.read(prod(shape)))
    if len(content) != prod(shape) or file.read(1):
        size = f"{len(content)} bytes" if len(content) < prod(shape) else "more bytes"
        raise BadInput(f"{path} has {size}; its shape is {shape}")
    return np.frombuffer(content, np.uint8).reshape(shape)
