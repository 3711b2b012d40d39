"""The rules of layer-wise relevance propagation, one operation each.

A rule computes what its operation computes and decides what autograd carries back through it: relevance itself (the
functions up to `total`), or a gradient that turns into relevance when multiplied with the input (those after it).
Its first argument is the operation. NotImplementedError: it has no answer for these operands. Sums are per sample: the
first axis is the batch.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

Operation = Callable[..., Tensor]
Rule = Callable[..., Tensor]

EPSILON = 1e-9
ACTIVATION_EPSILON = 1e-10


def divide(a: Tensor, b: Tensor) -> Tensor:
    """a / b, stabilised as Chefer et al. do it: no sign on epsilon, and 0 where b is 0."""
    shifted = b + EPSILON
    shifted = torch.where(shifted == 0, EPSILON, shifted)
    return torch.where(b == 0, 0, a / shifted)


def carries(value: object) -> bool:
    """It depends on what is explained: relevance goes back through it."""
    return isinstance(value, Tensor) and value.requires_grad


def applied(function: type[Function], *args: Any) -> Tensor:
    return function.apply(*args)  # type: ignore[no-any-return, no-untyped-call]


class _PassThrough(Function):
    """What `compute` gives, relevance unchanged. (A tensor that is passed in would come out as a view.)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return compute()

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None]:
        return relevance.sum_to_size(ctx.shape).to(ctx.dtype), None


class _Linear(Function):
    """Relevance in proportion to the products of like sign, x+ W+ and x- W- (alpha 1, beta 0); the bias has no share.

    `together`: one denominator for both, which conserves; each its own doubles the relevance.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, together: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.together = together
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None]:
        whole, weight = ctx.saved_tensors
        # Above the last attention only the read-out position has relevance, and padding never has any.
        live = (relevance != 0).any(-1)
        x, relevance = whole[live], relevance[live]
        signed = [(x.clamp(min=0), weight.clamp(min=0)), (x.clamp(max=0), weight.clamp(max=0))]
        shares = [functional.linear(part, w) for part, w in signed]
        shares = [shares[0] + shares[1]] * 2 if ctx.together else shares
        found = [part * (divide(relevance, z) @ w) for (part, w), z in zip(signed, shares, strict=True)]
        back = torch.zeros_like(whole)
        back[live] = found[0] + found[1]
        return back, None, None, None


class _Matmul(Function):
    """Each factor in proportion to its products, half of the relevance each; all of it where one factor is constant."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        y = a @ b
        ctx.save_for_backward(a, b, y)
        return y

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b, y = ctx.saved_tensors
        scaled = divide(relevance, y) * (0.5 if all(ctx.needs_input_grad) else 1.0)
        of_a = (a * (scaled @ b.mT)).sum_to_size(a.shape) if ctx.needs_input_grad[0] else None
        of_b = (b * (a.mT @ scaled)).sum_to_size(b.shape) if ctx.needs_input_grad[1] else None
        return of_a, of_b


