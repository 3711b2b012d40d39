"""Compute the feed-forward layer of the last block only for the token that a classifier reads.

Nothing reads what the last block returns for the other tokens, which only serve its attention. Logits and gradients
change by rounding errors alone; the hidden states of the other tokens are wrong, so passes that record them may not use
this.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whichtoken.models.architectures import Readout
from whichtoken.models.encoding import Batch
from whichtoken.models.twin import runs_as_written

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject

FEED_FORWARD = "mlp"  # a module that computes each token by itself, and whose output is added to its input


def can_narrow(subject: "Subject") -> bool:
    """Return whether the head reads one token, and the last block has such a module. Call it before adding hooks."""
    return bool(
        subject.head.pools
        and subject.readout_kind in (Readout.FIRST, Readout.LAST)
        and subject.architecture.feed_forward == FEED_FORWARD
        and subject.n_layers == len(subject.blocks)
        and runs_as_written(subject.model)
    )


@contextmanager
def narrow_last_block(subject: "Subject", batch: Batch) -> Iterator[None]:
    """Let passes of a twin over this batch compute that layer for one token of each row, and 0 for the others."""
    is_read = subject.readout(batch) > 0
    rows, positions = torch.arange(len(is_read), device=is_read.device), is_read.int().argmax(-1)

    def before(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][rows, positions][:, None], *args[1:])

    def after(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return torch.where(is_read[:, :, None], output, 0)

    layer = subject.blocks[-1].get_submodule(FEED_FORWARD)
    with layer.register_forward_pre_hook(before), layer.register_forward_hook(after):
        yield
