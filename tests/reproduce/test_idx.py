"""read_idx: the format of MNIST."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from whichtoken.errors import BadInput
from whichtoken.reproduce.idx import read_idx


def test_an_array_is_read_gzipped_or_not(tmp_path: Path) -> None:
    raw = b"\0\0\x08\x03" + b"".join(n.to_bytes(4) for n in (2, 1, 3)) + bytes(range(6))
    (tmp_path / "plain").write_bytes(raw)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(raw))
    for name in ("plain", "packed.gz"):
        array = read_idx(tmp_path / name)
        assert array.dtype == np.uint8
        assert array.tolist() == [[[0, 1, 2]], [[3, 4, 5]]]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no idx", encoding="utf-8")
    with pytest.raises(BadInput, match="is not an idx file of bytes: it begins with b'no i'"):
        read_idx(tmp_path / "text")
