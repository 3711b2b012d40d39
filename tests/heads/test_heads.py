"""HeadMask: what it counts, how the paper's controls change it, and what its file holds."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.heads.corpus import CORPUS
from tests.heads.test_counting import HEADS, LAYERS, tallied

import whichtoken as wt
from whichtoken.errors import BadArtifact, BadSetting, LibraryMismatch, UsageError
from whichtoken.heads import HeadRule
from whichtoken.heads.mask import all_heads
from whichtoken.heads.store import from_json, read, to_json
from whichtoken.identity import Identity

IDENTITY = Identity("sha256:abc", "sha256:def")


def mask(**rule: Any) -> wt.heads.HeadMask:
    made = HeadRule(**{"min_count": 1, **rule})
    tally = tallied(CORPUS * 3, made)
    return wt.heads.HeadMask(
        model="tiny",
        fingerprint="sha256:abc",
        origin="measured",
        rule=made,
        syntactic=tally.syntactic(),
        positional=tally.positional(),
        added=((False,) * HEADS,) * LAYERS,
        statistics=tally.statistics("hand-made", 0, 0),
        processor="sha256:def",
    )


def wide(n_layers: int = 6, n_heads: int = 12) -> wt.heads.HeadMask:
    """One syntactic, one positional, one that is both."""
    grid = [[0] * n_heads for _ in range(n_layers)]
    syntactic, positional = [list(row) for row in grid], [list(row) for row in grid]
    syntactic[0][1] = 2
    positional[2][0] = 1
    syntactic[3][3] = positional[3][3] = 1
    return replace(
        all_heads(n_layers, n_heads, "wide", "sha256:abc"),
        origin="measured",
        processor="sha256:def",
        syntactic=tuple(map(tuple, syntactic)),
        positional=tuple(map(tuple, positional)),
        added=((False,) * n_heads,) * n_layers,
    )


def places(found: wt.heads.HeadMask) -> set[tuple[int, int]]:
    return {(i, j) for i, row in enumerate(found.selected) for j, flag in enumerate(row) if flag}


def test_a_head_that_is_both_is_selected_once() -> None:
    found = wide()
    assert (found.n_layers, found.n_heads) == (6, 12)
    assert (found.n_selected, found.n_syntactic, found.n_positional) == (3, 2, 2)
    assert places(found) == {(0, 1), (2, 0), (3, 3)}
    assert str(found) == f"heads of wide: 3 of 72 (2 syntactic, 2 positional), sha {found.digest}"
    assert len(found.digest) == 8
    assert hash(found) == hash(wide())
    assert found.digest != replace(found, fingerprint="other").digest


def test_the_reasons_say_why_each_head_was_selected() -> None:
    found = mask()
    said = [(reason.layer, reason.head, reason.what) for reason in found.reasons()]
    assert said == [(0, 0, "position -1"), (0, 1, "nsubj")]
    assert all(reason.share > reason.needed for reason in found.reasons())
    assert all_heads(2, 2, "m", "f").reasons() == ()


def test_random_heads_are_as_many_and_drawn_from_all() -> None:
    drawn = [wt.heads.random_mask(wide(), seed) for seed in range(200)]
    assert {one.n_selected for one in drawn} == {3}
    assert {one.n_syntactic + one.n_positional for one in drawn} == {0}
    assert {place for one in drawn for place in places(one)} == {(i, j) for i in range(6) for j in range(12)}
    assert drawn[3] == wt.heads.random_mask(wide(), 3)
    assert drawn[3].selected != drawn[4].selected
    assert drawn[3].origin == "random(seed=3)"
    assert drawn[3].fingerprint == "sha256:abc"
    assert "random(seed=3)" in str(drawn[3])


@pytest.mark.parametrize(("rate", "added"), [(0, 0), (0.01, 0), (0.1, 6), (0.5, 34), (1, 69)])
def test_corrupt_heads_adds_a_share_of_those_left_out(rate: float, added: int) -> None:
    found = wt.heads.corrupt_mask(wide(), rate, seed=2)
    assert found.n_selected == 3 + added
    assert places(found) >= places(wide())
    assert (found.syntactic, found.positional) == (wide().syntactic, wide().positional)
    assert found.origin == f"corrupt(rate={rate}, seed=2)"
    assert found == wt.heads.corrupt_mask(wide(), rate, seed=2)
    if rate == 1:
        assert found.selected == all_heads(6, 12, "wide", "sha256:abc").selected
    if added:
        assert any(wt.heads.corrupt_mask(wide(), rate, seed).selected != found.selected for seed in range(9)) == (
            rate < 1
        )


def test_changes_can_follow_one_another() -> None:
    found = wt.heads.corrupt_mask(wt.heads.random_mask(wide(), 5), 0.5)
    assert (found.n_selected, found.origin) == (37, "corrupt(rate=0.5, seed=0) of random(seed=5)")


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), True, "0.1"])
def test_a_rate_is_a_share(wrong: Any) -> None:
    with pytest.raises(BadSetting, match="a share, 0 to 1"):
        wt.heads.corrupt_mask(wide(), wrong)


def test_a_seed_is_a_number() -> None:
    with pytest.raises(BadSetting, match="seed=-1 is not allowed"):
        wt.heads.random_mask(wide(), -1)


def test_a_mask_of_another_model_does_not_fit() -> None:
    wide().check_model("wide", IDENTITY, 6, 12)
    with pytest.raises(LibraryMismatch, match="built for wide, revision sha256:abc; other is revision"):
        wide().check_model("other", replace(IDENTITY, revision="sha256:abd"), 6, 12)
    with pytest.raises(LibraryMismatch, match="6 layers of 12 heads; other has 12 of 12"):
        wide().check_model("other", IDENTITY, 12, 12)


@pytest.mark.parametrize("made", [mask, wide, lambda: wt.heads.corrupt_mask(mask(relations=("obj",)), 0.5)])
def test_what_is_saved_is_read_back(made: Callable[[], wt.heads.HeadMask], tmp_path: Path) -> None:
    path = tmp_path / "heads.json"
    assert wt.heads.save(made(), path) == path
    assert read(path) == wt.heads.load(str(path)) == made()
    assert hash(read(path)) == hash(made())
    written = json.loads(path.read_text(encoding="utf-8"))
    assert (written["record"], written["schema"]) == ("HeadMask", 1)


BREAKS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "schema": (lambda d: d.update(schema=2), "found HeadMask of schema 2"),
    "record": (lambda d: d.update(record="Curve"), "found Curve of schema 1"),
    "missing": (lambda d: d.pop("model"), "HeadMask: model is missing"),
    "unknown": (lambda d: d.update(more=1), "HeadMask: more is not a known field"),
    "type": (
        lambda d: d["syntactic"][0].__setitem__(0, "1"),
        r"HeadMask: syntactic\[0\]\[0\] is '1'; expected a valid integer",
    ),
    "fraction": (
        lambda d: d["positional"][0].__setitem__(0, 0.5),
        r"HeadMask: positional\[0\]\[0\] is 0.5; expected a valid integer",
    ),
    "short layer": (lambda d: d["added"][1].pop(), "added must have one value for each of 2 x 3 heads"),
    "no layers": (lambda d: d.update(syntactic=[]), "syntactic must have one value for each of 0 x 0 heads"),
    "rule": (lambda d: d["rule"].pop("syntactic"), "HeadMask: rule.syntactic is missing"),
    "rule's type": (lambda d: d.update(rule=3), "HeadMask: rule is 3; expected an object"),
    "statistics": (lambda d: d["statistics"].pop("n_words"), "HeadMask: statistics.n_words is missing"),
    "relations": (lambda d: d["statistics"].update(relations=7), "relations is 7; expected a valid array"),
    "a relation": (lambda d: d["statistics"]["relations"][0].pop("name"), r"relations\[0\]\.name is missing"),
    "shares": (lambda d: d["statistics"]["relations"][0]["shares"].pop(), "shares of nsubj must have one value"),
    "a share": (
        lambda d: d["statistics"]["relations"][0]["shares"][0].__setitem__(0, 1.5),
        "shares is 1.5; expected",
    ),
    "an offset's share": (
        lambda d: d["statistics"]["offset_shares"][0].__setitem__(0, -0.5),
        "offset_shares is -0.5; expected 0 to 1",
    ),
    "a position's share": (lambda d: d["statistics"]["relations"][0].update(position_share=2), "position_share is 2"),
    "a count of heads": (lambda d: d["syntactic"][0].__setitem__(0, -1), "syntactic is -1; expected at least 0"),
    "another count": (lambda d: d["positional"][0].__setitem__(0, -1), "positional is -1; expected at least 0"),
    "a count of words": (lambda d: d["statistics"].update(n_words=-1), "n_words is -1"),
    "measured": (lambda d: d["statistics"]["relations"][0].update(n_measured=10**6), "were measured than found"),
    "a negative count": (lambda d: d["statistics"]["relations"][0].update(n_measured=-1), "n_measured is -1"),
    "a rule out of bounds": (lambda d: d["rule"].update(min_count=0), "rule: min_count=0 is not allowed"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_file_that_is_not_what_it_should_be_is_refused(name: str, tmp_path: Path) -> None:
    change, message = BREAKS[name]
    found = json.loads(to_json(mask()))
    change(found)
    (tmp_path / "heads.json").write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(BadArtifact, match=message) as caught:
        read(tmp_path / "heads.json")
    assert "heads.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "7", "[" * 100_000, '{"record": NaN}'])
def test_text_that_is_no_mask_is_refused(text: str) -> None:
    with pytest.raises(BadArtifact):
        from_json(text)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadArtifact, match=r"nowhere\.json cannot be read"):
        read(tmp_path / "nowhere.json")
    (tmp_path / "latin.json").write_bytes(b"\xe9")
    with pytest.raises(BadArtifact, match=r"latin\.json cannot be read: not UTF-8"):
        read(tmp_path / "latin.json")
    with pytest.raises(BadSetting, match="the path of a stored head mask"):
        read(7)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="a HeadMask; the path comes second"):
        wt.heads.save(str(tmp_path / "h.json"), mask())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is no folder"):
        wt.heads.save(mask(), tmp_path / "no" / "h.json")
