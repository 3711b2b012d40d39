"""Each rule against its formula, written out element by element."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from whichtoken.lrp import Gates, gradient_rules, rules

EPSILON = 1e-9


def sdiv(a: float, b: float) -> float:
    return 0.0 if b == 0 else a / (b + EPSILON)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def back(y: Tensor, relevance: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(y, inputs, relevance))


def leaf(x: Tensor) -> Tensor:
    return x.clone().requires_grad_()


def same(found: Tensor, expected: Any) -> bool:
    return torch.allclose(found, torch.as_tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-15)


def linear_by_hand(x: Tensor, weight: Tensor, relevance: Tensor, together: bool) -> Tensor:
    found = torch.zeros_like(x)
    for n, o in product(range(len(x)), range(len(weight))):
        like = {+1: 0.0, -1: 0.0}  # sums of products x W with both factors positive, and with both negative
        for i in range(x.shape[1]):
            if float(x[n, i]) * float(weight[o, i]) > 0:
                like[int(math.copysign(1, x[n, i]))] += float(x[n, i] * weight[o, i])
        for i in range(x.shape[1]):
            if float(x[n, i]) * float(weight[o, i]) > 0:
                whole = sum(like.values()) if together else like[int(math.copysign(1, x[n, i]))]
                found[n, i] += float(x[n, i] * weight[o, i]) * sdiv(float(relevance[n, o]), whole)
    return found


@pytest.mark.parametrize("together", [True, False])
def test_linear(together: bool) -> None:
    x, weight, bias, relevance = leaf(random(3, 5)), random(4, 5, seed=1), random(4, seed=2), random(3, 4, seed=3)
    rule = rules.linear if together else rules.linear_doubling
    y = rule(functional.linear, x, weight, bias)
    assert same(y, functional.linear(x, weight, bias))
    (found,) = back(y, relevance, x)
    assert same(found, linear_by_hand(x.detach(), weight, relevance, together))
    assert not together or float(found.sum()) == pytest.approx(float(relevance.sum()))


def test_a_linear_output_without_products_of_like_sign_loses_its_relevance() -> None:
    x, weight = leaf(torch.tensor([[1.0, 2.0]])), torch.tensor([[-1.0, -3.0], [1.0, 1.0]])
    (found,) = back(rules.linear(functional.linear, x, weight), torch.tensor([[5.0, 3.0]]), x)
    assert found.tolist() == [[pytest.approx(1), pytest.approx(2)]]


def test_large_products_are_shared_matrix_by_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a factor is a transposed view, a product is exactly 0, or a factor is a constant."""
    a, b, relevance = random(2, 3, 5, 4), leaf(random(2, 3, 6, 4, seed=1)), random(2, 3, 5, 6, seed=2)
    a[0, 0, 1] = 0
    a.requires_grad_()

    def shared() -> list[Tensor]:
        both = back(rules.matmul(torch.matmul, a, b.mT), relevance, a, b)
        return [*both, *back(rules.matmul(torch.matmul, a, b.detach().mT), relevance, a)]

    whole = shared()
    monkeypatch.setattr(rules, "LARGE", 1)
    for one, other in zip(whole, shared(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_matmul() -> None:
    a, b, relevance = leaf(random(2, 3, 4)), leaf(random(2, 4, 5, seed=1)), random(2, 3, 5, seed=2)
    of_a, of_b = back(rules.matmul(torch.matmul, a, b), relevance, a, b)
    plain_a, plain_b = a.detach(), b.detach()
    y, by_hand_a, by_hand_b = plain_a @ plain_b, torch.zeros_like(a), torch.zeros_like(b)
    for n, i, j, k in product(range(2), range(3), range(4), range(5)):
        share = 0.5 * float(plain_a[n, i, j] * plain_b[n, j, k]) * sdiv(float(relevance[n, i, k]), float(y[n, i, k]))
        by_hand_a[n, i, j] += share
        by_hand_b[n, j, k] += share
    assert same(of_a, by_hand_a)
    assert same(of_b, by_hand_b)
    (alone,) = back(rules.matmul(torch.matmul, a, b.detach()), relevance, a)
    assert same(alone, 2 * by_hand_a)


@pytest.mark.parametrize("conserve", [True, False])
def test_add(conserve: bool) -> None:
    a, b, relevance = leaf(random(2, 3, 4)), leaf(random(2, 3, 4, seed=1)), random(2, 3, 4, seed=2)
    rule = rules.add if conserve else rules.add_unscaled
    found = back(rule(torch.add, a, b), relevance, a, b)
    a, b = a.detach(), b.detach()
    for n in range(2):  # each sample for itself
        places = list(product(range(3), range(4)))
        parts = [
            {p: float(x[n][p]) * sdiv(float(relevance[n][p]), float(a[n][p] + b[n][p])) for p in places} for x in (a, b)
        ]
        sums, total = [sum(part.values()) for part in parts], float(relevance[n].sum())
        for part, of_part, result in zip(parts, sums, found, strict=True):
            share = sdiv(abs(of_part), abs(sums[0]) + abs(sums[1])) * total
            scale = sdiv(share, of_part) if conserve else 1.0
            assert all(float(result[n][p]) == pytest.approx(part[p] * scale) for p in places)
        if conserve:
            assert sum(float(result[n].sum()) for result in found) == pytest.approx(total)


def test_a_sum_that_is_exactly_0_passes_no_relevance_on() -> None:
    a, b = leaf(torch.tensor([[1.0, 2.0]])), leaf(torch.tensor([[-1.0, 2.0]]))
    of_a, of_b = back(rules.add_unscaled(torch.add, a, b), torch.ones(1, 2), a, b)
    assert of_a.tolist() == of_b.tolist() == [[0, 0.5]]


def test_a_sum_with_a_constant_and_a_broadcast_sum() -> None:
    a, relevance = leaf(random(2, 3)), random(2, 3, seed=1)
    for y in (rules.add(torch.add, a, 5.0), rules.add(torch.add, random(3), a)):
        assert same(back(y, relevance, a)[0], relevance)
    small, other = leaf(random(2, 1)), leaf(random(2, 3, seed=2))
    of_small, of_other = back(rules.add(torch.add, small, other), relevance, small, other)
    assert of_small.shape == (2, 1)
    assert torch.allclose(of_small.sum(1) + of_other.sum(1), relevance.sum(1))


def test_multiply_gives_half_to_each_and_all_to_one() -> None:
    a, b, relevance = leaf(random(2, 3)), leaf(random(2, 3, seed=1)), random(2, 3, seed=2)
    y = rules.multiply(torch.mul, a, b)
    assert same(y, a * b)
    assert all(same(found, relevance / 2) for found in back(y, relevance, a, b))
    assert same(back(rules.multiply(torch.mul, a, 0.1), relevance, a)[0], relevance)
    assert same(back(rules.divide_by_constant(torch.div, a, 4.0), relevance, a)[0], relevance)


@pytest.mark.parametrize(
    ("rule", "operation"),
    [
        (rules.divide_by_constant, torch.div),
        (gradient_rules.gradient_by_constant, torch.div),
        (gradient_rules.gate_constant, torch.mul),
    ],
)
def test_what_has_no_rule_for_two_activations_says_so(rule: rules.Rule, operation: Callable[..., Tensor]) -> None:
    with pytest.raises(NotImplementedError):
        rule(operation, leaf(random(2)), leaf(random(2)))


@pytest.mark.parametrize("operation", [torch.sum, torch.mean])
@pytest.mark.parametrize("keepdim", [True, False])
def test_total(operation: Callable[..., Tensor], keepdim: bool) -> None:
    x, relevance = leaf(random(2, 3, 4)), random(2, 1, 4, seed=1)
    y = rules.total(operation, x, dim=1, keepdim=keepdim)
    assert same(y, operation(x, dim=1, keepdim=keepdim))
    (found,) = back(y, relevance if keepdim else relevance[:, 0], x)
    x = x.detach()
    for n, t, d in product(range(2), range(3), range(4)):
        whole = float(x[n, :, d].sum())
        assert float(found[n, t, d]) == pytest.approx(float(x[n, t, d]) * sdiv(float(relevance[n, 0, d]), whole))


def test_total_of_everything() -> None:
    x = leaf(random(2, 3))
    (found,) = back(rules.total(torch.sum, x), torch.tensor(5.0, dtype=torch.float64), x)
    assert same(found, x.detach() * sdiv(5.0, float(x.detach().sum())))


@pytest.mark.parametrize(
    "operation", [torch.tanh, functional.gelu, lambda x: x.softmax(-1), lambda x: functional.layer_norm(x, (4,))]
)
def test_identity(operation: Callable[..., Tensor]) -> None:
    x, relevance = leaf(random(3, 4)), random(3, 4, seed=1)
    y = rules.identity(operation, x)
    assert same(y, operation(x))
    assert same(back(y, relevance, x)[0], relevance)


def test_ratio_is_f_of_x_over_x() -> None:
    x, grad = leaf(random(3, 4)), random(3, 4, seed=1)
    y = gradient_rules.ratio(functional.gelu, x)
    assert same(y, functional.gelu(x))
    (found,) = back(y, grad, x)
    x = x.detach()
    for place in product(range(3), range(4)):
        value = float(x[place])
        factor = 0.5 * (1 + math.erf(value / math.sqrt(2)))  # gelu(x) / x
        assert float(found[place]) == pytest.approx(float(grad[place]) * factor, rel=1e-8)


def test_layer_norm_has_a_constant_deviation() -> None:
    x, weight, bias, grad = leaf(random(3, 4)), random(4, seed=1), random(4, seed=2), random(3, 4, seed=3)
    y = gradient_rules.layer_norm(functional.layer_norm, x, (4,), weight, bias, 1e-5)
    assert same(y, functional.layer_norm(x, (4,), weight, bias, 1e-5))
    (found,) = back(y, grad, x)
    x = x.detach()
    for n in range(3):
        values = [float(v) for v in x[n]]
        mean = sum(values) / 4
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / 4 + 1e-5)
        for i in range(4):  # y_j = w_j (x_j - mean) / deviation + b_j
            by_hand = sum(float(grad[n, j] * weight[j]) / deviation * ((i == j) - 0.25) for j in range(4))
            assert float(found[n, i]) == pytest.approx(by_hand)


def test_rms_norm_has_a_constant_root_mean_square() -> None:
    x, weight, grad = leaf(random(3, 4)), random(4, seed=1), random(3, 4, seed=2)
    with torch.no_grad():
        x[0, 0] = 0
    y = gradient_rules.rms_norm(lambda v: functional.rms_norm(v, (4,), weight, 1e-6), x)
    assert same(y, functional.rms_norm(x, (4,), weight, 1e-6))
    (found,) = back(y, grad, x)
    x = x.detach()
    for n, i in product(range(3), range(4)):
        root = math.sqrt(sum(float(v) ** 2 for v in x[n]) / 4 + 1e-6)
        by_hand = 0.0 if (n, i) == (0, 0) else float(grad[n, i] * weight[i]) / root
        assert float(found[n, i]) == pytest.approx(by_hand)


def test_half_gradient() -> None:
    a, b, grad = leaf(random(2, 3, 4)), leaf(random(4, seed=1)), random(2, 3, 4, seed=2)
    of_a, of_b = back(gradient_rules.half_gradient(torch.mul, a, b), grad, a, b)
    assert same(of_a, 0.5 * grad * b.detach())
    assert same(of_b, 0.5 * (grad * a.detach()).sum((0, 1)))
    assert same(back(gradient_rules.half_gradient(torch.mul, a, b.detach()), grad, a)[0], grad * b.detach())


@pytest.mark.parametrize("inner", [1, 20])  # the product has more values than its factors, or fewer
def test_half_gradient_of_matmul(inner: int) -> None:
    rule = gradient_rules.half_gradient_of_matmul
    a, b, grad = leaf(random(2, 3, inner)), leaf(random(inner, 5, seed=1)), random(2, 3, 5, seed=2)
    of_a, of_b = back(rule(torch.matmul, a, b), grad, a, b)
    assert same(of_a, 0.5 * grad @ b.detach().T)
    assert same(of_b, 0.5 * sum(one.T @ of_one for one, of_one in zip(a.detach(), grad, strict=True)))
    assert same(back(rule(torch.matmul, a, b.detach()), grad, a)[0], grad @ b.detach().T)


def test_half_gradient_of_products_with_vectors() -> None:
    rule, matrix, vector = gradient_rules.half_gradient_of_matmul, leaf(random(3, 4)), leaf(random(4, seed=1))
    for a, b in ((matrix, vector), (vector, matrix.detach().T.requires_grad_()), (vector, leaf(random(4, seed=2)))):
        y = rule(torch.matmul, a, b)
        expected = torch.matmul(a, b)
        assert same(y, expected)
        grad = random(3, seed=3)[: y.numel()].reshape(y.shape)
        for found, wanted in zip(back(y, grad, a, b), back(expected, grad, a, b), strict=True):
            assert same(found, 0.5 * wanted)
    grad = random(3, seed=3)
    assert same(back(rule(torch.matmul, matrix, vector.detach()), grad, matrix)[0], grad[:, None] * vector.detach())


def test_the_gate_is_what_an_activation_function_returned() -> None:
    x, up, grad = leaf(random(3)), leaf(random(3, seed=1)), random(3, seed=2)
    for rule in (gradient_rules.ratio, gradient_rules.mark_activated):
        for order in (1, -1):
            pair = [rule(functional.silu, x), up][::order]
            y = gradient_rules.gate_constant(torch.mul, *pair)
            of_x, of_up = torch.autograd.grad(y, (x, up), grad, allow_unused=True)
            assert of_x is None
            assert same(of_up, grad * functional.silu(x.detach()))


def test_in_place() -> None:
    a, b, relevance = leaf(random(2, 3)), leaf(random(2, 3, seed=1)), random(2, 3, seed=2)
    expected = back(rules.add(torch.add, a, b), relevance, a, b)
    x = a * 1
    y = rules.apply_in_place(rules.add, torch.add, x, b)
    assert y is x
    assert same(x, a + b)
    for found, wanted in zip(back(x, relevance, a, b), expected, strict=True):
        assert same(found, wanted)


WEIGHTS = ((1, 0, 2),), ((0, 0, 1),)


def test_gates_that_only_multiply() -> None:
    context, relevance = leaf(random(2, 4, 3, 5)), random(2, 4, 3, 5, seed=1)
    (found,) = back(Gates(WEIGHTS, conserve=False).apply(context, 0), relevance, context)
    for n, t, h, d in product(range(2), range(4), range(3), range(5)):
        assert float(found[n, t, h, d]) == pytest.approx([1, 0, 3][h] * float(relevance[n, t, h, d]))


def test_gates_that_conserve() -> None:
    context, relevance = leaf(random(2, 4, 3, 5)), random(2, 4, 3, 5, seed=1)
    (found,) = back(Gates(WEIGHTS, conserve=True).apply(context, 0), relevance, context)
    for n in range(2):
        total = float(relevance[n].sum())
        sums = [sum(w * float(relevance[n, :, h].sum()) for h, w in enumerate(part[0])) for part in WEIGHTS]
        sizes = sum(abs(s) for s in sums)
        for t, h, d in product(range(4), range(3), range(5)):
            by_hand = sum(
                part[0][h] * float(relevance[n, t, h, d]) * sdiv(sdiv(abs(s), sizes) * total, s)
                for part, s in zip(WEIGHTS, sums, strict=True)
            )
            assert float(found[n, t, h, d]) == pytest.approx(by_hand)
        assert float(found[n].sum()) == pytest.approx(total)


def test_a_block_without_a_chosen_head_is_a_constant() -> None:
    context = leaf(random(1, 2, 3, 4))
    assert not Gates((((0, 0, 0),),), conserve=True).apply(context, 0).requires_grad
    assert Gates((((0, 0, 0),),), conserve=False).apply(context, 0).requires_grad


BLOCKED = torch.tensor([[True, True, True, True], [False, True, False, True], [False, False, False, False]])


def softmax_of_some(scores: Tensor, place: tuple[slice, slice]) -> Tensor:
    """The first query can attend to no key."""
    return scores.masked_fill_(BLOCKED, -1e300).softmax(-1) * ~BLOCKED


@pytest.mark.parametrize("are_weights_constant", [False, True])
def test_attention_in_one_step_has_the_gradient_of_its_steps(are_weights_constant: bool) -> None:
    query, key, value = leaf(random(2, 2, 3, 5)), leaf(random(2, 2, 4, 5, seed=1)), leaf(random(2, 2, 4, 6, seed=2))
    grad = random(2, 2, 3, 6, seed=3)
    attend = gradient_rules.attend_constantly if are_weights_constant else gradient_rules.attend_halving
    context, weights = attend(query, key, value, 0.3, softmax_of_some)
    assert weights.requires_grad is not are_weights_constant
    product_of = gradient_rules.gradient if are_weights_constant else gradient_rules.half_gradient_of_matmul
    slow = softmax_of_some(product_of(torch.matmul, query * 0.3, key.mT).clone(), rules.ALL_MATRICES)
    assert same(weights.detach(), slow.detach())
    slow = slow.detach() if are_weights_constant else slow
    slowly = product_of(torch.matmul, slow, value)
    assert same(context, slowly.detach())
    inputs = (value,) if are_weights_constant else (query, key, value)
    for found, expected in zip(back(context, grad, *inputs), back(slowly, grad, *inputs), strict=True):
        assert same(found, expected)
        assert found.abs().max() > 0


@pytest.mark.parametrize("reads_context", [True, False])
def test_attention_in_one_step_carries_what_its_weights_get_later(reads_context: bool) -> None:
    query, key, value = leaf(random(2, 2, 3, 5)), leaf(random(2, 2, 4, 5, seed=1)), leaf(random(2, 2, 4, 6, seed=2))
    context, weights = gradient_rules.attend_halving(query, key, value, 0.3, softmax_of_some)
    scores = gradient_rules.half_gradient_of_matmul(torch.matmul, query * 0.3, key.mT)
    slow = softmax_of_some(scores.clone(), rules.ALL_MATRICES)
    slowly = gradient_rules.half_gradient_of_matmul(torch.matmul, slow, value)

    def total(context: Tensor, weights: Tensor) -> Tensor:
        of_weights = (weights * random(2, 2, 3, 4, seed=4)).sum()
        return of_weights + (context * random(2, 2, 3, 6, seed=3)).sum() if reads_context else of_weights

    found = torch.autograd.grad(total(context, weights), (query, key))
    for one, expected in zip(found, torch.autograd.grad(total(slowly, slow), (query, key)), strict=True):
        assert same(one, expected)
        assert one.abs().max() > 0


@pytest.mark.parametrize("large", [1, rules.LARGE])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_attention_weights_in_one_step_share_relevance_like_their_product(
    large: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "LARGE", large)
    query, key, relevance = leaf(random(2, 2, 3, 5)), leaf(random(2, 2, 4, 5, seed=1)), random(2, 2, 3, 4, seed=2)
    seen: list[tuple[slice, slice]] = []

    def softmax(scores: Tensor, place: tuple[slice, slice]) -> Tensor:
        seen.append(place)
        blocked = torch.stack([BLOCKED, ~BLOCKED, ~BLOCKED, BLOCKED]).view(2, 2, 3, 4)[place]  # one for each matrix
        return scores.masked_fill_(blocked, -1e300).softmax(-1)

    weights = rules.attention_weights(query, key, scale, softmax)
    assert len(seen) == (4 if large == 1 else 1)
    assert same(weights, softmax((query @ key.mT).detach() * scale, rules.ALL_MATRICES))
    expected = back(rules.matmul(torch.matmul, query, key.mT), relevance, query, key)
    for found, slowly in zip(back(weights, relevance, query, key), expected, strict=True):
        assert same(found, slowly)


def test_large_matrices_without_a_batch_share_relevance(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, relevance = leaf(random(3, 5)), leaf(random(5, 4, seed=1)), random(3, 4, seed=2)
    expected = back(rules.matmul(torch.matmul, a, b), relevance, a, b)
    monkeypatch.setattr(rules, "LARGE", 1)
    for found, slowly in zip(back(rules.matmul(torch.matmul, a, b), relevance, a, b), expected, strict=True):
        assert same(found, slowly)
