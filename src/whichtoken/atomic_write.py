"""Write files and folders atomically: under a temporary name in the same folder, then renamed. No torch.

The writer of a temporary file or folder holds a lock on it, which ends with its process. So what a killed process left
can be told from what another process is writing, and the next write in the same folder removes it.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from whichtoken.boundary import describe_failure
from whichtoken.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows: no locks, so nothing is known to be abandoned
    fcntl = None  # type: ignore[assignment]

NEW, OLD = ".whichtoken-new", ".whichtoken-old"  # ends of temporary names; OLD holds a folder that is being replaced
TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.whichtoken-(new|old)", re.DOTALL)


def write_whole(path: str | Path, content: str | bytes) -> Path:
    """Write a file atomically; raise UsageError if that fails, leaving an older file unchanged."""
    with open_whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path).expanduser()


def save_text(text: str, path: str | Path | None) -> str:
    """Return the text, after writing it to `path`, if given."""
    if path is not None:
        write_whole(path, text)
    return text


@contextmanager
def open_whole(path: str | Path, *, tidy: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    `tidy`: first remove what killed processes left in the folder; this takes longer the more files it holds.
    """
    where = Path(path).expanduser()
    _check_place(where)
    with writing(where):
        if where.exists() and not where.is_file():  # a device or a pipe, which must not be replaced
            with where.open("wb") as file:
                yield file
            return
        real = where.resolve()  # so that a symbolic link is kept
        if tidy:
            clear_abandoned(real.parent)
        part, descriptor = _make_locked(real, NEW, folder=False)
        try:
            with os.fdopen(descriptor, "wb") as beside:
                yield beside
                beside.flush()
                if fcntl is None:
                    beside.close()  # Windows does not rename open files
                _sync(part, (real if real.exists() else part).stat().st_mode & 0o777)
                part.replace(real)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def write_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `path` when the block ends without an error.

    An existing folder is replaced as a whole. A process killed between the two renames leaves none, until the next
    write there, or `restore_folder`, puts the older one back.
    """
    real = path.resolve()
    with writing(path):
        clear_abandoned(real.parent)
        beside, lock = _make_locked(real, NEW, folder=True)
        try:
            yield beside
            for part in beside.iterdir():
                _sync(part, beside.stat().st_mode & 0o666)
            _replace_folder(beside, real)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
            os.close(lock)


@contextmanager
def writing(target: object) -> Iterator[None]:
    """Raise UsageError, one line that names `target`, if the block cannot write: a full disk, no permission."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(f"{target} cannot be written: {describe_failure(error)}") from error


def clear_abandoned(folder: Path) -> None:
    """Remove the temporary files and folders that killed processes left here, and put back what they were replacing.

    Whatever a living process holds, or cannot be removed, stays.
    """
    found: list[Path] = []
    with suppress(OSError):
        found = [path for path in folder.iterdir() if TEMPORARY.fullmatch(path.name)]
    for path in found if fcntl is not None else ():
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear(path)
            finally:
                os.close(lock)


def restore_folder(path: Path) -> None:
    """Put back a folder that a process was replacing when it was killed."""
    if not path.exists():
        clear_abandoned(path.resolve().parent)


def check_writable(path: str | Path) -> None:
    """Raise UsageError if `path` cannot be written, or its disk is full, so that this is known before long work."""
    where = Path(path).expanduser()
    _check_place(where)
    with writing(path):
        if where.is_file() or not where.exists():
            with TemporaryFile(dir=where.resolve().parent) as probe:
                probe.write(bytes(4096))
                probe.flush()


def _check_place(where: Path) -> None:
    with writing(where):
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


def _make_locked(real: Path, end: str, *, folder: bool) -> tuple[Path, int]:
    """Create a temporary file or folder beside `real`; return it with the open descriptor that locks it."""
    make = _make_folder if folder else _make_file
    mode = 0o600 if real.is_file() else 0o666  # a file that is replaced keeps its permissions, which may be few
    while True:
        made = real.with_name(f".{real.name[:40]}.{secrets.token_hex(4)}{end}")  # names have a limited length
        lock = make(made, mode)
        if lock is None:
            continue
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return made, lock
        os.close(lock)  # another process took it for abandoned before it was locked


def _make_file(path: Path, mode: int) -> int | None:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)


def _make_folder(path: Path, mode: int) -> int | None:
    """Return None if another process took the folder for abandoned, and removed it, before it was open."""
    path.mkdir()
    try:
        return os.open(os.devnull if fcntl is None else path, os.O_RDONLY)
    except FileNotFoundError:
        return None


def _clear(path: Path) -> None:
    if not path.is_dir():
        path.unlink()
        return
    for content in path.iterdir() if path.name.endswith(OLD) else ():
        if not (path.parent / content.name).exists():
            content.rename(path.parent / content.name)
    shutil.rmtree(path)


def _replace_folder(beside: Path, real: Path) -> None:
    if not real.exists():
        beside.rename(real)
        return
    old, lock = _make_locked(real, OLD, folder=True)
    try:
        real.rename(old / real.name)
        beside.rename(real)
    finally:
        with suppress(OSError):  # what cannot be removed now is removed by the next write
            _clear(old)
        os.close(lock)
