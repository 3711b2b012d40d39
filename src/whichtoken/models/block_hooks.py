"""Record, and gate, what happens inside a block between its attention and its residual, by hooks on its modules."""

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
    """The requested sites, the gates for heads, and the recorded tensors, in order of the blocks."""

    sites: frozenset[Site]
    gates: Gates | None = None
    tensors: dict[Site, list[Tensor]] = field(default_factory=lambda: {site: [] for site in SITES})

    @contextmanager
    def watch(self, subject: Subject) -> Iterator[None]:
        with ExitStack() as stack:
            if self.sites or self.gates is not None:
                for block in subject.blocks:
                    entered: list[Tensor] = []  # the input of the block
                    self._watch_heads(stack, subject, block, entered)
                    self._watch_stream(stack, subject, block, entered)
            yield

    def _watch_heads(self, stack: ExitStack, subject: Subject, block: nn.Module, entered: list[Tensor]) -> None:
        heads = subject.model.config.num_attention_heads
        projection, *scales = _output_modules(subject, block)

        def record_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            entered[:] = [args[0] if args else kwargs["hidden_states"]]

        def before_projection(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            if Site.PROJECTION in self.sites:
                weights = _linear_weights(args[0], module, *scales)
                self.tensors[Site.PROJECTION].append(weights.view(heads, -1, entered[0].shape[-1]))
            if Site.CONTEXT not in self.sites and self.gates is None:
                return None
            context = args[0].reshape(*args[0].shape[:-1], heads, -1)
            if self.gates is not None:
                context = self.gates.apply(context, len(self.tensors[Site.CONTEXT]))
            self.tensors[Site.CONTEXT].append(context)  # with gates, its length also counts the blocks
            return (context.flatten(-2), *args[1:])

        stack.enter_context(block.register_forward_pre_hook(record_input, with_kwargs=True))
        stack.enter_context(projection.register_forward_pre_hook(before_projection))

    def _watch_stream(self, stack: ExitStack, subject: Subject, block: nn.Module, entered: list[Tensor]) -> None:
        architecture = subject.architecture

        def after_projection(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.tensors[Site.ATTENDED].append(entered[0].detach() + output.detach())

        def after_norm(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.tensors[Site.ATTENDED].append(output.detach())
            self.tensors[Site.NORM].append(_norm_factor(module, args[0].detach()))

        def after_feed_forward(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.tensors[Site.FORWARDED].append(output.detach())

        if self.sites & {Site.ATTENDED, Site.NORM}:
            if architecture.norm is None:
                stack.enter_context(_output_modules(subject, block)[-1].register_forward_hook(after_projection))
            else:
                stack.enter_context(
                    _find_submodule(subject, block, architecture.norm).register_forward_hook(after_norm)
                )
        if Site.FORWARDED in self.sites:
            feed_forward = _find_submodule(subject, block, architecture.feed_forward)
            stack.enter_context(feed_forward.register_forward_hook(after_feed_forward))


def _output_modules(subject: Subject, block: nn.Module) -> list[nn.Module]:
    """Return the modules that turn the concatenated heads into what the residual adds."""
    paths = (subject.architecture.projection, subject.architecture.scale)
    return [_find_submodule(subject, block, path) for path in paths if path is not None]


def _find_submodule(subject: Subject, block: nn.Module, path: str) -> nn.Module:
    try:
        return block.get_submodule(path)
    except AttributeError as error:
        raise UnsupportedModel(f"{type(subject.model).__name__} has no module {path!r} in its blocks") from error


def _linear_weights(like: Tensor, *modules: nn.Module) -> Tensor:
    """Return the weights (input output) of linear modules in sequence, read off their output for unit vectors, since
    modules differ in how they store them. Calls `forward`, so hooks do not run.
    """
    with torch.no_grad():
        units = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
        zero = torch.zeros_like(units[:1])
        for module in modules:
            units, zero = module.forward(units), module.forward(zero)
        return units - zero


def _norm_factor(norm: Any, x: Tensor) -> Tensor:
    deviation = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return (norm.weight / deviation).detach()  # type: ignore[no-any-return]
