"""Options about the rows of a file, and what happens to rows that cannot be used."""

import atexit
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any

import typer

from whichtoken.atomic_write import write_whole
from whichtoken.boundary import while_reading
from whichtoken.cli.subject import say
from whichtoken.data.sources import KINDS, BadRow, DataFile
from whichtoken.errors import BadInput, BadSetting, WhichTokenError

SHOWN = 20  # skipped rows that are listed on standard error
LARGEST = 2**30  # bytes that are read from a pipe

Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter", help='Delimiter of a csv file, such as ";" or tab; default: detected in the first rows.'
    ),
]
InputFormat = Annotated[
    str | None,
    typer.Option("--input-format", help=f"Format of the file, if its name does not tell: {', '.join(KINDS)}."),
]
OnBadRowOption = Annotated[
    str, typer.Option("--on-bad-row", help="Rows that cannot be used: error (default), or skip and list them.")
]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="Column with the ids of the rows; id, idx and guid are recognised.")
]
LabelColumn = Annotated[
    str | None, typer.Option("--label", help="Column with the gold labels; label and labels are recognised.")
]
Keep = Annotated[list[str] | None, typer.Option("--keep", help="Column to keep in the results; repeatable.")]


@dataclass
class BadRows:
    """The rows that were skipped so far; unless `skip` is set, the first one raises its error."""

    skip: bool = False
    found: dict[str, BadRow] = field(default_factory=dict)  # by place: a file may be read more than once
    n_rows: int | None = None  # of which they are; None if not all rows were read

    def __call__(self, bad: BadRow) -> None:
        if not self.skip:
            raise bad.error
        self.found[bad.where] = bad

    def skip_input(self, example: Any, error: WhichTokenError) -> None:
        """Skip an example that turned out bad later, when the model read it."""
        self(BadRow(example.row, example.where, error, list(example.texts)))

    def __len__(self) -> int:
        return len(self.found)

    def report(self, out: Path | None) -> None:
        """Write the skipped rows to `out`, or list the first of them, and say how many they are."""
        rows = sorted(self.found.values(), key=lambda bad: -1 if bad.row is None else bad.row)
        if out is not None and self.skip:
            _write_failed(rows, out)
        for bad in rows[:SHOWN] if out is None else ():
            say(f"skipped: {bad.error}")
        if rows:
            of = "" if self.n_rows is None else f" of {self.n_rows:,}"
            say(f"{len(rows):,}{of} rows skipped{'' if out is None else f', see {out}'}")


def _write_failed(rows: Sequence[BadRow], out: Path) -> None:
    """Write one JSON object per row; without rows, remove the list of an earlier run."""
    if not rows:
        out.unlink(missing_ok=True)
        return
    fields = [{"row": bad.row, "where": bad.where, "reason": bad.reason, "content": bad.content} for bad in rows]
    write_whole(out, "".join(json.dumps(row, default=str) + "\n" for row in fields))


def failed_file(out: Path | None) -> Path | None:
    """Return the file for skipped rows, beside the output."""
    return None if out is None else out.with_name(f"{out.name}.failed.jsonl")


@dataclass(frozen=True)
class RowOptions:
    """How the rows of a file are read, as typed."""

    delimiter: str | None = None
    input_format: str | None = None
    on_bad_row: str = "error"
    id: str | None = None
    label: str | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.on_bad_row not in ("error", "skip"):
            raise BadSetting("--on-bad-row", self.on_bad_row, "error or skip")
        if self.input_format not in (None, *KINDS):
            raise BadSetting("--input-format", self.input_format, f"one of {', '.join(KINDS)}")

    @property
    def given(self) -> list[str]:
        """The options that were typed."""
        options = {
            "--delimiter": self.delimiter,
            "--input-format": self.input_format,
            "--on-bad-row": self.on_bad_row == "skip",
            "--id": self.id,
            "--label": self.label,
            "--keep": self.keep,
        }
        return [option for option, value in options.items() if value]

    def collector(self) -> BadRows:
        return BadRows(self.on_bad_row == "skip")

    def open(self, path: Path, bad: BadRows) -> DataFile:
        """Return the file to read; a pipe or a device is copied, because a file may be read twice."""
        file = DataFile(path.expanduser(), self.input_format, self.delimiter, bad)
        with while_reading(path, BadInput):
            stream = file.path.exists() and not file.path.is_file() and not file.path.is_dir()
        if not stream or file.kind_of_rows is None:
            return file
        return DataFile(_copy_stream(file.path), file.kind_of_rows, self.delimiter, bad, name=str(path))


def _copy_stream(path: Path) -> Path:
    """Copy what a pipe or device gives to a temporary file, which is removed when the process ends."""
    copy, size = NamedTemporaryFile(prefix="whichtoken-"), 0  # noqa: SIM115  # closed at exit
    atexit.register(copy.close)
    with while_reading(path, BadInput), path.open("rb") as stream:
        while block := stream.read(2**20):
            size += len(block)
            if size > LARGEST:
                raise BadInput(f"{path} contains more than {LARGEST:,} bytes; save them as a file")
            copy.write(block)
    copy.flush()
    return Path(copy.name)
