"""TokenTM and Grad-CAM against their formulas written slowly: one example, loops, numbers of the stock model."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.lrp.test_properties import batch_of, scored, subject_of, traced
from tests.tiny import IMAGE_KINDS, class_goal
from torch import Tensor

import whichtoken as wt
from whichtoken.core.trace import Needs, Site
from whichtoken.models import ModelProbe, capture

Array = NDArray[np.float64]
CLASS = 1
PLAIN: dict[str, Any] = {"lengths": False, "directions": False, "feed_forward": False, "initial": False}


def numbers(x: Tensor) -> Array:
    found: Array = x.detach().numpy()
    return found


class Stock:
    """One input through the stock eager model: what each block reads and makes, and the gradient of its attention.

    Of BERT, whose norms follow, and of DINOv2, whose norms come first and which scales what it adds.
    """

    def __init__(self, kind: str) -> None:
        subject = subject_of(kind, "eager")
        self.batch, model = batch_of(subject, 1), subject.model
        given = (
            {"pixel_values": self.batch.pixels}
            if kind == "dinov2"
            else {"input_ids": self.batch.ids, "attention_mask": self.batch.mask.long()}
        )
        outputs: list[Tensor] = []
        hooks = [block.register_forward_hook(lambda m, a, out: outputs.append(out)) for block in subject.blocks]
        out = model(**given, output_attentions=True, output_hidden_states=True)
        for hook in hooks:
            hook.remove()
        grads = torch.autograd.grad(out.logits[0, CLASS], out.attentions)
        self.attention = [numbers(layer[0]) for layer in out.attentions]
        self.grads = [numbers(layer[0]) for layer in grads]
        inputs = [out.hidden_states[0], *outputs[:-1]]
        self.inputs, self.outputs = ([numbers(x[0]) for x in group] for group in (inputs, outputs))
        self.mixed: list[Array] = []
        self.middle: list[Array] = []
        self.added: list[Array] = []
        for block, x, attention in zip(subject.blocks, inputs, out.attentions, strict=True):
            parts = self._dinov2(block, x, attention) if kind == "dinov2" else self._bert(block, x, attention)
            for kept, part in zip((self.mixed, self.middle, self.added), parts, strict=True):
                kept.append(numbers(part[0]))

    def _bert(self, block: Any, x: Tensor, attention: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, dense = block.attention.self.value(x), block.attention.output.dense
        middle = block.attention.output.LayerNorm(x + dense(self._mix(attention, value)))
        return value @ dense.weight.T, middle, block.output.dense(block.intermediate(middle))

    def _dinov2(self, block: Any, x: Tensor, attention: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, dense = block.attention.v_proj(block.norm1(x)), block.attention.o_proj
        scale = block.layer_scale1.lambda1
        middle = x + scale * dense(self._mix(attention, value))
        return scale * (value @ dense.weight.T), middle, block.layer_scale2.lambda1 * block.mlp(block.norm2(middle))

    def _mix(self, attention: Tensor, value: Tensor) -> Tensor:
        split = value.reshape(*value.shape[:2], attention.shape[1], -1)
        return torch.einsum("bhqk,bkhe->bqhe", attention, split).flatten(-2)


def slowly(stock: Stock, reading: str, norm: str, heads: str, readout: Array) -> Array:
    """With matrices, token by token."""
    n = len(stock.inputs[0])
    c = np.zeros((n, n))
    for i in range(n):
        c[i, i] = math.sqrt((stock.inputs[0][i] ** 2).sum())
    for layer, (attention, grad) in enumerate(zip(stock.attention, stock.grads, strict=True)):
        x, middle = stock.inputs[layer], stock.middle[layer]
        after = (stock.mixed[layer], stock.added[layer]) if reading == "transform" else (middle, stock.outputs[layer])
        w = []
        for before, made in ((x, after[0]), (middle, after[1])):
            lengths = [(math.sqrt((e**2).sum()), math.sqrt((t**2).sum())) for e, t in zip(before, made, strict=True)]
            turned = [math.exp((e * t).sum() / (a * b)) for e, t, (a, b) in zip(before, made, lengths, strict=True)]
            whole = sum(turned) / (n if norm == "mean" else 1)
            w.append([b / (a + 1e-8) * turn / whole for (a, b), turn in zip(lengths, turned, strict=True)])
        u = np.eye(n)
        for i in range(n):
            for j in range(n):
                positive = [max(g[i, j], 0) for g in grad]
                if heads == "each":
                    u[i, j] += sum(p * a[i, j] * w[0][j] for p, a in zip(positive, attention, strict=True)) / len(grad)
                else:
                    u[i, j] += sum(positive) / len(grad) * sum(a[i, j] for a in attention) / len(grad) * w[0][j]
        c = (np.eye(n) + np.diag(w[1])) @ u @ c
    row: Array = readout @ c
    return row


@pytest.mark.parametrize("kind", ["bert", "dinov2"])
@pytest.mark.parametrize("reading", ["transform", "stream"])
@pytest.mark.parametrize("norm", ["mean", "sum"])
@pytest.mark.parametrize("heads", ["each", "apart"])
def test_token_tm_written_slowly(kind: str, reading: str, norm: str, heads: str) -> None:
    stock = Stock(kind)
    readout = np.zeros(len(stock.inputs[0]))
    readout[0] = 1
    if kind == "dinov2":
        readout = np.array([0.5] + [0.5 / 9] * 9)
    expected = slowly(stock, reading, norm, heads, readout)
    method = wt.method("token-tm", reading=reading, necc_norm=norm, heads=heads, keep_self=True)
    subject, goal = subject_of(kind), class_goal(subject_of(kind), torch.tensor([CLASS]))
    trace = capture(subject, stock.batch, lambda logits: goal, method.needs)
    found = numbers(method(trace, ModelProbe(subject, stock.batch, goal)).tokens[0])
    assert np.abs(found - expected).max() < 1e-9 * np.abs(expected).max()


def test_every_setting_of_token_tm_counts() -> None:
    base: dict[str, Any] = {"keep_self": True}
    changes: list[dict[str, Any]] = [
        *({name: False} for name in PLAIN),
        {"reading": "stream"},
        {"necc_norm": "sum"},
        {"heads": "apart"},
        {"keep_self": False},
    ]
    default = scored("vit", wt.method("token-tm", **base))
    for change in changes:
        found = scored("vit", wt.method("token-tm", **{**base, **change}))
        assert not torch.allclose(found, default), change


@pytest.mark.parametrize("kind", [*IMAGE_KINDS, "bert"])
@pytest.mark.parametrize("reading", ["transform", "stream"])
def test_token_tm_without_transformations_is_gae(kind: str, reading: str) -> None:
    method = wt.method("token-tm", reading=reading, keep_self=True, **PLAIN)
    assert method.needs == wt.method("gae").needs
    for keep in (True, None):
        found, expected = (scored(kind, replace(m, keep_self=keep)) for m in (method, wt.method("gae")))
        assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.max()))


@pytest.mark.parametrize("kind", ["vit", "dinov2_with_registers", "bert", "gpt2"])
def test_grad_cam_written_slowly(kind: str) -> None:
    method = wt.method("grad-cam", keep_self=True)
    trace = traced(kind, method.needs)
    found, attention, grad = scored(kind, method), trace.value(Site.ATTENTION)[-1], trace.grad(Site.ATTENTION)[-1]
    for row in range(2):
        patches = [j for j in range(trace.mask.shape[1]) if trace.mask[row, j] and not trace.special[row, j]]
        expected = [0.0] * trace.mask.shape[1]
        weights = []
        for of_head in grad[row]:
            read = [sum(float(r * g) for r, g in zip(trace.readout[row], of_head[:, j], strict=True)) for j in patches]
            weights.append(sum(read) / len(patches))
        for j in patches:
            total = 0.0
            for w, of_head in zip(weights, attention[row], strict=True):
                total += w * sum(float(r * a) for r, a in zip(trace.readout[row], of_head[:, j], strict=True))
            expected[j] = max(0.0, total / len(weights))
        assert found[row].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert found.any()


def test_grad_cam_has_no_map_where_nothing_speaks_for_the_class() -> None:
    """0 everywhere, which the authors' scaling would make NaN of."""
    method = wt.method("grad-cam")
    trace = traced("vit", Needs(frozenset({Site.ATTENTION}), frozenset({Site.ATTENTION})))
    against = {Site.ATTENTION: tuple(-layer.abs() for layer in trace.grad(Site.ATTENTION))}
    subject = subject_of("vit")
    found = method(
        replace(trace, grads=against), ModelProbe(subject, batch_of(subject), class_goal(subject, torch.tensor([1, 2])))
    ).tokens
    assert torch.equal(found, torch.zeros_like(found))


def test_grad_cam_of_a_text_without_other_words_is_zero() -> None:
    subject = subject_of("gpt2")
    result = wt.explain(subject, ["a"], ["grad-cam"])[0]["grad-cam"]
    assert list(result.scores) == [0.0] * len(result.scores)
