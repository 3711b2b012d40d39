"""Libraries as data: what they say, how they are stored, and what is refused."""

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save
from tests.forked import forked
from tests.test_atomic_write import limited
from tests.tiny import CORPUS, KINDS, model_of
from torch import Tensor

import whichtoken as wt
from whichtoken.errors import BadArtifact, BadSetting, LibraryMismatch, UsageError
from whichtoken.references import ReferenceLibrary
from whichtoken.references.packing import pack
from whichtoken.references.recipe import Compression

ALL = slice(None)


@cache
def subject() -> wt.Subject:
    return wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="tiny bert")


def make(**settings: Any) -> ReferenceLibrary:
    chosen = {"rule": "random", "min_tokens": 1, **settings}
    return wt.references.build(subject(), CORPUS, **chosen)


def values(library: ReferenceLibrary, label: int = 0, n_tokens: int = 40) -> torch.Tensor:
    layers = slice(library.layers[0], library.layers[-1] + 1)
    return library.read(label, layers, None, n_tokens, torch.zeros((), dtype=torch.float64))


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    for settings in (
        {},
        {"dtype": "float32", "keep_text": True, "layers": "inputs"},
        {"dtype": "float64", "layers": "outputs"},
        {"compress": "int8"},
        {"scan": 3, "seed": None},
    ):
        library = make(**settings)
        wt.references.save(library, tmp_path / "library")
        found = wt.references.load(tmp_path / "library", subject())
        for name in (
            "model",
            "revision",
            "n_layers",
            "labels",
            "layers",
            "recipe",
            "n_scanned",
            "references",
            "digest",
        ):
            assert getattr(found, name) == getattr(library, name)
        assert found.summary() == library.summary()
        for label in range(3):
            assert values(found, label).equal(values(library, label))
    assert sorted(p.name for p in (tmp_path / "library").iterdir()) == ["activations.safetensors", "references.json"]
    assert os.listdir(tmp_path) == ["library"]


def test_a_stored_library_is_mapped_into_memory_not_read(tmp_path: Path) -> None:
    wt.references.build(subject(), CORPUS, rule="random", min_tokens=1, out=tmp_path / "library")
    found = wt.references.load(tmp_path / "library")
    if Path("/proc/self/maps").exists():
        assert str(tmp_path / "library" / "activations.safetensors") in Path("/proc/self/maps").read_text()
    assert len(found.references[0]) == len(CORPUS)


def test_text_is_kept_only_on_request_and_its_hash_always() -> None:
    plain, full = make(), make(keep_text=True)
    assert {r.text for r in plain.references[0]} == {None}
    assert sorted(r.text[0] for r in full.references[0] if r.text) == sorted(CORPUS)
    assert [r.sha256 for r in plain.references[0]] == [r.sha256 for r in full.references[0]]
    assert len({r.sha256 for r in plain.references[0]}) == len(CORPUS)


def test_half_precision_halves_the_size_and_stays_near() -> None:
    whole, half = make(dtype="float64", layers="inputs"), make(layers="inputs")
    assert whole.n_bytes == 4 * half.n_bytes
    assert half.layers == (0, 1, 2)
    longest = max(r.n_tokens for r in half.references[0])
    assert half.n_bytes == 3 * len(CORPUS) * 3 * longest * 24 * 2  # classes, references, layers, tokens, width
    torch.testing.assert_close(values(half), values(whole), rtol=1e-3, atol=1e-3)


def test_int8_stays_within_half_a_step_of_each_dimension() -> None:
    whole, small = make(dtype="float64"), make(dtype="float64", compress="int8")
    exact = values(whole)
    largest = exact.abs().amax((0, 2))
    assert ((values(small) - exact).abs() <= largest[:, None, :] / 254 * 1.001).all()
    assert small.n_bytes < whole.n_bytes / 7


def test_a_subset_keeps_the_first(tmp_path: Path) -> None:
    for how in ("none", "int8"):
        whole = make(compress=how)
        part = whole.subset(2)
        assert part.references[1] == whole.references[1][:2]
        assert values(part, n_tokens=60).equal(values(whole, n_tokens=60)[:2])
        assert part.n_bytes < whole.n_bytes
        wt.references.save(part, tmp_path / how)
        assert wt.references.load(tmp_path / how).references == part.references
    assert make().subset(99).references == make().references
    with pytest.raises(BadSetting, match="n=0"):
        make().subset(0)


