"""Compute most layers of the last block only for the token that a classifier reads: all but keys and values.

Nothing reads what the last block returns for the other tokens, which only serve its attention. Logits, gradients and
relevance change by rounding errors alone, but hidden states of the last block are missing, or wrong: passes that record
them, or change them, may not use this.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whichtoken.models.architectures import Readout
from whichtoken.models.encoding import Batch
from whichtoken.models.twin import runs_as_written

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject

FEED_FORWARD = "mlp"  # in models with norms before each layer: a module that computes each token by itself


def can_narrow(subject: "Subject") -> bool:
    """Return whether the head reads one token, and the last block allows it. Call it before adding hooks."""
    architecture, kind = subject.architecture, subject.readout_kind
    if architecture.norm is None:
        is_possible = architecture.feed_forward == FEED_FORWARD and kind in (Readout.FIRST, Readout.LAST)
    else:
        is_possible = kind is Readout.FIRST and not getattr(subject.model.config, "chunk_size_feed_forward", 0)
    own_modules = subject.n_layers == len(subject.blocks)  # not shared with earlier layers
    # Packed modules choose how to round by all the tokens that they read.
    packed = subject.packed is not None
    return is_possible and own_modules and subject.head.pools and not packed and runs_as_written(subject.model)


@contextmanager
def narrow_last_block(subject: "Subject", batch: Batch, with_queries: bool = True) -> Iterator[None]:
    """Let passes of a twin over this batch compute these layers for one token of each row. `with_queries`: its query,
    too; weights of attention that are recorded need all queries.

    If a norm comes after attention and its residual, only the token that is read leaves it. If norms come before each
    layer, the residual of all tokens is still needed; for the others, a layer adds 0.
    """
    block, architecture = subject.blocks[-1], subject.architecture
    is_read = subject.readout(batch) > 0
    rows, positions = torch.arange(len(is_read), device=is_read.device), is_read.int().argmax(-1)

    def take_read(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][rows, positions][:, None], *args[1:])

    def add_nothing(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return torch.where(is_read[:, :, None], output, 0)

    def repeat(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        # The attention of the other tokens is not used. A query of 0 would be NaN after a norm without epsilon.
        return output.expand(-1, is_read.shape[1], -1)

    narrowed = {architecture.projection: add_nothing}
    if with_queries and architecture.query is not None:
        narrowed[architecture.query] = repeat
    if architecture.norm is None:
        narrowed[FEED_FORWARD] = add_nothing
    with ExitStack() as stack:
        for name, widen in narrowed.items():
            layer = block.get_submodule(name)
            stack.enter_context(layer.register_forward_pre_hook(take_read))
            stack.enter_context(layer.register_forward_hook(widen))
        if architecture.norm is not None:
            stack.enter_context(block.get_submodule(architecture.norm).register_forward_hook(_leave_first))
        yield


def _leave_first(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    return output[:, :1]
