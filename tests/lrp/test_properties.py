"""What relevance must do on every architecture (and what goes wrong with a rule less)."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from tests.tiny import (
    IMAGE_KINDS,
    KINDS,
    MAIN_KINDS,
    class_goal,
    image_batch,
    image_model_of,
    images,
    model_of,
    with_heads,
)
from torch import Tensor

import whichtoken as wt
from whichtoken.core.picks import Picks
from whichtoken.core.trace import Method, Needs, Site, Trace, needs
from whichtoken.errors import RuleGap
from whichtoken.heads.mask import all_heads
from whichtoken.lrp import ATTN_LRP, C21, CP_LRP, ORIG, RuleSet, propagating
from whichtoken.models import Batch, ModelProbe, capture, window_row

TEXTS = ["The actors were wonderful, but naïve.", "dull"]
EVERY = [*MAIN_KINDS, *IMAGE_KINDS]
# Whose blocks are those of another kind here: BERT, RoBERTa, Llama, ViT, DINOv2 with registers.
TWICE = ("electra", "xlm-roberta", "qwen2", "deit", "deit with teacher", "dinov2", "dinov2 with swiglu")
each_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in TWICE else kind for kind in EVERY]
)
# One of each family: relevance that is handed back by shares, and gradients under changed rules.
each_rules = pytest.mark.parametrize("rules", [C21, ATTN_LRP], ids=lambda rules: rules.name)


@cache
def subject_of(kind: str, attention: str | None = None) -> wt.Subject:
    if kind in IMAGE_KINDS:
        return wt.Subject(image_model_of(kind, attention), None, name=kind)
    return wt.Subject(model_of(kind, attention), KINDS[kind].tokenizer(), name=kind)


def batch_of(subject: wt.Subject, n: int = 2) -> Batch:
    if subject.architecture.reads == "pixels":
        return image_batch(subject, images(n, seed=3))
    return subject.batch(
        [window_row(document, document.windows[0]) for document in subject.encode([(text,) for text in TEXTS[:n]])]
    )


def traced(kind: str, needs: Needs, attention: str | None = None, n: int = 2) -> Trace:
    subject = subject_of(kind, attention)
    goal = class_goal(subject, torch.tensor([1, 2][:n]))
    return capture(subject, batch_of(subject, n), lambda logits: goal, needs)


def relevance_of(kind: str, rules: RuleSet, *sites: Site) -> Trace:
    return traced(kind, Needs(relevance=frozenset((rules, site) for site in sites)))


def total(x: Tensor) -> Tensor:
    return x.flatten(1).sum(1)


@each_kind
def test_relevance_sums_to_the_seed_at_every_cut(kind: str) -> None:
    trace = relevance_of(kind, C21, Site.HIDDEN, Site.EMBEDDINGS)
    cuts = [*trace.relevance(C21, Site.HIDDEN), *trace.relevance(C21, Site.EMBEDDINGS)]
    assert len(cuts) == subject_of(kind).n_layers + 2
    for cut in cuts:
        assert torch.allclose(total(cut), torch.ones(2, dtype=torch.float64), atol=1e-6)


@each_kind
def test_orig_does_not_conserve(kind: str) -> None:
    (found,) = relevance_of(kind, ORIG, Site.EMBEDDINGS).relevance(ORIG, Site.EMBEDDINGS)
    assert (total(found) - 1).abs().min() > 1


@each_kind
@each_rules
def test_padding_changes_nothing_and_gets_nothing(kind: str, rules: RuleSet) -> None:
    both = relevance_of(kind, rules, Site.EMBEDDINGS, Site.ATTENTION)
    needs = Needs(relevance=frozenset({(rules, Site.EMBEDDINGS), (rules, Site.ATTENTION)}))
    alone = traced(kind, needs, n=1)
    n = int(alone.lengths[0])
    for site, cut in ((Site.EMBEDDINGS, (0, slice(n))), (Site.ATTENTION, (0, slice(None), slice(n), slice(n)))):
        for padded, single in zip(both.relevance(rules, site), alone.relevance(rules, site), strict=True):
            assert torch.allclose(padded[cut], single[0], rtol=1e-7, atol=1e-9 * float(single.abs().max()))
    (found,) = both.relevance(rules, Site.EMBEDDINGS)
    assert (found[~both.mask] == 0).all()
    assert kind in IMAGE_KINDS or not both.mask.all()


@each_kind
@each_rules
def test_fused_attention_gives_the_same_as_eager(kind: str, rules: RuleSet) -> None:
    """On the bare engine: `capture` puts its own attention in the place of either."""
    if kind in ("deberta-v2", "mpnet"):
        pytest.skip("this architecture has eager attention only")
    answers = []
    for attention in ("sdpa", "eager"):
        subject = subject_of(kind, attention)
        model = subject.model.requires_grad_(False)
        leaves: list[Tensor] = []

        def hook(_: Any, __: Any, output: Tensor, leaves: list[Tensor] = leaves) -> Tensor:
            leaves.append(output.detach().requires_grad_())
            return leaves[0]

        with subject.embeddings.register_forward_hook(hook), propagating(model, rules):
            logits = subject.forward(batch_of(subject, 1))
        answers.append(torch.autograd.grad(logits[0, 1], leaves[0])[0])
        model.requires_grad_(True)
    # The eager attention of some models rounds its softmax to float32.
    tolerance = 1e-3 if kind in ("llama", "modernbert", "qwen2") or kind.startswith(("vit", "deit")) else 1e-12
    assert float((answers[0] - answers[1]).abs().max()) <= tolerance * float(answers[0].abs().max())


def scored(kind: str, method: Method) -> Tensor:
    subject = subject_of(kind)
    probe = ModelProbe(subject, batch_of(subject), class_goal(subject, torch.tensor([1, 2])))
    return method(traced(kind, method.needs), probe).tokens


@each_kind
def test_transatt_with_attention_for_relevance_is_gae(kind: str) -> None:
    method = wt.method("transatt")
    trace = traced(kind, replace(method.needs, values=frozenset({Site.ATTENTION})))
    trace = replace(trace, relevances={(C21, Site.ATTENTION): trace.value(Site.ATTENTION)})
    subject = subject_of(kind)
    probe = ModelProbe(subject, batch_of(subject), class_goal(subject, torch.tensor([1, 2])))
    found = method(trace, probe).tokens
    assert torch.equal(found, scored(kind, wt.method("gae")))
    assert not torch.allclose(found, scored(kind, method))


@each_kind
def test_mask_lrp_through_all_heads_is_transatt(kind: str) -> None:
    subject = subject_of(kind)
    mask = all_heads(subject.n_layers, subject.n_heads, kind, subject.fingerprint())
    found = scored(kind, wt.method("mask-lrp", preset="paper", heads=mask))
    expected = scored(kind, wt.method("transatt"))
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)
    some = with_heads(subject).heads
    assert not torch.allclose(scored(kind, wt.method("mask-lrp", preset="paper", heads=some)), expected)


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("variant", ["paper", "repo"])
def test_mask_lrp_hides_separators_alone_in_every_pass(kind: str, variant: str) -> None:
    subject = with_heads(subject_of(kind))
    batch, goal = batch_of(subject), class_goal(subject, torch.tensor([1, 2]))
    separators = batch.special & (batch.ids == subject.tokenizer.sep_token_id)
    only_separators = replace(batch, special=separators)  # so that hiding all special tokens hides the separators

    def scores(method: Method, of: Batch) -> Tensor:
        trace = capture(subject, of, lambda logits: goal, method.needs)
        return method(trace, ModelProbe(subject, of, goal)).tokens

    hidden = scores(wt.method("mask-lrp", variant=variant, mask_separators=True), batch)
    plain = scores(wt.method("mask-lrp", variant=variant), batch)
    assert torch.equal(hidden, plain) == (not separators.any())
    trace = capture(subject, batch, lambda logits: goal, needs("attention", hide_separators=True))
    assert trace.value(Site.ATTENTION)[0][..., 0].any()  # the first token is hidden from nobody
    for attention in trace.value(Site.ATTENTION):
        assert not attention.masked_select(separators[:, None, None, :]).any()
    every = all_heads(subject.n_layers, subject.n_heads, kind, subject.fingerprint())
    through_all = scores(wt.method("mask-lrp", preset="paper", heads=every, mask_separators=True), batch)
    expected = scores(wt.method("transatt", mask_special=True), only_separators)
    assert torch.allclose(through_all, expected, rtol=1e-6, atol=1e-9)


@each_kind
def test_masked_relevance_is_conserved_also_past_a_block_without_heads(kind: str) -> None:
    from whichtoken.methods.mask_lrp import _gates

    mask = with_heads(subject_of(kind)).heads
    assert mask is not None
    assert not any(mask.selected[1])
    rules = replace(C21, gates=_gates(mask, "paper"))
    trace = relevance_of(kind, rules, Site.HIDDEN, Site.ATTENTION)
    for cut in trace.relevance(rules, Site.HIDDEN):
        assert torch.allclose(total(cut), torch.ones(2, dtype=torch.float64), atol=1e-6)
    assert (trace.relevance(rules, Site.ATTENTION)[1] == 0).all()
    for layer, chosen in zip(trace.relevance(rules, Site.ATTENTION), mask.selected, strict=True):
        assert [bool((layer[:, head] != 0).any()) for head in range(len(chosen))] == list(chosen)


@each_kind
def test_without_any_head_relevance_stays_where_it_is_read_out(kind: str) -> None:
    subject = subject_of(kind)
    mask = all_heads(subject.n_layers, subject.n_heads, kind, subject.fingerprint())
    nothing = replace(mask, added=tuple((False,) * subject.n_heads for _ in range(subject.n_layers)))
    found = scored(kind, wt.method("mask-lrp", preset="paper", heads=nothing))
    readout = subject.readout(batch_of(subject))
    assert torch.equal(found, readout.masked_fill(readout == 1, 0))


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_cp_lrp_without_biases_sums_to_the_logit(kind: str) -> None:
    model = model_of(kind)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    subject = wt.Subject(model, KINDS[kind].tokenizer())
    goal = class_goal(subject, torch.tensor([1, 2]))
    needs = Needs(relevance=frozenset({(CP_LRP, Site.EMBEDDINGS)}))
    trace = capture(subject, batch_of(subject), lambda logits: goal, needs)
    assert torch.allclose(total(trace.relevance(CP_LRP, Site.EMBEDDINGS)[0]), trace.target, rtol=1e-9)
    assert trace.target.abs().min() > 0.1


def test_with_every_rule_the_bare_engine_conserves() -> None:
    assert [name for name in EVERY if not _conserves(name, C21)] == []


@pytest.mark.parametrize("kind", sorted(C21.rules))
def test_each_rule_is_missed_somewhere(kind: str) -> None:
    """Without it an architecture is refused; and where it is let pass, its relevance no longer sums to the seed."""
    missed = [name for name in EVERY if name not in TWICE and not _conserves(name, C21.without(kind))]
    assert missed, f"nothing needs the rule for {kind}"
    with pytest.raises(RuleGap, match=f"c21 without {kind} has no rule for"):
        relevance_of(missed[0], C21.without(kind), Site.EMBEDDINGS)


@each_kind
@pytest.mark.parametrize("name", ["full-lrp", "attn-lrp"])
def test_a_contrast_is_the_difference_of_its_classes(kind: str, name: str) -> None:
    """Although its relevance may sum to 0, which rules that conserve would scale to nothing."""
    method = wt.method(name)
    ((rules, site),) = ((rules, site) for rules, site in method.needs.relevance if site is not Site.PIXELS)
    a, b = torch.tensor([1, 2]), torch.tensor([0, 1])
    subject = subject_of(kind)

    def of(goal: Picks) -> tuple[Tensor, ...]:
        return capture(subject, batch_of(subject), lambda logits: goal, method.needs).relevance(rules, site)

    of_contrast, of_a, of_b = of(class_goal(subject, a, b)), of(class_goal(subject, a)), of(class_goal(subject, b))
    for found, first, second in zip(of_contrast, of_a, of_b, strict=True):
        # ModernBERT turns positions in float32, there and back.
        assert torch.allclose(found, first - second, rtol=0, atol=1e-6 * float(first.abs().max()))
    assert max(float(found.abs().max()) for found in of_contrast) > 1e-4


def _conserves(kind: str, rules: RuleSet) -> bool:
    subject, leaves = subject_of(kind), []

    def hook(_: Any, __: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[0]

    model = subject.model.requires_grad_(False)
    try:
        with subject.embeddings.register_forward_hook(hook), propagating(model, rules, strict=False):
            logits = subject.forward(batch_of(subject, 1))
        return abs(float(torch.autograd.grad(logits[0, 1], leaves[0])[0].sum()) - 1) < 1e-6
    finally:
        model.requires_grad_(True)


@each_kind
def test_alti_is_the_same_a_few_queries_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from whichtoken.methods import alti

    trace = traced(kind, wt.method("alti").needs)
    expected = alti.contributions(trace)
    monkeypatch.setattr(alti, "AT_ONCE", 3 * trace.value(Site.HIDDEN)[0].numel())
    for found, whole in zip(alti.contributions(trace), expected, strict=True):
        assert torch.allclose(found, whole)


@each_kind
def test_alti_shares_add_up(kind: str) -> None:
    """Rows of contributions sum to 1, and what is shared out, with the bias, is what the block makes of a token."""
    from whichtoken.methods.alti import contributions

    trace = traced(kind, wt.method("alti").needs)
    for block in contributions(trace):
        assert torch.allclose(block.sum(-1)[trace.mask], torch.ones(1, dtype=torch.float64))
        assert (block >= 0).all()
    norms: Any = trace.value(Site.NORM) or [None] * subject_of(kind).n_layers
    for x, attention, value, projection, attended, norm in zip(
        trace.value(Site.HIDDEN)[:-1],
        trace.value(Site.ATTENTION),
        trace.value(Site.VALUE),
        trace.value(Site.PROJECTION),
        trace.value(Site.ATTENDED),
        norms,
        strict=True,
    ):
        mixed = x + torch.einsum("bhij,bhje,hed->bid", attention, value, projection)
        if norm is not None:
            mixed = norm * (mixed - mixed.mean(-1, keepdim=True))
        constant = (attended - mixed)[trace.mask]
        if norm is None:  # the bias of the projection, the same for all tokens
            assert torch.allclose(constant, constant[:1].expand_as(constant))
        else:  # and seen through a norm: gain and shift of the norm, the bias scaled by each token's deviation
            scale = norm[trace.mask]
            difference = (constant[1:] - constant[:1]) / (scale[1:] - scale[:1])
            assert torch.allclose(difference, difference[:1].expand_as(difference), rtol=1e-5, atol=1e-8)


def test_a_rule_set_with_its_own_rule_for_products_uses_it_for_attention_too() -> None:
    calls = []

    def own(operation: Any, a: Tensor, b: Tensor) -> Tensor:
        calls.append(operation)
        return C21.rules["matmul"](operation, a, b)

    changed = replace(C21, name="own", rules={**C21.rules, "matmul": own})
    found, expected = (
        relevance_of("bert", one, Site.EMBEDDINGS).relevance(one, Site.EMBEDDINGS) for one in (changed, C21)
    )
    assert len(calls) == 2 * subject_of("bert").n_layers
    assert torch.allclose(found[0], expected[0], rtol=1e-9)
