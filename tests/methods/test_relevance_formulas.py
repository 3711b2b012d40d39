"""The relevance family against models written out by hand: what no author's numbers are there for."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.methods.test_formulas import CLASS, TEXT, assert_equal, found, raw
from tests.tiny import KINDS, model_of, with_heads
from torch import Tensor
from torch.nn import functional

import whichtoken as wt

Array = NDArray[np.float64]


def sdiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, a / (b + 1e-9))


class Bert:
    """The tiny BERT in numpy, forwards with everything kept, then backwards under the rules of Chefer et al."""

    def __init__(self, text: str) -> None:
        model = model_of("bert")
        self.w = {name: p.detach().numpy() for name, p in model.named_parameters()}
        ids = KINDS["bert"].tokenizer()(text, return_tensors="pt")["input_ids"]
        self.layers, self.heads = 3, 3
        self.x = [model.bert.embeddings(ids)[0].detach().numpy()]
        self.kept: list[dict[str, Array]] = []
        for layer in range(self.layers):
            self.x.append(self._forward(layer, self.x[-1]))

    def _linear(self, name: str, x: Array) -> Array:
        out: Array = x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]
        return out

    def _norm(self, name: str, x: Array) -> Array:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        out: Array = scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]
        return out

    def _split(self, x: Array) -> Array:
        return x.reshape(len(x), self.heads, -1).transpose(1, 0, 2)

    def _forward(self, layer: int, x: Array) -> Array:
        at, k = f"bert.encoder.layer.{layer}", dict[str, Array]()
        q, key, v = (self._split(self._linear(f"{at}.attention.self.{n}", x)) for n in ("query", "key", "value"))
        scores = q @ key.transpose(0, 2, 1)
        a = np.exp(scores / math.sqrt(q.shape[-1]))
        a /= a.sum(-1, keepdims=True)
        k |= {"q": q, "k": key, "v": v, "scores": scores, "a": a, "context": a @ v}
        merged = k["context"].transpose(1, 0, 2).reshape(len(x), -1)
        k["merged"], k["projected"] = merged, self._linear(f"{at}.attention.output.dense", merged)
        k["middle"] = self._norm(f"{at}.attention.output.LayerNorm", k["projected"] + x)
        k["wide"] = self._linear(f"{at}.intermediate.dense", k["middle"])
        k["active"] = np.array([[0.5 * u * (1 + math.erf(u / math.sqrt(2))) for u in row] for row in k["wide"]])
        k["down"] = self._linear(f"{at}.output.dense", k["active"])
        self.kept.append(k)
        return self._norm(f"{at}.output.LayerNorm", k["down"] + k["middle"])

    def _back_linear(self, name: str, x: Array, r: Array) -> Array:
        w = self.w[f"{name}.weight"]
        z = np.maximum(x, 0) @ np.maximum(w, 0).T + np.minimum(x, 0) @ np.minimum(w, 0).T
        s = sdiv(r, z)
        out: Array = np.maximum(x, 0) * (s @ np.maximum(w, 0)) + np.minimum(x, 0) * (s @ np.minimum(w, 0))
        return out

    def _back_add(self, a: Array, b: Array, r: Array) -> tuple[Array, Array]:
        parts = [a * sdiv(r, a + b), b * sdiv(r, a + b)]
        sums = [part.sum() for part in parts]
        first, second = (
            p * (abs(s) / (abs(sums[0]) + abs(sums[1])) * r.sum() / s) for p, s in zip(parts, sums, strict=True)
        )
        return first, second

    def relevance_of_attention(self, label: int, gates: list[tuple[Array, Array]] | None) -> list[Array]:
        """Layer by layer; `gates`: how much each head counts for syntax, and for position."""
        pooled = np.tanh(self._linear("bert.pooler.dense", self.x[-1][0]))
        r = np.zeros_like(self.x[-1])
        seed = np.eye(3)[label]
        r[0] = self._back_linear("bert.pooler.dense", self.x[-1][0], self._back_linear("classifier", pooled, seed))
        found: list[Array] = []
        for layer in reversed(range(self.layers)):
            at, k = f"bert.encoder.layer.{layer}", self.kept[layer]
            r_down, r_middle = self._back_add(k["down"], k["middle"], r)
            r_active = self._back_linear(f"{at}.output.dense", k["active"], r_down)
            r = r_middle + self._back_linear(f"{at}.intermediate.dense", k["middle"], r_active)
            if gates is not None and not (gates[layer][0] + gates[layer][1]).any():
                found.insert(0, np.zeros_like(k["a"]))  # all of r stays on the residual
                continue
            r_projected, r_residual = self._back_add(k["projected"], self.x[layer], r)
            r_context = self._split(self._back_linear(f"{at}.attention.output.dense", k["merged"], r_projected))
            if gates is not None:
                total = r_context.sum()
                parts = [weights[:, None, None] * r_context for weights in gates[layer]]
                sizes = sum(abs(part.sum()) for part in parts)
                scaled = [p * (abs(p.sum()) / sizes * total / p.sum()) if p.any() else p for p in parts]
                r_context = scaled[0] + scaled[1]
            s = sdiv(r_context, k["context"])
            r_a, r_v = 0.5 * k["a"] * (s @ k["v"].transpose(0, 2, 1)), 0.5 * k["v"] * (k["a"].transpose(0, 2, 1) @ s)
            found.insert(0, r_a)
            s = sdiv(r_a, k["scores"])
            r_q, r_k = 0.5 * k["q"] * (s @ k["k"]), 0.5 * k["k"] * (s.transpose(0, 2, 1) @ k["q"])
            r = r_residual
            for name, part in (("query", r_q), ("key", r_k), ("value", r_v)):
                together = part.transpose(1, 0, 2).reshape(len(r), -1)
                r = r + self._back_linear(f"{at}.attention.self.{name}", self.x[layer], together)
        self.input = r
        return found


def rolled(relevance: list[Array], start_layer: int = 0) -> Array:
    x = raw("bert")
    joint = np.eye(x.sizes[2])
    for layer in range(start_layer, len(relevance)):
        joint = (np.eye(len(joint)) + np.maximum(0, x.ga[layer] * relevance[layer]).mean(0)) @ joint
    row: Array = joint[0].copy()
    row[0] = 0
    return row


def test_transatt_partial_and_full_lrp() -> None:
    bert = Bert(TEXT)
    relevance = bert.relevance_of_attention(CLASS, None)
    assert bert.input.sum() == pytest.approx(1, abs=1e-6)
    assert_equal(found("bert", "transatt"), rolled(relevance), 1e-6)
    assert_equal(found("bert", "transatt", start_layer=1), rolled(relevance, 1), 1e-6)
    last = np.maximum(relevance[-1], 0).mean(0)[0]
    last[0] = 0
    assert_equal(found("bert", "partial-lrp"), last, 1e-6)
    weighted = np.maximum(relevance[-1] * raw("bert").ga[-1], 0).mean(0)[0]
    weighted[0] = 0
    assert_equal(found("bert", "partial-lrp", gradient=True), weighted, 1e-6)
    whole = bert.input.sum(-1)
    assert_equal(found("bert", "full-lrp", keep_self=True), whole, 1e-6)
    whole[0] = 0
    assert_equal(found("bert", "full-lrp"), whole, 1e-6)


def test_mask_lrp_as_the_paper_has_it() -> None:
    """Its authors' code does something else, so there are no numbers of theirs."""
    mask = with_heads(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())).heads
    assert mask is not None
    gates = [(np.array(s, float), np.array(p, float)) for s, p in zip(mask.syntactic, mask.positional, strict=True)]
    slow = rolled(Bert(TEXT).relevance_of_attention(CLASS, gates))
    assert_equal(found("bert", "mask-lrp", heads=mask, variant="paper", rollout="raw"), slow, 1e-6)
    assert slow.any()


