"""Operations get their rules inside the `with`, and only there."""

import warnings
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from whichtoken.errors import RuleGap, UnsupportedModel, UsageError
from whichtoken.lrp import ATTN_LRP, C21, CP_LRP, propagating


class Block(nn.Module):
    def __init__(self, step: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: Tensor) -> Any:
        return self.step(x)


class Model(nn.Module):
    def __init__(self, step: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(step)])

    def forward(self, x: Tensor) -> Any:
        return self.blocks[0](x)


WEIGHT = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
BIAS = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64).requires_grad_(False).train(False)


def x() -> Tensor:
    return torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def set_item(x: Tensor) -> Tensor:
    y = x * 1
    y[0] = 0
    return y


def multiplied_view(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 0].mul_(2)
    return y


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        found: Tensor = 2 * ctx.saved_tensors[0] * grad
        return found


@pytest.mark.parametrize(
    ("operation", "step"),
    [
        ("pow", lambda x: x.pow(2)),
        ("sub", lambda x: x - x.flip(0)),
        ("div", lambda x: 1 / x),
        ("exp", torch.exp),
        ("einsum", lambda x: torch.einsum("btd,bsd->bts", x, x)),
        ("amax", lambda x: x.amax(-1)),
        ("cumsum", lambda x: x.cumsum(0)),
        ("__setitem__", set_item),
        ("exp_", lambda x: (x * 1).exp_()),
        ("multi_head_attention_forward", lambda x: ATTENTION(x, x, x)[0]),
        ("custom autograd function", lambda x: Square.apply(x) + 1),  # type: ignore[no-untyped-call]
        ("linear", lambda x: functional.linear(x[0], x[1])),
        ("silu", lambda x: functional.silu(x * 1, inplace=True)),
        ("addmm", lambda x: torch.addmm(torch.ones(3, 4, dtype=x.dtype), x[0], torch.eye(4, dtype=x.dtype), beta=0.5)),
        ("matmul", lambda x: x @ torch.ones(4, dtype=x.dtype)),
        ("add", lambda x: torch.add(x, x.flip(0), alpha=2)),
        ("mul_", multiplied_view),
    ],
)
def test_an_operation_without_a_rule_is_named_with_its_module(operation: str, step: Callable[[Tensor], Any]) -> None:
    model = Model(step)
    with propagating(model, C21), pytest.raises(RuleGap) as raised:
        model(x())
    said = str(raised.value)
    assert "rule set c21 has no rule for" in said
    assert operation in said or operation in ("div", "sub", "matmul")  # torch has several names for these
    assert "Block (blocks.0)" in said or "MultiheadAttention" in said
    with propagating(model, C21, strict=False):
        model(x())


def test_what_carries_nothing_needs_no_rule() -> None:
    model = Model(lambda x: x.detach().pow(2).exp() + x)
    with propagating(model, C21):
        y = model(x())
    assert y.requires_grad


def test_relevance_and_gradient_differ_inside_and_agree_outside() -> None:
    model, given = Model(lambda x: (x * 2).tanh()), x()
    with propagating(model, C21):
        inside = model(given)
    outside = model(given)
    assert torch.equal(inside, outside)
    ones = torch.ones_like(inside)
    assert torch.equal(torch.autograd.grad(inside, given, ones)[0], ones)
    assert torch.allclose(torch.autograd.grad(outside, given, ones)[0], 2 * (1 - outside**2))


def test_nothing_is_left_behind_also_after_an_error() -> None:
    model = nn.Sequential(nn.GELU(), nn.Linear(4, 4)).requires_grad_(False).double()
    before = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    wrong = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="shapes"), propagating(model, C21):
        model(wrong)
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == before
    assert torch.overrides._get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]


def test_other_threads_do_not_notice() -> None:
    """Neither of the mode nor of the hooks on modules that count as one step."""
    model, found = nn.GELU(), list[Tensor]()
    given = x()
    with propagating(model, C21):
        thread = Thread(target=lambda: found.append(model(given).exp()))  # would be a RuleGap here
        thread.start()
        thread.join()
    assert torch.equal(found[0], model(given).exp())
    gradients = [torch.autograd.grad(y.sum(), given)[0] for y in (found[0], model(given).exp())]
    assert torch.equal(*gradients)


@pytest.mark.parametrize(
    ("named", "plain"),
    [
        (lambda x: functional.linear(input=x, weight=WEIGHT), lambda x: functional.linear(x, WEIGHT)),
        (lambda x: torch.add(x, other=x.flip(0)), lambda x: x + x.flip(0)),
        (lambda x: torch.matmul(input=x, other=x.mT), lambda x: x @ x.mT),
        (lambda x: x.sum(axis=1), lambda x: x.sum(1)),
        (lambda x: torch.div(x, other=3.0), lambda x: x / 3),
        (lambda x: functional.gelu(input=x), functional.gelu),
        (lambda x: torch.addmm(BIAS, x[0], WEIGHT.T), lambda x: functional.linear(x[0], WEIGHT, BIAS)),
    ],
)
def test_arguments_may_have_names(named: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor]) -> None:
    given, answers = x(), []
    for step in (named, plain):
        model = Model(step)
        with propagating(model, C21):
            y = model(given)
        answers.append((y, torch.autograd.grad(y, given, torch.ones_like(y))[0]))
    for one, other in zip(*answers, strict=True):
        assert torch.allclose(one, other)


