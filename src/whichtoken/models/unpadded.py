"""Evaluate a batch without gradients and without the cost of its padding.

The blocks of an encoder compute each token by itself, except in attention. So the tokens of all rows are sent through
the blocks as one long row without padding, and only attention treats the rows separately. A classifier that reads its
first token needs nothing else of the last block after the attention. Both change results only by rounding errors.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from whichtoken.models.architectures import Readout
from whichtoken.models.twin import has_hooks

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject

NAME = "whichtoken-unpadded"


@dataclass(frozen=True)
class _Layout:
    """Where the tokens of a batch are in the long row."""

    shape: torch.Size  # of the batch: rows, tokens
    places: Int[Tensor, " real"] | None  # of the real tokens, counted through the batch; None: all are real
    first: Int[Tensor, " batch"]  # the first token of each row, in the long row

    def join(self, rows: Float[Tensor, "batch token *rest"]) -> Float[Tensor, "1 real *rest"]:
        flat = rows.flatten(0, 1)
        return (flat if self.places is None else flat[self.places])[None]

    def split(self, joined: Float[Tensor, "1 real *rest"]) -> Float[Tensor, "batch token *rest"]:
        """Return rows, 0 at padding."""
        flat = joined[0]
        if self.places is not None:
            flat = flat.new_zeros(self.shape.numel(), *flat.shape[1:]).index_copy_(0, self.places, flat)
        return flat.view(*self.shape, *flat.shape[1:])


_layout: ContextVar[_Layout | None] = ContextVar("whichtoken_layout", default=None)


def can_skip_padding(subject: "Subject") -> bool:
    """Return whether a model is an encoder of transformers, on a CPU, whose blocks can read one long row.

    Positions must be known before the blocks, and the norm must come after the sum of attention and residual. Hooks of
    the user and compiled modules expect rows.
    """
    model, architecture = subject.model, subject.architecture
    return bool(
        subject.device.type == "cpu"
        and architecture.reads == "tokens"
        and architecture.attention is None
        and architecture.positions_in_embeddings
        and architecture.norm is not None
        and subject.n_layers == len(subject.blocks)
        and type(model).__module__.startswith("transformers.")
        and getattr(model, "_supports_sdpa", False)
        and not getattr(model.config, "chunk_size_feed_forward", 0)
        and not has_hooks(model)
        and not any(getattr(module, "_compiled_call_impl", None) for module in model.modules())
    )


@contextmanager
def skip_padding(subject: "Subject", mask: Bool[Tensor, "batch token"]) -> Iterator[None]:
    """Let passes of a twin skip padding inside the block. It must use the attention implementation `NAME`."""
    blocks, norm = subject.blocks, str(subject.architecture.norm)
    only_first = subject.head.pools and subject.readout_kind is Readout.FIRST
    lengths = mask.sum(-1)
    places = None if bool(mask.all()) else mask.flatten().nonzero()[:, 0]
    layout = _Layout(mask.shape, places, lengths.cumsum(0) - lengths)

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if args:
            return (layout.join(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": layout.join(kwargs["hidden_states"])}

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        hidden = output if isinstance(output, Tensor) else output[0]
        rows = hidden[0][:, None] if only_first else layout.split(hidden)
        return rows if isinstance(output, Tensor) else (rows, *output[1:])

    with ExitStack() as stack:
        stack.enter_context(blocks[0].register_forward_pre_hook(before, with_kwargs=True))
        if only_first:
            last = blocks[-1].get_submodule(norm)
            stack.enter_context(last.register_forward_hook(lambda module, args, output: output[:, layout.first]))
        stack.enter_context(blocks[-1].register_forward_hook(after))
        stack.callback(_layout.reset, _layout.set(layout))
        yield


def _attend(
    module: nn.Module,
    query: Float[Tensor, "1 head real dim"],
    key: Float[Tensor, "1 head real dim"],
    value: Float[Tensor, "1 head real dim"],
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Float[Tensor, "1 real head dim"], None]:
    """Compute the fused attention of each row. Padding has keys and values of 0, which the mask hides."""
    layout = _layout.get()
    assert layout is not None, "this attention needs `skip_padding`"
    rows = (layout.split(x.transpose(1, 2)).transpose(1, 2) for x in (query, key, value))
    context, _ = sdpa_attention_forward(module, *rows, attention_mask, **options)
    return layout.join(context), None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
