"""Modules with weights in fewer bits: their values, and whether gradients pass through them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from inspect import ismethod
from typing import Any

from torch import Tensor, nn

from whichtoken.errors import UnsupportedModel
from whichtoken.models.twin import list_named_modules

FIX = "load the model in float32 (wt.load does), or use a method without gradients, such as rollout"
UNDEFINED = "WarnNotImplemented"  # torch's node for operations without a derivative: it warns and contributes nothing


def find_packed(model: nn.Module) -> str | None:
    """Return the first linear module that torch quantised, for messages. Its operation has no derivative."""
    return next((_describe(m, name) for name, m in _linear_modules(model) if hasattr(m, "_packed_params")), None)


def find_integer_weights(model: nn.Module) -> str | None:
    """Return the first linear module whose weights are integers, packed or not, for messages."""
    for name, module in _linear_modules(model):
        weight = getattr(module, "weight", None)
        if ismethod(weight) or (isinstance(weight, Tensor) and not weight.is_floating_point()):
            return _describe(module, name)
    return None


def named_tensors(model: nn.Module) -> list[tuple[str, Tensor, bool]]:
    """Return the tensors of a model's state, sorted by name, and whether each was unpacked to floats for this call."""
    found = (entry for name, value in model.state_dict().items() for entry in _unpack(name, value))
    return sorted(found, key=lambda entry: entry[0])


def _unpack(name: str, value: Any) -> Iterator[tuple[str, Tensor, bool]]:
    if isinstance(value, Tensor):
        yield name, value.dequantize() if value.is_quantized else value, value.is_quantized
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from ((inner, tensor, True) for inner, tensor, _ in _unpack(f"{name}.{number}", part))


@contextmanager
def watch_gradients(model: nn.Module) -> Iterator[None]:
    """Raise UnsupportedModel when a linear module gets an input with a gradient and its output has none.

    Residual connections would still carry a gradient around it, but a wrong one.
    """
    with ExitStack() as stack:
        for name, module in _linear_modules(model):
            if not _is_plain(module):
                stack.enter_context(module.register_forward_hook(_gradient_check(name)))
        yield


def _is_plain(module: nn.Module) -> bool:
    """Return whether this is torch's own linear module as it was made, through which gradients always pass."""
    held = vars(module)
    return (
        type(module) is nn.Linear
        and "forward" not in held
        and not module._forward_hooks
        and type(module.weight) is nn.Parameter
        and module.weight.is_floating_point()
    )


def _gradient_check(name: str) -> Any:
    def check(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        entering = any(isinstance(x, Tensor) and x.requires_grad for x in args)
        if entering and isinstance(output, Tensor) and not output.requires_grad:
            raise UnsupportedModel(f"{_describe(module, name)} passes no gradient on; {FIX}")

    return check


def check_derivatives(output: Tensor) -> None:
    """Raise UnsupportedModel if an operation that leads to this tensor has no derivative."""
    seen, waiting = set[Any](), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().endswith(UNDEFINED):
            raise UnsupportedModel(f"the model uses an operation without a derivative, so gradients are wrong; {FIX}")
        waiting.extend(before for before, _ in node.next_functions)


def _linear_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, module) for name, module in list_named_modules(model) if hasattr(module, "in_features"))


def _describe(module: nn.Module, name: str) -> str:
    return f"{module._get_name()} ({name})"  # type: ignore[no-untyped-call]