def test_the_summary_says_what_there_is() -> None:
    text = make(rule="gamma", gamma=0.5, n=4).summary()
    assert "for tiny bert" in text
    assert "rule gamma, gamma 0.5, 4 requested per class; 6 texts scanned, 0 too short (under 1 tokens), labels" in text
    assert "hidden states 0 to 3 of 4, float16," in text
    lines = text.splitlines()[3:]
    assert [line.split()[0] for line in lines] == ["class", "contradiction", "entailment", "neutral"]
    assert all(len(line) < 120 for line in text.splitlines())


def other(**config: Any) -> wt.Subject:
    return wt.Subject(model_of("bert", **config), KINDS["bert"].tokenizer(), name="another")


def test_another_model_revision_or_layer_count_is_refused(tmp_path: Path) -> None:
    wt.references.save(make(), tmp_path / "library")
    with pytest.raises(LibraryMismatch, match=r"built for tiny bert with 3 layers; another has 2;.*references\.build"):
        wt.references.load(tmp_path / "library", other(num_hidden_layers=2))
    with pytest.raises(LibraryMismatch, match=r"built for tiny bert, revision sha256:.*; another is revision sha256:"):
        wt.references.load(tmp_path / "library", other(hidden_act="relu"))
    again = wt.Subject(subject().model, subject().tokenizer, revision="v2")
    for use in (
        lambda: again.with_references(make()),
        lambda: wt.Subject(again.model, again.tokenizer, revision="v2", references=make()),
        lambda: wt.explain(again, ["slow"], [wt.method("contrast-cat", references=make())]),
    ):
        with pytest.raises(LibraryMismatch, match="revision v2"):
            use()
    assert wt.references.load(tmp_path / "library", other()).digest == make().digest  # the same weights


def test_a_library_does_not_fit_the_model_after_further_training() -> None:
    learner = other()
    equipped = learner.with_references(wt.references.build(learner, CORPUS, rule="random", min_tokens=1))
    wt.explain(equipped, ["slow"], ["contrast-cat"])
    with torch.no_grad():
        learner.model.classifier.weight.mul_(1.01)
    with pytest.raises(LibraryMismatch, match="build one for this model"):
        wt.explain(equipped, ["slow"], ["contrast-cat"])


def test_load_takes_a_model_with_its_references(tmp_path: Path) -> None:
    subject().model.save_pretrained(tmp_path / "model")
    subject().tokenizer.save_pretrained(tmp_path / "model")
    loaded = wt.load(tmp_path / "model", dtype=torch.float64)
    wt.references.build(loaded, CORPUS, rule="random", min_tokens=1, out=tmp_path / "library")
    again = wt.load(tmp_path / "model", dtype=torch.float64, references=tmp_path / "library")
    assert wt.explain(again, ["slow"], ["contrast-cat"])[0]["contrast-cat"].details["drops"]
    with pytest.raises(BadArtifact, match=r"is not a reference library: it has no references\.json"):
        wt.load(tmp_path / "model", references=tmp_path)


def test_another_number_of_labels_is_refused_whatever_the_revision() -> None:
    one, two = (wt.Subject(model_of("bert", labels=k), KINDS["bert"].tokenizer(), revision="v1") for k in (3, 4))
    library = wt.references.build(one, CORPUS, rule="random", min_tokens=1)
    with pytest.raises(LibraryMismatch, match="with 3 labels; BertForSequenceClassification has 4"):
        two.with_references(library)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wt.references.load(make()), "folder='ReferenceLibrary' .* the path of a stored"),  # type: ignore[arg-type]
        (lambda: wt.references.load("x", subject().model), "subject='BertForSequenceClassification'"),
        (lambda: wt.references.save("x", make()), "library='str' .* the folder comes second"),  # type: ignore[arg-type]
        (lambda: wt.references.build(subject(), CORPUS, out=1), "folder=1 .* a path"),  # type: ignore[arg-type]
        (lambda: wt.Subject(subject().model, subject().tokenizer, references="x"), "references='str'"),  # type: ignore[arg-type]
        (lambda: make().subset(2.5), "n=2.5"),  # type: ignore[arg-type]
    ],
)
def test_things_in_the_wrong_place_are_named(call: Any, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        call()


def test_a_subject_takes_a_library_or_its_folder(tmp_path: Path) -> None:
    wt.references.save(make(), tmp_path / "library")
    by_folder = subject().with_references(tmp_path / "library")
    assert by_folder.references is not None
    assert by_folder.references.digest == make().digest


def test_others_may_read_what_the_user_lets_them_read(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        wt.references.save(make(), tmp_path / "library")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "library", *sorted((tmp_path / "library").iterdir()))]
    assert modes == [0o755, 0o644, 0o644]


