"""Relevance of pixels against the z^B rule written slowly, and what must hold of it. (Their numbers: golden tests.)"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.lrp.test_properties import batch_of, subject_of
from tests.tiny import IMAGE_KINDS, class_goal, image_batch, image_model_of, images
from torch import Tensor

import whichtoken as wt
from whichtoken.core.picks import Picks
from whichtoken.core.trace import Needs, Site, Trace, needs
from whichtoken.errors import UsageError
from whichtoken.lrp import ATTN_LRP, C21, CP_LRP, ORIG, RuleSet
from whichtoken.lrp.pixels import embed_pixels
from whichtoken.models import Batch, ModelProbe, capture

Array = NDArray[np.float64]

each_kind = pytest.mark.parametrize("kind", IMAGE_KINDS)
each_rules = pytest.mark.parametrize("rules", [C21, ORIG], ids=lambda rules: rules.name)


def traced(subject: wt.Subject, batch: Batch, rules: RuleSet, sites: str, goal: Picks | None = None) -> Trace:
    chosen = goal or class_goal(subject, torch.arange(len(batch.ids)) % 3)
    return capture(subject, batch, lambda logits: chosen, needs(relevance=(rules, sites)))


def stabilised(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, a / (b + 1e-9))


def slowly(subject: wt.Subject, image: Tensor, relevance: Array, conserve: bool) -> Array:
    """Of one image, patch by patch and pixel by pixel."""
    model = subject.model.base_model.embeddings
    convolution = model.patch_embeddings.projection
    weight, bias = convolution.weight.detach().numpy(), convolution.bias.detach().numpy()
    x, size = image.numpy(), weight.shape[-1]
    rows, columns = x.shape[1] // size, x.shape[2] // size
    own = [model.cls_token[0, 0]]
    own += [model.distillation_token[0, 0]] if hasattr(model, "distillation_token") else []
    own += list(model.register_tokens[0]) if hasattr(model, "register_tokens") else []
    before = [token.detach().numpy() for token in own]
    cuts = [x[:, size * i : size * (i + 1), size * j : size * (j + 1)] for i in range(rows) for j in range(columns)]
    tokens = np.stack([*before, *([(weight[d] * cut).sum() + bias[d] for d in range(len(bias))] for cut in cuts)])
    embeddings = model(image[None])[0].detach().numpy()
    positions = embeddings - tokens
    parts = [tokens * stabilised(relevance, embeddings), positions * stabilised(relevance, embeddings)]
    share = 1.0
    if conserve:
        sizes = [abs(part.sum()) for part in parts]
        share = sizes[0] / (sizes[0] + sizes[1]) * relevance.sum() / parts[0].sum()
    of_patches = (parts[0] * share)[len(before) :]
    low, high, found = x.min(), x.max(), np.zeros(x.shape[1:])
    for number, cut in enumerate(cuts):
        i, j = divmod(number, columns)
        for d in range(len(bias)):
            z = 1e-9
            for w, value in zip(weight[d].ravel(), cut.ravel(), strict=True):
                z += w * value - max(w, 0) * low - min(w, 0) * high
            s = of_patches[number, d] / z
            for c, a, b in np.ndindex(cut.shape):
                w = weight[d, c, a, b]
                found[size * i + a, size * j + b] += s * (w * cut[c, a, b] - max(w, 0) * low - min(w, 0) * high)
    return found


@each_kind
@each_rules
def test_the_formula_written_slowly(kind: str, rules: RuleSet) -> None:
    subject, batch = subject_of(kind), batch_of(subject_of(kind))
    trace = traced(subject, batch, rules, "embeddings pixels")
    (found,), (above,) = trace.relevance(rules, Site.PIXELS), trace.relevance(rules, Site.EMBEDDINGS)
    assert batch.pixels is not None
    for row in range(2):
        expected = slowly(subject, batch.pixels[row], above[row].numpy(), conserve=rules is C21)
        assert np.abs(found[row].numpy() - expected).max() < 1e-7 * np.abs(expected).max()


def test_an_image_of_another_size_and_not_square() -> None:
    subject = subject_of("dinov2_with_registers")
    batch = image_batch(subject, images(2, size=(8, 20)))
    method = wt.method("full-lrp")
    trace = traced(subject, batch, C21, "embeddings pixels")
    found = method(trace, ModelProbe(subject, batch, class_goal(subject, torch.tensor([0, 1]))))
    assert found.pixels is not None
    assert batch.pixels is not None
    above = trace.relevance(C21, Site.EMBEDDINGS)[0]
    for row in range(2):
        expected = slowly(subject, batch.pixels[row], above[row].numpy(), conserve=True)
        assert np.abs(found.pixels[row].numpy() - expected).max() < 1e-7 * np.abs(expected).max()
    for patch, (i, j) in enumerate(np.ndindex(2, 5)):
        sums = found.pixels[:, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4].sum((1, 2))
        assert torch.allclose(found.tokens[:, 3 + patch], sums)
    assert torch.equal(found.tokens[:, :3], above.sum(-1)[:, :3])  # no single position is read out, so none is dropped


@each_kind
@each_rules
def test_that_pixels_are_asked_for_changes_nothing_above_them(kind: str, rules: RuleSet) -> None:
    batch = batch_of(subject_of(kind))
    without = traced(subject_of(kind), batch, rules, "embeddings attention")
    found = traced(subject_of(kind), batch, rules, "embeddings attention pixels")
    assert torch.equal(found.logits, without.logits)
    for site in (Site.EMBEDDINGS, Site.ATTENTION):
        for mine, theirs in zip(found.relevance(rules, site), without.relevance(rules, site), strict=True):
            assert torch.equal(mine, theirs)


def test_embeddings_pass_through_bit_for_bit() -> None:
    """Also where adding positions to tokens again would be rounded."""
    convolution, pixels = torch.nn.Conv2d(3, 8, 4, 4).double().requires_grad_(False), 1e3 * images(2)
    given = torch.randn(2, 10, 8, dtype=torch.float64)
    _, found = embed_pixels(pixels, convolution, convolution(pixels), torch.ones(1, 1, 8, dtype=torch.float64), given)
    assert torch.equal(found, given)


@each_kind
def test_company_changes_nothing(kind: str) -> None:
    subject = subject_of(kind)
    together = traced(subject, image_batch(subject, images(4)), C21, "pixels").relevance(C21, Site.PIXELS)[0]
    for row in range(4):
        batch, goal = image_batch(subject, images(4)[row : row + 1]), class_goal(subject, torch.tensor([row % 3]))
        (alone,) = traced(subject, batch, C21, "pixels", goal).relevance(C21, Site.PIXELS)
        assert torch.allclose(together[row], alone[0], rtol=0, atol=1e-9 * float(alone.abs().max()))


@each_rules
def test_a_contrast_is_the_difference_of_its_classes(rules: RuleSet) -> None:
    subject, batch = subject_of("vit"), batch_of(subject_of("vit"))
    a, b = torch.tensor([1, 2]), torch.tensor([0, 1])
    of = [
        traced(subject, batch, rules, "pixels", goal).relevance(rules, Site.PIXELS)[0]
        for goal in (class_goal(subject, a, b), class_goal(subject, a), class_goal(subject, b))
    ]
    assert torch.allclose(of[0], of[1] - of[2], rtol=0, atol=1e-9 * float(of[1].abs().max()))
    assert of[0].abs().max() > 1e-4


def test_texts_have_none() -> None:
    subject = subject_of("bert")
    trace = traced(subject, batch_of(subject), C21, "pixels embeddings")
    assert trace.relevance(C21, Site.PIXELS) == ()
    assert traced(subject, batch_of(subject), C21, "pixels").relevance(C21, Site.PIXELS) == ()
    method = wt.method("full-lrp")
    found = method(trace, ModelProbe(subject, batch_of(subject), class_goal(subject, torch.tensor([0, 1]))))
    assert found.pixels is None
    assert torch.equal(found.tokens[:, 1:], trace.relevance(C21, Site.EMBEDDINGS)[0].sum(-1)[:, 1:])


def test_what_there_is_no_rule_for_is_refused() -> None:
    subject, batch = subject_of("vit"), batch_of(subject_of("vit"))
    for rules in (CP_LRP, ATTN_LRP):
        with pytest.raises(UsageError, match=f"under {rules.name}, which carries a gradient"):
            traced(subject, batch, rules, "pixels")
    for wrong in (needs("pixels"), needs("", "pixels")):
        with pytest.raises(UsageError, match="pixels were requested as a value or a gradient"):
            capture(subject, batch, lambda logits: class_goal(subject, torch.tensor([0, 0])), wrong)
    wanted = Needs(relevance=frozenset({(C21, Site.PIXELS)}))
    probe = ModelProbe(subject, batch, class_goal(subject, torch.tensor([0, 0])))
    with pytest.raises(UsageError, match="requested together with replaced embeddings"):
        probe.trace(torch.zeros(2, 10, 24, dtype=torch.float64), wanted)


@each_rules
def test_an_image_of_one_colour_has_no_relevance_in_its_pixels(rules: RuleSet) -> None:
    """Also in single precision, where the terms of the rule, as it is written, leave rounding errors."""
    subject = wt.Subject(image_model_of("vit").float(), None)
    batch = image_batch(subject, torch.full((1, 3, 12, 12), 0.3))
    (found,) = traced(subject, batch, rules, "pixels").relevance(rules, Site.PIXELS)
    assert (found == 0).all()
