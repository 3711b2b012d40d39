"""Which parts of a pass can be left out, if only its logits and what leads from the embeddings to them are needed."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from whichtoken.models.encoding import Batch
from whichtoken.models.last_block import can_narrow, narrow_last_block
from whichtoken.models.unpadded import skip_padding

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject

Shortcut = Callable[[Batch], AbstractContextManager[None]]  # to run passes over a batch in


def choose_shortcut(twin: "Subject", own_attention: bool = True) -> Shortcut:
    """Return the best one. `own_attention`: the pass may choose its attention, as skipping padding needs.

    Call it before adding hooks: those of the user rule shortcuts out.
    """
    if own_attention and twin.skips_padding:
        return lambda batch: skip_padding(twin, batch.mask)
    return partial(narrow_last_block, twin) if can_narrow(twin) else lambda batch: nullcontext()
