"""The device, the precision and the batch size of a model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import KINDS, model_of, question_subject, with_heads, with_references, wordpiece

import whichtoken as wt
from whichtoken.errors import BadSetting
from whichtoken.models import Batch

TEXTS = ["It is a slow film.", "touching", "the plot was rare, but the music was won", "slow", "a man did sleep"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    model_of("bert").to(torch.bfloat16).save_pretrained(place)
    wordpiece().save_pretrained(place)
    return place


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_a_dtype_by_name(name: str, folder: Path) -> None:
    dtype = getattr(torch, name)
    for given in (name, dtype):
        assert {p.dtype for p in wt.load(folder, dtype=given).model.parameters()} == {dtype}


def test_the_dtype_of_the_files(folder: Path) -> None:
    assert wt.load(folder, dtype="auto").model.dtype is torch.bfloat16
    assert wt.load(folder).model.dtype is torch.float32


def test_the_default_model_takes_the_same_settings() -> None:
    subject = wt.load(dtype="float64", device="cpu", batch_size=2)
    assert (subject.model.dtype, subject.batch_size, subject.device.type) == (torch.float64, 2, "cpu")
    assert subject.references is not None


@pytest.mark.parametrize("dtype", ["half", "float8", "int8", torch.int32, torch.complex64, 16, None, "torch.float16"])
def test_other_dtypes_are_refused(dtype: Any, folder: Path) -> None:
    with pytest.raises(BadSetting, match=r"dtype=.* must be .*float16, bfloat16, float32, float64.* auto"):
        wt.load(folder, dtype=dtype)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), None])
def test_devices(device: Any, folder: Path) -> None:
    assert wt.load(folder, device=device).device.type == "cpu"


def test_a_model_is_moved_to_its_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    def note(model: torch.nn.Module, device: Any) -> torch.nn.Module:
        moved.append(device)
        return model

    monkeypatch.setattr(torch.nn.Module, "to", note)
    wt.load(folder, device="cuda:1")
    assert moved == [torch.device("cuda:1")]
    with pytest.raises(BadSetting, match=r"device='cuda:2' is not allowed; it must be .*: cpu, cuda:0, cuda:1"):
        wt.load(folder, device="cuda:2")


@pytest.mark.parametrize(
    "device", ["cuda", "cuda:1", torch.device("cuda"), "mps", "xpu", "gpu", "", 0, "meta", "cpu:3x"]
)
def test_a_device_that_is_not_there_is_named(device: Any, folder: Path) -> None:
    with pytest.raises(
        BadSetting, match=r"device=.* it must be one that torch finds here: cpu; leave it out"
    ) as caught:
        wt.load(folder, device=device)
    assert "\n" not in str(caught.value)


def test_a_wrong_device_is_found_before_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadSetting, match="device"):
        wt.load(tmp_path, device="cuda")


@pytest.mark.parametrize("size", [0, -1, 2.5, "4", True])
def test_a_batch_size_is_a_number_of_rows(size: Any, folder: Path) -> None:
    with pytest.raises(BadSetting, match=r"batch_size=.* must be a whole number, at least 1"):
        wt.load(folder, batch_size=size)
    with pytest.raises(BadSetting, match=r"batch_size=.* must be a whole number, at least 1"):
        wt.Subject(model_of("bert"), wordpiece(), batch_size=size)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every batch that the model reads."""
    found: list[int] = []
    forward = wt.Subject.forward

    def watch(self: wt.Subject, batch: Batch) -> Any:
        found.append(len(batch.ids))
        return forward(self, batch)

    monkeypatch.setattr(wt.Subject, "forward", watch)
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_batch_has_more_rows_and_results_stay(size: int, rows: list[int]) -> None:
    plain = with_heads(with_references(wt.Subject(model_of("bert"), wordpiece(), name="tiny")))
    methods: list[Any] = [
        "attcat",
        "full-lrp",
        "contrast-cat",
        "tis",
        "mask-lrp",
        wt.method("integrated-gradients", steps=3),
    ]
    whole = wt.explain(plain, TEXTS, methods)
    assert max(rows) > size
    rows.clear()
    small = wt.Subject(plain.model, plain.processor, "tiny", "", None, plain.references, plain.heads, batch_size=size)
    parts = wt.explain(small, TEXTS, methods)
    curves = wt.degrade(small, [result["attcat"] for result in parts])
    wt.references.build(small, TEXTS, rule="random", min_tokens=1)
    assert max(rows) == size
    for one, other in zip(whole, parts, strict=True):
        for name in one:
            assert one[name].scores == pytest.approx(other[name].scores, rel=1e-7, abs=1e-9)
    assert curves[0].probability == pytest.approx(
        wt.degrade(plain, [result["attcat"] for result in whole])[0].probability, rel=1e-9
    )


def test_questions_in_small_batches(rows: list[int]) -> None:
    plain = question_subject()
    pairs = [("is it slow?", "the film is slow"), ("a man?", "the actors were won")]
    whole = wt.explain(plain, pairs)
    rows.clear()
    parts = wt.explain(wt.Subject(plain.model, plain.processor, batch_size=1), pairs)
    assert set(rows) == {1}
    for one, other in zip(whole, parts, strict=True):
        assert one["gae"].scores == pytest.approx(other["gae"].scores, rel=1e-9)


@pytest.mark.slow
def test_a_benchmark_does_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    """A folder that was begun with one batch size is continued with another."""
    quick = wt.bench.protocol(metrics=("aopc",), min_tokens=1, orders=("morf",))
    tokenizer = KINDS["bert"].tokenizer()
    tables = [
        wt.bench.run(
            wt.Subject(model_of("bert"), tokenizer, "tiny", batch_size=size),
            TEXTS,
            ["attcat"],
            protocol=quick,
            out=tmp_path,
        )
        for size in (2, None)
    ]
    assert tables[0].lines == tables[1].lines
    assert "batch" not in (tmp_path / "spec.json").read_text()
