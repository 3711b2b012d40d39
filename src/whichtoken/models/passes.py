"""One pass of a twin of the model, forward and backward, and the tensors that were recorded on the way."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from whichtoken.core.picks import Picks
from whichtoken.core.trace import Site
from whichtoken.errors import UnsupportedModel
from whichtoken.lrp import RuleSet, propagating, spread, suspend_rules
from whichtoken.lrp.pixels import embed_pixels
from whichtoken.models.attention import Tap, tap_attention, use_attention
from whichtoken.models.block_hooks import SITES as INTERIOR
from whichtoken.models.block_hooks import Interior
from whichtoken.models.encoding import Batch
from whichtoken.models.memory import (
    BETWEEN_BLOCKS,
    LARGE,
    compute_again,
    estimate_graph,
    forget_inside,
    is_out_of_memory,
)
from whichtoken.models.quantised import check_derivatives, watch_gradients
from whichtoken.models.shortcuts import choose_shortcut
from whichtoken.models.subject import Subject

BEFORE_LAST_LAYER = frozenset({Site.PIXELS, Site.EMBEDDINGS, Site.ATTENTION, Site.VALUE})

Choose = Callable[[Tensor], Picks]  # from logits to what is explained
Tensors = dict[Site, list[Tensor]]


@dataclass(frozen=True)
class PassRequest:
    """The arguments that all runs of one capture share."""

    subject: Subject
    batch: Batch
    choose: Choose
    hidden: Bool[Tensor, "batch token"] | None  # keys that no token may attend to
    embeddings: Tensor | None


@dataclass(frozen=True)
class FinishedPass:
    """The result of one forward and one backward pass; under rules, `grads` is relevance."""

    logits: Tensor
    picks: Picks
    values: dict[Site, tuple[Tensor, ...]]
    grads: dict[Site, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Forward:
    """A forward pass that is finished: its logits, and what was recorded of it, with the graph that leads there."""

    logits: Tensor
    tensors: Tensors
    tidy: "_Tidy"
    rules: RuleSet | None
    # If the blocks forgot what they computed: the subject that computes it again, and whether with our attention.
    forgotten: tuple[Subject, bool] | None = None


def run_pass(
    request: PassRequest, values: frozenset[Site], grads: frozenset[Site], rules: RuleSet | None
) -> FinishedPass:
    """Run the model forward and, if gradients are requested, backward."""
    made = run_forward(request, values | grads, rules, bool(grads))
    with _differentiating(bool(grads)):
        picks = request.choose(made.logits)
    back = run_backward(made, picks, grads)
    tensors, logits, tidy = {site: made.tensors[site] for site in values}, made.logits.detach(), made.tidy
    # What was recorded remains in the lists of `tensors` alone, and only what is asked for: `tidy` empties them.
    del made
    return FinishedPass(logits, picks, {site: tidy.values(site, tensors[site]) for site in values}, back)


def run_forward(request: PassRequest, sites: frozenset[Site], rules: RuleSet | None, differentiable: bool) -> Forward:
    subject = request.subject
    tap = Tap(Site.ATTENTION in sites, Site.VALUE in sites, request.hidden, rules)
    captured, interior = _Captured(), Interior(sites & INTERIOR, None if rules is None else rules.gates)
    dtype = _precision(subject, rules)
    if rules is not None and dtype == torch.float16:
        raise UnsupportedModel("relevance underflows in float16; load the model in float32 or bfloat16")
    # Eager attention is replaced by ours, which differs in the softmax: in float64 some models' own softmax rounds
    # to float32, and the padding of ModernBERT becomes NaN.
    eager = subject.own_attention == "eager"
    tapping = tap.record or tap.record_values or tap.hidden is not None or eager or rules is not None
    lean = differentiable and _can_forget(request, sites, rules, fused=not tapping)
    spreads = rules is not None and rules.spread  # over all tokens, at the output of the last block
    shorten = sites <= BEFORE_LAST_LAYER and not lean and not spreads
    fused = sites <= {Site.EMBEDDINGS} and not tapping
    shortcut = choose_shortcut(subject, fused, all_queries=Site.ATTENTION in sites) if shorten else None
    with ExitStack() as stack:
        stack.enter_context(_differentiating(differentiable))
        if differentiable:
            stack.enter_context(watch_gradients(subject.model))
        if differentiable and Site.PIXELS in sites and request.batch.pixels is not None:
            stack.enter_context(_set_pixel_leaf(subject, captured, dtype))
        else:
            stack.enter_context(_set_leaf(subject.embeddings, captured, request.embeddings, dtype))
        stack.enter_context(interior.watch(subject))
        if rules is not None and rules.spread:
            stack.enter_context(_spread_relevance(subject.blocks[-1], request.batch.mask))
        if Site.HIDDEN in sites:
            stack.enter_context(_record_hidden(subject.blocks, captured))
        if lean:
            stack.enter_context(forget_inside(subject))
        if shortcut is not None:
            stack.enter_context(shortcut.enter(request.batch))
        attention = None if shortcut is None else shortcut.attention
        with _attending(subject, tap if tapping else None, attention), _propagating(subject, rules):
            logits = subject.forward(request.batch)
        if differentiable and rules is None:
            check_derivatives(logits)
        tensors = _collect_tensors(captured, tap, interior)
        _check_complete(request, tensors, sites, len(tap.possible) if tapping else None)
    tidy = _Tidy(request.batch.mask, tuple(tap.possible))
    return Forward(logits, {site: tensors[site] for site in sites}, tidy, rules, (subject, tapping) if lean else None)


def _can_forget(request: PassRequest, sites: frozenset[Site], rules: RuleSet | None, fused: bool) -> bool:
    """Return whether a graph is large, and nothing is read inside of blocks, so that these can be computed again."""
    subject, (rows, tokens) = request.subject, request.batch.ids.shape
    outside = sites <= BETWEEN_BLOCKS and request.hidden is None and (rules is None or rules.gates is None)
    own = subject.architecture.attention is None  # DeBERTa-v2 and MPNet get hooks inside
    return outside and own and estimate_graph(subject, rows, tokens, fused) > LARGE


@contextmanager
def _attending(subject: Subject, tap: Tap | None, attention: str | None = None) -> Iterator[None]:
    """Use a tap, or this attention implementation; None: the model's own."""
    if tap is None:
        use_attention(subject.model, attention or subject.own_attention)
        yield
    else:
        with tap_attention(subject.model, subject.architecture, tap):
            yield


