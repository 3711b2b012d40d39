"""Images on the command line."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.tiny import image_model_of
from transformers import ViTImageProcessorPil

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.core.registry import method_names
from whichtoken.tasks.image import ImageClassification


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("vit")
    image_model_of("vit").float().save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 12, "width": 12}).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 16, 16, 3), np.uint8)
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for one, path in zip(pixels, paths, strict=True):
        Image.fromarray(one).save(path)
    return [str(path) for path in paths]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ending:
        main(words)
    found = capsys.readouterr()
    return int(ending.value.code or 0), found.out, found.err


def test_the_default_method_is_shown(capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str]) -> None:
    code, out, err = run(capsys, "explain", "--image", files[0], "--model", model)
    assert (code, err) == (0, "")
    assert files[0] in out.replace("\n", "")
    assert ImageClassification.default_method in out
    assert "LABEL_" in out


def test_special_tokens_are_refused_as_an_image_has_none(
    capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str]
) -> None:
    asked = ["explain", "--image", files[0], "--model", model, "--special-tokens", "text"]
    code, out, err = run(capsys, *asked)
    assert (code, out) == (2, "")
    assert err == (
        "whichtoken: special_tokens='text' is not allowed; it must be 'control': "
        "a model that reads images reads no text\n"
    )


def test_results_are_written_and_shown_again(
    capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str], tmp_path: Path
) -> None:
    asked = ["explain", "--image", files[0], "--image", files[1], "--model", model, "--method", "gae,attcat"]
    for name in ("a.json", "a.jsonl", "a.html", "a.svg"):
        code, _, err = run(capsys, *asked, "--out", str(tmp_path / name))
        assert (code, err) == (0, f"whichtoken: 2 of 2 explained, written to {tmp_path / name}\n")
    records = [wt.Attribution.from_json(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [one.picture.source for one in records if one.picture] == [files[0]] * 2 + [files[1]] * 2
    assert (tmp_path / "a.html").read_text().count("<img ") == 6
    assert (tmp_path / "a.svg").read_text().count("<image") >= 6
    code, out, _ = run(capsys, "show", str(tmp_path / "a.json"))
    assert code == 0
    assert out.count("attcat") == 2
    code, _, _ = run(capsys, "show", str(tmp_path / "a.json"), "--out", str(tmp_path / "b.html"))
    assert (tmp_path / "b.html").read_text() == (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("how", ["bilinear", "patch"])
def test_one_method_is_written_as_a_picture(
    capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str], tmp_path: Path, how: str
) -> None:
    out = tmp_path / "over.png"
    words = ["--model", model, "--method", "gae", "--target", "LABEL_2", "--how", how]
    assert run(capsys, "explain", "--image", files[0], *words, "--out", str(out))[0] == 0
    with Image.open(out) as drawn:
        assert drawn.width > drawn.height > 200  # the image, its heat map and a legend


def test_all_leaves_out_what_needs_texts_and_says_so(
    capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str], tmp_path: Path
) -> None:
    out = tmp_path / "a.json"
    code, _, err = run(capsys, "explain", "--image", files[0], "--model", model, "--method", "all", "--out", str(out))
    assert code == 0
    left_out = {"contrast-cat", "refined-noise", "mask-lrp", "integrated-gradients"}
    for reason in (
        "it contrasts with reference texts: contrast-cat",
        "it deletes words: refined-noise",
        "its heads are chosen by the syntax of texts: mask-lrp",
        "there is no pad token among patches: integrated-gradients (set baseline to zero)",
    ):
        assert f"whichtoken: left out, because {reason}\n" in err
    assert err.count("left out") == len(left_out)
    assert {one["method"] for one in json.loads(out.read_text())} == set(method_names()) - left_out


def test_the_page_of_an_image_model(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, _ = run(capsys, "model", model)
    assert code == 0
    for said in ("12 x 12 pixels of 3 channels", "3 x 3, of 4 x 4 pixels", "[CLS]", "0 LABEL_0", "not mask-lrp"):
        assert said in out
    assert "references" not in out.replace("reference texts", "")


def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str], tmp_path: Path
) -> None:
    (tmp_path / "text.png").write_text("no image")
    bad = str(tmp_path / "text.png")
    on_model = ["--model", model, "--method", "gae"]
    calls = [
        (["--image", files[0], "a text", *on_model], "--image cannot be combined with other inputs"),
        (["--image", "nowhere.png", *on_model], "there is no file nowhere.png"),
        (["--image", str(tmp_path), *on_model], f"there is no file {tmp_path}"),
        (["--image", bad, *on_model], f"{bad} cannot be read as an image"),
        (["--image", files[0], *on_model, "--out", files[0]], "is also an input file"),
        (["--image", files[0], *on_model, "--out", str(tmp_path / "a.tex")], "LaTeX shows words"),
        (["--image", files[0], *on_model, "--how", "cubic"], "how='cubic' is not allowed"),
        (["--image", files[0], "--model", model, "--method", "mask-lrp"], "mask-lrp cannot explain images: its heads"),
        ([*["--image", files[0]] * 25, *on_model, "--out", str(tmp_path / "a.pdf")], "up to 24 images"),
        (["a text", *on_model], "classifies images; give images=[...], or --image FILE"),
        (["a text", "--model", model, "--method", "auto"], "texts were given, but"),
    ]
    before = Path(files[0]).read_bytes()
    for words, reason in calls:
        code, out, err = run(capsys, "explain", *words)
        assert (code, out, err.count("\n")) == (2, "", 1), (words, out, err)
        assert reason in err
    assert Path(files[0]).read_bytes() == before
    assert not (tmp_path / "a.tex").exists()


def test_the_default_model_reads_texts(capsys: pytest.CaptureFixture[str], files: Sequence[str]) -> None:
    code, _, err = run(capsys, "explain", "--image", files[0], "--method", "gae")
    assert code == 2
    assert "images were given, but whichtoken-default classifies texts; give texts" in err


def test_compare_blackens_patches(
    capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str], tmp_path: Path
) -> None:
    words = ["compare", "--image", files[0], "--model", model, "--methods", "gae,attcat,random"]
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.count("removal (black) +") + out.count("removal (black) -") == 3
    assert "of the patches are removed, the highest scores first; one image says little about a method" in out
    assert run(capsys, *words, "--out", str(tmp_path / "c.json"))[0] == 0
    rows = json.loads((tmp_path / "c.json").read_text())
    subject = wt.load(model)
    (expected,) = wt.explain(subject, images=[files[0]], methods=["gae", "attcat", "random"])
    curves = dict(zip(expected, wt.degrade(subject, list(expected.values())), strict=True))
    for row in rows:
        assert row["curve"]["perturbation"] == "black"
        probability = row["curve"]["probability"]
        assert probability == pytest.approx(list(curves[row["method"]].probability), abs=1e-6)
        assert row["metrics"]["aopc"] == pytest.approx(probability[0] - sum(probability[1:]) / 9)
    drops = [row["metrics"]["aopc"] for row in rows]
    assert drops == sorted(drops, reverse=True)
    code, _, err = run(capsys, *words, "a text")
    assert code == 2
    assert "--image cannot be combined with other inputs" in err
    code, _, err = run(capsys, "compare", "--image", files[0], "--methods", "gae")
    assert code == 2
    assert "images were given, but whichtoken-default classifies texts" in err


def test_an_image_of_one_patch_has_nothing_to_compare(
    capsys: pytest.CaptureFixture[str], files: Sequence[str], tmp_path: Path
) -> None:
    model = image_model_of("vit").float()
    size = model.config.patch_size
    config = type(model.config)(**{**model.config.to_dict(), "image_size": size})
    type(model)(config).save_pretrained(tmp_path / "one")
    ViTImageProcessorPil(size={"height": size, "width": size}).save_pretrained(tmp_path / "one")
    capsys.readouterr()  # transformers reports that it saves
    words = ["compare", "--image", files[0], "--model", str(tmp_path / "one"), "--methods", "gae,random"]
    code, out, err = run(capsys, *words)
    assert code == 0
    assert "there is nothing to compare: only one of the patches of this image can be removed" in err
    assert "removal (black)" not in out


def test_auto_chooses_by_what_methods_do_on_images(
    capsys: pytest.CaptureFixture[str],
    model: str,
    files: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "a.json"
    code, _, err = run(capsys, "explain", "--image", files[0], "--model", model, "--method", "auto", "--out", str(out))
    assert code == 0, err
    (record,) = json.loads(out.read_text())
    assert record["details"]["auto"].startswith(f"{record['method']} has the highest normalised AOPC")
    assert record["details"]["auto"].partition(";")[0].endswith("in a small benchmark on 1 image")


def test_a_folder_of_images_is_measured(
    capsys: pytest.CaptureFixture[str], model: str, files: Sequence[str], tmp_path: Path
) -> None:
    folder = str(Path(files[0]).parent)
    words = ["bench", "--data", folder, "--model", model, "--methods", "gae,attcat", "--no-controls"]
    out = str(tmp_path.with_name(f"{tmp_path.name}-out"))
    code, _, err = run(capsys, *words, "--metrics", "aopc,normalised-aopc", "--order", "morf", "--out", out)
    assert code == 0, err
    how = wt.bench.protocol(metrics=("aopc", "normalised-aopc"), orders=("morf",))
    table, expected = wt.bench.read_table(out), wt.bench.run(wt.load(model), folder, ["gae", "attcat"], protocol=how)
    assert table.columns[0].name == "aopc black morf tenths"
    assert dict(table.facts)["images"].startswith("2 of 2")
    for line in table.lines:
        (same,) = (other for other in expected.lines if other.method == line.method)
        for name in ("aopc black morf tenths", "normalised-aopc black morf tenths"):
            assert line.cells[name].mean == pytest.approx(same.cells[name].mean, abs=1e-6)
    code, _, err = run(capsys, *words, "--label", "kind")
    assert code == 2
    assert f"--label: {folder} has no columns" in err
