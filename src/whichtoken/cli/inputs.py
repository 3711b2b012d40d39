"""Parse the input of a command: texts from arguments, standard input or a file; images; methods and settings."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

from whichtoken.boundary import while_reading
from whichtoken.cli.rows import BadRows, RowOptions
from whichtoken.data.examples import Columns, TextExample, check_texts, read_rows
from whichtoken.data.files import decode_lines
from whichtoken.data.sources import BadRow
from whichtoken.decode import check_plain
from whichtoken.errors import BadInput, BadSetting, UnknownName, UsageError


@dataclass(frozen=True)
class CommandInputs:
    """Checked and counted inputs, read again on every iteration, so that a file need not fit in memory."""

    read: Callable[[], Iterator[Any]]
    count: int
    where: Callable[[int], str]  # names an input for error messages, by index
    keyword: str = "texts"  # kind of input, as in `Task.keywords`
    files: Sequence[Path] = ()  # input files, which must not be overwritten

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return self.read()

    @property
    def n_images(self) -> int:
        return self.count if self.keyword == "images" else 0


@dataclass(frozen=True)
class TypedInputs:
    """The inputs of a command as typed."""

    texts: Sequence[str] = ()
    pair: str | None = None
    file: Path | None = None
    columns: Sequence[str] = ()
    images: Sequence[Path] = ()
    question: str | None = None
    context: str | None = None
    rows: RowOptions = field(default_factory=RowOptions)
    bad: BadRows = field(default_factory=BadRows)

    def gather(self) -> CommandInputs:
        """Return inputs of one kind, all checked before any work."""
        if self.file is None and self.rows.given:
            raise UsageError(f"{', '.join(self.rows.given)}: this applies to the rows of --file, which is missing")
        texts = [*self.texts, *([self.pair] if self.pair is not None else []), *self.columns]
        if self.question is not None or self.context is not None:
            return gather_question(self.question, self.context, [*texts, self.file, *self.images])
        if self.images:
            return gather_images(self.images, [*texts, self.file])
        if self.file is not None and not self.texts and self.pair is None:
            return _gather_file(self.file, self.columns, self.rows, self.bad)
        return gather(self.texts, self.pair, self.file, self.columns)


def gather_question(question: str | None, context: str | None, others: Sequence[object]) -> CommandInputs:
    """Return the question as input. `others`: other inputs, which must be empty."""
    if question is None or context is None:
        lacking = "--question" if question is None else "--context"
        raise UsageError(f"{lacking} is missing; a question needs a context: --question Q --context C")
    if any(others):
        raise UsageError("--question cannot be combined with other inputs; explain one kind at a time")
    whole = "\n".join(read_standard_input()) if context == "-" else context
    pair = check_texts((question, whole), "the question")
    return CommandInputs(lambda: iter([pair]), 1, lambda i: "the question", "question")


def gather_images(images: Sequence[Path], others: Sequence[object]) -> CommandInputs:
    """Return the images as inputs. `others`: other inputs, which must be empty."""
    if any(others):
        raise UsageError("--image cannot be combined with other inputs; explain one kind at a time")
    for path in images:
        if not path.is_file():
            raise BadInput(f"there is no file {path}; --image takes one image file and can be repeated")
    return CommandInputs(lambda: iter(images), len(images), lambda i: str(images[i]), "images", images)


def check_against(against: str | None, inputs: CommandInputs) -> None:
    """Raise UsageError for --against with a question, before the model is loaded."""
    if against is not None and inputs.keyword == "question":
        raise UsageError("--against compares two labels, but answers have none; leave it out")


def check_not_overwritten(out: Path | None, inputs: CommandInputs) -> None:
    """Raise UsageError if the output file is one of the input files."""
    for path in inputs.files:
        if out is not None and out.exists() and path.exists() and out.samefile(path):
            raise UsageError(f"--out {out} is also an input file; give another name")


def gather(texts: Sequence[str], pair: str | None, file: Path | None, columns: Sequence[str]) -> CommandInputs:
    """Return checked texts from exactly one of arguments, standard input (`-`) and a file."""
    if bool(texts) == (file is not None):
        raise UsageError(
            "give one of TEXT, - for standard input, --file, --image, --prompt, or --question with --context"
        )
    if columns and file is None:
        raise UsageError("--column names a column of --file, which is missing")
    if pair is not None and (file is not None or len(texts) != 1):
        raise UsageError("--pair is the second text of one pair: give one TEXT; for many pairs, use --file")
    if file is not None:
        return _gather_file(file, columns, RowOptions(), BadRows())
    if "-" in texts and len(texts) > 1:
        raise UsageError("- stands for all of standard input; give it alone, or give texts")
    if list(texts) == ["-"]:
        texts = list(read_standard_input())
        if not texts:
            raise BadInput("standard input has no text; expected one text per line")
        where = "standard input, text"
    else:
        where = "text"
    checked = [
        check_texts((text,) if pair is None else (text, pair), f"{where} {i}") for i, text in enumerate(texts, 1)
    ]
    return CommandInputs(lambda: iter(checked), len(checked), lambda i: f"{where} {i + 1}")


def _gather_file(file: Path, columns: Sequence[str], rows: RowOptions, bad: BadRows) -> CommandInputs:
    source = rows.open(file, bad)
    names = Columns(tuple(columns) or None, rows.label, rows.id, rows.keep)

    def read() -> Iterator[TextExample]:
        for example in read_rows(source, names):
            try:
                check_texts(example.texts, example.where)
            except BadInput as error:
                bad(BadRow(example.row, example.where, error, list(example.texts)))
            else:
                yield example

    count = sum(1 for _ in read())
    if not count and bad.found:
        first = next(iter(bad.found.values()))
        raise BadInput(f"none of the {len(bad)} rows of {file} can be used; the first is {first.error}")
    if not count:
        raise BadInput(f"{file} has no texts")
    return CommandInputs(read, count, lambda index: next(islice(read(), index, None)).where, files=[file])


def read_standard_input(keep_empty: bool = False) -> Iterator[str]:
    """Yield one text per line; with `keep_empty`, all lines as they are."""
    if sys.stdin is None:
        raise UsageError("standard input is closed; give texts, or --file")
    lines = TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="surrogateescape")
    for line in decode_lines(lines, "standard input"):
        if keep_empty:
            yield line.rstrip("\r\n")
        elif line.strip():
            yield line.strip()


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Parse `-o steps=20 -o axis=key`; values are parsed as JSON if possible, else kept as strings."""
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadSetting("-o", word, "setting=value, such as -o steps=20")
        with while_reading(f"-o {word[:40]}", UsageError):
            try:
                parsed = json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
            except json.JSONDecodeError:
                parsed = value
            if isinstance(parsed, dict | list | str):
                check_plain(parsed)
        settings[name.strip()] = parsed
    return settings


