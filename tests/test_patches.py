"""Images: one score for each patch, from every method that can read them."""

from functools import cache

import pytest
import torch
from tests.lrp.test_properties import subject_of
from torch import Tensor

import whichtoken as wt
from whichtoken.core.registry import method_names
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.reproduce.pixels import patch_scores

REFUSED = ("contrast-cat", "integrated-gradients", "mask-lrp", "refined-noise")
FILLING = (
    "context-cite",
    "kernel-shap",
    "leave-one-out",
    "lime",
    "posterior",
)  # without an image processor, black is not defined
BY_LABEL = {
    **{name: wt.method(name) for name in method_names() if name not in (*REFUSED, *FILLING)},
    **{f"{name}(perturbation=mean)": wt.method(name, perturbation="mean") for name in FILLING},
    "integrated-gradients(baseline=zero)": wt.method("integrated-gradients", baseline="zero"),
}


@cache
def pixels() -> Tensor:
    return torch.randn(3, 3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@cache
def together() -> dict[str, Tensor]:
    return patch_scores(subject_of("vit"), pixels(), BY_LABEL.values(), target=1)


def test_an_image_gives_the_same_alone_and_in_company() -> None:
    alone = patch_scores(subject_of("vit"), pixels()[1:2], BY_LABEL.values(), target=1)
    eager = patch_scores(subject_of("vit", "eager"), pixels(), BY_LABEL.values(), target=1)
    for name, scores in together().items():
        assert scores.shape == (3, 3, 3), name
        assert scores.isfinite().all(), name
        assert torch.allclose(scores[1:2], alone[name], rtol=1e-9, atol=1e-12), name
        assert torch.allclose(scores, eager[name], rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("name", ["tis", "transatt", "alti", "full-lrp", "cp-lrp", "attn-lrp"])
def test_scores_depend_on_the_image(name: str) -> None:
    found = together()[name]
    assert not torch.allclose(found[0], found[1])
    assert len(set(found[0].flatten().tolist())) > 4


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_cannot_read_images_say_so(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} cannot explain images"):
        patch_scores(subject_of("vit"), pixels(), [name])


def test_images_may_be_more_than_are_explained_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = together()["transatt"]
    monkeypatch.setattr("whichtoken.reproduce.pixels.IMAGES_AT_ONCE", 2)
    found = patch_scores(subject_of("vit"), pixels(), ["transatt"], target=1)["transatt"]
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_gradients_that_the_caller_switched_off_are_on() -> None:
    with torch.inference_mode():
        found = patch_scores(subject_of("vit"), pixels() + 0, ["transatt"], target=1)["transatt"]
    assert torch.allclose(found, together()["transatt"], rtol=1e-9, atol=1e-12)  # together, there are other sites


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(BadInput, match="pixels is list; expected a tensor"):
        patch_scores(subject_of("vit"), [])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="not empty"):
        patch_scores(subject_of("vit"), pixels()[:0])
    with pytest.raises(BadInput, match=r"an image of shape \(3, 10, 12\); vit reads \(3, 12, 12\)"):
        patch_scores(subject_of("vit"), pixels()[:, :, :10])
    with pytest.raises(BadSetting, match="a Subject of an image classifier"):
        patch_scores(subject_of("bert"), pixels())
    with pytest.raises(UsageError, match="classifies images, not texts"):
        wt.explain(subject_of("vit"), ["a text"])