def edited(path: Path, **changes: Any) -> None:
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, **changes}))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def recipe(folder: Path, **changes: Any) -> None:
    found = json.loads((folder / "references.json").read_text())["recipe"]
    edited(folder / "references.json", recipe=found | changes)


def reference(folder: Path, **changes: Any) -> None:
    """Change the first of them."""
    found = json.loads((folder / "references.json").read_text())["references"]
    found[0][0] |= changes
    edited(folder / "references.json", references=found)


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("no description", lambda f: (f / "references.json").unlink(), "has no references.json"),
    ("no activations", lambda f: (f / "activations.safetensors").unlink(), "is missing; build the library again"),
    ("truncated", lambda f: os.truncate(f / "activations.safetensors", 5000), "is damaged"),
    ("empty", lambda f: os.truncate(f / "activations.safetensors", 0), "is damaged"),
    ("a flipped bit", lambda f: flipped(f / "activations.safetensors"), "is damaged: its hash"),
    ("half a description", lambda f: os.truncate(f / "references.json", 300), "cannot be read: expected JSON"),
    ("binary description", lambda f: (f / "references.json").write_bytes(b"\xff\xfe\x00"), "cannot be read: not UTF-8"),
    ("a list", lambda f: (f / "references.json").write_text("[]"), "expected the JSON of one ReferenceLibrary"),
    ("newer schema", lambda f: edited(f / "references.json", schema=2), "schema 1; found ReferenceLibrary of schema 2"),
    (
        "unknown field",
        lambda f: edited(f / "references.json", colour=1),
        "ReferenceLibrary: colour is not a known field",
    ),
    ("wrong type", lambda f: edited(f / "references.json", n_layers="3"), "n_layers is '3'; expected a valid integer"),
    ("wrong recipe", lambda f: edited(f / "references.json", recipe={"rule": 3}), "recipe.rule is 3; expected 'gamma'"),
    ("wrong references", lambda f: edited(f / "references.json", references=[[], [], []]), "0 references of class 0"),
    ("fewer classes", lambda f: edited(f / "references.json", references=[]), "3 labels, 0 lists"),
    ("no list", lambda f: edited(f / "references.json", references=3), "references is 3; expected a valid array"),
    ("no default recipe", lambda f: edited(f / "references.json", recipe={}), "recipe.rule is missing"),
    (
        "layers with a gap",
        lambda f: edited(f / "references.json", layers=[0, 2, 3]),
        "expected consecutive hidden states",
    ),
    ("layers that the model has not", lambda f: edited(f / "references.json", layers=[2, 3, 4]), "from 0 to 3"),
    ("layers below 0", lambda f: edited(f / "references.json", layers=[-1, 0, 1]), "from 0 to 3"),
    ("no layers", lambda f: edited(f / "references.json", layers=[]), "expected consecutive hidden states"),
    ("a negative count", lambda f: edited(f / "references.json", n_short=-1), "n_short is -1; expected at least 0"),
    ("more short than scanned", lambda f: edited(f / "references.json", n_short=99), "more texts are too short"),
    ("more wrong than labelled", lambda f: edited(f / "references.json", n_wrong=99), "more texts are misclassified"),
    ("a setting out of bounds", lambda f: recipe(f, n=0), r"references\.json: recipe: n=0 is not allowed"),
    ("an improbable probability", lambda f: reference(f, probability=1.5), "probability of a reference is 1.5; expec"),
    ("a text without tokens", lambda f: reference(f, n_tokens=0), "n_tokens of a reference is 0; expected at least 1"),
    ("other layers", lambda f: edited(f / "references.json", layers=[0]), r"have shape \(6, 4, .*expected \(6, 1, "),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE, ids=[name for name, _, _ in DAMAGE])
def test_damaged_libraries_are_refused(name: str, damage: Any, message: str, tmp_path: Path) -> None:
    wt.references.save(make(), tmp_path / "library")
    wt.references.load(tmp_path / "library")
    damage(tmp_path / "library")
    with pytest.raises(BadArtifact, match=message):
        wt.references.load(tmp_path / "library")


def with_activations(folder: Path, content: bytes) -> None:
    """Other activations, with their hash in the description."""
    (folder / "activations.safetensors").write_bytes(content)
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    edited(folder / "references.json", activations_blake2b=digest)


