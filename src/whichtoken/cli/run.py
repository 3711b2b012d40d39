"""main: run a command and turn errors into one line and an exit code."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from shlex import quote
from types import FrameType
from typing import Any, NoReturn

from whichtoken.boundary import describe_failure
from whichtoken.errors import NoHeads, NoReferences, UsageError, WhichTokenError
from whichtoken.render.rows import visible

INTERRUPTED, TERMINATED = 130, 143  # as shells report them


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run and exit: 0 success, 1 failure, 2 wrong call or input, 3 unsupported model, 4 unfinished corpus job,
    130 interrupted, 143 terminated.

    SIGTERM ends a command as Ctrl-C does: finished results are kept, and temporary files are removed.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    before_texts = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in before_texts  # anywhere, so that it can be appended to a failed command
    if debug:
        words.remove("--debug")
    with ended_by_sigterm() as stop:
        code = _run(words, debug=debug)
        try:
            if sys.stdout is not None:  # None if the caller closed it, as some schedulers do
                sys.stdout.flush()
        except OSError as error:
            code = _give_up_output(error)
    if stop.terminated:
        code = TERMINATED
    if code in (INTERRUPTED, TERMINATED):
        print(f"whichtoken: {'terminated' if stop.terminated else 'interrupted'}", file=sys.stderr)
    sys.exit(code)


def _run(words: Sequence[str], *, debug: bool) -> int:
    """Run a command, print its error if it fails, and return its exit code. With `debug`, raise the error instead."""
    try:
        from whichtoken.cli.app import app
        from whichtoken.cli.completion import told_in_one_line

        with told_in_one_line(words):
            code = app(words, prog_name="whichtoken", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except _option_errors() as error:
        command = error.ctx.command_path if getattr(error, "ctx", None) else "whichtoken"
        message = visible(error.format_message()).rstrip(". ")
        print(f"whichtoken: {message}; see {command} --help", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except WhichTokenError as error:
        if debug:
            raise
        print(f"whichtoken: {_line(error)}", file=sys.stderr)
        return error.exit_code
    except (OSError, UnicodeEncodeError) as error:
        if debug or not _is_about_output(error):
            raise
        return _give_up_output(error)


def _option_errors() -> Any:
    """Return the exception of wrong options, which Typer does not export: click's own, or its copy of it."""
    import typer

    return next(parent for parent in typer.BadParameter.__mro__ if parent.__name__ == "ClickException")


def _is_about_output(error: OSError | UnicodeEncodeError) -> bool:
    """Return whether standard output failed: files that we write have errors of our own, and others a name."""
    return isinstance(error, UnicodeEncodeError) or (error.errno is not None and error.filename is None)


def _give_up_output(error: OSError | UnicodeEncodeError) -> int:
    """Say that standard output failed, and drop what it still buffers, so that Python can exit quietly."""
    with suppress(OSError, ValueError, AttributeError), open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return WhichTokenError.exit_code  # the reader, such as head, has seen enough
    print(f"whichtoken: standard output cannot be written: {describe_failure(error)}", file=sys.stderr)
    return UsageError.exit_code


@dataclass
class _Stop:
    terminated: bool = False


@contextmanager
def ended_by_sigterm() -> Iterator[_Stop]:
    """Let SIGTERM do what Ctrl-C does at that moment; a caller that set SIGTERM otherwise keeps its own way."""
    stop = _Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.terminated = True
        interrupt = signal.getsignal(signal.SIGINT)
        (interrupt if callable(interrupt) else signal.default_int_handler)(number, frame)  # a shell may ignore Ctrl-C

    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, handle)
    try:
        yield stop
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _line(error: WhichTokenError) -> str:
    if isinstance(error, NoReferences):
        return visible(
            "this method contrasts with reference texts, but this model has none. Build them once, from texts "
            f"similar to the training data: whichtoken references build TEXTS.csv --model {quote(error.model)} "
            "--out references; then add --references references"
        )
    if isinstance(error, NoHeads):
        return visible(
            "this method propagates through chosen heads only, but this model has no head mask. Build it once, from a "
            f"parsed corpus: whichtoken heads build --conllu FILE --model {quote(error.model)} --out heads.json; then "
            "add --heads heads.json"
        )
    return visible(str(error))
