"""Operations get their rules inside the `with`, and only there."""

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from whichtoken.errors import RuleGap, UsageError
from whichtoken.lrp import ATTN_LRP, C21, propagating


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


ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64).requires_grad_(False).train(False)


def x() -> Tensor:
    return torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def set_item(x: Tensor) -> Tensor:
    y = x * 1
    y[0] = 0
    return y


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
    ],
)
def test_an_operation_without_a_rule_is_named_with_its_module(operation: str, step: Callable[[Tensor], Any]) -> None:
    model = Model(step)
    with propagating(model, C21), pytest.raises(RuleGap) as raised:
        model(x())
    said = str(raised.value)
    assert "rule set c21 has no rule for" in said
    assert operation in said or operation in ("div", "sub")  # torch has several names for these
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
    found: list[Tensor] = []
    given = x()
    with propagating(Model(lambda x: x), C21):
        thread = Thread(target=lambda: found.append(given.exp()))  # would be a RuleGap here
        thread.start()
        thread.join()
    assert found[0].requires_grad


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
