"""Which parts of a pass can be left out, if nothing is read that the last block computes for most tokens."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from whichtoken.models import unpadded
from whichtoken.models.encoding import Batch
from whichtoken.models.last_block import can_narrow, narrow_last_block

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject


@dataclass(frozen=True)
class Shortcut:
    """A context in which passes over a batch run, and the attention implementation that it needs; None: any."""

    enter: Callable[[Batch], AbstractContextManager[None]]
    attention: str | None = None


def choose_shortcut(twin: "Subject", may_choose_attention: bool = True, all_queries: bool = False) -> Shortcut:
    """Return the shortcut that saves most. Call it before adding hooks: a model with hooks gets no shortcut.

    `all_queries`: the attention of every token is needed.
    """
    if may_choose_attention and twin.skips_padding:
        return Shortcut(lambda batch: unpadded.skip_padding(twin, batch.mask), unpadded.NAME)
    narrow = partial(narrow_last_block, twin, with_queries=not all_queries)
    return Shortcut(narrow if can_narrow(twin) else lambda batch: nullcontext())