@contextmanager
def _propagating(subject: Subject, rules: RuleSet | None) -> Iterator[None]:
    with nullcontext() if rules is None else propagating(subject.model, rules):
        yield


def run_backward(
    made: Forward, picks: Picks, grads: frozenset[Site], again: bool = False
) -> dict[Site, tuple[Tensor, ...]]:
    """Return gradients; under rules, relevance. `again`: the graph is kept for other picks."""
    with ExitStack() as stack:
        stack.enter_context(_differentiating(bool(grads)))
        if made.forgotten is not None:
            subject, tapping = made.forgotten
            stack.enter_context(_attending(subject, Tap(record=False, rules=made.rules) if tapping else None))
        # Examples are independent, so each gets its own gradient of the sum.
        targets = [(sign, term.scalar(made.logits).sum()) for sign, term in _terms(picks, made.rules)]
        if made.forgotten is not None:
            stack.enter_context(compute_again())
            stack.enter_context(_propagating(made.forgotten[0], made.rules))
        back = _backward(targets, made.rules, {site: made.tensors[site] for site in sorted(grads)}, again)
    return {site: made.tidy.grads(site, back[site]) for site in grads}


@contextmanager
def _differentiating(differentiable: bool) -> Iterator[None]:
    """Compute a graph or none, and apply no rules of a pass whose hook called this one."""
    with torch.inference_mode(False), torch.set_grad_enabled(differentiable), suspend_rules():
        yield


