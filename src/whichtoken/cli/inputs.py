"""What a command was given: texts from arguments, standard input or a file; images; methods and settings, in words."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

from whichtoken.data.examples import check_texts, decoded, read_examples
from whichtoken.errors import BadInput, BadSetting, UnknownName, UsageError


@dataclass(frozen=True)
class CommandInputs:
    """Inputs, counted and checked, and read again when they are needed: a file need not fit in memory."""

    read: Callable[[], Iterator[Any]]
    count: int
    where: Callable[[int], str]  # what the user calls an input, by its index
    keyword: str = "texts"  # as which they were given
    files: Sequence[Path] = ()  # that are read, and must not be written over

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return self.read()

    @property
    def n_images(self) -> int:
        return self.count if self.keyword == "images" else 0


@dataclass(frozen=True)
class TypedInputs:
    """What a command was given to explain, as it was typed."""

    texts: Sequence[str] = ()
    pair: str | None = None
    file: Path | None = None
    columns: Sequence[str] = ()
    images: Sequence[Path] = ()
    question: str | None = None
    context: str | None = None

    def gather(self) -> CommandInputs:
        """One kind of input, of which every one is checked before any work."""
        texts = [*self.texts, *([self.pair] if self.pair is not None else []), *self.columns]
        if self.question is not None or self.context is not None:
            return gather_question(self.question, self.context, [*texts, self.file, *self.images])
        if self.images:
            return gather_images(self.images, [*texts, self.file])
        return gather(self.texts, self.pair, self.file, self.columns)


def gather_question(question: str | None, context: str | None, texts: Sequence[object]) -> CommandInputs:
    """`texts`: whatever else was given, which must be nothing."""
    if question is None or context is None:
        lacking = "--question" if question is None else "--context"
        raise UsageError(f"{lacking} is missing; a question has a context: --question Q --context C")
    if any(texts):
        raise UsageError("--question was given, and texts too; explain one kind at a time")
    whole = "\n".join(_standard_input()) if context == "-" else context
    pair = check_texts((question, whole), "the question")
    return CommandInputs(lambda: iter([pair]), 1, lambda i: "the question", "question")


def gather_images(images: Sequence[Path], texts: Sequence[object]) -> CommandInputs:
    """`texts`: whatever else was given, which must be nothing."""
    if any(texts):
        raise UsageError("--image was given, and texts too; explain one kind at a time")
    for path in images:
        if not path.is_file():
            raise BadInput(f"there is no file {path}; --image takes the file of one image, and can be repeated")
    return CommandInputs(lambda: iter(images), len(images), lambda i: str(images[i]), "images", images)


def check_against(against: str | None, given: CommandInputs) -> None:
    """A contrast is between two labels; an error now rather than after the model is loaded."""
    if against is not None and given.keyword == "question":
        raise UsageError("--against compares two labels, and answers to a question have none; leave it out")


def check_apart(out: Path | None, given: CommandInputs) -> None:
    """What is read must not be written over."""
    for path in given.files:
        if out is not None and out.exists() and path.exists() and out.samefile(path):
            raise UsageError(f"--out {out} is the file of the texts or of an image; give another name")


def gather(texts: Sequence[str], pair: str | None, file: Path | None, columns: Sequence[str]) -> CommandInputs:
    """From exactly one of arguments, standard input (`-`) and a file. Every text is checked before any work."""
    if bool(texts) == (file is not None):
        raise UsageError("give texts, or - for standard input, or --file FILE; one of them")
    if columns and file is None:
        raise UsageError("--column names a column of --file, and there is no file")
    if pair is not None and (file is not None or len(texts) != 1):
        raise UsageError("--pair is the second text of one pair: give one TEXT; many pairs come from --file")
    if file is not None:
        return _from_file(file, columns)
    if "-" in texts and len(texts) > 1:
        raise UsageError("- stands for all of standard input; give it alone, or give texts")
    if list(texts) == ["-"]:
        texts = list(_standard_input())
        if not texts:
            raise BadInput("standard input has no text; one text on each line is expected")
        where = "standard input, text"
    else:
        where = "text"
    held = [check_texts((text,) if pair is None else (text, pair), f"{where} {i}") for i, text in enumerate(texts, 1)]
    return CommandInputs(lambda: iter(held), len(held), lambda i: f"{where} {i + 1}")


def _from_file(file: Path, columns: Sequence[str]) -> CommandInputs:
    def read() -> Iterator[tuple[str, ...]]:
        for example in read_examples(file, columns=list(columns) or None):
            yield check_texts(example.texts, example.where)

    count = sum(1 for _ in read())
    if not count:
        raise BadInput(f"{file} has no texts")

    def where(index: int) -> str:
        return next(islice(read_examples(file, columns=list(columns) or None), index, None)).where

    return CommandInputs(read, count, where, files=[file])


def _standard_input() -> Iterator[str]:
    """A text on each line."""
    lines = TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="surrogateescape")
    for line in decoded(lines, "standard input"):
        if line.strip():
            yield line.strip()


def parsed_settings(words: Sequence[str]) -> dict[str, Any]:
    """`-o steps=20 -o axis=key`: values are JSON where they can be, else strings."""
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadSetting("-o", word, "setting=value, such as -o steps=20")
        try:
            settings[name.strip()] = json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
        except json.JSONDecodeError:
            settings[name.strip()] = value
    return settings


def built_methods(names: str, words: Sequence[str]) -> list[Any]:
    """`attcat,gae@repo`, or `all`; each with those of the settings that it has."""
    from whichtoken.core.registry import method_names, parse

    settings = parsed_settings(words)
    wanted = method_names() if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise BadSetting("--method", names, "names of methods, separated by commas, or all; see whichtoken methods")
    plain = {name: parse(name) for name in wanted}
    known = {key for built in plain.values() for key in built.settings}
    for setting in settings:
        if setting not in known:
            raise UnknownName(f"setting of {names}", setting, sorted(known))
    return [
        parse(name, **{key: value for key, value in settings.items() if key in built.settings})
        for name, built in plain.items()
    ]


def wanted_target(target: str | None, against: str | None) -> Any:
    """A label by name or index; with `against`, one rather than the other."""
    from whichtoken.targets import Contrast

    if against is not None and target is None:
        raise UsageError("--against needs --target: the label that is explained, rather than this one")
    return target if target is None or against is None else Contrast(target, against)