NO_TENSORS = {
    "nonsense": b"nonsense",
    "empty": b"",
    "a header cut short": (500).to_bytes(8, "little") + b'{"0.val',
    "a huge header": (2**62).to_bytes(8, "little") + b"{}",
    "deep nesting": (200_000).to_bytes(8, "little") + b"[" * 100_000 + b"]" * 100_000,
    "a header that is a list": (2).to_bytes(8, "little") + b"[]",
}


@pytest.mark.parametrize("name", NO_TENSORS)
def test_a_file_with_the_right_hash_that_is_no_safetensors(name: str, tmp_path: Path) -> None:
    wt.references.save(make(), tmp_path / "library")
    with_activations(tmp_path / "library", NO_TENSORS[name])
    with pytest.raises(BadArtifact, match=r"activations\.safetensors cannot be read: \S"):
        wt.references.load(tmp_path / "library")


def set_to(tensors: dict[str, Tensor], name: str, value: float) -> None:
    tensors[name] = tensors[name].clone()
    tensors[name].view(-1)[3] = value


OTHER_TENSORS: dict[str, tuple[Callable[[dict[str, Tensor]], object], str]] = {
    "another role": (lambda t: t.update({"0.colours": torch.ones(1)}), r"the tensor '0\.colours' is not known"),
    "another class": (lambda t: t.update({"7.values": torch.ones(1)}), r"the tensor '7\.values' is not known"),
    "no values": (lambda t: t.update({"0.answers": t.pop("0.values")}), "class 0 have answers, but no values"),
    "a dimension less": (lambda t: t.update({"0.values": t["0.values"][..., 0].contiguous()}), "have shape"),
    "a dimension more": (lambda t: t.update({"0.values": t["0.values"][..., None]}), "have shape"),
    "nothing": (lambda t: t.update({"0.values": t["0.values"][..., :0]}), "have shape"),
    "whole numbers": (lambda t: t.update({"0.values": t["0.values"].long()}), "are torch.int64; expected floating"),
    "int8 without scales": (lambda t: t.update({"0.values": t["0.values"].to(torch.int8)}), "or int8 with scales"),
    "another size": (lambda t: t.update({"1.values": t["1.values"][..., :3].contiguous()}), "different sizes"),
    "scales of another shape": (
        lambda t: t.update({"0.values": t["0.values"].to(torch.int8), "0.scales": torch.ones(3)}),
        r"scales have shape \(3,\) and torch.float32, expected \(4, ",
    ),
    "answers of another shape": (lambda t: t.update({"0.answers": torch.ones(2)}), r"answers have shape \(2,\)"),
    "NaN": (lambda t: set_to(t, "0.values", float("nan")), "class 0: some values are NaN or infinite"),
    "infinity": (lambda t: set_to(t, "1.values", float("inf")), "class 1: some values are NaN or infinite"),
    "improbable answers": (
        lambda t: t.update({"0.answers": torch.full((t["0.values"].shape[0], 2, t["0.values"].shape[2]), 1.5)}),
        "an answer's probability is 1.5; expected 0 to 1",
    ),
}


@pytest.mark.parametrize("name", OTHER_TENSORS)
def test_activations_that_cannot_be_are_refused(name: str, tmp_path: Path) -> None:
    wt.references.save(make(), tmp_path / "library")
    tensors = load_file(tmp_path / "library" / "activations.safetensors")
    change, message = OTHER_TENSORS[name]
    change(tensors)
    with_activations(tmp_path / "library", save(tensors))
    with pytest.raises(BadArtifact, match=rf"activations\.safetensors: .*{message}"):
        wt.references.load(tmp_path / "library")


def test_nothing_but_a_library_is_ever_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").write_text("years of work")
    passes: list[int] = []
    with subject().model.register_forward_hook(lambda *_: passes.append(1)):
        with pytest.raises(UsageError, match="exists and is not a reference library"):
            wt.references.build(subject(), CORPUS, out=tmp_path / "thesis")
        (tmp_path / "file").write_text("x")
        with pytest.raises(UsageError, match="exists and is not a reference library"):
            wt.references.build(subject(), CORPUS, out=tmp_path / "file")
        with pytest.raises(UsageError, match="cannot create the folder"):
            wt.references.build(subject(), CORPUS, out=tmp_path / "file" / "under" / "it")
    assert not passes  # said before the work, not after it
    assert (tmp_path / "thesis" / "chapter1").read_text() == "years of work"


