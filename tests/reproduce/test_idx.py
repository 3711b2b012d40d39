"""read_idx: the format of MNIST."""

import gzip
import tracemalloc
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08", "is not an idx file of bytes: it begins with"),
        (b"\0\0\x08\x03\0\0", "unpack requires a buffer of 12 bytes"),
        (b"\0\0\x08\x01\0\0\0\x03ab", r"has 2 bytes; its shape is \(3,\)"),
        (b"\0\0\x08\x01\0\0\0\x01ab", r"has more bytes; its shape is \(1,\)"),
        (b"\0\0\x08\x09" + b"\xff" * 40, "cannot be read: "),
        (b"\x1f\x8b\x08" + b"\0" * 20, "cannot be read: "),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x03abc")[:-9], "cannot be read: Compressed file ended"),
    ],
    ids=range(7),
)
def test_a_damaged_file_is_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x-ubyte").write_bytes(content)
    with pytest.raises(BadInput, match=rf"x-ubyte .*{message}") as error:
        read_idx(tmp_path / "x-ubyte")
    assert str(error.value).isprintable()


def test_a_folder_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadInput, match="cannot be read"):
            read_idx(path)


def test_no_more_is_unpacked_than_the_shape_says(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x03" + b"\0" * 50_000_000))
    tracemalloc.start()
    with pytest.raises(BadInput, match="has more bytes"):
        read_idx(tmp_path / "bomb.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no idx", encoding="utf-8")
    with pytest.raises(BadInput, match="is not an idx file of bytes: it begins with b'no i'"):
        read_idx(tmp_path / "text")
