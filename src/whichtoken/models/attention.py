"""Record the attention of an unmodified model, or hide keys from it, within a `with` block.

Most models get their attention function from transformers' AttentionInterface; ours is registered there once and
selected by name. DeBERTa-v2 and MPNet compute attention inside a module, where hooks do the same.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from whichtoken.errors import UnsupportedModel
from whichtoken.lrp import (
    Attend,
    RuleSet,
    attention_in_one_step,
    attention_weights,
    carries_relevance,
    weighs_in_one_step,
)
from whichtoken.models.architectures import Architecture
from whichtoken.models.twin import list_modules

NAME = "whichtoken"
WIDE = (torch.float32, torch.float64)  # in which the softmax needs no other precision


@dataclass(frozen=True)
class Tap:
    """What to do with the attention of each block, and what was recorded, in order of the blocks."""

    record: bool
    record_values: bool = False
    hidden: Bool[Tensor, "batch key"] | None = None  # keys that no token may attend to
    rules: RuleSet | None = None  # of the pass
    masks: "list[_Mask]" = field(default_factory=list)  # of the last block: most models have one for all
    attention: list[Float[Tensor, "batch head query key"]] = field(default_factory=list)
    values: list[Float[Tensor, "batch head key dim"]] = field(default_factory=list)
    possible: list[Tensor | None] = field(default_factory=list)  # where a block can attend; None: everywhere

    @property
    def in_one_step(self) -> Attend | None:
        """A function that computes attention under the rules, if its probabilities are not recorded."""
        return None if self.rules is None or self.record else attention_in_one_step(self.rules)


@dataclass(frozen=True)
class _Mask:
    """Where queries cannot attend, in the forms in which the steps of attention need it."""

    source: Tensor | None  # the model's own mask
    possible: Bool[Tensor, "batch _ query key"] | None  # where the model can attend, the view aside; None: everywhere
    hides: Float[Tensor, "batch _ _ key"] | None  # is added to scores; None: nothing
    open: Bool[Tensor, "batch _ _ key"] | None = None  # where it is possible, if some query can attend to nothing

    def serves(self, source: Tensor | None, dtype: torch.dtype) -> bool:
        return self.source is source and (self.hides is None or self.hides.dtype == dtype)

    def select(self, place: tuple[slice, slice]) -> "_Mask":
        """Return the mask of some rows of a batch and some heads; it may be the same for all rows, or all heads."""
        if self.hides is None:
            return self
        sizes = self.hides.shape[:2]
        part = tuple(chosen if size > 1 else slice(None) for chosen, size in zip(place, sizes, strict=True))
        return replace(self, hides=self.hides[part], open=None if self.open is None else self.open[part])


_tap: ContextVar[Tap | None] = ContextVar("whichtoken_tap", default=None)


@contextmanager
def tap_attention(model: Any, architecture: Architecture, tap: Tap) -> Iterator[None]:
    """Apply `tap` to every attention in the block. `model` is a twin: its attention implementation stays changed."""
    with ExitStack() as stack:
        if architecture.attention is None:
            use_attention(model, NAME)
            token = _tap.set(tap)
            stack.callback(_tap.reset, token)
        else:
            for module in list_modules(model):
                if type(module).__name__ == architecture.attention:
                    _hook_attention(stack, module, tap)
                    if tap.record_values:
                        _hook_values(stack, module.get_submodule(architecture.value), model.config, tap)
        yield


def use_attention(model: Any, name: str) -> None:
    if model.config._attn_implementation != name:
        model.set_attn_implementation(name)
    if model.config._attn_implementation != name:  # transformers only logs a class that does not allow it
        raise UnsupportedModel(f"{type(model).__name__} does not allow its attention implementation to be changed")


def fastest_attention(model: Any, architecture: Architecture, own: str) -> str:
    """Return fused attention if the model supports it; else its own, or ours if that is eager, whose softmax turns rows
    without any key (padding outside a sliding window) into NaN.
    """
    if getattr(model, "_supports_sdpa", False):
        return "sdpa"
    return NAME if own == "eager" and architecture.attention is None else own


def _attend(
    module: nn.Module,
    query: Float[Tensor, "batch head query dim"],
    key: Float[Tensor, "batch group key dim"],
    value: Float[Tensor, "batch group key dim"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "batch query head dim"], Float[Tensor, "batch head query key"]]:
    """Compute plain attention; grouped keys and values (Llama, Qwen2) are repeated for their heads."""
    tap = _tap.get()
    rules = None if tap is None else tap.rules
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scale, softcap = query.shape[-1] ** -0.5 if scaling is None else scaling, options.get("softcap")  # of Gemma 2
    with torch._C.DisableTorchFunction():  # masks carry no relevance
        mask = _prepare_mask(attention_mask, query.dtype, tap)
    in_one_step = None if tap is None or softcap is not None or query.dtype not in WIDE else tap.in_one_step
    if in_one_step is not None and all(map(carries_relevance, (query, key, value))):
        with torch._C.DisableTorchFunction():
            context, probabilities = in_one_step(query, key, value, scale, partial(_normalise_some, mask))
    else:
        probabilities = _weigh(query, key, scale, mask, (rules, softcap))
        context = probabilities @ value
    if tap is not None:
        tap.possible.append(mask.possible)  # includes keys hidden by the view, as the authors' averages do
        if tap.record:
            tap.attention.append(probabilities)
        if tap.record_values:
            tap.values.append(value)
    return context.transpose(1, 2).contiguous(), probabilities


def _prepare_mask(source: Tensor | None, dtype: torch.dtype, tap: Tap | None) -> _Mask:
    """Return the mask of a block, that of the block before if the model gives both the same tensor."""
    if tap is not None and tap.masks and tap.masks[0].serves(source, dtype):
        return tap.masks[0]
    possible = None if source is None else source > torch.finfo(source.dtype).min / 2
    blocked = None if possible is None else ~possible
    if tap is not None and tap.hidden is not None:
        keys = tap.hidden[:, None, None, :]
        blocked = keys if blocked is None else blocked | keys
    mask = _Mask(source, possible, None)
    if blocked is not None:
        # Added, not filled in: the sum needs no copy, and its gradient never does. One mask serves all heads. Half the
        # least number is enough, and no score makes it infinite.
        hides = torch.zeros_like(blocked, dtype=dtype).masked_fill_(blocked, torch.finfo(dtype).min / 2)
        mask = _Mask(source, possible, hides, ~blocked if blocked.all(-1).any() else None)
    if tap is not None:
        tap.masks[:] = [mask]
    return mask


def _weigh(
    query: Tensor, key: Tensor, scale: float, mask: _Mask, settings: tuple[RuleSet | None, float | None]
) -> Float[Tensor, "batch head query key"]:
    """Return the weights of attention. `settings`: the rules of the pass, and the model's softcap."""
    rules, softcap = settings
    divides = rules is not None and rules.carries == "relevance"
    if rules is not None and softcap is None and carries_relevance(query) and weighs_in_one_step(rules):
        with torch._C.DisableTorchFunction():
            return attention_weights(query, key, scale, partial(_normalise_some, mask))
    # It is faster to scale the queries, which are smaller; but rules that divide by the result of each step follow the
    # order of their authors.
    scores = query @ key.mT * scale if divides else (query * scale) @ key.mT
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    return _normalise(scores, mask, in_place=rules is None and softcap is None)


