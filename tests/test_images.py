"""Images as inputs: what is read, what is refused and how, and what comes out."""

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngImageFile
from tests.tiny import image_batch, image_model_of, images, question_subject, wordpiece
from transformers import ViTImageProcessorPil

import whichtoken as wt
from whichtoken.errors import BadArtifact, BadInput, BadSetting, NotFinite, UsageError
from whichtoken.models.images import as_picture, black, prepare, to_display
from whichtoken.reproduce.pixels import patch_scores
from whichtoken.tasks import task_for
from whichtoken.tasks.answer import QuestionAnswering
from whichtoken.tasks.image import ImageClassification

SIDE = 12
RED = np.full((5, 7, 3), (255, 0, 0), np.uint8)


def processor(channels: int = 3, **settings: Any) -> ViTImageProcessorPil:
    given = {"size": {"height": SIDE, "width": SIDE}, "image_mean": [0.5] * channels, "image_std": [0.25] * channels}
    return ViTImageProcessorPil(**{**given, **settings})


@cache
def subject(kind: str = "vit", channels: int = 3) -> wt.Subject:
    return wt.Subject(image_model_of(kind, num_channels=channels), processor(channels), name="tiny")


@cache
def noise() -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 256, (20, 15, 3), np.uint8)


@cache
def result() -> dict[str, wt.Attribution]:
    (found,) = wt.explain(subject(), images=[noise()], methods=["gae", "attcat", "full-lrp"], target=1, layers=True)
    return found


def saved(tmp_path: Path, name: str = "a.png", **settings: Any) -> Path:
    Image.fromarray(noise()).save(tmp_path / name, **settings)
    return tmp_path / name


def test_a_file_a_picture_an_array_and_a_tensor_give_the_same(tmp_path: Path) -> None:
    path = saved(tmp_path)
    tensor = prepare(subject(), [path])[0].pixels
    kinds = [path, str(path), Image.open(path), noise(), noise() / 255.0, (noise() / 255).astype(np.float32), tensor]
    assert all(image.pixels.equal(tensor) for image in prepare(subject(), kinds[:-1]))
    found = wt.explain(subject(), images=kinds, methods=["gae"])
    # Not bit for bit: images of the same pixels may be in batches of different sizes, for which kernels differ.
    assert all(np.allclose(one["gae"].scores, found[0]["gae"].scores, rtol=1e-9) for one in found)
    sources = [one["gae"].picture.source for one in found if one["gae"].picture]
    assert sources == [str(path), str(path), "image 2", "image 3", "image 4", "image 5", "image 6"]


def test_an_attribution_of_an_image() -> None:
    found = result()["attcat"]
    assert found.tokens == ("[CLS]", *(f"patch {r},{c}" for r in (1, 2, 3) for c in (1, 2, 3)))
    assert not found.texts
    assert not found.words()
    assert set(found.spans) | set(found.sequences) | set(found.word_ids) == {None}
    assert found.grid() == (found.scores[1:4], found.scores[4:7], found.scores[7:])
    assert np.allclose(np.sum(found.layers, 0), found.scores)
    assert (found.label, found.method, found.model) == ("LABEL_1", "attcat", "tiny")
    assert found.seconds > 0
    assert found.evaluations == 1
    picture = found.picture
    assert picture is not None
    assert (picture.width, picture.height, picture.rows, picture.columns, picture.pixels) == (SIDE, SIDE, 3, 3, ())


def test_scores_are_those_of_the_tensors_behind_the_images() -> None:
    pixels = torch.stack([one.pixels for one in prepare(subject(), [noise(), RED])])
    raw = patch_scores(subject(), pixels, ["gae"], target=1)["gae"]
    found = wt.explain(subject(), images=[noise(), RED], methods=["gae"], target=1)
    assert np.allclose([one["gae"].grid() for one in found], raw.numpy(), rtol=1e-9)
    probability = subject().logits(image_batch(subject(), pixels)).softmax(-1)[:, 1]
    assert np.allclose([one["gae"].output for one in found], probability, rtol=1e-9)


