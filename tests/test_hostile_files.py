"""Whatever a file holds, reading it ends in a result or in one line of ours that names the file."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.heads.test_heads import wide
from tests.references.test_library import make as library
from tests.test_records import ATTRIBUTION

import whichtoken as wt
from whichtoken.atomic_write import write_whole
from whichtoken.bench.folder import Folder, read_table, table_json
from whichtoken.bench.results import InputResult, MethodResult, Part, PlanResult, Truth
from whichtoken.boundary import read_text, while_reading
from whichtoken.cli.run import main
from whichtoken.errors import BadArtifact, BadInput, UsageError, WhichTokenError
from whichtoken.records import Plan
from whichtoken.results import read_results
from whichtoken.tables import Agreement, BenchTable, Column, Estimate, Line, Trend


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
        ("a\ud800".encode, r"x.json cannot be read: it holds '\ud800', half of a surrogate pair"),
        (b"ab\xff".decode, "x.json cannot be read: not UTF-8 (byte 2)"),
        (lambda: b"\xff\xfe\x00".decode("utf-16"), "x.json cannot be read: not UTF-16"),
        (lambda: os.open("/nowhere", os.O_RDONLY), "x.json cannot be read: No such file or directory"),
        (lambda: dict[str, int]()["a"], "x.json cannot be read: KeyError 'a'"),
        (lambda: json.loads("{\n"), "x.json cannot be read: Expecting property name"),
        (lambda: 1 // 0, "x.json cannot be read: integer division or modulo by zero"),
    ],
)
def test_whatever_is_raised_becomes_one_line_that_names_the_file(fail: Callable[[], object], message: str) -> None:
    for kind in (BadArtifact, BadInput):
        with pytest.raises(kind) as caught, while_reading(Path("x.json"), kind):
            fail()
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is not None


def test_our_own_errors_get_the_name_of_the_file_once() -> None:
    with pytest.raises(BadArtifact, match=r"^x\.json: order is not allowed$"), while_reading("x.json"):
        raise UsageError("order is not allowed")
    with pytest.raises(BadInput, match=r"^x\.json, row 3 is empty$"), while_reading("x.json", BadInput):
        raise BadInput("x.json, row 3 is empty")


def test_a_generator_may_yield_inside_and_its_consumer_keeps_its_errors() -> None:
    def rows() -> Iterator[int]:
        with while_reading("x.json"):
            yield 1
            raise ValueError("half a row")

    with pytest.raises(ZeroDivisionError):
        [row / 0 for row in rows()]
    with pytest.raises(BadArtifact, match="half a row"):
        list(rows())


def save_attribution(folder: Path) -> Path:
    return write_whole(folder / "saved.json", f"[{ATTRIBUTION.to_json()}]")


def save_mask(folder: Path) -> Path:
    return wt.heads.save(wide(), folder / "heads.json")


def save_library(folder: Path) -> Path:
    wt.references.save(library(), folder / "library")
    return folder / "library" / "references.json"


def save_table(folder: Path) -> Path:
    line = Line("gae", False, False, {"auc": Estimate(0.5, 0.4, 0.6, 3, 1.0)})
    trend = Trend("aopc", "morf", "delete", (0.0, 0.5), {"gae": (0.0, 0.1)})
    column = Column("auc", "AUC", "", "lower", plan=Plan())
    agreement = Agreement(("gae",), ((1.0,),))
    table = BenchTable("t", (("model", "m"),), (column,), (line,), (trend,), ("n",), agreement)
    return write_whole(folder / "table.json", table_json(table))


SPEC = {"model": "m", "methods": {"gae": {"settings": {"layers": [1, 2]}}}}


def save_spec(folder: Path) -> Path:
    Folder(folder).claim(SPEC, {"sample": 3})
    return folder / "spec.json"


def save_part(folder: Path) -> Path:
    Folder(folder).claim({}, {})
    removed = tuple(k / 10 for k in range(10))
    result = MethodResult(False, 0.5, 2.0, {"kendall": 0.5}, ((0.5,) * 10,))
    planned = PlanResult(Plan(), removed, 0.25, 0.5, True)
    measured = InputResult(
        0, 0, "a", "k", "b", 0.5, 4, 0, {"gae": result}, (planned,), ((1.0,),), Truth(1, False, True)
    )
    Folder(folder).save_part(0, 0, Part((measured,), 3, 2))
    return folder / "parts" / "000000-000000.json"


@dataclass(frozen=True)
class Artifact:
    save: Callable[[Path], Path]  # into a folder; returns the JSON file
    read: Callable[[Path], object]


ARTIFACTS = {
    "attribution": Artifact(save_attribution, read_results),
    "head mask": Artifact(save_mask, wt.heads.load),
    "reference library": Artifact(save_library, lambda path: wt.references.load(path.parent)),
    "table": Artifact(save_table, read_table),
    "specification": Artifact(save_spec, lambda path: Folder(path.parent).claim(SPEC, {"sample": 4})),
    "part": Artifact(save_part, lambda path: Folder(path.parent.parent).longest_part(0, 0)),
}
CONTENTS = {
    "empty": b"",
    "a byte order mark": b"\xef\xbb\xbf",
    "UTF-16": '{"schema": 3}'.encode("utf-16"),
    "NUL": bytes(100),
    "binary": b"\x80\x81\xff",
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 900 + b"1" + b"}" * 900,
    "nested beyond what is read": b'{"schema": ' + b"[" * 70 + b"]" * 70 + b"}",
    "many digits": b'{"schema": ' + b"9" * 5000 + b"}",
    "digits that overflow": b'{"schema": ' + b"9" * 400 + b"}",
    "infinity": b'{"schema": 1e999}',
    "NaN": b'{"schema": NaN}',
    "half a surrogate pair": b'{"schema": "\\ud800"}',
    "a half name": b'{"\\udfff": 3}',
    "a list": b"[[]]",
    "a number": b"3",
    "null": b"null",
    "half": b'{"schema": 3, "inp',
    "another object": b'{"schema": 99}',
}


@pytest.mark.parametrize("kind", ARTIFACTS)
@pytest.mark.parametrize("content", CONTENTS)
def test_hostile_content_is_refused_in_one_line_that_names_the_file(kind: str, content: str, tmp_path: Path) -> None:
    path = ARTIFACTS[kind].save(tmp_path)
    path.write_bytes(CONTENTS[content])
    check_refused(ARTIFACTS[kind], path, BadArtifact)


@pytest.mark.parametrize("kind", ARTIFACTS)
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = ARTIFACTS[kind].save(tmp_path)
    path.unlink()
    path.mkdir()
    check_refused(ARTIFACTS[kind], path, WhichTokenError)
    path.rmdir()
    os.mkfifo(path)  # opening it would wait for a writer
    check_refused(ARTIFACTS[kind], path, WhichTokenError)


def check_refused(artifact: Artifact, path: Path, error: type[WhichTokenError]) -> None:
    with pytest.raises(error) as caught:
        artifact.read(path)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


HOSTILE = [None, -1, 10**30, 1.5, "\ud800", [], {}, json.loads("[" * 80 + "]" * 80)]


def changed(document: Any) -> Iterator[Any]:
    """The document with one value replaced by something hostile, cut short, doubled or reversed, or a field gone."""
    if isinstance(document, list):
        yield from ([], document[:-1], document + document[:1], document[::-1])
        for place in {0, len(document) - 1} if document else ():
            yield from ([*document[:place], other, *document[place + 1 :]] for other in changed(document[place]))
    if isinstance(document, dict):
        yield {**document, "other": 1}
        for key in document:
            yield {name: value for name, value in document.items() if name != key}
            yield from ({**document, key: other} for other in changed(document[key]))
    yield from HOSTILE


@pytest.mark.parametrize("kind", ARTIFACTS)
def test_any_change_of_an_artifact_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    artifact = ARTIFACTS[kind]
    path = artifact.save(tmp_path)
    before = json.loads(path.read_text("utf-8"))
    artifact.read(path)
    for document in changed(before):
        path.write_text(json.dumps(document), encoding="utf-8")
        said = refusal(artifact, path)
        assert said is not None or kind != "part" or document == before  # a part has a hash
        assert said is None or path.name in said or path.parent.name in said
        assert said is None or "\n" not in said


def refusal(artifact: Artifact, path: Path) -> str | None:
    try:
        artifact.read(path)
    except WhichTokenError as error:
        return str(error)
    return None


def test_hostile_settings_on_the_command_line_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for value, message in (
        ("[" * 100_000, "cannot be read: nested too deeply"),
        ("[" * 500 + "]" * 500, "nested too deeply: more than 64 levels"),
        ("9" * 5000, "cannot be read: a whole number has too many digits"),
        ("9" * 400, "is not allowed"),
        ('"\\ud800"', "half of a surrogate pair"),
    ):
        with pytest.raises(SystemExit) as ending:
            main(["explain", "slow", "--method", "attcat", "-o", f"layers={value}"])
        said = capsys.readouterr().err
        assert ending.value.code == 2
        assert message in said
        assert len(said.splitlines()) == 1
        assert len(said) < 600


def test_settings_too_large_to_show_or_to_use_are_refused() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, 10**5000, 10**30):
        with pytest.raises(UsageError, match="is not allowed; it must be") as caught:
            wt.method("integrated-gradients", steps=value)
        assert len(str(caught.value)) < 600
        assert "9" * 5 not in str(caught.value)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "pipe", "pipe cannot be read: it is a pipe or a device"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(WhichTokenError, match=message):
            read_text(path)
