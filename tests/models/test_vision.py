"""Vision Transformers as the library reads them: tokens, grid, read-out, what their blocks do, and invariances."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from tests.lrp.test_properties import batch_of, subject_of
from tests.tiny import IMAGE_KINDS, MAIN_KINDS, class_goal, image_batch, image_model_of, images, with_heads
from torch import Tensor

import whichtoken as wt
from whichtoken.core.perturb import Fill
from whichtoken.core.picks import Picks
from whichtoken.core.registry import find, method_names, parse
from whichtoken.core.trace import Method, Needs, Scores, Site, Trace, needs, plan_passes
from whichtoken.errors import BadInput, UnsupportedModel
from whichtoken.lrp import C21
from whichtoken.models import ModelProbe, capture
from whichtoken.models.architectures import ARCHITECTURES

PREFIX = {"vit": 1, "deit": 2, "deit with teacher": 2, "dinov2": 1, "dinov2 with swiglu": 1, "dinov2_with_registers": 3}
each_kind = pytest.mark.parametrize("kind", IMAGE_KINDS)


def second(subject: wt.Subject) -> Callable[[Tensor], Picks]:
    return lambda logits: class_goal(subject, torch.ones(len(logits), dtype=torch.long))


def traced(kind: str, asked: Needs) -> Trace:
    return capture(subject_of(kind), batch_of(subject_of(kind)), second(subject_of(kind)), asked)


def test_every_architecture_of_images_has_a_tiny_model() -> None:
    types = {image_model_of(kind).config.model_type for kind in IMAGE_KINDS}
    assert types == {name for name, row in ARCHITECTURES.items() if row.reads == "pixels"}


@each_kind
def test_tokens_and_grid(kind: str) -> None:
    batch = batch_of(subject_of(kind))
    assert batch.grid == (3, 3)
    assert batch.special.tolist() == [[True] * PREFIX[kind] + [False] * 9] * 2
    trace = traced(kind, needs("embeddings"))
    assert trace.grid == (3, 3)
    assert trace.value(Site.EMBEDDINGS)[0].shape == (2, PREFIX[kind] + 9, 24)


@each_kind
def test_a_change_of_a_patch_is_a_change_of_its_token_alone(kind: str) -> None:
    """So patches are the last tokens, row by row."""
    subject, image = subject_of(kind), images(1)
    changed = image.clone()
    changed[0, 1, 5, 10] += 1  # row 1, column 2 of the patches
    before, after = (
        capture(subject, image_batch(subject, x), second(subject), needs("embeddings")).value(Site.EMBEDDINGS)[0][0]
        for x in (image, changed)
    )
    assert (before != after).any(-1).nonzero()[:, 0].tolist() == [PREFIX[kind] + 5]


@each_kind
def test_the_readout_is_what_the_head_depends_on(kind: str) -> None:
    trace = traced(kind, needs("", "hidden"))
    assert torch.allclose(trace.readout.sum(-1), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-15)
    reached = trace.grad(Site.HIDDEN)[-1].abs().sum(-1) > 1e-12
    assert torch.equal(reached, trace.readout > 0)


def test_how_much_each_position_is_read() -> None:
    ninth = 1 / 18
    expected = {
        "vit": [1.0] + [0.0] * 9,
        "deit": [1.0] + [0.0] * 10,
        "deit with teacher": [0.5, 0.5] + [0.0] * 9,
        "dinov2": [0.5] + [ninth] * 9,
        "dinov2_with_registers": [0.5, 0.0, 0.0] + [ninth] * 9,
    }
    for kind, weights in expected.items():
        subject = subject_of(kind)
        assert subject.readout(batch_of(subject))[0].tolist() == pytest.approx(weights, rel=1e-15)


@pytest.mark.parametrize("kind", ["dinov2", "dinov2_with_registers"])
def test_some_models_read_images_of_any_number_of_patches(kind: str) -> None:
    subject = subject_of(kind)
    batch = image_batch(subject, images(2, size=(8, 20)))
    assert batch.grid == (2, 5)
    trace = capture(subject, batch, second(subject), needs("attention"))
    assert trace.value(Site.ATTENTION)[0].shape[-1] == PREFIX[kind] + 10 == batch.ids.shape[1]
    with pytest.raises(BadInput, match=r"shape \(3, 9, 20\); .* reads \(3, 8, 20\), or other multiples"):
        image_batch(subject, images(1, size=(9, 20)))
    with pytest.raises(BadInput, match=r"shape \(3, 3, 4\); .* reads \(3, 4, 4\), or other multiples"):
        image_batch(subject, images(1, size=(3, 4)))


@pytest.mark.parametrize("kind", ["vit", "deit", "deit with teacher"])
def test_others_read_their_own_size_only(kind: str) -> None:
    with pytest.raises(BadInput, match=rf"an image of shape \(3, 8, 20\); {kind} reads \(3, 12, 12\)$"):
        image_batch(subject_of(kind), images(2, size=(8, 20)))


@each_kind
def test_what_is_no_image_is_refused(kind: str) -> None:
    for wrong in (images(1)[0], images(1)[:, :2]):
        with pytest.raises(BadInput, match=r"an image of shape \(.*\); .* reads \(3, 12, 12\)"):
            image_batch(subject_of(kind), wrong)


def test_sizes_may_be_pairs() -> None:
    model = image_model_of("vit", image_size=(8, 12), patch_size=(4, 2))
    subject = wt.Subject(model, None, name="oblong")
    assert image_batch(subject, images(1, size=(8, 12))).grid == (2, 6)
    with pytest.raises(BadInput, match=r"oblong reads \(3, 8, 12\)"):
        image_batch(subject, images(1))
    rest = wt.Subject(image_model_of("vit", patch_size=5), None, name="rest")
    with pytest.raises(UnsupportedModel, match=r"rest: patches of \(5, 5\) do not divide its images, \(12, 12\)"):
        image_batch(rest, images(1))


@pytest.mark.parametrize("kind", [*MAIN_KINDS, *IMAGE_KINDS])
def test_what_the_feed_forward_part_adds(kind: str) -> None:
    """With the stream after attention it is the block's output; where a norm follows, that of the norm."""
    trace = traced(kind, needs("hidden attended forwarded"))
    last = {"albert": "full_layer_layer_norm", "distilbert": "output_layer_norm"}.get(kind, "output.LayerNorm")
    blocks: Any = subject_of(kind).blocks
    blocks = blocks * subject_of(kind).n_layers if kind == "albert" else blocks
    for block, before, added, after in zip(
        blocks,
        trace.value(Site.ATTENDED),
        trace.value(Site.FORWARDED),
        trace.value(Site.HIDDEN)[1:],
        strict=True,
    ):
        found = before + added
        if subject_of(kind).architecture.norm is not None:
            found = block.get_submodule(last)(found)
        assert torch.allclose(found[trace.mask], after[trace.mask], rtol=1e-9, atol=1e-12)
        assert added[trace.mask].abs().min() < added.abs().max()
        assert (added[~trace.mask] == 0).all()


