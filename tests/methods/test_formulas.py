"""Each method against its formula written slowly: one example, loops, on tensors taken from the stock model by hand."""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient, IntegratedGradients
from numpy.typing import NDArray
from tests.tiny import KINDS, WORDS, model_of

import whichtoken as wt

TEXT = "The actors were wonderful, but the plot was dull."
TEXTS = [TEXT, "It is very slow.", "A rare film"]
CLASS = 0
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Raw:
    """What the stock model shows of one text."""

    a: Array  # layer head query key
    ga: Array
    h: Array  # layer (embeddings first) token dim
    gh: Array
    special: list[bool]
    r: int  # the position that the classifier reads

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.a.shape[0], self.a.shape[1], self.a.shape[2]


@cache
def raw(kind: str, hide_special: bool = False, label: int = CLASS, text: str = TEXT) -> Raw:
    model, tokenizer = model_of(kind, "eager"), KINDS[kind].tokenizer()
    encoded = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
    special = encoded["special_tokens_mask"][0].bool()
    mask = ~special[None] if hide_special else torch.ones_like(encoded["input_ids"])
    out = model(encoded["input_ids"], attention_mask=mask.long(), output_attentions=True, output_hidden_states=True)
    for tensor in (*out.attentions, *out.hidden_states):
        tensor.retain_grad()
    out.logits[0, label].backward()

    def stacked(tensors: Any) -> Array:
        return np.stack([tensor.detach()[0].numpy() for tensor in tensors])

    return Raw(
        a=stacked(out.attentions),
        ga=stacked(t.grad for t in out.attentions),
        h=stacked(out.hidden_states),
        gh=stacked(t.grad for t in out.hidden_states),
        special=special.tolist(),
        r=len(special) - 1 if kind in ("gpt2", "llama") else 0,
    )


def found(
    kind: str, name: str, preset: str | None = None, label: int = CLASS, text: str = TEXT, **settings: Any
) -> Array:
    subject = wt.Subject(model_of(kind), KINDS[kind].tokenizer())
    method = wt.method(name, preset, **settings)
    return np.array(wt.explain(subject, [text, "dull"], [method], target=label)[0][method.label].scores)


def assert_equal(mine: Array, slow: list[float] | Array, relative: float = 1e-9) -> None:
    np.testing.assert_allclose(mine, slow, rtol=0, atol=relative * np.abs(slow).max())


each_kind = pytest.mark.parametrize("kind", ["bert", "gpt2"])


@each_kind
def test_raw_attention(kind: str) -> None:
    x = raw(kind)
    layers, heads, n = x.sizes
    slow = [0.0] * n
    for j in range(n):
        for h in range(heads):
            slow[j] += x.a[layers - 1, h, x.r, j] / heads
    kept = list(slow)
    slow[x.r] = 0
    assert_equal(found(kind, "raw-attention"), slow)
    assert_equal(found(kind, "raw-attention", keep_self=True), kept)


@each_kind
@pytest.mark.parametrize("start_layer", [0, 1])
def test_rollout(kind: str, start_layer: int) -> None:
    x = raw(kind)
    layers, heads, n = x.sizes
    joint = np.eye(n)
    for layer in range(start_layer, layers):
        b = np.eye(n)
        for h in range(heads):
            b += x.a[layer, h] / heads
        for i in range(n):
            b[i] /= b[i].sum()
        joint = b @ joint
    slow = joint[x.r].copy()
    slow[x.r] = 0
    assert_equal(found(kind, "rollout", start_layer=start_layer), slow)


@each_kind
def test_gae(kind: str) -> None:
    x = raw(kind)
    layers, heads, n = x.sizes
    relevance = np.eye(n)
    for layer in range(layers):
        m = np.zeros((n, n))
        for h in range(heads):
            m += np.maximum(0, x.ga[layer, h] * x.a[layer, h]) / heads
        relevance = relevance + m @ relevance
    slow = relevance[x.r].copy()
    slow[x.r] = 0
    assert_equal(found(kind, "gae"), slow)


def can_attend(kind: str, i: int, j: int) -> bool:
    return j <= i or kind == "bert"


