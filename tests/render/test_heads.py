"""Pictures of head masks: each head is shown as what it is, with what the corpus said."""

from dataclasses import replace
from io import StringIO
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import pytest
from rich.console import Console
from tests.heads.test_heads import mask, wide
from tests.render.shown import HARMFUL

import whichtoken as wt
from whichtoken.errors import UsageError
from whichtoken.render import head_kinds
from whichtoken.render.head_kinds import Kind
from whichtoken.render.palette import contrast, ink_on
from whichtoken.render.terminal import heads_view


def printed(found: wt.heads.HeadMask, colour: bool = False) -> str:
    out = StringIO()
    Console(file=out, width=120, color_system="truecolor" if colour else None, force_terminal=colour).print(
        heads_view(found)
    )
    return out.getvalue()


def test_each_head_has_a_kind() -> None:
    found = head_kinds.kinds(wt.heads.corrupt_mask(wide(), 1))
    assert (found[0][1], found[2][0], found[3][3], found[5][5]) == (
        Kind.SYNTACTIC,
        Kind.POSITIONAL,
        Kind.BOTH,
        Kind.ADDED,
    )
    assert head_kinds.kinds(wide())[5][5] is Kind.NEITHER
    assert head_kinds.legend_kinds(wide()) == [Kind.NEITHER, Kind.SYNTACTIC, Kind.POSITIONAL, Kind.BOTH]
    assert Kind.ADDED in head_kinds.legend_kinds(wt.heads.random_mask(wide()))


def test_a_terminal_shows_letters_a_legend_and_the_numbers() -> None:
    lines = printed(wide()).splitlines()
    assert lines[0] == "wide: 3 of 72 heads (2 syntactic, 2 positional)"
    assert lines[2].split() == ["block", "1", "·", "S", *"·" * 10]
    assert lines[4].split()[2:4] == ["P", "·"]
    assert lines[5].split()[5] == "B"
    assert lines[8].split() == ["·", "neither", "S", "syntactic", "P", "positional", "B", "both"]
    assert "not measured on a corpus" in printed(wide())
    text = printed(mask())
    assert "hand-made: 9 sentences; 60 words, 0 of them without a token of their own" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["nsubj"] == [
        *("nsubj", "12", "12", "-2", "0.500"), "block", "1,", "head", "2", "1.000", ">", "0.600",
    ]  # fmt: skip
    assert "block 1, head 1  position -1" in text
    rare = printed(mask(min_count=10))
    assert "10 occurrences" in rare
    assert "A added" in printed(wt.heads.random_mask(wide()))
    assert "\x1b[" in printed(wide(), colour=True)


def test_kinds_are_told_apart() -> None:
    assert len(set(head_kinds.LETTERS.values())) == len(set(head_kinds.COLOURS.values())) == len(Kind)
    for kind in Kind:
        assert contrast(head_kinds.COLOURS[kind], ink_on(head_kinds.COLOURS[kind])) > 4.5
    for one, other in combinations(head_kinds.COLOURS.values(), 2):
        assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 100


def test_names_from_a_file_are_shown_and_not_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = mask()
    assert found.statistics is not None
    relation = replace(found.statistics.relations[0], name=f"\x1b[31m{HARMFUL}")
    statistics = replace(found.statistics, corpus=f"\x1b[31m{HARMFUL}", relations=(relation,))
    evil = replace(found, model=f"\x1b[31m{HARMFUL}\u202e", origin=f"x\x1b[31m{HARMFUL}", statistics=statistics)
    text = printed(evil)
    assert "\x1b" not in text
    assert "\u202e" not in text
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # letters stay letters
    drawn = wt.plot.heads(replace(found, model="$x^2$"), tmp_path / "x.svg").read_text(encoding="utf-8")
    assert ">$x^2$: 2 of 6 heads<" in drawn  # a formula would be drawn in parts


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_is_written_in_each_format(ending: str, tmp_path: Path) -> None:
    path = wt.plot.heads(wide(), tmp_path / f"heads.{ending}")
    assert path.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])


def test_a_figure_shows_title_axes_letters_and_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")
    text = wt.plot.heads(wide(), tmp_path / "heads.svg").read_text(encoding="utf-8")
    for shown in ("wide: 3 of 72 heads", "(2 syntactic, 2 positional)", ">head<", ">block<", ">12<", ">B<", ">both<"):
        assert shown in text
    assert ">A<" not in text
    assert ">A<" in wt.plot.heads(wt.heads.random_mask(wide()), tmp_path / "r.svg").read_text(encoding="utf-8")


def test_figures_refuse_what_they_cannot_draw(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        wt.plot.heads(wide(), tmp_path / "heads.docx")
    with pytest.raises(UsageError, match="a str is not a head mask"):
        wt.plot.heads("heads.json", tmp_path / "heads.png")  # type: ignore[arg-type]
