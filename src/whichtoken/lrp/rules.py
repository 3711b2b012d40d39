"""The rules of layer-wise relevance propagation that carry relevance itself, one per operation.

A rule computes the result of its operation and defines what autograd carries back through it: here, relevance; in
`gradient_rules`, a gradient. Its first argument is the operation. It raises NotImplementedError for operands that it
does not cover. Sums are per sample; the first axis is the batch.
"""

import math
import operator
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

Operation = Callable[..., Tensor]
Rule = Callable[..., Tensor]
# From scores of attention, which it may change, and the rows of the batch and the heads that they are of.
Softmax = Callable[[Tensor, tuple[slice, slice]], Tensor]

EPSILON = 1e-9
ALL_MATRICES = slice(None), slice(None)  # rows, heads
LARGE = 2**20  # values of products that are shared matrix by matrix


def divide(a: Tensor, b: Tensor) -> Tensor:
    """Return a / b, stabilised as in Chefer et al.: epsilon has no sign, and the result is 0 where b is 0."""
    shifted = b + EPSILON
    if torch.count_nonzero(b) == b.numel() == torch.count_nonzero(shifted):  # mostly, and these need not be replaced
        return a / shifted
    shifted = torch.where(shifted == 0, EPSILON, shifted)
    return torch.where(b == 0, 0, a / shifted)


def carries_relevance(value: object) -> bool:
    """Return whether relevance is propagated back through this value."""
    return isinstance(value, Tensor) and value.requires_grad


def apply_function(function: type[Function], *args: Any) -> Tensor:
    return function.apply(*args)  # type: ignore[no-any-return, no-untyped-call]


class _PassThrough(Function):
    """Return the result of `compute`; relevance is unchanged. (A tensor argument would be returned as a view.)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return compute()

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None]:
        return relevance.sum_to_size(ctx.shape).to(ctx.dtype), None


class _Linear(Function):
    """Share relevance in proportion to the products of like sign, x+ W+ and x- W- (alpha 1, beta 0), not the bias.

    `together`: both signs share one denominator, which conserves relevance; with one each, relevance is doubled. The
    weight may be narrower than x: the forward pass is then as wide as x, because later rules subtract its results.
    Sums of products of like sign lose nothing by rounding, so they are as narrow as the weight, which halves the time.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, together: bool) -> Tensor:
        y = functional.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        ctx.save_for_backward(x, weight, bias, y.to(_narrow(weight)) if together else None)
        return y

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None]:
        x, weight, bias, y = ctx.saved_tensors
        # Above the last attention only the read-out position has relevance; padding never has any.
        all_live = bool((relevance[..., 0] != 0).all())  # mostly, and it saves looking at all values
        live = None if all_live else (relevance != 0).any(-1)
        all_live = live is None or bool(live.all())
        whole, x, relevance = x, *((t if all_live else t[live]) for t in (x, relevance))
        if y is None:
            shared = _share_by_sign(x, weight, relevance)
        else:
            products = (y if all_live else y[live]) - (0 if bias is None else bias)
            shared = _share_together(x, weight, products, relevance)
        if all_live:
            return shared.to(whole.dtype), None, None, None
        back = torch.zeros_like(whole)
        back[live] = shared.to(whole.dtype)
        return back, None, None, None


def _narrow(weight: Tensor) -> torch.dtype:
    return torch.promote_types(weight.dtype, torch.float32)