def half(x: Tensor) -> Tensor:
    return x / 2 + (x / 2).detach()


def factor(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return x * (f(x) / x).detach()


def norm(module: Any, x: Tensor) -> Tensor:
    if hasattr(module, "variance_epsilon"):
        found: Tensor = x / (x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon).sqrt().detach() * module.weight
    else:
        deviation = (x.var(-1, unbiased=False, keepdim=True) + module.eps).sqrt().detach()
        found = (x - x.mean(-1, keepdim=True)) / deviation * module.weight + module.bias
    return found


def attended(q: Tensor, k: Tensor, v: Tensor, rules: str, shut: Tensor | None = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = half(scores) if rules == "attn-lrp" else scores
    a = (scores if shut is None else scores.masked_fill(shut, -torch.inf)).softmax(-1)
    return half(a @ v) if rules == "attn-lrp" else a.detach() @ v


def split(x: Tensor, heads: int) -> Tensor:
    return x.view(len(x), heads, -1).transpose(0, 1)


def bert_by_hand(model: Any, x: Tensor, rules: str) -> Tensor:
    activation = (lambda f, u: f(u)) if rules == "cp-lrp@paper" else factor
    for layer in model.bert.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        q, k, v = (split(linear(x), 3) for linear in (own.query, own.key, own.value))
        merged = attended(q, k, v, rules).transpose(0, 1).flatten(1)
        x = norm(out.LayerNorm, out.dense(merged) + x)
        wide = activation(functional.gelu, layer.intermediate.dense(x))
        x = norm(layer.output.LayerNorm, layer.output.dense(wide) + x)
    logits: Tensor = model.classifier(activation(torch.tanh, model.bert.pooler.dense(x[0])))
    return logits


def llama_by_hand(model: Any, x: Tensor, rules: str) -> Tensor:
    cos, sin = (t[0] for t in model.model.rotary_emb(x[None], torch.arange(len(x))[None]))
    shut = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)

    def turned(u: Tensor) -> Tensor:
        a, b = u.chunk(2, -1)
        found: Tensor = u * cos + torch.cat((-b, a), -1) * sin
        return found

    for layer in model.model.layers:
        own, normed = layer.self_attn, norm(layer.input_layernorm, x)
        q, k, v = split(own.q_proj(normed), 4), split(own.k_proj(normed), 2), split(own.v_proj(normed), 2)
        k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
        x = x + own.o_proj(attended(turned(q), turned(k), v, rules, shut).transpose(0, 1).flatten(1))
        mlp, normed = layer.mlp, norm(layer.post_attention_layernorm, x)
        gate, up = factor(functional.silu, mlp.gate_proj(normed)), mlp.up_proj(normed)
        x = x + mlp.down_proj(half(gate * up) if rules == "attn-lrp" else gate.detach() * up)
    logits: Tensor = model.score(norm(model.model.norm, x)[-1])
    return logits


@pytest.mark.parametrize("rules", ["cp-lrp", "cp-lrp@paper", "attn-lrp"])
@pytest.mark.parametrize(("kind", "by_hand"), [("bert", bert_by_hand), ("llama", llama_by_hand)])
def test_gradient_rules(kind: str, by_hand: Callable[..., Tensor], rules: str) -> None:
    model = model_of(kind)
    ids = KINDS[kind].tokenizer()(TEXT, return_tensors="pt")["input_ids"]
    embed = model.bert.embeddings if kind == "bert" else model.model.embed_tokens
    x = embed(ids)[0].detach().requires_grad_()
    logits = by_hand(model, x, rules)
    assert torch.allclose(logits, model(ids).logits[0], rtol=1e-5)
    (grad,) = torch.autograd.grad(logits[CLASS], x)
    name, _, preset = rules.partition("@")
    # Llama's own norms round to float32; the factor of an activation is f(x) / (x + 1e-10).
    tolerance = 1e-5 if kind == "llama" else 1e-7
    assert_equal(found(kind, name, preset or None), (x * grad).sum(-1).detach().numpy(), tolerance)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_alti(kind: str) -> None:
    model, x = model_of(kind), raw(kind)
    layers, heads, n = x.sizes
    joint = np.eye(n)
    for layer in range(layers):
        if kind == "bert":
            block = model.bert.encoder.layer[layer].attention
            w_v, b_v = (p.detach().numpy() for p in (block.self.value.weight, block.self.value.bias))
            w_o, b_o = (p.detach().numpy() for p in (block.output.dense.weight, block.output.dense.bias))
            value = x.h[layer] @ w_v.T + b_v
        else:
            block = model.transformer.h[layer]
            w_v, b_v = (p.detach().numpy()[..., 48:] for p in (block.attn.c_attn.weight, block.attn.c_attn.bias))
            w_o, b_o = block.attn.c_proj.weight.detach().numpy().T, block.attn.c_proj.bias.detach().numpy()
            value = block.ln_1(torch.tensor(x.h[layer])).detach().numpy() @ w_v + b_v
        size = value.shape[1] // heads
        c = np.zeros((n, n))
        for i in range(n):
            f = []
            for j in range(n):
                of_j = x.h[layer, i].copy() if i == j else np.zeros_like(x.h[layer, i])
                for h in range(heads):
                    part = slice(h * size, (h + 1) * size)
                    of_j += x.a[layer, h, i, j] * (w_o[:, part] @ value[j, part])
                f.append(of_j)
            y = np.sum(f, 0) + b_o
            if kind == "bert":
                gain, shift = (p.detach().numpy() for p in (block.output.LayerNorm.weight, block.output.LayerNorm.bias))
                deviation = math.sqrt(y.var() + 1e-12)
                f = [gain * (part - part.mean()) / deviation for part in f]
                y = gain * (y - y.mean()) / deviation + shift
            near = [max(0.0, np.abs(y).sum() - np.abs(y - part).sum()) for part in f]
            c[i] = np.array(near) / sum(near)
        joint = c @ joint
    assert_equal(found(kind, "alti"), joint[x.r])


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_tis(kind: str) -> None:
    """With as many masks as features there is nothing to cluster. Hidden keys are removed tokens."""
    model, x = model_of(kind, "eager"), raw(kind)
    ids = KINDS[kind].tokenizer()(TEXT, return_tensors="pt")["input_ids"]
    layers, _, n = x.sizes
    hidden: list[Tensor] = []
    blocks = model.bert.encoder.layer if kind == "bert" else model.transformer.h
    hooks = [
        b.register_forward_hook(lambda _, __, out: hidden.append(out if isinstance(out, Tensor) else out[0]))
        for b in blocks
    ]
    model(ids)
    for hook in hooks:
        hook.remove()
    free = [i for i in range(n) if not x.special[i] and i != x.r]
    kept_sum, counts = np.zeros(n), np.zeros(n)
    for layer in range(layers):
        for d in range(24):
            feature = hidden[layer][0, :, d].tolist()
            kept = sorted(free, key=lambda i: -feature[i])[: int(0.5 * len(free))]
            mask = torch.tensor([[int(i not in free or i in kept) for i in range(n)]])
            p = model(ids, attention_mask=mask).logits.softmax(-1)[0, CLASS].item()
            for i in kept:
                kept_sum[i] += p
                counts[i] += 1
    mean = {i: kept_sum[i] / counts[i] for i in free if counts[i]}
    low, high = min(mean.values()), max(mean.values())
    slow = [(mean.get(i, low) - low) / (high - low) if i in free else 0.0 for i in range(n)]
    assert_equal(found(kind, "tis"), slow, 1e-6)


def test_tis_with_fewer_masks_than_features_clusters_them() -> None:
    few, many = found("bert", "tis", n_masks=5), found("bert", "tis", n_masks=50)
    assert not np.allclose(few, many)
    assert np.array_equal(few, found("bert", "tis", n_masks=5))
    assert not np.allclose(few, found("bert", "tis", n_masks=5, seed=1))


def test_a_token_that_no_mask_keeps_has_the_lowest_score_of_tis() -> None:
    from whichtoken.methods.tis import _mean_when_kept

    kept = torch.tensor([[0, 1, 0, 1, 0], [0, 1, 1, 0, 0]]).bool()
    free = torch.tensor([0, 1, 1, 1, 1]).bool()
    found = _mean_when_kept(kept, torch.tensor([0.8, 0.2], dtype=torch.float64), free)
    assert found.tolist() == pytest.approx([0, 0.5, 0.2, 0.8, 0.2])


def test_the_centres_of_k_means_are_means_of_what_is_nearest() -> None:
    from whichtoken.methods.tis import _centres

    generator = torch.Generator().manual_seed(0)
    places = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], dtype=torch.float64)
    maps = places.repeat_interleave(20, 0) + torch.randn(60, 2, dtype=torch.float64, generator=generator)
    for seed in range(5):
        centres = _centres(maps, 3, seed)
        nearest = torch.cdist(maps, centres).argmin(-1)
        for number, centre in enumerate(centres):
            assert torch.allclose(centre, maps[nearest == number].mean(0))
