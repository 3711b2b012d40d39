"""Where rows come from: a file and how it is read, and what happens to rows that cannot be used. No torch."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whichtoken.boundary import while_reading
from whichtoken.errors import BadInput, BadSetting, WhichTokenError

KINDS = ("csv", "tsv", "jsonl", "parquet", "txt")
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}  # those that are recognised


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used, and why."""

    row: int | None  # as in `TextExample`
    where: str  # file and row, or line
    error: WhichTokenError
    content: Any = None  # its line, cells or values, if known

    @property
    def reason(self) -> str:
        """Why, without the place if the message starts with it."""
        return str(self.error).removeprefix(self.where).lstrip(" :,")


OnBadRow = Callable[[BadRow], None]


def refuse(bad: BadRow) -> None:
    """Raise the error of a bad row, so that reading ends there."""
    raise bad.error


@dataclass(frozen=True)
class DataFile:
    """A file of rows, and how it is read; readers accept it instead of a path."""

    path: Path
    kind: str | None = None  # one of KINDS; None: by its extension
    delimiter: str | None = None  # of a csv file; None: found from its first rows
    on_bad_row: OnBadRow = field(default=refuse, compare=False)  # may raise; if it returns, the row is skipped
    name: str = ""  # shown in messages; "": the path

    def __post_init__(self) -> None:
        if self.kind not in (None, *KINDS):
            raise BadSetting("kind", self.kind, f"one of {', '.join(KINDS)}")
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", parse_delimiter(self.delimiter))
            if self.kind_of_rows not in (None, "csv"):
                raise BadInput(f"{self}: a delimiter is for csv files, and this is a {self.kind_of_rows} file")

    def __str__(self) -> str:
        return self.name or str(self.path)

    @property
    def kind_of_rows(self) -> str | None:
        """The kind as given, else by the extension; None if neither is known."""
        by_name = self.path.suffix.lower().removeprefix(".")
        return self.kind or (by_name if by_name in KINDS else None)

    @property
    def has_header(self) -> bool:
        """Whether all rows have the same columns, so that a missing one is not the fault of a row."""
        return self.kind_of_rows in ("csv", "tsv", "parquet")


def as_file(source: Any) -> DataFile | None:
    """Return the file that `source` names, with `~` expanded; None if it is not a file."""
    if isinstance(source, DataFile):
        return replace(source, path=expand_path(source.path))
    return DataFile(expand_path(source)) if isinstance(source, str | Path) else None


def handler_of(source: Any) -> OnBadRow:
    """Return what to do with a bad row of this source."""
    return source.on_bad_row if isinstance(source, DataFile) else refuse


def expand_path(source: str | Path) -> Path:
    """Return the path with `~` expanded; BadInput if there is no such home."""
    with while_reading(source, BadInput):
        return Path(source).expanduser()


def parse_delimiter(text: str) -> str:
    """Return the character; the names of usual ones, such as "tab", are accepted."""
    names = {name: character for character, name in DELIMITERS.items()}
    character = {**names, "\\t": "\t"}.get(text, text) if isinstance(text, str) else ""
    if len(character) != 1 or character in '"\r\n':
        raise BadSetting("delimiter", text, "one character, or tab, comma, semicolon or pipe")
    return character
