"""main: run a command and turn errors into one line and an exit code."""

import sys
from collections.abc import Sequence
from shlex import quote
from typing import NoReturn

from whichtoken.errors import NoHeads, NoReferences, WhichTokenError
from whichtoken.render.rows import visible

INTERRUPTED = 130  # as shells report it


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run and exit: 0 success, 1 failure, 2 wrong call or input, 3 unsupported model, 130 interrupted."""
    from whichtoken.cli.app import app

    words = list(sys.argv[1:] if arguments is None else arguments)
    before_texts = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in before_texts  # anywhere, so that it can be appended to a failed command
    if debug:
        words.remove("--debug")
    try:
        app(words, prog_name="whichtoken")
    except WhichTokenError as error:
        if debug:
            raise
        print(f"whichtoken: {_line(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            print("whichtoken: interrupted", file=sys.stderr)
        raise
    raise AssertionError("a Typer application always exits")


def _line(error: WhichTokenError) -> str:
    if isinstance(error, NoReferences):
        return visible(
            "this method contrasts with reference texts, and this model has none. Build them once, from texts like "
            f"the training texts: whichtoken references build TEXTS.csv --model {quote(error.model)} "
            "--out references; then add --references references"
        )
    if isinstance(error, NoHeads):
        return visible(
            "this method propagates through chosen heads only, and this model has no head mask. Build it once, from a "
            f"parsed corpus: whichtoken heads build --conllu FILE --model {quote(error.model)} --out heads.json; then "
            "add --heads heads.json"
        )
    return visible(str(error))