def _precision(subject: Subject, rules: RuleSet | None) -> torch.dtype:
    """Return the dtype of a run: the model's, or float64 for rules that divide relevance by sums.

    Where a sum almost cancels, such a rule multiplies the rounding errors of the forward pass. In float32, a text then
    gets scores in a batch that differ by percents from those it gets alone. Apple's GPUs have no float64.
    """
    dtype: torch.dtype = subject.model.dtype
    wide = rules is not None and rules.carries == "relevance" and subject.device.type != "mps"
    return torch.float64 if wide else dtype


@dataclass(frozen=True)
class _Captured:
    """Tensors recorded by the hooks of one run."""

    pixels: list[Tensor] = field(default_factory=list)
    embeddings: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)  # of the blocks, in order of calls
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def _set_leaf(module: nn.Module, captured: _Captured, embeddings: Tensor | None, dtype: torch.dtype) -> Iterator[None]:
    """Make the first block's input the leaf of the graph.

    Uses a hook, because with `inputs_embeds` GPT-2 and Llama classifiers lose the padding and return wrong logits.
    """

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        leaf = (output if embeddings is None else embeddings).detach().to(dtype)
        captured.embeddings.append(leaf.requires_grad_(torch.is_grad_enabled()))
        return leaf

    with module.register_forward_hook(hook):
        yield


@contextmanager
def _set_pixel_leaf(subject: Subject, captured: _Captured, dtype: torch.dtype) -> Iterator[None]:
    """Make the image the leaf of the graph, for relevance only, not for gradients."""
    convolution = next(module for module in subject.embeddings.modules() if isinstance(module, nn.Conv2d))
    convolved: list[tuple[Tensor, Tensor]] = []  # pixels, patches

    def after_convolution(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        convolved.append((args[0].to(dtype), output.to(dtype)))

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        pixels, patches = convolved.pop()
        image, tokens = embed_pixels(pixels, convolution, patches, subject.prefix.to(dtype), output.to(dtype))
        captured.pixels.append(image)
        captured.embeddings.append(tokens)
        return tokens

    with convolution.register_forward_hook(after_convolution), subject.embeddings.register_forward_hook(hook):
        yield


@contextmanager
def _record_hidden(blocks: Sequence[nn.Module], captured: _Captured) -> Iterator[None]:
    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        captured.inputs.append(args[0] if args else kwargs["hidden_states"])

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        captured.outputs[:] = [output if isinstance(output, Tensor) else output[0]]  # only the last is needed

    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(block.register_forward_pre_hook(before, with_kwargs=True))
            stack.enter_context(block.register_forward_hook(after))
        yield


@contextmanager
def _spread_relevance(block: nn.Module, mask: Tensor) -> Iterator[None]:
    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, Tensor):
            return spread(output, mask)
        return (spread(output[0], mask), *output[1:])

    with block.register_forward_hook(after):
        yield


def _collect_tensors(captured: _Captured, tap: Tap, interior: Interior) -> Tensors:
    return {
        **interior.tensors,
        Site.PIXELS: captured.pixels,
        Site.EMBEDDINGS: captured.embeddings,
        Site.HIDDEN: [*captured.inputs, *captured.outputs],
        Site.ATTENTION: tap.attention,
        Site.VALUE: tap.values,
    }


def _check_complete(request: PassRequest, tensors: Tensors, sites: frozenset[Site], tapped_blocks: int | None) -> None:
    """Raise UnsupportedModel if the model bypasses the hooks, because a partial capture gives wrong scores."""
    subject = request.subject
    name, layers = type(subject.model).__name__, subject.n_layers
    if tapped_blocks not in (None, layers):
        raise UnsupportedModel(f"{name}: the attention of {tapped_blocks} blocks was intercepted, expected {layers}")
    norms = 0 if subject.architecture.norm is None else layers
    images = int(request.batch.pixels is not None)
    counts = {Site.EMBEDDINGS: 1, Site.HIDDEN: layers + 1, Site.NORM: norms, Site.PIXELS: images}
    for site in sorted(sites):
        expected = counts.get(site, layers)
        if len(tensors[site]) != expected:
            raise UnsupportedModel(f"{name}: found {len(tensors[site])} tensors of {site}, expected {expected}")
    if Site.HIDDEN in sites and not _is_same(tensors[Site.HIDDEN][0], tensors[Site.EMBEDDINGS][0]):
        raise UnsupportedModel(f"{name}: its first block does not read its embeddings")


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same values in the same memory; a backward hook makes another object."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape


