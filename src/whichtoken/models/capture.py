"""One forward and one backward over a twin of the model: the declared tensors.

Relevance takes a forward and a backward of its own for each rule set.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from whichtoken.core.objectives import Objective
from whichtoken.core.trace import Needs, Site, Trace
from whichtoken.errors import UnsupportedModel, UsageError
from whichtoken.lrp import RuleSet, propagating, spread
from whichtoken.lrp.pixels import embedded
from whichtoken.models.attention import Tap, tapped, use_attention
from whichtoken.models.block_hooks import SITES as INTERIOR
from whichtoken.models.block_hooks import Interior
from whichtoken.models.encoding import Batch
from whichtoken.models.subject import Subject

Choose = Callable[[Tensor], Objective]  # from logits to what is explained


def capture(
    subject: Subject,
    batch: Batch,
    choose: Choose,
    needs: Needs,
    embeddings: Float[Tensor, "batch token dim"] | None = None,
) -> Trace:
    """Run the model once, and once more for each rule set. `embeddings`, if given, take the place of what its first
    block would read.
    """
    _check_pixels(needs, embeddings)
    subject = subject.twinned()
    asked = _Asked(subject, batch, choose, needs.view.hide_special, embeddings)
    under = {
        rules: frozenset(s for r, s in needs.relevance if r == rules) for rules, _ in sorted(needs.relevance, key=str)
    }
    # Rules change nothing on the way forward, so values, and what is explained, can come from any run.
    plain: list[tuple[RuleSet | None, frozenset[Site]]] = [(None, needs.grads)] if needs.grads or not under else []
    runs: list[_Run] = []
    for rules, sites in [*plain, *under.items()]:
        runs.append(_run(asked, frozenset() if runs else needs.values, sites, rules))
        asked = replace(asked, choose=lambda logits: runs[0].objective)
    objective = runs[0].objective
    return Trace(
        ids=batch.ids,
        mask=batch.mask,
        special=batch.special,
        readout=objective.readout(batch).to(subject.model.dtype),
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


@dataclass(frozen=True)
class _Asked:
    """What every run of one capture has in common."""

    subject: Subject
    batch: Batch
    choose: Choose
    hide_special: bool
    embeddings: Tensor | None


@dataclass(frozen=True)
class _Run:
    """What one forward and one backward gave; under rules, `grads` is relevance."""

    logits: Tensor
    objective: Objective
    values: dict[Site, tuple[Tensor, ...]]
    grads: dict[Site, tuple[Tensor, ...]]


def _run(asked: _Asked, values: frozenset[Site], grads: frozenset[Site], rules: RuleSet | None) -> _Run:
    subject, sites = asked.subject, values | grads
    tap = Tap(Site.ATTENTION in sites, Site.VALUE in sites, asked.batch.special if asked.hide_special else None)
    seen, interior = _Seen(), Interior(sites & INTERIOR, None if rules is None else rules.gates)
    if rules is not None and subject.model.dtype == torch.float16:
        raise UnsupportedModel("relevance underflows in float16; load the model in float32 or bfloat16")
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(bool(grads)))
        if Site.PIXELS in grads and asked.batch.pixels is not None:
            stack.enter_context(_pixel_leaf(subject, seen))
        else:
            stack.enter_context(_leaf(subject.embeddings, seen, asked.embeddings))
        stack.enter_context(interior.watched(subject))
        if rules is not None and rules.spread:
            stack.enter_context(_spreading(subject.blocks[-1], asked.batch.mask))
        if Site.HIDDEN in sites:
            stack.enter_context(_block_inputs(subject.blocks, seen))
        # Eager attention is ours with another softmax: in float64 some models' own rounds to float32 and lets the
        # padding of ModernBERT become NaN.
        eager = subject.own_attention == "eager"
        tapping = tap.record or tap.record_values or tap.hidden is not None or eager or rules is not None
        if tapping:
            stack.enter_context(tapped(subject.model, subject.architecture, tap))
        else:
            use_attention(subject.model, subject.own_attention)
        with nullcontext() if rules is None else propagating(subject.model, rules):
            logits = subject.forward(asked.batch)
        found = _found(seen, tap, interior)
        _check_found(asked, found, sites, len(tap.possible) if tapping else None)
        objective = asked.choose(logits)
        back = _back(objective, logits, {site: found[site] for site in sorted(grads)}, rules)
    tidy = _Tidy(asked.batch.mask, tuple(tap.possible))
    return _Run(
        logits.detach(),
        objective,
        {site: tidy.values(site, found[site]) for site in values},
        {site: tidy.grads(site, back[site]) for site in grads},
    )


@dataclass(frozen=True)
class _Seen:
    pixels: list[Tensor] = field(default_factory=list)
    embeddings: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)  # of blocks, in order of calls
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def _leaf(module: nn.Module, seen: _Seen, embeddings: Tensor | None) -> Iterator[None]:
    """Make the first block's input the leaf of the graph.

    A hook, because with `inputs_embeds` GPT-2 and Llama classifiers lose the padding and give wrong logits.
    """

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        leaf = (output if embeddings is None else embeddings).detach()
        seen.embeddings.append(leaf.requires_grad_(torch.is_grad_enabled()))
        return leaf

    with module.register_forward_hook(hook):
        yield


@contextmanager
def _pixel_leaf(subject: Subject, seen: _Seen) -> Iterator[None]:
    """Make an image the leaf, of relevance only: no gradient takes this way."""
    convolution = next(module for module in subject.embeddings.modules() if isinstance(module, nn.Conv2d))
    convolved: list[tuple[Tensor, Tensor]] = []  # pixels, patches

    def below(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        convolved.append((args[0], output))

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        pixels, patches = convolved.pop()
        image, tokens = embedded(pixels, convolution, patches, subject.prefix, output)
        seen.pixels.append(image)
        seen.embeddings.append(tokens)
        return tokens

    with convolution.register_forward_hook(below), subject.embeddings.register_forward_hook(hook):
        yield


@contextmanager
def _block_inputs(blocks: Sequence[nn.Module], seen: _Seen) -> Iterator[None]:
    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.inputs.append(args[0] if args else kwargs["hidden_states"])

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen.outputs[:] = [output if isinstance(output, Tensor) else output[0]]  # only the last is wanted

    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(block.register_forward_pre_hook(before, with_kwargs=True))
            stack.enter_context(block.register_forward_hook(after))
        yield


@contextmanager
def _spreading(block: nn.Module, mask: Tensor) -> Iterator[None]:
    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, Tensor):
            return spread(output, mask)
        return (spread(output[0], mask), *output[1:])

    with block.register_forward_hook(after):
        yield


def _found(seen: _Seen, tap: Tap, interior: Interior) -> dict[Site, tuple[Tensor, ...]]:
    return {
        **{site: tuple(tensors) for site, tensors in interior.seen.items()},
        Site.PIXELS: tuple(seen.pixels),
        Site.EMBEDDINGS: tuple(seen.embeddings),
        Site.HIDDEN: (*seen.inputs, *seen.outputs),
        Site.ATTENTION: tuple(tap.seen),
        Site.VALUE: tuple(tap.values),
    }


def _check_found(
    asked: _Asked, found: dict[Site, tuple[Tensor, ...]], sites: frozenset[Site], tapped_blocks: int | None
) -> None:
    """Refuse a model that bypasses the hooks: a pass that was not seen whole gives wrong numbers."""
    subject = asked.subject
    name, layers = type(subject.model).__name__, subject.n_layers
    if tapped_blocks not in (None, layers):
        raise UnsupportedModel(f"{name}: the attention of {tapped_blocks} blocks was intercepted, of {layers} expected")
    norms = 0 if subject.architecture.norm is None else layers
    images = int(asked.batch.pixels is not None)
    wanted = {Site.EMBEDDINGS: 1, Site.HIDDEN: layers + 1, Site.NORM: norms, Site.PIXELS: images}
    for site in sorted(sites):
        expected = wanted.get(site, layers)
        if len(found[site]) != expected:
            raise UnsupportedModel(f"{name}: found {len(found[site])} tensors of {site}, expected {expected}")
    if Site.HIDDEN in sites and found[Site.HIDDEN][0] is not found[Site.EMBEDDINGS][0]:
        raise UnsupportedModel(f"{name}: its first block does not read its embeddings")


def _check_pixels(needs: Needs, embeddings: Tensor | None) -> None:
    under = sorted(rules.name for rules, site in needs.relevance if site is Site.PIXELS and rules.carries == "gradient")
    if under or Site.PIXELS in needs.values | needs.grads:
        found = f"under {under[0]}, which carries a gradient" if under else "as a value or a gradient"
        raise UsageError(f"{Site.PIXELS} was asked for {found}; it can be read as relevance under c21 and orig only")
    if embeddings is not None and any(site is Site.PIXELS for _, site in needs.relevance):
        raise UsageError("relevance of pixels was asked for on other embeddings than the image has; leave out either")


_Tensors = dict[Site, tuple[Tensor, ...]]


def _back(objective: Objective, logits: Tensor, tensors: _Tensors, rules: RuleSet | None) -> _Tensors:
    """Gradients; under rules, relevance."""
    terms = objective.terms()
    if rules is None or rules.carries == "gradient" or len(terms) == 1:
        return _gradients(objective.scalar(logits), tensors, rules)
    found = [(sign, _gradients(term.scalar(logits), tensors, rules)) for sign, term in terms]
    return {
        site: tuple(
            torch.stack([sign * of_term[site][i] for sign, of_term in found]).sum(0) for i in range(len(tensors[site]))
        )
        for site in tensors
    }


def _gradients(target: Tensor, tensors: _Tensors, rules: RuleSet | None) -> _Tensors:
    """Of the sum over the batch: examples do not touch each other, so each gets its own gradient.

    Under rules: relevance, none where nothing goes through.
    """
    flat = [tensor for group in tensors.values() for tensor in group]
    if not flat:
        return dict.fromkeys(tensors, ())
    if rules is not None:
        # What rules take as given is no longer part of the graph.
        flat = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in flat]
    try:
        found = torch.autograd.grad(target.sum(), flat, retain_graph=rules is not None, allow_unused=rules is not None)
    except RuntimeError as error:
        raise UnsupportedModel(f"the logits do not depend on what was captured: {error}") from error
    back = (torch.zeros_like(x) if grad is None else grad for x, grad in zip(flat, found, strict=True))
    if rules is not None and rules.carries == "gradient":
        back = (x.detach() * grad for x, grad in zip(flat, back, strict=True))
    return {site: tuple(next(back) for _ in group) for site, group in tensors.items()}


@dataclass(frozen=True)
class _Tidy:
    """Sets to 0 what lies at padding, and gradients for attention that cannot be."""

    mask: Bool[Tensor, "batch token"]
    possible: tuple[Tensor | None, ...]

    def values(self, site: Site, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        detached = tuple(tensor.detach() for tensor in tensors)
        if site is Site.CONTEXT:
            detached = tuple(tensor.transpose(1, 2) for tensor in detached)
        if self.mask.all() or site is Site.PROJECTION:
            return detached
        real = self.mask[:, :, None]
        if site is Site.ATTENTION:
            real = (self.mask[:, :, None] & self.mask[:, None, :])[:, None]
        elif site in (Site.VALUE, Site.CONTEXT):
            real = self.mask[:, None, :, None]
        return tuple(tensor.masked_fill(~real, 0) for tensor in detached)

    def grads(self, site: Site, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        tensors = self.values(site, tensors)
        if site is not Site.ATTENTION:
            return tensors
        pairs = zip(tensors, self.possible, strict=True)
        return tuple(grad if can is None else grad.masked_fill(~can, 0) for grad, can in pairs)
