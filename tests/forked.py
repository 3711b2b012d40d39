"""Work that ends in a kill, in a child process that need not import everything again."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """As `subprocess` says it: 0 if the child came to its end, else minus the signal that killed it.

    Gradients cannot be taken in a child once they were taken in its parent.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which the child does not need
        child = os.fork()
    if not child:
        signal.alarm(120)  # a child that hangs is no success
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
