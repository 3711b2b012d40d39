"""What happens inside a block, between its attention and its residual: seen, and gated, by hooks on its modules."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from whichtoken.core.trace import Site
from whichtoken.errors import UnsupportedModel
from whichtoken.lrp import Gates
from whichtoken.models.subject import Subject

SITES = frozenset({Site.CONTEXT, Site.PROJECTION, Site.ATTENDED, Site.NORM, Site.FORWARDED})


@dataclass(frozen=True)
class Interior:
    """Which sites are wanted, which heads relevance goes through, and what was seen, in order of the blocks."""

    sites: frozenset[Site]
    gates: Gates | None = None
    seen: dict[Site, list[Tensor]] = field(default_factory=lambda: {site: [] for site in SITES})

    @contextmanager
    def watched(self, subject: Subject) -> Iterator[None]:
        with ExitStack() as stack:
            if self.sites or self.gates is not None:
                for block in subject.blocks:
                    entered: list[Tensor] = []  # what the block read
                    self._watch_heads(stack, subject, block, entered)
                    self._watch_stream(stack, subject, block, entered)
            yield

    def _watch_heads(self, stack: ExitStack, subject: Subject, block: nn.Module, entered: list[Tensor]) -> None:
        heads = subject.model.config.num_attention_heads
        projection, *scales = _outputs(subject, block)

        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            entered[:] = [args[0] if args else kwargs["hidden_states"]]

        def mixed(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            if Site.PROJECTION in self.sites:
                weights = _weights(args[0], module, *scales)
                self.seen[Site.PROJECTION].append(weights.view(heads, -1, entered[0].shape[-1]))
            if Site.CONTEXT not in self.sites and self.gates is None:
                return None
            context = args[0].reshape(*args[0].shape[:-1], heads, -1)
            if self.gates is not None:
                context = self.gates.apply(context, len(self.seen[Site.CONTEXT]))
            self.seen[Site.CONTEXT].append(context)  # with gates it also counts the blocks
            return (context.flatten(-2), *args[1:])

        stack.enter_context(block.register_forward_pre_hook(enter, with_kwargs=True))
        stack.enter_context(projection.register_forward_pre_hook(mixed))

    def _watch_stream(self, stack: ExitStack, subject: Subject, block: nn.Module, entered: list[Tensor]) -> None:
        row = subject.architecture

        def projected(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.seen[Site.ATTENDED].append(entered[0].detach() + output.detach())

        def normed(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.seen[Site.ATTENDED].append(output.detach())
            self.seen[Site.NORM].append(_factor(module, args[0].detach()))

        def forwarded(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.seen[Site.FORWARDED].append(output.detach())

        if self.sites & {Site.ATTENDED, Site.NORM}:
            if row.norm is None:
                stack.enter_context(_outputs(subject, block)[-1].register_forward_hook(projected))
            else:
                stack.enter_context(_below(subject, block, row.norm).register_forward_hook(normed))
        if Site.FORWARDED in self.sites:
            stack.enter_context(_below(subject, block, row.feed_forward).register_forward_hook(forwarded))


def _outputs(subject: Subject, block: nn.Module) -> list[nn.Module]:
    """The modules that make of heads, put side by side, what the residual adds."""
    row = subject.architecture
    return [_below(subject, block, path) for path in (row.projection, row.scale) if path is not None]


def _below(subject: Subject, block: nn.Module, path: str) -> nn.Module:
    try:
        return block.get_submodule(path)
    except AttributeError as error:
        raise UnsupportedModel(f"{type(subject.model).__name__} has no module {path!r} in its blocks") from error


def _weights(like: Tensor, *modules: nn.Module) -> Tensor:
    """Of linear modules one after the other, whichever way round they keep them: what they do to each input alone.

    Hooks stay asleep.
    """
    with torch.no_grad():
        each = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
        nothing = torch.zeros_like(each[:1])
        for module in modules:
            each, nothing = module.forward(each), module.forward(nothing)
        return each - nothing


def _factor(norm: Any, x: Tensor) -> Tensor:
    deviation = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return (norm.weight / deviation).detach()  # type: ignore[no-any-return]
