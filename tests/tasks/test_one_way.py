"""degrade, compare and bench of questions and images, through the code that serves texts: curves computed by hand."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.tiny import image_model_of, images, question_subject
from transformers import ViTImageProcessor

import whichtoken as wt
from whichtoken.bench._protocol import protocol
from whichtoken.cli.run import main
from whichtoken.errors import BadSetting, UsageError
from whichtoken.reproduce.pixels import PixelPlan, degrade_images

QUESTION, CONTEXT = "is it slow?", "The film was slow, but the music was touching and the plot was rare."
OTHER = ("were the actors won?", "It is a rare plot. Nobody did sleep, the end was slow.")


@cache
def questions() -> wt.Subject:
    return question_subject()


@cache
def vit() -> Any:
    return image_model_of("vit")


def answer_probability(ids: list[int], types: list[int], start: int, end: int) -> float:
    """That the answer starts and ends at these tokens, by the model itself."""
    model = questions().model
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
    starts, ends = output.start_logits[0].softmax(-1), output.end_logits[0].softmax(-1)
    return float(starts[start] * ends[end])


def question_curve(record: wt.Attribution, how: str, order: str) -> list[float]:
    """Words of the context go, tenth by tenth; the question and both ends of the answer stay."""
    tokenizer = questions().tokenizer
    found = tokenizer(*record.texts)
    ids, types = found["input_ids"], found["token_type_ids"]
    target = record.target
    assert isinstance(target, wt.Span)
    start, end = target.start, target.end
    assert start is not None
    assert end is not None
    free = [i for i, sequence in enumerate(record.sequences) if sequence == 1 and i not in (start, end)]
    ranked = sorted(free, key=lambda i: -record.scores[i])
    ranked = ranked if order == "morf" else ranked[::-1]
    curve = []
    for step in range(10):
        gone = set(ranked[: round(step / 10 * len(ranked))])
        if how == "mask":
            masked = [tokenizer.mask_token_id if i in gone else token for i, token in enumerate(ids)]
            curve.append(answer_probability(masked, types, start, end))
        else:
            kept = [i for i in range(len(ids)) if i not in gone]
            places = (kept.index(start), kept.index(end))
            curve.append(answer_probability([ids[i] for i in kept], [types[i] for i in kept], *places))
    return curve


@pytest.mark.parametrize("how", ["delete", "mask"])
@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_degrade_removes_words_of_the_context(how: str, order: str) -> None:
    subject = questions()
    record = wt.explain(subject, question=QUESTION, context=CONTEXT, methods=["attcat"])[0]["attcat"]
    (curve,) = wt.degrade(subject, [record], how, order)  # type: ignore[arg-type]
    assert curve.removed == tuple(step / 10 for step in range(10))
    assert curve.target == record.target
    assert curve.probability == pytest.approx(question_curve(record, how, order), rel=1e-9)
    assert curve.probability[0] == pytest.approx(record.probability, rel=1e-9)


def test_degrade_of_one_end_keeps_that_end_only() -> None:
    subject = questions()
    target = wt.Span(part="start")
    record = wt.explain(subject, [(QUESTION, CONTEXT)], ["attcat"], target=target)[0]["attcat"]
    (curve,) = wt.degrade(subject, [record], grid="all")
    in_context = sum(sequence == 1 for sequence in record.sequences)
    assert len(curve.probability) == in_context  # all of them but one, and the whole input


def test_a_long_context_is_degraded_in_the_window_that_was_explained() -> None:
    subject = questions()
    context = " ".join([CONTEXT, "It is a rare plot."] * 3)
    record = wt.explain(subject, [(QUESTION, context)], ["attcat"])[0]["attcat"]
    assert record.n_cut
    (curve,) = wt.degrade(subject, [record])
    assert curve.probability[0] == pytest.approx(record.probability, rel=1e-9)


def test_bench_of_questions_measures_the_same_curves(tmp_path: Path) -> None:
    subject = questions()
    how = protocol(metrics=("aopc",), perturbations=("delete",), orders=("morf",))
    table = wt.bench.run(subject, [(QUESTION, CONTEXT), OTHER], ["attcat", "gae"], protocol=how, out=tmp_path / "b")
    for method in ("attcat", "gae"):
        found = wt.explain(subject, [(QUESTION, CONTEXT), OTHER], [method], wt.Span(free=True), "truncate")
        drops = []
        for result in found:
            curve = question_curve(result[method], "delete", "morf")
            drops.append(sum(curve[0] - p for p in curve[1:]) / 9)
        (line,) = (line for line in table.lines if line.method == method)
        assert line.cells["aopc delete morf tenths"].mean == pytest.approx(sum(drops) / 2, rel=1e-9)
    assert table.unit == "question"
    assert (tmp_path / "b" / "curves.png").is_file()


def processor() -> ViTImageProcessor:
    return ViTImageProcessor(size={"height": 12, "width": 12})


def image_subject() -> wt.Subject:
    return wt.Subject(vit(), processor(), name="tiny vit")


def picture(seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    return Image.fromarray(values)


def image_curve(record: wt.Attribution, pixels: torch.Tensor, fill: str) -> list[float]:
    """Patches of 4 x 4 pixels go, tenth by tenth."""
    settings = processor()
    black = -torch.tensor(settings.image_mean, dtype=torch.float64) / torch.tensor(settings.image_std).double()
    colour = black if fill == "black" else pixels.mean((1, 2))
    scores = [score for row in record.grid() for score in row]
    ranked = sorted(range(9), key=lambda i: -scores[i])
    target = record.target
    assert isinstance(target, wt.Class)
    curve = []
    for step in range(10):
        changed = pixels.clone()
        for patch in ranked[: round(step / 10 * 9)]:
            row, column = 4 * (patch // 3), 4 * (patch % 3)
            changed[:, row : row + 4, column : column + 4] = colour[:, None, None]
        with torch.no_grad():
            curve.append(float(vit()(changed[None]).logits.softmax(-1)[0, int(target.label)]))
    return curve


@pytest.mark.parametrize("fill", ["black", "mean"])
def test_degrade_fills_patches(fill: str) -> None:
    """The pixels come from the picture in the record, which is exact: the processor made them of 8 bits."""
    subject = image_subject()
    record = wt.explain(subject, images=[picture()], methods=["gae"])[0]["gae"]
    pixels = processor()(images=picture(), return_tensors="pt")["pixel_values"][0].double()
    (curve,) = wt.degrade(subject, [record], fill)
    assert (curve.perturbation, curve.level) == (fill, "token")
    assert curve.probability == pytest.approx(image_curve(record, pixels, fill), rel=1e-5)


def test_degrade_of_tensors_needs_them_again() -> None:
    subject, bare = image_subject(), wt.Subject(vit(), None, name="tiny vit")
    (pixels,) = images(1)
    record = wt.explain(subject, images=[pixels], methods=["gae"])[0]["gae"]
    with pytest.raises(UsageError, match=r"another input was explained; give the inputs themselves"):
        wt.degrade(subject, [record])
    (curve,) = wt.degrade(subject, [record], inputs=[pixels])
    assert curve.probability == pytest.approx(image_curve(record, pixels, "black"), rel=1e-9)
    with pytest.raises(UsageError, match="the normalisation of the pixels is unknown"):
        wt.degrade(bare, [record], inputs=[pixels])
    (mean,) = wt.degrade(bare, [record], "mean", inputs=[pixels])
    assert mean.probability == pytest.approx(image_curve(record, pixels, "mean"), rel=1e-9)


def test_pixels_go_one_by_one_in_the_order_of_the_heat_map() -> None:
    subject = image_subject()
    (pixels,) = images(1)
    record = wt.explain(subject, images=[pixels], methods=["gae"])[0]["gae"]
    (curve,) = wt.degrade(subject, [record], "mean", grid="twentieths", level="pixel", inputs=[pixels])
    plan = PixelPlan("positive", "twentieths", "mean")
    (expected,) = degrade_images(subject, pixels[None], {"gae": [record]}, [plan])
    assert curve.probability == pytest.approx(expected.probability[0], rel=1e-9)
    with pytest.raises(BadSetting, match="one of token, pixel for images"):
        wt.degrade(subject, [record], level="word", inputs=[pixels])


def test_bench_of_images_measures_the_same_curves(tmp_path: Path) -> None:
    subject = image_subject()
    given = list(images(3))
    how = protocol(metrics=("aopc",), orders=("morf",))
    table = wt.bench.run(subject, given, ["gae", "random"], protocol=how, out=tmp_path / "bench")
    for method in ("gae", "random"):
        drops = []
        for pixels, result in zip(given, wt.explain(subject, images=given, methods=[method]), strict=True):
            curve = image_curve(result[method], pixels, "black")
            drops.append(sum(curve[0] - p for p in curve[1:]) / 9)
        (line,) = (line for line in table.lines if line.method == method)
        assert line.cells["aopc black morf tenths"].mean == pytest.approx(sum(drops) / 3, rel=1e-9)
    assert dict(table.facts)["images"] == "3 of 3, of at least 1 tokens, seed 0"
    assert (tmp_path / "bench" / "report.html").is_file()


def test_the_command_line_compares_and_measures_questions_and_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, model, reader in (
        ("qa", question_subject().model, questions().tokenizer),
        ("vit", image_model_of("vit"), processor()),
    ):
        model.float().save_pretrained(tmp_path / name)
        reader.save_pretrained(tmp_path / name)
    (tmp_path / "images" / "cat").mkdir(parents=True)
    for number in range(3):
        picture(number).save(tmp_path / "images" / "cat" / f"{number}.png")
    rows = [{"question": q, "context": c} for q, c in ((QUESTION, CONTEXT), OTHER)]
    (tmp_path / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*words])
        assert ended.value.code == 0, capsys.readouterr().err
        return capsys.readouterr().out

    qa, images_model = ["--model", str(tmp_path / "qa")], ["--model", str(tmp_path / "vit")]
    methods = ["--methods", "attcat,random"]
    out = run("compare", "--question", QUESTION, "--context", CONTEXT, *qa, *methods)
    assert "one question says little about a method" in out
    out = run(
        "compare", "--image", str(tmp_path / "images" / "cat" / "0.png"), *images_model, "--methods", "gae,random"
    )
    assert "10, 20 .. 90 % of the patches are removed" in out
    out = run("bench", "--data", str(tmp_path / "questions.jsonl"), *qa, *methods, "--metrics", "aopc,log-odds")
    assert "AOPC, delete, MoRF" in " ".join(out.split())
    out = run("bench", "--data", str(tmp_path / "images"), *images_model, "--methods", "gae,rollout")
    assert "black" in out
    assert "images: 3 of 3" in out
    image = str(tmp_path / "images" / "cat" / "0.png")
    (found,) = json.loads(run("explain", "--image", image, *images_model, "--method", "auto", "--format", "json"))
    assert "in a small benchmark on 1 image" in found["details"]["auto"]
