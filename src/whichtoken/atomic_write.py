"""Write files and folders atomically: under a temporary name in the same folder, then renamed. No torch."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from whichtoken.errors import UsageError


def write_whole(path: str | Path, content: str | bytes) -> Path:
    """Write a file atomically; raise UsageError if that fails, leaving an older file unchanged."""
    with open_whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path).expanduser()


@contextmanager
def open_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an error."""
    where = Path(path).expanduser()
    check_writable(where)
    part: Path | None = None
    try:
        if where.exists() and not where.is_file():  # a device or a pipe, which must not be replaced
            with where.open("wb") as file:
                yield file
            return
        real = where.resolve()  # so that a symbolic link is kept
        mode = 0o600 if real.exists() else 0o666  # a file that is replaced keeps its permissions, which may be few
        with open(_name_beside(real), "xb", opener=partial(os.open, mode=mode)) as beside:
            part = Path(beside.name)
            yield beside
        _sync(part, (real if real.exists() else part).stat().st_mode & 0o777)
        part.replace(real)
    except OSError as error:
        raise UsageError(f"{where} cannot be written: {error.strerror or error}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


@contextmanager
def write_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `path` when the block ends without an error.

    An existing folder is replaced as a whole; a process killed between the two renames leaves none.
    """
    real = path.resolve()
    beside = _name_beside(real)
    beside.mkdir()
    try:
        yield beside
        for part in beside.iterdir():
            _sync(part, beside.stat().st_mode & 0o666)
        _replace_folder(beside, real)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def check_writable(path: str | Path) -> None:
    """Raise UsageError if `path` cannot be written, so that this is known before long work."""
    where = Path(path).expanduser()
    if where.is_dir():
        raise UsageError(f"{where} is a folder; give the name of a file")
    if not where.parent.is_dir():
        raise UsageError(f"{where} cannot be written: there is no folder {where.parent}")
    target = where if where.exists() else where.parent
    if not os.access(target, os.W_OK):
        raise UsageError(f"{where} cannot be written: no permission to write to {target}")


def _sync(part: Path, mode: int) -> None:
    with part.open("rb+") as file:
        os.fsync(file.fileno())  # the content must reach the disk before the rename does
    part.chmod(mode)  # files that safetensors writes are readable by their owner only


def _name_beside(path: Path) -> Path:
    """Return a name in the same folder that nothing has."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def _replace_folder(beside: Path, real: Path) -> None:
    if not real.exists():
        beside.rename(real)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{real.name}.old-", dir=real.parent))
    real.rename(old / real.name)
    beside.rename(real)
    shutil.rmtree(old, ignore_errors=True)
