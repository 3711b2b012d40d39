"""degrade_images: the model is asked about the images that the order, grid and fill say, each once."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import image_batch, image_model_of, images
from torch import Tensor
from transformers import ViTImageProcessor

import whichtoken as wt
from whichtoken.errors import BadInput, BadSetting, NotFinite, UsageError
from whichtoken.reproduce.pixels import PixelPlan, degrade_images, patch_scores
from whichtoken.vision import PixelCurves, pixel_map

MEAN, STD = (0.4, 0.5, 0.2), (0.2, 0.25, 0.5)
BLACK = (-2.0, -2.0, -0.4)  # (0 - mean) / std
PLANS = [PixelPlan(order, grid) for order in ("positive", "negative") for grid in ("tenths", "twentieths")]
N = 8


@cache
def subject() -> wt.Subject:
    processor = ViTImageProcessor(size={"height": 12, "width": 12}, image_mean=list(MEAN), image_std=list(STD))
    return wt.Subject(image_model_of("vit"), processor, name="vit")


@cache
def maps() -> dict[str, Any]:
    source = np.random.default_rng(2)
    return {"patches": source.normal(size=(N, 3, 3)), "pixels": source.normal(size=(N, 12, 12))}


def logits_of(pixels: Tensor) -> Tensor:
    return subject().logits(image_batch(subject(), pixels))


def slow(image: Tensor, heat: Any, share: float, order: str, filler: Any) -> Tensor:
    """One image with pixels removed, pixel by pixel."""
    best_first = sorted(range(144), key=lambda i: -heat[i // 12][i % 12])
    ranked = best_first if order == "positive" else best_first[::-1]
    changed = image.clone()
    for i in ranked[: round(share * 144)]:
        for channel in range(3):
            changed[channel, i // 12, i % 12] = float(filler[channel])
    return changed


@pytest.mark.parametrize("fill", ["black", "mean"])
@pytest.mark.parametrize("order", ["positive", "negative"])
@pytest.mark.parametrize("grid", ["tenths", "twentieths"])
def test_each_level_is_what_the_model_says_of_the_image_without_its_pixels(fill: Any, order: Any, grid: Any) -> None:
    labels = [0, 2]
    (found,) = degrade_images(
        subject(), images(2), {"m": maps()["pixels"][:2]}, [PixelPlan(order, grid, fill, "label")], labels
    )
    steps = tuple(k / 10 for k in range(10)) if grid == "tenths" else tuple(k / 20 for k in range(21))
    assert found.removed == pytest.approx(steps)
    for number, image in enumerate(images(2)):
        filler = BLACK if fill == "black" else [float(channel.mean()) for channel in image]
        left = [slow(image, maps()["pixels"][number], share, order, filler) for share in found.removed]
        logits = logits_of(torch.stack(left))
        assert found.probability[number] == pytest.approx(logits.softmax(-1)[:, labels[number]].tolist(), abs=1e-12)
        assert list(found.correct[number]) == (logits.argmax(-1) == labels[number]).tolist()


def test_black_is_black_after_the_processor() -> None:
    """With the grid that ends at 100 % the last image is the one that the processor makes of a black file."""
    (found,) = degrade_images(subject(), images(1), {"m": maps()["pixels"][:1]})
    processed = subject().processor(images=np.zeros((12, 12, 3), dtype=np.uint8), return_tensors="pt")["pixel_values"]
    logits = logits_of(torch.cat([images(1), processed.double()]))
    scored = int(logits[0].argmax())
    assert found.probability[0][-1] == pytest.approx(float(logits[1].softmax(-1)[scored]), abs=1e-6)


def test_the_class_and_what_is_right() -> None:
    predicted = logits_of(images(3)).argmax(-1).tolist()
    others = [(label + 1) % 3 for label in predicted]
    given = {"m": maps()["pixels"][:3]}

    def measured(of: Any, labels: Any) -> PixelCurves:
        return degrade_images(subject(), images(3), given, [PixelPlan(of=of)], labels)[0]

    alone, top, target = measured("predicted", None), measured("predicted", others), measured("label", others)
    whole = logits_of(images(3)).softmax(-1)
    assert [row[0] for row in alone.probability] == pytest.approx(whole.amax(-1).tolist())
    assert [row[0] for row in target.probability] == pytest.approx([float(whole[i, k]) for i, k in enumerate(others)])
    assert alone.probability == top.probability
    assert (alone.right, top.right, target.right) == ("prediction", "label", "label")
    assert alone.accuracy[0] == 1.0
    assert top.accuracy[0] == target.accuracy[0] == 0.0
    by_name = measured("label", [subject().labels[k] for k in others])
    assert by_name == target


def test_probabilities_are_doubles_also_of_models_in_single_precision() -> None:
    """Where an image is surely of one class, the others would be 0, and what is predicted a matter of rounding."""
    model = image_model_of("vit").float()
    with torch.no_grad():
        model.classifier.weight.mul_(100)
    single = wt.Subject(model, subject().processor, name="single")
    logits = single.logits(image_batch(single, images(2).float())).double()
    (found,) = degrade_images(
        single, images(2).float(), {"m": maps()["pixels"][:2]}, [PixelPlan(of="label")], logits.argmin(-1).tolist()
    )
    whole = [row[0] for row in found.probability]
    assert min(whole) < 1e-50
    assert whole == pytest.approx(logits.softmax(-1).amin(-1).tolist(), rel=1e-3, abs=0)


def test_patches_are_enlarged_smoothly() -> None:
    grid = maps()["patches"][:2]
    larger = torch.nn.functional.interpolate(torch.from_numpy(grid)[None], size=(12, 12), mode="bilinear")[0]
    found = degrade_images(subject(), images(2), {"m": grid}, PLANS)
    assert found == degrade_images(subject(), images(2), {"m": list(larger)}, PLANS)


def test_attributions_are_taken_as_they_are() -> None:
    found = wt.explain(subject(), images=list(images(3)), methods=["gae", "full-lrp"])
    given = {name: [result[name] for result in found] for name in found[0]}
    heats = {name: [pixel_map(one, 12, 12) for one in of_method] for name, of_method in given.items()}
    assert degrade_images(subject(), images(3), given, PLANS) == degrade_images(subject(), images(3), heats, PLANS)
    grids = patch_scores(subject(), images(3), ["gae"])["gae"]
    assert np.allclose(pixel_map(grids[1], 12, 12), heats["gae"][1])


def test_scores_of_pixels_come_before_those_of_patches() -> None:
    one = wt.explain(subject(), images=list(images(1)), methods=["gae"])[0]["gae"]
    assert one.picture is not None
    finer = tuple(tuple(float(row * 12 + column) for column in range(12)) for row in range(12))
    changed = replace(one, picture=replace(one.picture, pixels=finer))
    assert pixel_map(changed, 12, 12).tolist() == np.arange(144.0).reshape(12, 12).tolist()
    assert pixel_map(changed, 3, 3).shape == (3, 3)
    with pytest.raises(UsageError, match="no grid of patches"):
        pixel_map(replace(one, picture=None), 12, 12)


def test_an_image_gives_the_same_alone_and_in_company(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, few = [0, 1, 2, 0], {name: heat[:4] for name, heat in maps().items()}
    together = degrade_images(subject(), images(4), few, PLANS, labels)
    assert [(curves.order, curves.grid, curves.method) for curves in together] == [
        (plan.order, plan.grid, method) for plan in PLANS for method in maps()
    ]
    one_by_one = [
        degrade_images(
            subject(), images(4)[i : i + 1], {k: v[i : i + 1] for k, v in few.items()}, PLANS, labels[i : i + 1]
        )
        for i in range(4)
    ]
    for n_tokens in (1, 80, 10**6):  # batches of 1, of 8, and of all
        monkeypatch.setattr("whichtoken.models.subject.TOKENS_PER_BATCH", n_tokens)
        monkeypatch.setattr("whichtoken.reproduce.pixels.IMAGES_AT_ONCE", 3 if n_tokens == 80 else 16)
        again = degrade_images(subject(), images(4), few, PLANS, labels)
        for place, curves in enumerate(again):
            expected = [row for alone in one_by_one for row in alone[place].probability]
            assert np.allclose(curves.probability, expected, rtol=1e-9, atol=1e-12)
            assert np.allclose(curves.probability, together[place].probability, rtol=1e-9, atol=1e-12)
            assert curves.correct == together[place].correct


def test_each_distinct_image_is_evaluated_once_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    original: Callable[..., Any] = type(subject().model).forward

    def watched(self: Any, pixel_values: Tensor, **settings: Any) -> Any:
        assert not torch.is_grad_enabled()
        seen.extend(image.numpy().tobytes() for image in pixel_values)
        return original(self, pixel_values=pixel_values, **settings)

    monkeypatch.setattr(type(subject().model), "forward", watched)
    degrade_images(subject(), images(4), maps_of(4), PLANS)
    assert len(seen) == len(set(seen))
    # Of an image: the whole, black, and for two methods and orders the 19 levels between, where the tenths are.
    assert len(seen) == 4 * (1 + 2 * 2 * 19) + 1
    seen.clear()
    with monkeypatch.context() as patch:  # also if not all fit in memory at once
        patch.setattr(wt.Subject, "fits", lambda self, rows, longest: rows <= 7)
        degrade_images(subject(), images(4), maps_of(4), PLANS)
    assert len(seen) == len(set(seen)) == 4 * (1 + 2 * 2 * 19) + 1
    seen.clear()
    flat: dict[str, Any] = {"constant": np.zeros((1, 12, 12)), "another": np.ones((1, 12, 12))}
    degrade_images(subject(), images(1), flat, PLANS[:2])
    assert len(seen) == 21  # maps that rank alike ask the same


def maps_of(n: int) -> dict[str, Any]:
    return {method: heat[:n] for method, heat in maps().items()}


def test_the_images_stay_as_they_were() -> None:
    pixels = images(2)
    degrade_images(subject(), pixels, maps_of(2))
    assert torch.equal(pixels, images(2))


def test_black_may_be_given_where_there_is_no_processor() -> None:
    bare = wt.Subject(subject().model, None, name="bare")
    with pytest.raises(UsageError, match="without an image processor"):
        degrade_images(bare, images(2), maps_of(2))
    assert degrade_images(bare, images(2), maps_of(2), black=BLACK) == degrade_images(subject(), images(2), maps_of(2))
    assert degrade_images(bare, images(2), maps_of(2), [PixelPlan(fill="mean")])
    with pytest.raises(BadSetting, match=r"black=\(0.0,\) is not allowed; .* each of 3 channels"):
        degrade_images(bare, images(2), maps_of(2), black=(0.0,))


def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting, match="order='morf' is not allowed; it must be one of positive, negative"):
        PixelPlan("morf")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="grid='ninths'"):
        PixelPlan(grid="ninths")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="pixels is list"):
        degrade_images(subject(), [], maps())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"2 images, 1 plans, \{\"maps of 'pixels'\": 3\}"):
        degrade_images(subject(), images(2), {"pixels": maps()["pixels"][:3]})
    with pytest.raises(BadInput, match="no maps"):
        degrade_images(subject(), images(2), {})
    with pytest.raises(BadInput, match="'labels': 1"):
        degrade_images(subject(), images(2), maps_of(2), labels=[1])
    with pytest.raises(BadSetting, match="one of the model's 3 labels"):
        degrade_images(subject(), images(2), maps_of(2), labels=[1, 3])
    with pytest.raises(BadSetting, match="if there are no labels"):
        degrade_images(subject(), images(2), maps_of(2), [PixelPlan(of="label")])
    with pytest.raises(BadSetting, match="a Subject of an image classifier"):
        degrade_images(SimpleNamespace(), images(2), maps_of(2))  # type: ignore[arg-type]
    monkeypatch.setattr(wt.Subject, "logits", lambda *_: torch.full((1, 3), torch.nan))
    with pytest.raises(NotFinite, match="for an input with parts removed"):
        degrade_images(subject(), images(1), maps_of(1))