def _terms(picks: Picks, rules: RuleSet | None) -> Sequence[tuple[float, Picks]]:
    """Return what is propagated separately: rules that carry a gradient, and gradients, are linear."""
    return ((1.0, picks),) if rules is None or rules.carries == "gradient" else picks.terms()


def _backward(targets: Sequence[tuple[float, Tensor]], rules: RuleSet | None, tensors: Tensors, again: bool) -> Tensors:
    if len(targets) == 1:
        return _gradients(targets[0][1], tensors, rules, again)
    last = len(targets) - 1
    signed = [
        (sign, _gradients(target, tensors, rules, again=again or number < last))
        for number, (sign, target) in enumerate(targets)
    ]
    return {
        site: [
            torch.stack([sign * of_term[site][i] for sign, of_term in signed]).sum(0) for i in range(len(tensors[site]))
        ]
        for site in tensors
    }


def _gradients(target: Tensor, tensors: Tensors, rules: RuleSet | None, again: bool = False) -> Tensors:
    """Return gradients; under rules, relevance, 0 where none arrives. The graph is freed unless needed `again`."""
    flat = [tensor for group in tensors.values() for tensor in group]
    if not flat:
        return {site: [] for site in tensors}
    if rules is not None:
        # Tensors that rules treat as constants are no longer part of the graph.
        flat = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in flat]
    try:
        grads = torch.autograd.grad(target, flat, retain_graph=again, allow_unused=rules is not None)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedModel(f"the logits do not depend on what was captured: {error}") from error
    back = (torch.zeros_like(x) if grad is None else grad for x, grad in zip(flat, grads, strict=True))
    if rules is not None and rules.carries == "gradient":
        back = (x.detach() * grad for x, grad in zip(flat, back, strict=True))
    return {site: [next(back) for _ in group] for site, group in tensors.items()}


@dataclass(frozen=True)
class _Tidy:
    """Sets tensors to 0 at padding, and attention gradients to 0 where the model cannot attend.

    The lists that it is given are empty afterwards: each tensor is freed as soon as its copy is made, because all the
    attention of a batch may not fit in memory twice.
    """

    mask: Bool[Tensor, "batch token"]
    possible: tuple[Tensor | None, ...]

    def values(self, site: Site, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self._without_padding(site, tensor) for tensor in _take(tensors))

    def grads(self, site: Site, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        if site is not Site.ATTENTION:
            return self.values(site, tensors)
        tidied = (self._without_padding(site, tensor) for tensor in _take(tensors))
        pairs = zip(tidied, self.possible, strict=True)
        return tuple(grad if can is None else grad.masked_fill(~can, 0) for grad, can in pairs)

    def _without_padding(self, site: Site, tensor: Tensor) -> Tensor:
        tensor = tensor.detach().transpose(1, 2) if site is Site.CONTEXT else tensor.detach()
        if self.mask.all() or site is Site.PROJECTION:
            return tensor
        real = self.mask[:, :, None]
        if site is Site.ATTENTION:
            real = (self.mask[:, :, None] & self.mask[:, None, :])[:, None]
        elif site in (Site.VALUE, Site.CONTEXT):
            real = self.mask[:, None, :, None]
        return tensor.masked_fill(~real, 0)


def _take(tensors: list[Tensor]) -> Iterator[Tensor]:
    """Yield each tensor and remove it from the list."""
    tensors.reverse()
    while tensors:
        yield tensors.pop()
