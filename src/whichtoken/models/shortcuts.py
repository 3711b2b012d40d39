"""Which parts of a pass can be left out, if nothing is read that the last block computes for most tokens.

- Padding is skipped: the blocks of an encoder compute each token by itself, except in attention. So the tokens of all
  rows are sent through the blocks as one long row without padding, and only attention treats the rows separately.
- Most layers of the last block are computed only for the token that a classifier reads: all but keys and values.
  Hidden states of the last block are missing then, or wrong: passes that record them, or change them, may not use this.

Both change results by rounding errors alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from whichtoken.models.architectures import Readout
from whichtoken.models.encoding import Batch
from whichtoken.models.twin import runs_as_written

if TYPE_CHECKING:
    from whichtoken.models.subject import Subject

# Padding

NAME = "whichtoken-unpadded"
# Lengths in tokens: fused attention is up to three times faster on multiples of EVEN, and fastest from SHORTEST on.
EVEN, SHORTEST = 16, 32


@dataclass(frozen=True)
class _Layout:
    """Where attention finds the tokens of the long row: in chunks of the same length, each with one or more whole rows.

    Padding repeats a token, so that it is finite.
    """

    n_chunks: int
    queries: Int[Tensor, " query"] | None  # of all chunks: tokens of the long row; None: all of them, in this order
    keys: Int[Tensor, " key"] | None
    hides: Float[Tensor, "chunk 1 _ _"] | None  # added to the scores of attention: -inf at other rows and padding
    read: Int[Tensor, " read"] | None  # which queries are not padding; None: all

    def attend(
        self, module: nn.Module, rows: Sequence[Float[Tensor, "real head dim"]], options: dict[str, Any]
    ) -> Float[Tensor, "read head dim"]:
        """Compute the fused attention of queries, keys and values."""
        chunks = (
            _select(row, tokens).reshape(self.n_chunks, -1, *row.shape[1:]).transpose(1, 2)
            for row, tokens in zip(rows, (self.queries, self.keys, self.keys), strict=True)
        )
        context, _ = sdpa_attention_forward(module, *chunks, self.hides, **{**options, "is_causal": False})
        return _select(context.flatten(0, 1), self.read)


def _select(flat: Float[Tensor, "token *rest"], chosen: Int[Tensor, " chosen"] | None) -> Float[Tensor, "_ *rest"]:
    return flat if chosen is None else flat.index_select(0, chosen)


def _first_tokens(mask: Bool[Tensor, "batch token"]) -> Int[Tensor, " batch"]:
    """Return where each row begins in the long row."""
    lengths = mask.sum(-1)
    return lengths.cumsum(0) - lengths


def _lay_out(mask: Bool[Tensor, "batch token"], dtype: torch.dtype) -> tuple[_Layout, _Layout]:
    """Return where all tokens are, and where only the first token of each row is a query."""
    (n_rows, longest), lengths, device = mask.shape, mask.sum(-1), mask.device
    if torch.is_grad_enabled() and bool(mask.all()):
        # Forming chunks, forward and backward, would take longer than they save.
        of_rows = _Layout(n_rows, None, None, None, None)
        return of_rows, replace(of_rows, queries=_first_tokens(mask))
    size = max(SHORTEST, longest + -longest % EVEN)
    chunk, before, number = torch.tensor(_fill_chunks(lengths.tolist(), size), device=device).T
    n_chunks, first, rows = int(chunk[-1]) + 1, _first_tokens(mask), torch.arange(n_rows, device=device)
    row = rows.repeat_interleave(lengths)  # of each token of the long row
    tokens = torch.arange(len(row), device=device)
    places = (chunk * size + before - first)[row] + tokens
    owners = row.new_full((n_chunks * size,), -1).index_copy_(0, places, row).view(n_chunks, size)
    keys = read = None
    if len(places) < owners.numel():
        # Padding repeats a token of its own chunk, so that a row whose values are NaN harms no other chunk.
        keys, read = first[number == 0].repeat_interleave(size).index_copy_(0, places, tokens), places
    # Rows that have a chunk to themselves need no matrix, which may be large.
    seen = owners[:, None] >= 0 if n_chunks == n_rows else owners[:, :, None] == owners[:, None]
    everywhere = _Layout(n_chunks, keys, keys, _hide(~seen, dtype), read)
    most = int(number.max()) + 1
    slots = chunk * most + number
    queries = first[number == 0].repeat_interleave(most).index_copy_(0, slots, first)
    asking = owners[:, 0].repeat_interleave(most).index_copy_(0, slots, rows).view(n_chunks, most)
    return everywhere, _Layout(n_chunks, queries, keys, _hide(asking[:, :, None] != owners[:, None], dtype), slots)


def _fill_chunks(lengths: Sequence[int], size: int) -> list[tuple[int, int, int]]:
    """Put rows one after the other; return the chunk of each, and how many tokens and rows come before it in there."""
    places, chunk, n_tokens, n_rows = list[tuple[int, int, int]](), 0, 0, 0
    for length in lengths:
        if n_tokens + length > size:
            chunk, n_tokens, n_rows = chunk + 1, 0, 0
        places.append((chunk, n_tokens, n_rows))
        n_tokens, n_rows = n_tokens + length, n_rows + 1
    return places


def _hide(hidden: Bool[Tensor, "chunk query key"], dtype: torch.dtype) -> Float[Tensor, "chunk 1 query key"] | None:
    if not bool(hidden.any()):
        return None
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)[:, None]


# The layout, and the tokens of the long row whose attention it computes; None: of all.
_layout: ContextVar[tuple[_Layout, Int[Tensor, " batch"] | None] | None] = ContextVar("whichtoken_layout", default=None)


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
        and architecture.query is not None
        and subject.n_layers == len(subject.blocks)
        and getattr(model, "_supports_sdpa", False)
        and not getattr(model.config, "chunk_size_feed_forward", 0)
        and not getattr(model.config, "is_decoder", False)
        and runs_as_written(model)
    )


@contextmanager
def skip_padding(subject: "Subject", mask: Bool[Tensor, "batch token"]) -> Iterator[None]:
    """Let passes of a twin skip padding inside the block. It must use the attention implementation `NAME`."""
    blocks, norm = subject.blocks, str(subject.architecture.norm)
    only_first = subject.head.pools and subject.readout_kind is Readout.FIRST
    (everywhere, of_first), first = _lay_out(mask, subject.model.dtype), _first_tokens(mask)
    real = None if bool(mask.all()) else mask.flatten().nonzero()[:, 0]

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        _layout.set((everywhere, None))
        if args:
            return (_select(args[0].flatten(0, 1), real)[None], *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": _select(kwargs["hidden_states"].flatten(0, 1), real)[None]}

    def before_last(module: nn.Module, args: tuple[Any, ...]) -> None:
        if only_first:
            _layout.set((of_first, first))

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        hidden = output if isinstance(output, Tensor) else output[0]
        rows = hidden[0][:, None] if only_first else _pad(hidden[0], real, mask.shape)
        return rows if isinstance(output, Tensor) else (rows, *output[1:])

    def take_first(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][:, first], *args[1:])

    def put_back(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        n_tokens = mask.numel() if real is None else len(real)
        return output.new_zeros(1, n_tokens, output.shape[-1]).index_copy(1, first, output)

    with ExitStack() as stack:
        stack.callback(_layout.reset, _layout.set((everywhere, None)))
        stack.enter_context(blocks[0].register_forward_pre_hook(before, with_kwargs=True))
        stack.enter_context(blocks[-1].register_forward_pre_hook(before_last))
        if only_first:
            for name in (subject.architecture.query, subject.architecture.projection):
                layer = blocks[-1].get_submodule(str(name))
                stack.enter_context(layer.register_forward_pre_hook(take_first))
                stack.enter_context(layer.register_forward_hook(put_back))
            last = blocks[-1].get_submodule(norm)
            stack.enter_context(last.register_forward_hook(lambda module, args, output: output[:, first]))
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
    """Compute the attention of each row: of all its tokens, or of the first, and 0 of the others."""
    layout = _layout.get()
    assert layout is not None, "this attention needs `skip_padding`"
    chosen, first = layout
    rows = [states[0].transpose(0, 1) for states in (query, key, value)]
    context = chosen.attend(module, rows, options)
    return (context if first is None else torch.zeros_like(rows[0]).index_copy_(0, first, context))[None], None


def _no_mask(*arguments: Any, **options: Any) -> None:
    """Return no mask: the layout has its own."""


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _no_mask)


# The last block

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


# Which of them a pass can take


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
        return Shortcut(lambda batch: skip_padding(twin, batch.mask), NAME)
    narrow = partial(narrow_last_block, twin, with_queries=not all_queries)
    return Shortcut(narrow if can_narrow(twin) else lambda batch: nullcontext())
