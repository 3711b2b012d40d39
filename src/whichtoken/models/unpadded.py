"""Evaluate a batch without gradients and without the cost of its padding.

The blocks of an encoder compute each token by itself, except in attention. So the tokens of all rows are sent through
the blocks as one long row without padding, and only attention treats the rows separately. A classifier that reads its
first token needs nothing else of the last block from the attention on. Both change results only by rounding errors.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from whichtoken.models.architectures import Readout
from whichtoken.models.twin import has_hooks

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject

NAME = "whichtoken-unpadded"
EVEN = 16  # tokens: fused attention is up to three times faster on rows whose length is a multiple of this


@dataclass(frozen=True)
class _Layout:
    """Where tokens are in the long row, and in the rows that attention reads, whose length is a multiple of `EVEN`."""

    shape: tuple[int, int]  # of what attention reads: rows, tokens
    sources: Int[Tensor, " place"] | None  # for each place there, a token of the long row; None: the same order
    places: Int[Tensor, " real"] | None  # for each token of the long row, its place there
    hides: Float[Tensor, "batch 1 1 token"] | None  # added to the scores of attention: -inf at padding
    first: Int[Tensor, " batch"]  # the first token of each row, in the long row
    reads_first: bool = False  # only the attention of first tokens is read

    def split(self, joined: Float[Tensor, "1 real *rest"]) -> Float[Tensor, "batch token *rest"]:
        """Return rows. Padding repeats a token, so that it is finite."""
        flat = joined[0] if self.sources is None else joined[0].index_select(0, self.sources)
        return flat.view(*self.shape, *flat.shape[1:])

    def join(self, rows: Float[Tensor, "batch token *rest"]) -> Float[Tensor, "1 real *rest"]:
        return _select(rows.flatten(0, 1), self.places)[None]


def _lay_out(mask: Bool[Tensor, "batch token"], dtype: torch.dtype) -> _Layout:
    lengths = mask.sum(-1)
    first = lengths.cumsum(0) - lengths
    wide = functional.pad(mask, (0, -mask.shape[1] % EVEN))
    if bool(wide.all()):
        return _Layout((len(wide), wide.shape[1]), None, None, None, first)
    sources = torch.where(wide, wide.flatten().cumsum(0).view(wide.shape) - 1, first[:, None]).flatten()
    hides = torch.zeros(wide.shape, dtype=dtype, device=mask.device).masked_fill_(~wide, -torch.inf)
    places = wide.flatten().nonzero()[:, 0]
    return _Layout((len(wide), wide.shape[1]), sources, places, hides[:, None, None], first)


def _select(flat: Float[Tensor, "token *rest"], chosen: Int[Tensor, " chosen"] | None) -> Float[Tensor, "_ *rest"]:
    return flat if chosen is None else flat.index_select(0, chosen)


_layout: ContextVar[_Layout | None] = ContextVar("whichtoken_layout", default=None)


def can_skip_padding(subject: "Subject") -> bool:
    """Return whether a model is an encoder of transformers, on a CPU, whose blocks can read one long row.

    Positions must be known before the blocks, and the norm must come after the sum of attention and residual. Tokens
    must attend to all tokens of their row. Hooks of the user and compiled modules expect rows.
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
        and not getattr(model.config, "is_decoder", False)
        and not has_hooks(model)
        and not any(getattr(module, "_compiled_call_impl", None) for module in model.modules())
    )


@contextmanager
def skip_padding(subject: "Subject", mask: Bool[Tensor, "batch token"]) -> Iterator[None]:
    """Let passes of a twin skip padding inside the block. It must use the attention implementation `NAME`."""
    blocks, norm = subject.blocks, str(subject.architecture.norm)
    only_first = subject.head.pools and subject.readout_kind is Readout.FIRST
    layout = _lay_out(mask, subject.model.dtype)
    real = None if bool(mask.all()) else mask.flatten().nonzero()[:, 0]

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        _layout.set(layout)
        if args:
            return (_select(args[0].flatten(0, 1), real)[None], *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": _select(kwargs["hidden_states"].flatten(0, 1), real)[None]}

    def before_last(module: nn.Module, args: tuple[Any, ...]) -> None:
        _layout.set(replace(layout, reads_first=only_first))

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        hidden = output if isinstance(output, Tensor) else output[0]
        rows = hidden[0][:, None] if only_first else _pad(hidden[0], real, mask.shape)
        return rows if isinstance(output, Tensor) else (rows, *output[1:])

    with ExitStack() as stack:
        stack.callback(_layout.reset, _layout.set(layout))
        stack.enter_context(blocks[0].register_forward_pre_hook(before, with_kwargs=True))
        stack.enter_context(blocks[-1].register_forward_pre_hook(before_last))
        if only_first:
            last = blocks[-1].get_submodule(norm)
            stack.enter_context(last.register_forward_hook(lambda module, args, output: output[:, layout.first]))
        stack.enter_context(blocks[-1].register_forward_hook(after))
        yield


def _pad(
    joined: Float[Tensor, "real dim"], real: Int[Tensor, " real"] | None, shape: torch.Size
) -> Float[Tensor, "batch token dim"]:
    """Return rows, 0 at padding."""
    if real is not None:
        joined = joined.new_zeros(shape.numel(), joined.shape[1]).index_copy_(0, real, joined)
    return joined.view(*shape, -1)


def _attend(
    module: nn.Module,
    query: Float[Tensor, "1 head real dim"],
    key: Float[Tensor, "1 head real dim"],
    value: Float[Tensor, "1 head real dim"],
    attention_mask: None,
    **options: Any,
) -> tuple[Float[Tensor, "1 real head dim"], None]:
    """Compute the fused attention of each row."""
    layout = _layout.get()
    assert layout is not None, "this attention needs `skip_padding`"
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    queries = query[0].index_select(0, layout.first)[:, None] if layout.reads_first else layout.split(query)
    rows = (x.transpose(1, 2) for x in (queries, layout.split(key), layout.split(value)))
    context, _ = sdpa_attention_forward(module, *rows, layout.hides, **{**options, "is_causal": False})
    if not layout.reads_first:
        return layout.join(context), None
    return torch.zeros_like(query).index_copy_(1, layout.first, context.transpose(0, 1)), None


def _no_mask(*arguments: Any, **options: Any) -> None:
    """Return no mask: the layout has its own."""


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _no_mask)
