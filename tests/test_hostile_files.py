"""Whatever a file holds, reading it ends in a result or in one line of ours that names the file."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whichtoken.errors import BadArtifact, BadInput, UsageError, WhichTokenError
from whichtoken.reading import read_text, reading


def fail_deep() -> None:
    fail_deep()


def fail_long() -> None:
    int("9" * 5000)


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (fail_deep, "x.json cannot be read: nested too deeply"),
        (fail_long, "x.json cannot be read: a whole number has too many digits"),
        (lambda: float(10**400), "x.json cannot be read: int too large to convert to float"),
        (lambda: "a\ud800".encode(), r"x.json cannot be read: it holds '\ud800', half of a surrogate pair"),
        (lambda: b"ab\xff".decode(), "x.json cannot be read: not UTF-8 (byte 2)"),
        (lambda: b"\xff\xfe\x00".decode("utf-16"), "x.json cannot be read: not UTF-16"),
        (lambda: os.open("/nowhere", os.O_RDONLY), "x.json cannot be read: No such file or directory"),
        (lambda: {}["a"], "x.json cannot be read: KeyError 'a'"),
        (lambda: json.loads("{\n"), "x.json cannot be read: Expecting property name"),
        (lambda: 1 // 0, "x.json cannot be read: integer division or modulo by zero"),
    ],
)
def test_whatever_is_raised_becomes_one_line_that_names_the_file(fail: Callable[[], object], message: str) -> None:
    for kind in (BadArtifact, BadInput):
        with pytest.raises(kind) as caught, reading(Path("x.json"), kind):
            fail()
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is not None


def test_our_own_errors_get_the_name_of_the_file_once() -> None:
    with pytest.raises(BadArtifact, match=r"^x\.json: order is not allowed$"), reading("x.json"):
        raise UsageError("order is not allowed")
    with pytest.raises(BadInput, match=r"^x\.json, row 3 is empty$"), reading("x.json", BadInput):
        raise BadInput("x.json, row 3 is empty")


def test_a_generator_may_yield_inside_and_its_consumer_keeps_its_errors() -> None:
    def rows() -> Iterator[int]:
        with reading("x.json"):
            yield 1
            raise ValueError("half a row")

    with pytest.raises(ZeroDivisionError):
        for row in rows():
            row / 0
    with pytest.raises(BadArtifact, match="half a row"):
        list(rows())


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "pipe", "pipe cannot be read: it is a pipe or a device"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(WhichTokenError, match=message):
            read_text(path)