@each_kind
@pytest.mark.parametrize("axis", ["query", "key", "readout"])
@pytest.mark.parametrize("name", ["grad-sam", "att-grads", "att-x-att-grads"])
def test_the_three_means_over_attention(kind: str, axis: str, name: str) -> None:
    x = raw(kind)
    layers, heads, n = x.sizes
    slow = [0.0] * n
    for layer in range(layers):
        for h in range(heads):
            for i in range(n):
                for j in range(n):
                    attention, grad = x.a[layer, h, i, j], x.ga[layer, h, i, j]
                    if not can_attend(kind, i, j):
                        continue
                    term = {
                        "grad-sam": attention * max(0.0, grad),
                        "att-grads": grad,
                        "att-x-att-grads": attention * grad,
                    }[name]
                    if axis == "query":
                        slow[i] += term / (layers * heads * n)
                    elif axis == "key":
                        slow[j] += term / (layers * heads * n)
                    elif i == x.r:
                        slow[j] += term / (layers * heads)
    assert_equal(found(kind, name, axis=axis), slow)


@each_kind
def test_attention_grad_cam(kind: str) -> None:
    largest = 0.0
    for label, text in product(range(3), TEXTS):
        x = raw(kind, label=label, text=text)
        layers, heads, n = x.sizes
        m = np.zeros((n, n))
        for h in range(heads):
            weight = 0.0
            for i in range(n):
                for j in range(n):
                    weight += x.ga[layers - 1, h, i, j] / n**2 if can_attend(kind, i, j) else 0.0
            m += weight * x.a[layers - 1, h] / heads
        m = np.maximum(m, 0)
        slow = (m[x.r] - m.min()) / (m.max() - m.min() or 1)
        slow[x.r] = 0
        assert_equal(found(kind, "attention-grad-cam", label=label, text=text), slow)
        largest = max(largest, slow.max())
    assert largest > 0.1  # not all maps are clamped to nothing


@each_kind
def test_cam(kind: str) -> None:
    largest = 0.0
    for label, text in product(range(3), TEXTS):
        x = raw(kind, label=label, text=text)
        layers, heads, n = x.sizes
        slow = np.zeros(n)
        for j in range(n):
            for h in range(heads):
                for i in range(n):
                    slow[j] += x.ga[layers - 1, h, i, j] / (heads * n) if can_attend(kind, i, j) else 0.0
            slow[j] = max(0.0, slow[j])
        slow[x.r] = 0
        assert_equal(found(kind, "cam", label=label, text=text), slow)
        largest = max(largest, slow.max())
    assert largest > 0


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("attention", [False, True])
def test_cat_and_attcat(kind: str, attention: bool) -> None:
    x = raw(kind)
    layers, heads, n = x.sizes
    slow = [0.0] * n
    for layer in range(layers):
        for j in range(n):
            weight = 0.0
            for h in range(heads):
                for i in range(n):
                    weight += x.a[layer, h, i, j] / (heads * n)
            dot = sum(x.gh[layer, j, d] * x.h[layer, j, d] for d in range(x.h.shape[2]))
            slow[j] += dot * (weight if attention else 1)
    name = "attcat" if attention else "cat"
    relative = 1e-4 if kind == "llama" else 1e-9  # the stock Llama takes its eager softmax in float32
    assert_equal(found(kind, name, zero_special=False), slow, relative)
    zeroed = [0.0 if x.special[j] else slow[j] for j in range(n)]
    assert_equal(found(kind, name), zeroed, relative)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("preset", ["repo", "paper"])
def test_presets_of_cat_and_attcat(attention: bool, preset: str) -> None:
    x = raw("bert", hide_special=preset == "repo")
    layers, _, n = x.sizes
    slow = [0.0] * n
    for layer in range(layers):
        feature = layer + 1 if preset == "paper" else layer  # the paper pairs attention with a block's output
        for j in range(n):
            weight = x.a[layer, :, :, j].mean() if attention else 1
            slow[j] += weight * (x.gh[feature, j] * x.h[feature, j]).sum()
    assert_equal(found("bert", "attcat" if attention else "cat", preset), slow)


def test_hidden_special_tokens_receive_no_attention() -> None:
    x = raw("bert", hide_special=True)
    assert (x.a[..., 0] == 0).all()
    assert found("bert", "attcat", "repo")[[0, -1]].tolist() == [0, 0]


def encoder_logit(kind: str, embeddings: torch.Tensor) -> torch.Tensor:
    """The stock classifier from the first block on."""
    model = model_of(kind)
    hidden = model.bert.encoder(embeddings).last_hidden_state
    return model.classifier(model.bert.pooler(hidden))[:, CLASS]  # type: ignore[no-any-return]