def build_methods(names: str, words: Sequence[str]) -> list[Any]:
    """Build the methods of `attcat,gae@repo` or `all`, each with the settings that it knows."""
    from whichtoken.core.registry import method_names, parse

    settings = parse_settings(words)
    requested = method_names() if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    if not requested:
        raise BadSetting("--method", names, "method names, separated by commas, or all; see whichtoken methods")
    if names != "all" and (alone := {"all", "auto"} & set(requested)):
        raise BadSetting("--method", names, f"{alone.pop()} alone, or names of methods")
    plain = {name: parse(name) for name in requested}
    known = {key for built in plain.values() for key in built.settings}
    for setting in settings:
        if setting not in known:
            raise UnknownName(f"setting of {names}", setting, sorted(known))
    return [
        parse(name, **{key: value for key, value in settings.items() if key in built.settings})
        for name, built in plain.items()
    ]


def parse_targets(targets: str | None, target: str | None, against: str | None) -> Any:
    """Return "all", or the labels separated by commas; None without the option."""
    if targets is None:
        return None
    if target is not None or against is not None:
        raise UsageError("--targets cannot be combined with --target or --against; give one of them")
    labels = [label.strip() for label in targets.split(",") if label.strip()]
    if not labels:
        raise BadSetting("--targets", targets, "all, or labels separated by commas")
    return "all" if labels == ["all"] else labels


def resolve_target(target: str | None, against: str | None) -> Any:
    """Return a label, or with `against` the contrast of two labels."""
    from whichtoken.targets import Contrast

    if against is not None and target is None:
        raise UsageError("--against needs --target, the label to explain")
    return target if target is None or against is None else Contrast(target, against)