class _Add(Function):
    """Each term in proportion to its value; `conserve`: then each scaled to its share of the sample's relevance.

    The share of a term is by the size of its sum, so a term whose relevance sums to less than 0 changes sign.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, conserve: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.conserve = conserve
        return a + b

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        scaled = divide(relevance, a + b)
        parts = [a * scaled, b * scaled]
        if ctx.conserve:
            parts = shared(parts, relevance)
        return parts[0].sum_to_size(a.shape), parts[1].sum_to_size(b.shape), None


def shared(parts: list[Tensor], relevance: Tensor) -> list[Tensor]:
    """Parts scaled, sample by sample, to sum to the relevance; each by the share that the size of its sum has."""
    sums, total = [_per_sample(part) for part in parts], _per_sample(relevance)
    sizes = torch.stack([part.abs() for part in sums]).sum(0)
    return [p * divide(divide(s.abs(), sizes) * total, s) for p, s in zip(parts, sums, strict=True)]


def _per_sample(x: Tensor) -> Tensor:
    return x.flatten(1).sum(1).view(-1, *[1] * (x.dim() - 1))


class _Multiply(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.shapes = a.shape, b.shape
        return a * b

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor]:
        half_a, half_b = (0.5 * relevance.sum_to_size(shape) for shape in ctx.shapes)
        return half_a, half_b


class _Sum(Function):
    """Each summand in proportion to its value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: Any, compute: Callable[[], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.axes = axes
        return compute()

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        total = x.sum(ctx.axes, keepdim=True)
        return x * divide(relevance.reshape(total.shape), total), None, None


class _Scale(Function):
    """x itself, and what comes back is multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


class _Become(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.copy_(y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


class _Activated(Function):
    """x itself; marks what an activation function returned, so that a product knows its gate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def unchanged(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Identity rule: norms, activations, softmax, and whatever has one input that counts."""
    return applied(_PassThrough, x, lambda: operation(x.detach(), *args, **options))


def linear(operation: Operation, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return applied(_Linear, x, weight, bias, True)


def linear_doubling(operation: Operation, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return applied(_Linear, x, weight, bias, False)


def in_place(rule: Rule, operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """For `x += y`: x becomes what the operation gives, and all that comes back goes to that. Not for a view, whose
    whole would not know of it.
    """
    if x._is_view():
        raise NotImplementedError
    return applied(_Become, x, rule(operation, x.clone(), *args, **options))


def matmul(operation: Operation, a: Tensor, b: Tensor) -> Tensor:
    if min(a.dim(), b.dim()) < 2:
        raise NotImplementedError
    return applied(_Matmul, a, b)


def add(operation: Operation, a: Any, b: Any) -> Tensor:
    return _add(a, b, True)


def add_unscaled(operation: Operation, a: Any, b: Any) -> Tensor:
    return _add(a, b, False)


def _add(a: Any, b: Any, conserve: bool) -> Tensor:
    if carries(a) and carries(b):
        return applied(_Add, a, b, conserve)
    return _with_constant(operator.add, a, b)


def multiply(operation: Operation, a: Any, b: Any) -> Tensor:
    """Half of the relevance to each of two activations (a choice of ours: Chefer et al. have no such product)."""
    if carries(a) and carries(b):
        return applied(_Multiply, a, b)
    return _with_constant(operation, a, b)


def divide_by_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    if carries(b):
        raise NotImplementedError
    return _with_constant(operation, a, b)


def _with_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    """One operand counts, the other is a mask, a scale or a table of positions."""
    plain = [x.detach() if isinstance(x, Tensor) else x for x in (a, b)]
    return applied(_PassThrough, a if carries(a) else b, lambda: operation(*plain))


def total(operation: Operation, x: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
    """Sums and means alike."""
    axes = tuple(range(x.dim())) if dim is None else dim
    return applied(_Sum, x, axes, lambda: operation(x.detach(), dim=axes, keepdim=keepdim, **options))


def ordinary_by_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    if carries(b):
        raise NotImplementedError
    return operation(a, b)


def ordinary(operation: Operation, *args: Any, **options: Any) -> Tensor:
    """The gradient itself."""
    return operation(*args, **options)


def halved(operation: Operation, a: Any, b: Any) -> Tensor:
    """A product of two activations shares its relevance evenly: half the gradient to each."""
    if carries(a) and carries(b):
        a, b = applied(_Scale, a, 0.5), applied(_Scale, b, 0.5)
    return operation(a, b)


def constant(operation: Operation, *args: Any, **options: Any) -> Tensor:
    """The result is taken as given."""
    return operation(*args, **options).detach()


def gate_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    """Of two activations the one that comes from an activation function is the gate, and is taken as given."""
    gates = [x for x in (a, b) if carries(x) and type(x.grad_fn).__name__ == "_ActivatedBackward"]
    if carries(a) and carries(b):
        if len(gates) != 1:
            raise NotImplementedError
        a, b = (x.detach() if x is gates[0] else x for x in (a, b))
    return operation(a, b)


def ratio(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """An activation as a factor that depends on its input and is taken as given: f(x) = x (f(x) / x)."""
    plain = x.detach()
    y = operation(plain, *args, **options)
    factor = y / (plain + ACTIVATION_EPSILON)
    return applied(_Activated, applied(_PassThrough, x * factor, lambda: y))


def activated(operation: Operation, *args: Any, **options: Any) -> Tensor:
    return applied(_Activated, operation(*args, **options))


def layer_norm(
    operation: Operation,
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The deviation is taken as given, the mean is not."""
    axes = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    deviation = (centred.detach().pow(2).mean(axes, keepdim=True) + eps).sqrt()
    scaled = centred / deviation
    scaled = scaled if weight is None else scaled * weight
    return applied(_PassThrough, scaled, lambda: operation(x.detach(), normalized_shape, weight, bias, eps))


def rms_norm(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """The root mean square is taken as given, so the norm multiplies each value with what it does to it now.

    What it would do to a value of exactly 0 cannot be told from that, and nothing comes back to it.
    """
    plain = x.detach()
    y = operation(plain, *args, **options)
    factor = torch.where(plain == 0, 0, y / plain)
    return applied(_PassThrough, x * factor, lambda: y)