def test_an_in_place_operation_changes_its_own_tensor_in_whatever_precision() -> None:
    """Operands are widened to float64, which copies them; the result must not end in the copy."""

    def accumulate(x: Tensor) -> Tensor:
        total = torch.zeros(x.shape, dtype=torch.float32)
        total.add_(x)
        return total

    model = Model(accumulate)
    with propagating(model, C21):
        found = model(x())
    assert found.equal(x().float())


def test_an_activation_module_that_works_in_place_has_its_factor() -> None:
    given = x()
    model = nn.Sequential(Block(lambda x: x * 2), nn.SiLU(inplace=True))
    with propagating(model, ATTN_LRP):
        y = model(given)
    (found,) = torch.autograd.grad(y, given, torch.ones_like(y))
    assert torch.allclose(found, 2 * torch.sigmoid(2 * given))


def test_a_scripted_module_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit is, in all its parts
        model = nn.Sequential(torch.jit.script(nn.GELU()))
    with pytest.raises(UnsupportedModel, match="module 0 is compiled"), propagating(model, C21):
        pass


def test_parameters_must_be_frozen() -> None:
    with pytest.raises(UsageError, match="parameter weight requires a gradient"), propagating(nn.Linear(2, 2), C21):
        pass


BOOL = torch.ones(3, 3, dtype=torch.bool).tril()
ADDED = torch.zeros(3, 3, dtype=torch.float64).masked_fill(~BOOL, -torch.inf)


@pytest.mark.parametrize("rules", [C21, ATTN_LRP], ids=lambda rules: rules.name)
@pytest.mark.parametrize(
    "options",
    [{}, {"attn_mask": BOOL}, {"attn_mask": ADDED}, {"is_causal": True}, {"scale": 0.1}, {"enable_gqa": True}],
    ids=str,
)
def test_fused_attention_is_taken_apart(rules: Any, options: dict[str, Any]) -> None:
    heads = 2 if "enable_gqa" in options else 4

    def random(seed: int, n: int) -> Tensor:
        made = torch.randn(2, n, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return made.requires_grad_()

    query, key, value = random(0, 4), random(1, heads), random(2, heads)

    def by_steps(_: Tensor) -> Tensor:
        repeats = 4 // heads
        scores = query @ key.repeat_interleave(repeats, 1).mT * options.get("scale", 5**-0.5)
        if "attn_mask" in options or "is_causal" in options:
            scores = scores.masked_fill(~BOOL, torch.finfo(torch.float64).min)
        mixed: Tensor = scores.softmax(-1) @ value.repeat_interleave(repeats, 1)
        return mixed

    answers = []
    for step in (lambda _: functional.scaled_dot_product_attention(query, key, value, **options), by_steps):
        model = Model(step)
        with propagating(model, rules):
            y = model(query)
        answers.append([y, *torch.autograd.grad(y, (query, key, value), torch.ones_like(y))])
    fused = functional.scaled_dot_product_attention(query, key, value, **options)
    assert torch.allclose(answers[0][0], fused)
    for one, other in zip(*answers, strict=True):
        assert torch.allclose(one, other)


class FailingRMSNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("as some models do, and try something else")


def test_rules_apply_again_after_an_error_inside_of_a_norm() -> None:
    norm = FailingRMSNorm()

    def step(x: Tensor) -> Tensor:
        with pytest.raises(ValueError, match="try something else"):
            norm(x)
        return x.exp()

    model = Model(step)
    model.norm = norm
    with propagating(model, ATTN_LRP), pytest.raises(RuleGap, match="exp"):
        model(x())


class SomeRMSNorm(nn.Module):
    def forward(self, hidden: Tensor, x: float = 1.0) -> Tensor:
        return hidden * hidden.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt() * x


def test_threads_that_apply_rules_to_one_model_are_told_to_copy_it() -> None:
    model, inside, done = nn.Sequential(SomeRMSNorm()), Event(), Event()

    def other() -> None:
        with propagating(model, ATTN_LRP):
            inside.set()
            done.wait(60)

    thread = Thread(target=other)
    thread.start()
    try:
        assert inside.wait(60)
        with pytest.raises(UsageError, match="another thread is applying rules to this SomeRMSNorm; give each thread"):
            propagating(model, C21).__enter__()
    finally:
        done.set()
        thread.join()
    with propagating(model, C21), propagating(model, ATTN_LRP):  # of one thread, one inside of the other
        model(x())
    assert "forward" not in vars(model[0])


def test_an_argument_of_a_norm_may_be_called_x() -> None:
    model, given = nn.Sequential(SomeRMSNorm()), x()
    with propagating(model, ATTN_LRP):
        doubled = model[0](given, x=2.0)
    assert torch.allclose(doubled, 2 * model[0](given))
    (found,) = torch.autograd.grad(doubled.sum(), given)
    assert torch.allclose(found * given.detach(), doubled.detach())


def test_a_norm_without_positional_arguments_needs_rules_for_its_steps() -> None:
    model, given = nn.Sequential(SomeRMSNorm()), x()
    with propagating(model, ATTN_LRP), pytest.raises(RuleGap, match="pow"):
        model[0](hidden=given)


@pytest.mark.parametrize("rules", [ATTN_LRP, CP_LRP], ids=lambda rules: rules.name)
def test_an_input_may_be_given_by_name(rules: Any) -> None:
    given = x()
    with propagating(Model(lambda x: x), rules):
        found = functional.linear(input=given, weight=WEIGHT)
    assert torch.allclose(torch.autograd.grad(found.sum(), given)[0], WEIGHT.sum(0).expand_as(given))
