"""Errors as replies. What a person can fix is put in the library's words; of other errors, only the place is logged.

Messages of unexpected errors may quote a text, so neither the reply nor the log has them.
"""

import logging
from pathlib import Path
from traceback import extract_tb

from whichtoken.errors import WhichTokenError
from whichtoken.web.counters import Counters
from whichtoken.web.limits import Refusal
from whichtoken.web.replies import ErrorReply, ErrorText

LOG = logging.getLogger("whichtoken.web")
SHOWN = 6  # places of a traceback


def describe_error(error: WhichTokenError) -> ErrorReply:
    status, kind = (error.status, error.kind) if isinstance(error, Refusal) else (400, type(error).__name__)
    return ErrorReply(ErrorText(kind, str(error), status))


def note_unexpected(error: BaseException, counters: Counters) -> ErrorReply:
    """Count and log an error of ours, without its message."""
    counters.add("whichtoken_errors_total", type=type(error).__name__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in extract_tb(error.__traceback__)[-SHOWN:]]
    LOG.error("%s at %s", type(error).__name__, " < ".join(reversed(places)))
    return ErrorReply(ErrorText("Internal", "an unexpected error; the server's log says where", 500))