@pytest.mark.parametrize("kind", ["dinov2", "dinov2_with_registers"])
def test_layer_scale_is_part_of_the_projection(kind: str) -> None:
    trace = traced(kind, needs("hidden attention value projection attended"))
    for layer, block in enumerate(subject_of(kind).blocks):
        x, attention, value, projection, attended = (
            trace.value(site)[layer]
            for site in (Site.HIDDEN, Site.ATTENTION, Site.VALUE, Site.PROJECTION, Site.ATTENDED)
        )
        parts: Any = block
        scale, bias = parts.layer_scale1.lambda1.detach(), parts.attention.o_proj.bias.detach()
        assert (scale - 1).abs().max() > 0.1
        shares = torch.einsum("bhij,bhje,hed->bijd", attention, value, projection)
        assert torch.allclose(x + shares.sum(2) + scale * bias, attended, rtol=1e-10)


@each_kind
def test_relevance_at_the_embeddings_sums_to_the_seed(kind: str) -> None:
    (found,) = traced(kind, needs(relevance=(C21, "embeddings"))).relevance(C21, Site.EMBEDDINGS)
    assert torch.allclose(found.sum((1, 2)), torch.ones(2, dtype=torch.float64), atol=1e-6)


TEXTS_ONLY = ("contrast-cat", "refined-noise")  # references are texts, and patches cannot be deleted


@cache
def methods() -> dict[str, Method]:
    adapted = ("integrated-gradients", "posterior")  # patches have no padding token
    names = [name for name in method_names() if name not in (*TEXTS_ONLY, *adapted)]
    labels = [label for name in names for label in (name, *(f"{name}@{preset}" for preset in find(name).presets))]
    built = [*map(parse, labels), wt.method("integrated-gradients", baseline="zero")]
    built.append(wt.method("posterior", prior="attcat+alti"))
    return {method.label: method for method in built}


def scores_of(kind: str, pixels: Tensor, attention: str | None = None) -> dict[str, Scores]:
    subject = with_heads(subject_of(kind, attention))
    batch = image_batch(subject, pixels)
    goal = second(subject)(pixels)
    fills = {"mean": Fill("mean", None)}  # black is not defined without an image processor
    probe, found = ModelProbe(subject, batch, goal, removals=fills), {}
    for view, asked in plan_passes(methods().values()).items():
        trace = capture(subject, batch, lambda logits: goal, asked)
        for label, method in methods().items():
            if method.needs.view == view:
                found[label] = method(trace.restrict(method.needs), probe)
    return found


@each_kind
def test_no_method_is_silent_about_patches(kind: str) -> None:
    scores = scores_of(kind, images(4))
    assert [label for label in scores if scores[label].pixels is not None] == ["full-lrp", "full-lrp@repo"]
    assert not [label for label in scores if not scores[label].tokens[:, PREFIX[kind] :].any()]