def test_missing_folders_on_the_way_are_made(tmp_path: Path) -> None:
    wt.references.build(subject(), CORPUS, rule="random", min_tokens=1, out=tmp_path / "a" / "b" / "library")
    assert wt.references.load(tmp_path / "a" / "b" / "library").n_scanned == 6


WATCHED = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree", "tempfile.mkdtemp")


def saved_and_killed(library: ReferenceLibrary, target: Path, at: int) -> bool:
    """In a child: killed at the at-th event of the file system. True if it ended by itself."""
    seen = 0

    def watch(event: str, _: object) -> None:
        nonlocal seen
        if event in WATCHED:
            seen += 1
            if seen > at:
                os.kill(os.getpid(), signal.SIGKILL)

    def save() -> None:
        sys.addaudithook(watch)
        wt.references.save(library, target)

    code = forked(save)
    assert code in {0, -signal.SIGKILL}, code
    return code == 0


@pytest.mark.parametrize("there_before", [False, True])
def test_killed_at_any_point_of_saving_leaves_the_old_library_or_the_new(there_before: bool, tmp_path: Path) -> None:
    before, new = make(n=2) if there_before else None, make(n=5)
    old = None if before is None else before.digest
    found: list[str | None] = []
    ended = False
    for at in range(200):
        target = tmp_path / str(at)
        if before is not None:
            wt.references.save(before, target)
        ended = saved_and_killed(new, target, at)
        try:
            found.append(wt.references.load(target).digest)
        except BadArtifact:
            assert not target.exists(), f"something half-made is visible at {at}"
            found.append(None)
        if ended:
            break
    assert ended
    assert found[0] == old
    assert found[-1] == new.digest
    assert set(found) == {new.digest, old}  # what was there before is put back
    assert len(found) > 8
    wt.references.save(new, tmp_path / "last")  # removes what all those killed left
    assert {path.name for path in tmp_path.iterdir()} <= {str(at) for at in range(200)} | {"last"}


def test_an_error_while_saving_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wt.references.save(make(), tmp_path / "library")

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("whichtoken.references.store.save_file", broken)
    with pytest.raises(ZeroDivisionError):
        wt.references.save(make(n=2), tmp_path / "library")
    assert os.listdir(tmp_path) == ["library"]
    assert wt.references.load(tmp_path / "library").digest == make().digest


def test_a_full_disk_while_saving_is_one_line_and_leaves_the_older_library(tmp_path: Path) -> None:
    wt.references.save(make(), tmp_path / "library")
    larger = make(dtype="float64")
    said = limited(lambda: wt.references.save(larger, tmp_path / "library"), tmp_path)
    assert said.startswith(f"{tmp_path / 'library'} cannot be written: ")
    assert "File too large" in said
    assert "\n" not in said
    assert sorted(os.listdir(tmp_path)) == ["library", "said"]
    assert wt.references.load(tmp_path / "library").digest == make().digest


def test_packing_leaves_zeros_where_a_reference_ends() -> None:
    held = torch.randn(3, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    held[1, :, 3:] = 0
    for how in get_args(Compression):
        packed = pack(held, torch.float64, how)
        found = packed.read(ALL, slice(0, 1), 7, held)
        assert found.shape == (3, 1, 7, 8)
        assert float(found[1, :, 3:].abs().max()) < 1e-12
        assert float(found[:, :, 5:].abs().max()) == 0
        assert packed.read(slice(2), ALL, 2, held).shape == (2, 2, 2, 8)


@pytest.mark.parametrize("how", get_args(Compression))
@pytest.mark.parametrize("n_tokens", [3, 5, 7])  # the text is shorter or longer than the references
def test_contracting_is_reading_multiplying_and_summing(how: Compression, n_tokens: int) -> None:
    source = torch.Generator().manual_seed(0)
    held = torch.randn(3, 4, 5, 8, dtype=torch.float64, generator=source)
    weights = torch.randn(2, n_tokens, 8, dtype=torch.float64, generator=source)
    packed = pack(held, torch.float32, how)
    before = {name: tensor.clone() for name, tensor in packed.tensors.items()}
    found = packed.contract(slice(2), slice(1, 3), weights)
    expected = (packed.read(slice(2), slice(1, 3), n_tokens, weights) * weights).sum(-1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(tensor, before[name]) for name, tensor in packed.tensors.items())


def test_a_library_folder_may_be_moved_and_copied(tmp_path: Path) -> None:
    wt.references.save(make(), tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert wt.references.load(tmp_path / "two").digest == wt.references.load(tmp_path / "one").digest
