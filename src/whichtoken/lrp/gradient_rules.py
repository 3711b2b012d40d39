"""The rules that carry a gradient, one per operation: it becomes relevance when multiplied by the input.

Where a rule treats a part of its operation as a constant, the function below computes the gradient at once, instead of
the steps that autograd would differentiate.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from whichtoken.lrp.rules import ALL_MATRICES, Operation, Softmax, apply_function, carries_relevance

ACTIVATION_EPSILON = 1e-10


class _Factor(Function):
    """Return the result of `compute`; the gradient is multiplied by a constant factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        ctx.save_for_backward(factor)
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (factor,) = ctx.saved_tensors
        return grad * factor, None, None


class _HalfProduct(Function):
    """Return the product of two activations; each gets half of its gradient."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        ctx.save_for_backward(a, b)
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        half = grad * 0.5
        return (half * b).sum_to_size(a.shape), (half * a).sum_to_size(b.shape), None


class _HalfMatmul(Function):
    """Return the matrix product of two activations; each gets half of its gradient."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        # Attention is larger than what it is made of and applied to: the smaller tensors are halved.
        is_small = grad.numel() < a.numel() + b.numel()
        grad = grad * 0.5 if is_small else grad
        of_a, of_b = (grad @ b.mT).sum_to_size(a.shape), (a.mT @ grad).sum_to_size(b.shape)
        return (of_a, of_b) if is_small else (of_a.mul_(0.5), of_b.mul_(0.5))


class _HalfAttention(Function):
    """Return attention and its weights; both products give each factor half of its gradient."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, softmax: Softmax
    ) -> tuple[Tensor, Tensor]:
        scaled = query * scale
        weights = softmax(scaled @ key.mT, ALL_MATRICES)
        context = weights @ value
        ctx.save_for_backward(scaled, key, value, weights, context)
        ctx.scale = scale
        ctx.set_materialize_grads(False)  # mostly, nothing reads the weights
        return context, weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, of_weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor, None, None]:
        scaled, key, value, weights, context = ctx.saved_tensors
        half = torch.zeros_like(context) if grad is None else grad * 0.5
        of_scores = half @ value.mT
        # What the softmax subtracts, its weighted mean, is known from its product with the values.
        mean = (half * context).sum(-1, keepdim=True)
        if of_weights is not None:
            of_scores += of_weights
            mean += (of_weights * weights).sum(-1, keepdim=True)
        of_scores.sub_(mean).mul_(weights)
        of_query, of_key = (of_scores @ key).mul_(0.5 * ctx.scale), (of_scores.mT @ scaled).mul_(0.5)
        return of_query, of_key, weights.mT @ half, None, None


class _LayerNorm(Function):
    """Return the result of `compute`; the gradient is that of centring and of division by a constant deviation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor, axes: tuple[int, ...], compute: Callable[[], Tensor]) -> Tensor:
        ctx.save_for_backward(factor)
        ctx.axes = axes
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (factor,) = ctx.saved_tensors
        scaled = grad * factor
        return scaled - scaled.mean(ctx.axes, keepdim=True), None, None, None


class _Activated(Function):
    """Return x, marked as the output of an activation function, so that a product can recognise its gate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def gradient_by_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    if carries_relevance(b):
        raise NotImplementedError
    return operation(a, b)


def gradient(operation: Operation, *args: Any, **options: Any) -> Tensor:
    """Keep the ordinary gradient."""
    return operation(*args, **options)


def half_gradient(operation: Operation, a: Any, b: Any) -> Tensor:
    """Give each of two activations half of the gradient, so that their product shares relevance evenly."""
    if carries_relevance(a) and carries_relevance(b):
        return apply_function(_HalfProduct, a, b, lambda: operation(a.detach(), b.detach()))
    return operation(a, b)


def half_gradient_of_matmul(operation: Operation, a: Tensor, b: Tensor) -> Tensor:
    """Do the same for a product of matrices or vectors."""
    if not carries_relevance(a) or not carries_relevance(b):
        return operation(a, b)
    matrices = a[None] if a.dim() == 1 else a, b[:, None] if b.dim() == 1 else b
    product = apply_function(_HalfMatmul, *matrices)
    product = product.squeeze(-1) if b.dim() == 1 else product
    return product.squeeze(-1 if b.dim() == 1 else -2) if a.dim() == 1 else product


def attend_halving(query: Tensor, key: Tensor, value: Tensor, scale: float, softmax: Softmax) -> tuple[Tensor, Tensor]:
    """Return attention and its weights, as one step: `half_gradient_of_matmul` for both products, and the ordinary
    gradient of the softmax. All three must carry relevance, because a single one would get its whole gradient.
    """
    found: tuple[Tensor, Tensor] = _HalfAttention.apply(query, key, value, scale, softmax)  # type: ignore[no-untyped-call]
    return found


def attend_constantly(
    query: Tensor, key: Tensor, value: Tensor, scale: float, softmax: Softmax
) -> tuple[Tensor, Tensor]:
    """Return attention and its weights, which are a constant factor of the values."""
    weights = softmax((query.detach() * scale) @ key.detach().mT, ALL_MATRICES)
    return weights @ value, weights


def constant(operation: Operation, *args: Any, **options: Any) -> Tensor:
    """Treat the result as a constant."""
    return operation(*args, **options).detach()


def gate_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    """Treat the gate, the one of two activations that comes from an activation function, as a constant."""
    gates = [x for x in (a, b) if carries_relevance(x) and type(x.grad_fn).__name__ == "_ActivatedBackward"]
    if carries_relevance(a) and carries_relevance(b):
        if len(gates) != 1:
            raise NotImplementedError
        a, b = (x.detach() if x is gates[0] else x for x in (a, b))
    return operation(a, b)


def ratio(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Treat an activation function as a constant factor: f(x) = x (f(x) / x)."""
    plain = x.detach()
    y = operation(plain, *args, **options)
    factor = y / (plain + ACTIVATION_EPSILON)
    return apply_function(_Activated, apply_function(_Factor, x, factor, lambda: y))


def mark_activated(operation: Operation, *args: Any, **options: Any) -> Tensor:
    return apply_function(_Activated, operation(*args, **options))


def layer_norm(
    operation: Operation,
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Treat the standard deviation as a constant, but not the mean."""
    axes, plain = tuple(range(-len(normalized_shape), 0)), x.detach()
    factor = (plain.var(axes, correction=0, keepdim=True) + eps).rsqrt()
    factor = factor if weight is None else factor * weight
    return apply_function(_LayerNorm, x, factor, axes, lambda: operation(plain, normalized_shape, weight, bias, eps))


def rms_norm(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Treat the root mean square as a constant, so that the norm is a constant factor for each value.

    The factor is y / x, which is undefined for a value of exactly 0: such a value gets no relevance.
    """
    plain = x.detach()
    y = operation(plain, *args, **options)
    factor = (y / plain).masked_fill_(plain == 0, 0)
    return apply_function(_Factor, x, factor, lambda: y)