def test_pixels_are_kept_where_a_method_scores_them() -> None:
    found = result()["full-lrp"]
    assert found.picture is not None
    assert np.array(found.picture.pixels).shape == (SIDE, SIDE)
    assert wt.Attribution.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        ("vit", ("[CLS]",)),
        ("deit", ("[CLS]", "[DIST]")),
        ("dinov2", ("[CLS]",)),
        ("dinov2_with_registers", ("[CLS]", "[REG1]", "[REG2]")),
    ],
)
def test_tokens_before_the_patches_have_names(kind: str, before: tuple[str, ...]) -> None:
    (found,) = wt.explain(subject(kind), images=[noise()], methods=["gae"])
    assert found["gae"].tokens[:-9] == before
    assert len(found["gae"].scores) == len(before) + 9


def test_tensors_may_differ_in_size_where_the_model_allows_it() -> None:
    sizes = [(12, 12), (8, 16), (8, 16), (12, 12)]
    given = [images(1, i, size)[0] for i, size in enumerate(sizes)]
    found = wt.explain(subject("dinov2"), images=given, methods=["gae"])
    assert [np.array(one["gae"].grid()).shape for one in found] == [(3, 3), (2, 4), (2, 4), (3, 3)]
    alone = [wt.explain(subject("dinov2"), images=[one], methods=["gae"])[0]["gae"].scores for one in given]
    assert all(np.allclose(a, one["gae"].scores, rtol=1e-9) for a, one in zip(alone, found, strict=True))


def test_images_may_be_more_than_are_read_at_once_and_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageClassification, "at_once", 2)
    given = list(images(5))
    found = wt.explain(subject(), images=iter(given), methods=["gae"])
    expected = patch_scores(subject(), torch.stack(given), ["gae"])["gae"]
    assert np.allclose([one["gae"].grid() for one in found], expected.numpy(), rtol=1e-9)


GREY16 = Image.fromarray(np.full((4, 4), 257 * 100, np.uint16))
MODES: dict[str, tuple[Callable[[], Any], tuple[int, int, int]]] = {
    "grey": (lambda: Image.new("L", (4, 4), 100), (100, 100, 100)),
    "one bit": (lambda: Image.new("1", (4, 4), 1), (255, 255, 255)),
    "palette": (lambda: Image.new("RGB", (4, 4), (255, 0, 0)).convert("P"), (255, 0, 0)),
    "16 bits": (lambda: GREY16, (100, 100, 100)),
    "32 bits, small": (lambda: Image.fromarray(np.full((4, 4), 100, np.int32)), (100, 100, 100)),
    "32 bits, large": (lambda: Image.fromarray(np.full((4, 4), 25700, np.int32)), (100, 100, 100)),
    "floats": (lambda: Image.fromarray(np.full((4, 4), 0.4, np.float32)), (102, 102, 102)),
    "transparent": (lambda: Image.new("RGBA", (4, 4), (255, 0, 0, 0)), (255, 255, 255)),
    "half transparent": (lambda: Image.new("RGBA", (4, 4), (255, 0, 0, 51)), (255, 204, 204)),
    "grey and transparent": (lambda: Image.new("LA", (4, 4), (0, 0)), (255, 255, 255)),
    "cmyk": (lambda: Image.new("CMYK", (4, 4), (0, 255, 255, 0)), (255, 0, 0)),
    "one pixel": (lambda: Image.new("RGB", (1, 1), (255, 0, 0)), (255, 0, 0)),
    "three rows": (lambda: Image.new("RGB", (9, 3), (255, 0, 0)), (255, 0, 0)),
    "grey array": (lambda: np.full((4, 4), 100, np.uint8), (100, 100, 100)),
    "grey array, 1 channel": (lambda: np.full((4, 4, 1), 100, np.uint8), (100, 100, 100)),
    "array with alpha": (lambda: np.full((4, 4, 4), (255, 0, 0, 51), np.uint8), (255, 204, 204)),
    "floats, array": (lambda: np.full((4, 4, 3), 0.4), (102, 102, 102)),
}


@pytest.mark.parametrize("name", MODES)
def test_every_kind_of_picture_becomes_red_green_and_blue(name: str) -> None:
    make, expected = MODES[name]
    found = np.asarray(as_picture(make(), "image 0"))
    assert found.shape[-1] == 3
    assert (found == expected).all()
    pixels = prepare(subject(), [make()])[0].pixels
    assert pixels.shape == (3, SIDE, SIDE)
    assert np.allclose(pixels[:, 3, 3], (np.array(expected) / 255 - 0.5) / 0.25, atol=1e-5)


