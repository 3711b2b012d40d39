"""Run a twin of the model once forward and once backward, and return the declared tensors as a trace.

Relevance takes another forward and backward pass for each rule set.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from whichtoken.core.objectives import Objective
from whichtoken.core.trace import Needs, Site, Trace, View
from whichtoken.errors import UnsupportedModel, UsageError
from whichtoken.lrp import RuleSet, propagating, spread, suspend_rules
from whichtoken.lrp.pixels import embed_pixels
from whichtoken.models.attention import Tap, tap_attention, use_attention
from whichtoken.models.block_hooks import SITES as INTERIOR
from whichtoken.models.block_hooks import Interior
from whichtoken.models.encoding import Batch
from whichtoken.models.out_of_memory import is_out_of_memory
from whichtoken.models.quantised import check_derivatives, watch_gradients
from whichtoken.models.subject import Subject

Choose = Callable[[Tensor], Objective]  # from logits to the objective to explain


def capture(
    subject: Subject,
    batch: Batch,
    choose: Choose,
    needs: Needs,
    embeddings: Float[Tensor, "batch token dim"] | None = None,
) -> Trace:
    """Run the model once, and once more for each rule set. `embeddings`, if given, replace the input of the first
    block.
    """
    _check_pixels(needs, embeddings)
    subject = subject.with_twin()
    request = _Request(subject, batch, choose, _hidden_keys(subject, batch, needs.view), embeddings)
    under = {
        rules: frozenset(s for r, s in needs.relevance if r == rules) for rules, _ in sorted(needs.relevance, key=str)
    }
    # Rules do not change the forward pass, so values and the objective can come from any run.
    plain: list[tuple[RuleSet | None, frozenset[Site]]] = [(None, needs.grads)] if needs.grads or not under else []
    runs: list[_Run] = []
    for rules, sites in [*plain, *under.items()]:
        runs.append(_run(request, frozenset() if runs else needs.values, sites, rules))
        request = replace(request, choose=lambda logits: runs[0].objective)
    objective = runs[0].objective
    return Trace(
        ids=batch.ids,
        mask=batch.mask,
        special=batch.special,
        readout=objective.readout(batch).to(runs[0].logits.dtype),
        logits=runs[0].logits,
        target=objective.scalar(runs[0].logits),
        label=objective.label(batch),
        span=objective.span(),
        values=runs[0].values,
        grads=runs[0].grads if plain else {},
        relevances={
            (rules, site): run.grads[site]
            for (rules, sites), run in zip(under.items(), runs[len(plain) :], strict=True)
            for site in sites
        },
        grid=batch.grid,
    )


class _Embedded(Exception):
    """Ends a pass as soon as its embeddings are known."""


def embed(subject: Subject, batch: Batch) -> Float[Tensor, "batch token dim"]:
    """Return the input of the first block, 0 at padding, without running any block."""
    embedded: list[Tensor] = []

    def stop(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        embedded.append(output)
        raise _Embedded

    twin = subject.with_twin()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(suspend_rules())
        stack.enter_context(twin.embeddings.register_forward_hook(stop))
        stack.enter_context(suppress(_Embedded))
        twin.forward(batch)
    return embedded[0].masked_fill(~batch.mask[:, :, None], 0)


@dataclass(frozen=True)
class _Request:
    """The arguments that all runs of one capture share."""

    subject: Subject
    batch: Batch
    choose: Choose
    hidden: Bool[Tensor, "batch token"] | None  # keys that no token may attend to
    embeddings: Tensor | None


def _hidden_keys(subject: Subject, batch: Batch, view: View) -> Bool[Tensor, "batch token"] | None:
    if view.hide_special:
        return batch.special
    separator = getattr(subject.tokenizer, "sep_token_id", None)
    return batch.special & (batch.ids == separator) if view.hide_separators and separator is not None else None


@dataclass(frozen=True)
class _Run:
    """The result of one forward and one backward pass; under rules, `grads` is relevance."""

    logits: Tensor
    objective: Objective
    values: dict[Site, tuple[Tensor, ...]]
    grads: dict[Site, tuple[Tensor, ...]]


def _run(request: _Request, values: frozenset[Site], grads: frozenset[Site], rules: RuleSet | None) -> _Run:
    subject, sites = request.subject, values | grads
    tap = Tap(Site.ATTENTION in sites, Site.VALUE in sites, request.hidden)
    captured, interior = _Captured(), Interior(sites & INTERIOR, None if rules is None else rules.gates)
    dtype = _precision(subject, rules)
    if rules is not None and dtype == torch.float16:
        raise UnsupportedModel("relevance underflows in float16; load the model in float32 or bfloat16")
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(bool(grads)))
        if grads:
            stack.enter_context(watch_gradients(subject.model))
        stack.enter_context(suspend_rules())  # of a pass whose hook called this one
        if Site.PIXELS in grads and request.batch.pixels is not None:
            stack.enter_context(_set_pixel_leaf(subject, captured, dtype))
        else:
            stack.enter_context(_set_leaf(subject.embeddings, captured, request.embeddings, dtype))
        stack.enter_context(interior.watch(subject))
        if rules is not None and rules.spread:
            stack.enter_context(_spread_relevance(subject.blocks[-1], request.batch.mask))
        if Site.HIDDEN in sites:
            stack.enter_context(_record_hidden(subject.blocks, captured))
        # Eager attention is replaced by ours, which differs in the softmax: in float64 some models' own softmax rounds
        # to float32, and the padding of ModernBERT becomes NaN.
        eager = subject.own_attention == "eager"
        tapping = tap.record or tap.record_values or tap.hidden is not None or eager or rules is not None
        if tapping:
            stack.enter_context(tap_attention(subject.model, subject.architecture, tap))
        else:
            use_attention(subject.model, subject.own_attention)
        with nullcontext() if rules is None else propagating(subject.model, rules):
            logits = subject.forward(request.batch)
        if grads and rules is None:
            check_derivatives(logits)
        tensors = _collect_tensors(captured, tap, interior)
        _check_complete(request, tensors, sites, len(tap.possible) if tapping else None)
        objective = request.choose(logits)
        back = _backward(objective, logits, {site: tensors[site] for site in sorted(grads)}, rules)
    tidy = _Tidy(request.batch.mask, tuple(tap.possible))
    # What was recorded remains in the lists of `tensors` alone, and only what is asked for: `tidy` empties them.
    del captured, interior, tap
    tensors, logits = {site: tensors[site] for site in values}, logits.detach()
    return _Run(
        logits,
        objective,
        {site: tidy.values(site, tensors[site]) for site in values},
        {site: tidy.grads(site, back[site]) for site in grads},
    )


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


_Tensors = dict[Site, list[Tensor]]


def _collect_tensors(captured: _Captured, tap: Tap, interior: Interior) -> _Tensors:
    return {
        **interior.tensors,
        Site.PIXELS: captured.pixels,
        Site.EMBEDDINGS: captured.embeddings,
        Site.HIDDEN: [*captured.inputs, *captured.outputs],
        Site.ATTENTION: tap.attention,
        Site.VALUE: tap.values,
    }


def _check_complete(request: _Request, tensors: _Tensors, sites: frozenset[Site], tapped_blocks: int | None) -> None:
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


def _check_pixels(needs: Needs, embeddings: Tensor | None) -> None:
    under = sorted(rules.name for rules, site in needs.relevance if site is Site.PIXELS and rules.carries == "gradient")
    if under or Site.PIXELS in needs.values | needs.grads:
        form = f"under {under[0]}, which carries a gradient" if under else "as a value or a gradient"
        raise UsageError(f"{Site.PIXELS} were requested {form}; they can only be read as relevance under c21 and orig")
    if embeddings is not None and any(site is Site.PIXELS for _, site in needs.relevance):
        raise UsageError("relevance of pixels was requested together with replaced embeddings; leave out one of them")


def _backward(objective: Objective, logits: Tensor, tensors: _Tensors, rules: RuleSet | None) -> _Tensors:
    """Return gradients; under rules, relevance."""
    terms = objective.terms()
    if rules is None or rules.carries == "gradient" or len(terms) == 1:
        return _gradients(objective.scalar(logits), tensors, rules)
    last = len(terms) - 1
    signed = [
        (sign, _gradients(term.scalar(logits), tensors, rules, again=number < last))
        for number, (sign, term) in enumerate(terms)
    ]
    return {
        site: [
            torch.stack([sign * of_term[site][i] for sign, of_term in signed]).sum(0) for i in range(len(tensors[site]))
        ]
        for site in tensors
    }


def _gradients(target: Tensor, tensors: _Tensors, rules: RuleSet | None, again: bool = False) -> _Tensors:
    """Return gradients of the sum over the batch; examples are independent, so each gets its own gradient.

    Under rules, return relevance: 0 where none arrives. The graph is freed on the way, unless it is needed `again`.
    """
    flat = [tensor for group in tensors.values() for tensor in group]
    if not flat:
        return {site: [] for site in tensors}
    if rules is not None:
        # Tensors that rules treat as constants are no longer part of the graph.
        flat = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in flat]
    try:
        grads = torch.autograd.grad(target.sum(), flat, retain_graph=again, allow_unused=rules is not None)
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