def _normalise_some(mask: _Mask, scores: Tensor, place: tuple[slice, slice]) -> Tensor:
    """Return the softmax for some rows of a batch and some heads."""
    return _normalise(scores, mask.select(place))


def _normalise(
    scores: Float[Tensor, "batch head query key"], mask: _Mask, in_place: bool = True
) -> Float[Tensor, "batch head query key"]:
    """Return the softmax over the keys that are not hidden. `in_place`: scores may be changed."""
    if mask.hides is not None:
        scores = scores.add_(mask.hides) if in_place else scores + mask.hides
    probabilities = _softmax(scores)
    if mask.open is not None:
        # In a causal model whose first token is hidden, some queries have no key left and must attend to nothing; the
        # softmax alone would let them attend to everything, padding included. Elsewhere it gives hidden keys exactly 0,
        # and a product would only keep a second copy of all attention in the graph.
        probabilities = probabilities * mask.open
    return probabilities


def _softmax(scores: Tensor) -> Tensor:
    """Compute the softmax in float32 or wider, as the models do; unlike them, keep float64."""
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)


def _hook_attention(stack: ExitStack, module: nn.Module, tap: Tap) -> None:
    signature = inspect.signature(module.forward)

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.arguments["output_attentions"] = True
        if tap.hidden is not None:
            like = bound.arguments["hidden_states"]
            bound.arguments["attention_mask"] = _hide_keys(bound.arguments["attention_mask"], tap.hidden, like.dtype)
        return bound.args, bound.kwargs

    def after(module: nn.Module, args: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        tap.possible.append(None)
        if tap.record:
            tap.attention.append(output[1])

    stack.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
    stack.enter_context(module.register_forward_hook(after))


def _hook_values(stack: ExitStack, module: nn.Module, config: Any, tap: Tap) -> None:
    def after(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        tap.values.append(output.view(*output.shape[:2], config.num_attention_heads, -1).transpose(1, 2))

    stack.enter_context(module.register_forward_hook(after))


def _hide_keys(mask: Tensor | None, hidden: Bool[Tensor, "batch key"], dtype: torch.dtype) -> Tensor:
    """Hide keys in a mask. MPNet adds it to the scores (None without padding), DeBERTa-v2 tests where it is not 0."""
    keys = hidden[:, None, None, :]
    if mask is None:
        mask = torch.zeros(keys.shape, dtype=dtype, device=hidden.device)
    return mask.masked_fill(keys, torch.finfo(mask.dtype).min if mask.is_floating_point() else 0)


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, eager_mask)  # without it transformers drops the padding mask silently
