"""One forward and one backward over an unmodified model: the declared tensors, and nothing left behind."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from whichtoken.errors import UnsupportedModel
from whichtoken.models.attention import Tap, tapped
from whichtoken.models.encoding import Batch
from whichtoken.models.subject import Subject, check_eval
from whichtoken.targets import Goal
from whichtoken.trace import Needs, Site, Trace

Choose = Callable[[Tensor], Goal]  # from logits to what is explained


def capture(
    subject: Subject,
    batch: Batch,
    choose: Choose,
    needs: Needs,
    embeddings: Float[Tensor, "batch token dim"] | None = None,
) -> Trace:
    """Run the model once. `embeddings`, if given, take the place of what its first block would read."""
    sites = needs.values | needs.grads
    tap = Tap(Site.ATTENTION in sites, batch.special if needs.view.hide_special else None)
    seen = _Seen()
    check_eval(subject.model)
    with ExitStack() as stack:
        stack.enter_context(subject.lock)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(bool(needs.grads)))
        stack.enter_context(_frozen(subject.model))
        stack.enter_context(_leaf(subject.embeddings, seen, embeddings))
        if Site.HIDDEN in sites:
            stack.enter_context(_block_inputs(subject.blocks, seen))
        # Eager attention is ours with another softmax: in float64 some models' own rounds to float32 and lets the
        # padding of ModernBERT become NaN.
        tapping = tap.record or tap.hidden is not None or subject.model.config._attn_implementation == "eager"
        if tapping:
            stack.enter_context(tapped(subject.model, subject.architecture, tap))
        logits = subject.forward(batch)
        found = _found(seen, tap)
        _check_found(subject, found, sites, len(tap.possible) if tapping else None)
        goal = choose(logits)
        target = goal.scalar(logits)
        grads = _gradients(target, {site: found[site] for site in sorted(needs.grads)})
    tidy = _Tidy(batch.mask, tuple(tap.possible))
    return Trace(
        ids=batch.ids,
        mask=batch.mask,
        special=batch.special,
        readout=subject.readout(batch),
        logits=logits.detach(),
        target=target.detach(),
        label=goal.toward,
        values={site: tidy.values(site, found[site]) for site in needs.values},
        grads={site: tidy.grads(site, grads[site]) for site in needs.grads},
    )


@dataclass(frozen=True)
class _Seen:
    embeddings: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)  # of blocks, in order of calls
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No gradients for weights: nobody asked for them, and they double the products of a backward."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


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


def _found(seen: _Seen, tap: Tap) -> dict[Site, tuple[Tensor, ...]]:
    return {
        Site.EMBEDDINGS: tuple(seen.embeddings),
        Site.HIDDEN: (*seen.inputs, *seen.outputs),
        Site.ATTENTION: tuple(tap.seen),
    }


def _check_found(
    subject: Subject, found: dict[Site, tuple[Tensor, ...]], sites: frozenset[Site], tapped_blocks: int | None
) -> None:
    """Refuse a model that goes round the hooks: a pass that was not seen whole gives wrong numbers."""
    name, layers = type(subject.model).__name__, subject.n_layers
    if tapped_blocks not in (None, layers):
        raise UnsupportedModel(f"{name}: the attention of {tapped_blocks} blocks was intercepted, of {layers} expected")
    wanted = {Site.EMBEDDINGS: 1, Site.HIDDEN: layers + 1, Site.ATTENTION: layers}
    for site in sorted(sites):
        if len(found[site]) != wanted[site]:
            raise UnsupportedModel(f"{name}: found {len(found[site])} tensors of {site}, expected {wanted[site]}")
    if Site.HIDDEN in sites and found[Site.HIDDEN][0] is not found[Site.EMBEDDINGS][0]:
        raise UnsupportedModel(f"{name}: its first block does not read its embeddings")


def _gradients(target: Tensor, tensors: dict[Site, tuple[Tensor, ...]]) -> dict[Site, tuple[Tensor, ...]]:
    """Of the sum over the batch: examples do not touch each other, so each gets its own gradient."""
    flat = [tensor for group in tensors.values() for tensor in group]
    if not flat:
        return {}
    try:
        grads = iter(torch.autograd.grad(target.sum(), flat))
    except RuntimeError as error:
        raise UnsupportedModel(f"the logits do not depend on what was captured: {error}") from error
    return {site: tuple(next(grads) for _ in group) for site, group in tensors.items()}


@dataclass(frozen=True)
class _Tidy:
    """Sets to 0 what lies at padding, and gradients for attention that cannot be."""

    mask: Bool[Tensor, "batch token"]
    possible: tuple[Tensor | None, ...]

    def values(self, site: Site, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        detached = (tensor.detach() for tensor in tensors)
        if self.mask.all():
            return tuple(detached)
        real = self.mask[:, :, None]
        if site is Site.ATTENTION:
            real = (self.mask[:, :, None] & self.mask[:, None, :])[:, None]
        return tuple(tensor.masked_fill(~real, 0) for tensor in detached)

    def grads(self, site: Site, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        tensors = self.values(site, tensors)
        if site is not Site.ATTENTION:
            return tensors
        pairs = zip(tensors, self.possible, strict=True)
        return tuple(grad if can is None else grad.masked_fill(~can, 0) for grad, can in pairs)