def test_a_model_of_one_channel_reads_grey(tmp_path: Path) -> None:
    assert prepare(subject("vit", 1), [noise(), saved(tmp_path)])[1].pixels.shape == (1, SIDE, SIDE)
    (found,) = wt.explain(subject("vit", 1), images=[noise()], methods=["gae"])
    assert len(found["gae"].scores) == 10


def test_a_photograph_is_turned_as_the_camera_noted(tmp_path: Path) -> None:
    half = np.zeros((8, 4, 3), np.uint8)
    half[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # what is left belongs on top
    Image.fromarray(half).save(tmp_path / "turned.png", exif=exif)
    found = np.asarray(as_picture(tmp_path / "turned.png", "it"))
    assert found.shape == (4, 8, 3)
    assert found[0, 0, 0] == 0
    assert found[0, 7, 0] == 255


def test_what_the_model_saw_is_what_was_shown() -> None:
    small = noise()[:SIDE, :SIDE]
    pixels = prepare(subject(), [small])[0].pixels
    assert (to_display(subject().processor, pixels) == small).all()
    raw = processor(do_normalize=False, do_rescale=False)
    assert (to_display(raw, torch.tensor(small).permute(2, 0, 1).float()) == small).all()
    assert to_display(None, torch.tensor([[[-3.0, 1.0]]])).tolist() == [[[0] * 3, [255] * 3]]
    assert to_display(None, torch.zeros(2, 4, 4)).shape == (4, 4, 3)


def test_black_is_what_a_black_image_becomes() -> None:
    pixels = prepare(subject(), [np.zeros((5, 5, 3), np.uint8)])[0].pixels
    assert torch.allclose(black(subject().processor, 3).float(), pixels[:, 0, 0])
    assert black(processor(do_normalize=False), 3).tolist() == [0, 0, 0]
    with pytest.raises(UsageError, match="the normalisation of the pixels is unknown"):
        black(None, 3)
    with pytest.raises(UsageError, match="normalises 3 channels, but the image has 1"):
        black(processor(), 1)


BAD: dict[str, tuple[Any, str]] = {
    "an empty array": (np.zeros((0, 4, 3), np.uint8), "which has no pixels"),
    "an empty picture": (Image.new("RGB", (0, 4)), "picture of 0 x 4, which has no pixels"),
    "two channels": (np.zeros((4, 4, 2), np.uint8), r"shape \(4, 4, 2\); expected row x column"),
    "channels first": (np.zeros((3, 9, 9), np.uint8), r"channels first: use array.transpose\(1, 2, 0\)"),
    "a line": (np.zeros(4, np.uint8), r"shape \(4,\)"),
    "whole numbers": (np.zeros((4, 4), np.int64), "array of int64; expected uint8"),
    "not a number": (np.full((4, 4), np.nan), "from nan to nan; floats must be from 0 to 1"),
    "up to 255": (np.full((4, 4), 200.0), "from 200 to 200; floats must be from 0 to 1: divide it by 255"),
    "below 0": (np.full((4, 4), -0.5), "floats must be from 0 to 1: scale it"),
    "a number": (7, "is an int; expected a file, a PIL image, an array or a tensor"),
    "a batch": (torch.zeros(2, 3, 12, 12), r"tensor of shape \(2, 3, 12, 12\)"),
    "a tensor of bytes": (torch.zeros(3, 12, 12, dtype=torch.uint8), "and torch.uint8; expected floats"),
    "a tensor with infinity": (torch.full((3, 12, 12), torch.inf), "holds NaN or infinity"),
    "a large tensor": (torch.zeros(3, 24, 24), r"\(3, 24, 24\); tiny reads \(3, 12, 12\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_named_and_the_reason_said(name: str) -> None:
    bad, reason = BAD[name]
    with pytest.raises(BadInput, match=reason) as caught:
        wt.explain(subject(), images=[noise(), bad], methods=["gae"])
    assert str(caught.value).startswith("image 1")


def broken(tmp_path: Path, name: str) -> Path:
    path = tmp_path / f"{name}.png"
    whole = saved(tmp_path).read_bytes()
    contents = {
        "truncated": whole[: len(whole) // 2],
        "corrupt": whole[:60] + b"\0" * 200 + whole[260:],
        "text": b"this is no image",
        "empty": b"",
    }
    if name == "folder":
        path.mkdir()
    elif name != "missing":
        path.write_bytes(contents[name])
    return path


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("truncated", "cannot be read as an image"),
        ("corrupt", "cannot be read as an image"),
        ("text", "cannot be read as an image"),
        ("empty", "is empty, 0 bytes"),
        ("folder", "this is a folder"),
        ("missing", "there is no such file"),
    ],
)
def test_a_bad_file_is_named_and_the_reason_said(tmp_path: Path, name: str, reason: str) -> None:
    path = broken(tmp_path, name)
    with pytest.raises(BadInput, match=reason) as caught:
        wt.explain(subject(), images=[path], methods=["gae"])
    assert str(path) in str(caught.value)


def test_an_image_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    for limit in (200, 50):  # 300 pixels: pillow warns above the limit, and refuses above twice the limit
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        for action in ("error", "ignore"):  # whatever the user does with warnings
            with warnings.catch_warnings():
                warnings.simplefilter(action, Image.DecompressionBombWarning)
                with pytest.raises(BadInput, match=f"a.png has more than {limit} pixels"):
                    wt.explain(subject(), images=[path], methods=["gae"])


def test_the_warning_filters_of_the_process_are_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: warnings of other threads would become errors meanwhile."""
    path, before, seen = saved(tmp_path), list(warnings.filters), []
    load = PngImageFile.load

    def watch(image: Any) -> Any:
        seen.append(list(warnings.filters) == before)
        return load(image)

    monkeypatch.setattr(PngImageFile, "load", watch)
    (found,) = wt.explain(subject(), images=[path], methods=["gae"])
    assert seen == [True] * len(seen) != []
    seen.clear()
    found["gae"].to_image()
    assert seen == [True] * len(seen) != []


@pytest.mark.parametrize("given", [np.zeros((2, 2, 4, 4, 3), np.uint8), torch.zeros(1, 2, 3, 12, 12), {}, 7])
def test_images_are_a_list(given: Any) -> None:
    with pytest.raises(BadInput, match=r"expected an image, or a list of images: \[image\]"):
        wt.explain(subject(), images=given, methods=["gae"])


def test_texts_for_images_and_images_for_texts(subject_of: Callable[..., wt.Subject]) -> None:
    for text in ("a text", "a text that is too long for the name of a file. " * 100, "~nobody is a text", "a\0text"):
        with pytest.raises(UsageError, match="classifies images, not texts; give an image"):
            wt.explain(subject(), [text])
    readers = {
        "classifies texts; give texts, or pairs of texts": subject_of("bert"),
        "answers questions; give question=": question_subject(),
    }
    for reason, reader in readers.items():
        with pytest.raises(UsageError, match=f"images were given, but .* {reason}"):
            wt.explain(reader, images=[noise()])
    with pytest.raises(UsageError, match="give exactly one of inputs, images, prompt, or question with context"):
        wt.explain(subject(), ["a text"], images=[noise()])
    with pytest.raises(BadSetting, match=r"a Subject: wt.load"):
        wt.explain(7, images=[noise()])  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="one of the model's 3 labels"):
        wt.explain(subject(), images=[noise()], target=3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("contrast-cat", "contrasts with reference texts"),
        ("refined-noise", "deletes words"),
        ("mask-lrp", "chosen by the syntax"),
        ("integrated-gradients", "no pad token among patches; set baseline to zero"),
    ],
)
def test_methods_that_need_texts_are_refused_before_any_pass(
    name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wt.Subject, "forward", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises(UsageError, match=f"{name} cannot explain images: .*{reason}"):
        wt.explain(subject(), images=[noise()], methods=["gae", name])


def test_without_a_processor_tensors_can_be_read_and_nothing_else() -> None:
    bare = replace(subject(), processor=None)
    assert len(wt.explain(bare, images=[images(1)[0]], methods=["gae"])) == 1
    with pytest.raises(UsageError, match=r"no image processor, so only tensors can be read.*wt.load\(folder\)"):
        wt.explain(bare, images=[noise()], methods=["gae"])
    with pytest.raises(UsageError, match=r"has a .*Tokenizer.* for one, so only tensors"):
        wt.explain(replace(subject(), processor=wordpiece()), images=[noise()], methods=["gae"])


def test_a_processor_that_does_not_fit_is_said() -> None:
    wide = replace(subject(), processor=processor(size={"height": 24, "width": 24}))
    with pytest.raises(BadInput, match=r"\(3, 24, 24\); tiny reads \(3, 12, 12\)"):
        wt.explain(wide, images=[noise()], methods=["gae"])
    with pytest.raises(UsageError, match=r"the image processor of tiny fails: .*check preprocessor_config.json"):
        wt.explain(replace(subject(), processor=processor(2)), images=[noise()], methods=["gae"])


def test_scores_that_are_not_finite_name_the_image() -> None:
    model = image_model_of("vit", attention="eager")
    with torch.no_grad():
        model.classifier.weight[0, 0] = torch.nan
    with pytest.raises(NotFinite, match=r"^input 0: .* NaN or infinite logits; first found in the classification head"):
        wt.explain(wt.Subject(model, processor()), images=[noise()], methods=["gae"])


def test_pillow_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichtoken.models.images.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=re.escape("pip install 'whichtoken[images]'")):
        wt.explain(subject(), images=[noise()], methods=["gae"])


def test_an_image_classifier_is_loaded_with_its_processor(tmp_path: Path) -> None:
    image_model_of("vit").float().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"an image classifier without preprocessor_config.json"):
        wt.load(tmp_path)
    processor().save_pretrained(tmp_path)
    found = wt.load(tmp_path)
    (one,) = wt.explain(found, images=[noise()], methods=["gae"])
    (same,) = wt.explain(subject(), images=[noise()], methods=["gae"])
    assert np.allclose(one["gae"].scores, same["gae"].scores, rtol=1e-3)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(UsageError, match=r"cannot load .* as an image classifier with its image processor"):
        wt.load(tmp_path)


def test_a_backbone_without_a_head_is_no_classifier(tmp_path: Path) -> None:
    image_model_of("vit").vit.save_pretrained(tmp_path)
    processor().save_pretrained(tmp_path)
    with pytest.raises(wt.WhichTokenError, match=r"an embedding model \(ViTModel\) without a classification head"):
        wt.load(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "architectures": None}))
    with pytest.raises(
        wt.WhichTokenError, match=r"no weights for classifier.*fine-tune it as an image classifier first"
    ):
        wt.load(tmp_path)


def test_a_model_that_answers_questions_is_loaded_as_one(tmp_path: Path) -> None:
    made = question_subject()
    made.model.float().save_pretrained(tmp_path)
    made.processor.save_pretrained(tmp_path)
    made.model.double()
    assert isinstance(task_for(wt.load(tmp_path)), QuestionAnswering)


def test_a_record_of_an_image_is_read_back_and_of_a_text_has_no_picture() -> None:
    for found in result().values():
        assert wt.Attribution.from_json(found.to_json()) == found
    text = replace(result()["gae"], picture=None)
    assert "picture" not in json.loads(text.to_json())
    with pytest.raises(UsageError, match="no grid of patches"):
        text.grid()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rows": 5}, r"in \(5, 3\) patches; need at least 1 of each, and a token per patch"),
        ({"rows": 0}, "need at least 1 of each"),
        ({"rows": "3"}, "rows is '3'"),
        ({"width": 13}, "not a PNG image of 13 x 12"),
        ({"png": "####"}, "not base64"),
        ({"png": "R0lGODlh"}, "not a PNG image"),
        ({"pixels": [[1.0]]}, "not 12 rows of 12"),
        ({"pixels": [["a"] * 12] * 12}, r"picture\.pixels\[0\]\[0\] is 'a'"),
        ({"colour": 1}, r"picture\.colour is not a known field"),
    ],
)
def test_a_picture_that_is_none_is_refused(change: dict[str, Any], reason: str) -> None:
    record = json.loads(result()["gae"].to_json())
    record["picture"] |= change
    with pytest.raises(BadArtifact, match=reason):
        wt.Attribution.from_json(json.dumps(record))
    record["picture"] = "a.png"
    with pytest.raises(BadArtifact, match=r"picture is 'a\.png'; expected an object"):
        wt.Attribution.from_json(json.dumps(record))