def test_gradient_x_input() -> None:
    x = raw("bert")
    embeddings = torch.from_numpy(x.h[0])[None].requires_grad_()
    slow = [float((x.h[0, j] * x.gh[0, j]).sum()) for j in range(x.sizes[2])]
    assert_equal(found("bert", "gradient-x-input"), slow)
    captum = InputXGradient(lambda e: encoder_logit("bert", e)).attribute(embeddings)
    assert_equal(found("bert", "gradient-x-input"), captum[0].sum(-1).detach().numpy())


def blank_text(x: Raw, baseline: str) -> torch.Tensor:
    """Embeddings of the text with its words replaced; special tokens as they are."""
    embeddings, special = torch.from_numpy(x.h[0])[None], torch.tensor(x.special)[None, :, None]
    if baseline == "zero":
        return torch.where(special, embeddings, 0)
    tokenizer, model = KINDS["bert"].tokenizer(), model_of("bert")
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    filler = {"pad": tokenizer.pad_token_id, "mask": tokenizer.mask_token_id}[baseline]
    return model.bert.embeddings(torch.where(special[..., 0], ids, filler)).detach()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("rule", "theirs"), [("gauss-legendre", "gausslegendre"), ("midpoint", "riemann_middle")])
@pytest.mark.parametrize("baseline", ["pad", "mask", "zero"])
def test_integrated_gradients(rule: str, theirs: str, baseline: str) -> None:
    x = raw("bert")
    embeddings, blank = torch.from_numpy(x.h[0])[None], blank_text(x, baseline)
    captum = IntegratedGradients(lambda e: encoder_logit("bert", e)).attribute(
        embeddings, blank, n_steps=12, method=theirs
    )
    mine = found("bert", "integrated-gradients", steps=12, rule=rule, baseline=baseline)
    assert_equal(mine, captum[0].sum(-1).detach().numpy(), 1e-6)  # Captum keeps its step sizes in float32
    nodes, weights = np.polynomial.legendre.leggauss(12)
    slow = np.zeros(x.sizes[2])
    for k in range(12):
        at, weight = ((nodes[k] + 1) / 2, weights[k] / 2) if rule == "gauss-legendre" else ((k + 0.5) / 12, 1 / 12)
        point = (blank + at * (embeddings - blank)).requires_grad_()
        (grad,) = torch.autograd.grad(encoder_logit("bert", point)[0], point)
        for j in range(x.sizes[2]):
            slow[j] += weight * float((grad[0, j] * (embeddings - blank)[0, j]).sum())
    assert_equal(mine, slow)


def test_integrated_gradients_report_what_is_missing_to_completeness() -> None:
    x = raw("bert")
    embeddings, blank = torch.from_numpy(x.h[0])[None], blank_text(x, "pad")
    gained = float((encoder_logit("bert", embeddings) - encoder_logit("bert", blank)).detach())
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    for steps in (4, 200):
        method = wt.method("integrated-gradients", steps=steps)
        result = wt.explain(subject, [TEXT], [method], target=CLASS)[0][method.label]
        residual = result.details["completeness_residual"]
        assert residual == pytest.approx(gained - sum(result.scores), abs=1e-9)
        if steps == 200:
            assert abs(residual) < 1e-3 * abs(gained)


def test_repeated_words_have_random_scores_of_their_own() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    scores = wt.explain(subject, ["slow film slow film slow film"], ["random"])[0]["random"].scores[1:-1]
    assert len(set(scores)) == len(scores) == 6


def test_random_scores_are_uniform_seeded_and_differ_between_texts() -> None:
    one, two = found("bert", "random"), found("bert", "random", seed=1)
    assert (one[1:-1] != two[1:-1]).all()
    assert (found("bert", "random") == one).all()
    assert one[0] == one[-1] == 0
    assert ((one >= 0) & (one < 1)).all()
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    texts = [f"{a} {b}" for a in WORDS for b in WORDS]
    scores = [s for r in wt.explain(subject, texts, ["random"]) for s in r["random"].scores if s]
    assert len(set(scores)) == len(scores)
    assert np.mean(scores) == pytest.approx(0.5, abs=0.05)
    assert np.std(scores) == pytest.approx(12**-0.5, abs=0.05)
