"""The one boundary that turns whatever a file makes its reader raise into an error of ours. No torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whichtoken.errors import BadArtifact, WhichTokenError


@contextmanager
def while_reading(source: object, error: type[WhichTokenError] = BadArtifact) -> Iterator[None]:
    """Raise `error`, one line that names `source`, for every exception of the block.

    `source`: a path, or another name, such as "standard input". `error`: BadArtifact for files that whichtoken writes,
    BadInput for data of users. An error of ours that already names the source passes unchanged, so that a reader can
    name a row itself. A generator may yield inside the block: exceptions of its consumer do not pass through here.
    """
    try:
        yield
    except WhichTokenError as ours:
        if str(source) in ours.message_for(ours.place):  # as it was written, before anything is escaped
            raise
        raise error(f"{source}: {ours}") from ours
    except Exception as other:  # whatever it is, the file caused it, and `--debug` shows it
        raise error(f"{source} cannot be read: {describe_failure(other)}") from other


def read_text(path: Path, error: type[WhichTokenError] = BadArtifact) -> str:
    """Return the content of a UTF-8 file. Pipes and devices are refused: reading them may never end."""
    with while_reading(path, error):
        if path.exists() and not path.is_dir() and not path.is_file():
            raise error(f"{path} cannot be read: it is a pipe or a device; expected a file")
        return path.read_text(encoding="utf-8")


def describe_failure(failure: BaseException) -> str:
    """Return in one short line why something cannot be read or written."""
    text = " ".join(str(failure).split())[:200]
    if isinstance(failure, OSError):
        return failure.strerror or text or type(failure).__name__
    if isinstance(failure, UnicodeDecodeError):
        return f"not {failure.encoding.upper()} (byte {failure.start})"
    if isinstance(failure, UnicodeEncodeError):
        lacking = failure.object[failure.start]
        if "\ud800" <= lacking <= "\udfff":
            return f"it holds {lacking!r}, half of a surrogate pair, which is not a character"
        return f"its encoding, {failure.encoding}, has no {lacking!r}; set PYTHONIOENCODING=utf-8"
    if isinstance(failure, RecursionError):
        return "nested too deeply"
    if "integer string conversion" in text:
        return "a whole number has too many digits"
    if isinstance(failure, MemoryError):
        return "it needs more memory than there is"
    if isinstance(failure, LookupError | TypeError | AttributeError) or not text:
        return f"{type(failure).__name__} {text}".strip()
    return text


def is_utf8(text: str) -> bool:
    """Return whether the text can be written: halves of surrogate pairs cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