def _share_by_sign(x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    wide = weight.to(x.dtype)
    signed = [(x.clamp(min=0), wide.clamp(min=0)), (x.clamp(max=0), wide.clamp(max=0))]
    positive, negative = (part * (divide(relevance, functional.linear(part, w)) @ w) for part, w in signed)
    return positive + negative


def _share_together(x: Tensor, weight: Tensor, products: Tensor, relevance: Tensor) -> Tensor:
    """Use x+ W+ + x- W- = (x W + |x| |W|) / 2, of which the forward pass has computed one half, and the same back.

    `products`: x W, a tensor that may be changed. Everything is as narrow as the weight, but not half precision.
    """
    weight = weight.to(_narrow(weight))
    x, absolute = x.to(weight.dtype), weight.abs()
    size = x.abs()
    shares = products.add_(functional.linear(size, absolute)).clamp_(min=0).div_(2)
    scaled = torch.div(relevance.to(weight.dtype), shares + EPSILON).masked_fill_(shares == 0, 0)  # as `divide` does
    return (x * (scaled @ weight)).addcmul_(size, scaled @ absolute).div_(2)


class _Matmul(Function):
    """Give each factor half of the relevance, in proportion to its products; all of it if the other is a constant."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        y = a @ b
        ctx.save_for_backward(a, b, y)
        return y

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b, y = ctx.saved_tensors
        return _share_product(a, b, relevance, ctx.needs_input_grad, y)


def _share_product(
    a: Tensor, b: Tensor, relevance: Tensor, needed: Sequence[bool], y: Tensor | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the relevance of two factors. `y`: their product; None: it is computed."""
    share = 0.5 if all(needed) else 1.0
    if a.dim() > 2 and a.shape[:-2] == b.shape[:-2] and max(a.numel(), b.numel(), relevance.numel()) >= LARGE:
        return _share_slices(a, b, (y, relevance), share, needed)
    scaled = divide(relevance, a @ b if y is None else y) * share
    of_a = (a * (scaled @ b.mT)).sum_to_size(a.shape) if needed[0] else None
    of_b = (b * (a.mT @ scaled)).sum_to_size(b.shape) if needed[1] else None
    return of_a, of_b


def _share_slices(
    a: Tensor, b: Tensor, products: tuple[Tensor | None, Tensor], share: float, needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Do the same, one matrix after another, so that the steps of each stay in the processor's cache.

    Attention of long texts in float64 does not fit there, and moving it takes longer than computing. `products`: the
    product of a and b, if it is known, and its relevance.
    """
    made = [
        torch.empty_like(x, memory_format=torch.contiguous_format) if is_needed else None
        for x, is_needed in zip((a, b), needed, strict=True)
    ]
    known, relevance = products
    ones, others, relevances = (x.flatten(0, -3) for x in (a, b, relevance))
    of_a, of_b = (None if x is None else x.flatten(0, -3) for x in made)
    flat = None if known is None else known.flatten(0, -3)
    for i, (one, other) in enumerate(zip(ones, others, strict=True)):
        scaled = divide(relevances[i], one @ other if flat is None else flat[i])
        if share != 1:
            scaled *= share
        if of_a is not None:
            torch.mul(one, scaled @ other.mT, out=of_a[i])
        if of_b is not None:
            torch.mul(other, one.mT @ scaled, out=of_b[i])
    return made[0], made[1]


class _AttentionWeights(Function):
    """Return the softmax of scaled products, which passes relevance on unchanged, as does the scale.

    The products are computed again on the way back, because attention is much larger than what it is made of: storing
    it takes longer. If it is large, each matrix is finished before the next, so that its steps stay in the cache.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, scale: float, softmax: Softmax) -> Tensor:
        ctx.save_for_backward(query, keys)
        outer, shape = query.shape[:-2], (*query.shape[:-1], keys.shape[-1])
        if outer != keys.shape[:-2] or math.prod(shape) < LARGE:
            return softmax((query @ keys).mul_(scale), ALL_MATRICES)
        weights = query.new_empty(shape)
        for row, head in product(*map(range, outer)):
            scores = (query[row, head] @ keys[row, head]).mul_(scale)
            place = slice(row, row + 1), slice(head, head + 1)
            weights[row, head] = softmax(scores[None, None], place)[0, 0]
        return weights

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        query, keys = ctx.saved_tensors
        return *_share_product(query, keys, relevance, ctx.needs_input_grad[:2]), None, None


class _Add(Function):
    """Give each term relevance in proportion to its value; with `conserve`, rescale by `rescale_parts`.

    Shares then follow absolute sums, so a term whose relevance sums to the opposite sign of the total changes sign.
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
            parts = rescale_parts(parts, relevance)
        return parts[0].sum_to_size(a.shape), parts[1].sum_to_size(b.shape), None


def rescale_parts(parts: list[Tensor], relevance: Tensor) -> list[Tensor]:
    """Rescale parts, per sample and in place, to sum to the relevance, with shares in proportion to absolute sums."""
    sums, total = [_per_sample(part) for part in parts], _per_sample(relevance)
    sizes = torch.stack([part.abs() for part in sums]).sum(0)
    return [part.mul_(divide(divide(s.abs(), sizes) * total, s)) for part, s in zip(parts, sums, strict=True)]


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
    """Give each summand relevance in proportion to its value."""

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


class _Become(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.copy_(y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


def identity(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Pass relevance on unchanged: the rule for norms, activations and softmax."""
    return apply_function(_PassThrough, x, lambda: operation(x.detach(), *args, **options))


def linear(operation: Operation, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return apply_function(_Linear, x, weight, bias, True)


def linear_doubling(operation: Operation, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return apply_function(_Linear, x, weight, bias, False)


def apply_in_place(rule: Rule, operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Apply a rule to an in-place operation such as `x += y`. Views are not covered: the tensor they share storage with
    would miss the change.
    """
    if x._is_view():
        raise NotImplementedError
    return apply_function(_Become, x, rule(operation, x.clone(), *args, **options))


def matmul(operation: Operation, a: Tensor, b: Tensor) -> Tensor:
    if min(a.dim(), b.dim()) < 2:
        raise NotImplementedError
    return apply_function(_Matmul, a, b)


def attention_weights(query: Tensor, key: Tensor, scale: float, softmax: Softmax) -> Tensor:
    """Return the weights of attention in one step: the rule for products, and `identity` for the scale and the softmax.
    One of query and key must carry relevance.
    """
    return apply_function(_AttentionWeights, query, key.mT, scale, softmax)


def add(operation: Operation, a: Any, b: Any) -> Tensor:
    return _add(a, b, True)


def add_unscaled(operation: Operation, a: Any, b: Any) -> Tensor:
    return _add(a, b, False)


def _add(a: Any, b: Any, conserve: bool) -> Tensor:
    if carries_relevance(a) and carries_relevance(b):
        return apply_function(_Add, a, b, conserve)
    return _with_constant(operator.add, a, b)


def multiply(operation: Operation, a: Any, b: Any) -> Tensor:
    """Give each of two activations half of the relevance (our choice: Chefer et al. have no such product)."""
    if carries_relevance(a) and carries_relevance(b):
        return apply_function(_Multiply, a, b)
    return _with_constant(operation, a, b)


def divide_by_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    if carries_relevance(b):
        raise NotImplementedError
    return _with_constant(operation, a, b)


def _with_constant(operation: Operation, a: Any, b: Any) -> Tensor:
    """Give all relevance to one operand; the other is a constant: a mask, a scale or position embeddings."""
    plain = [x.detach() if isinstance(x, Tensor) else x for x in (a, b)]
    return apply_function(_PassThrough, a if carries_relevance(a) else b, lambda: operation(*plain))


def total(operation: Operation, x: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
    """Apply the rule for sums and means."""
    axes = tuple(range(x.dim())) if dim is None else dim
    return apply_function(_Sum, x, axes, lambda: operation(x.detach(), dim=axes, keepdim=keepdim, **options))
