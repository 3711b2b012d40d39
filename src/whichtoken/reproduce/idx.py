"""Reading images and labels in the format of MNIST and Fashion-MNIST."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np

from whichtoken.errors import BadInput


def read_idx(path: str | Path) -> Any:
    """Return the array in an idx file of bytes (MNIST's format), gzipped or not."""
    raw = Path(path).read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if raw[:3] != b"\0\0\x08":
        raise BadInput(f"{path} is not an idx file of bytes: it begins with {raw[:4]!r}")
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return np.frombuffer(bytearray(raw[4 + 4 * rank :]), np.uint8).reshape(shape)
