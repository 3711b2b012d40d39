"""What pictures show, before anything is drawn."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.render.shown import FINE, NASTY, attribution_of

from whichtoken.errors import BadSetting, UsageError
from whichtoken.render.groups import group_results
from whichtoken.render.palette import AGAINST, BLACK, FOR, NEUTRAL, STEPS, WHITE, contrast, ink, shade, step_of
from whichtoken.render.rows import Look, cells, difference, layer_map, panels, visible


def test_shares_are_of_the_strongest_word_and_keep_their_sign() -> None:
    row = panels(FINE, Look())[0].rows[0]
    assert [(cell.text, cell.share) for cell in row.cells] == [
        ("a", 0.25),
        ("rare", 1.0),
        ("dull", -0.5),
        ("film", 0.0),
    ]
    assert [cell.text for cell in row.strongest()] == ["rare", "a"]  # what speaks against it is not on top
    assert [cell.text for cell in row.strongest(1)] == ["rare"]


def test_scores_that_are_all_zero_have_no_colour() -> None:
    row = panels(attribution_of(["a", "b"], [0.0, 0.0]), Look())[0].rows[0]
    assert [cell.share for cell in row.cells] == [0.0, 0.0]
    assert row.strongest() == ()


def test_words_keep_what_stands_between_them_and_tokens_show_specials() -> None:
    assert "".join(cell.before + cell.text for cell in cells(FINE, "word")) == "a rare dull film"
    assert [cell.text for cell in cells(FINE, "token")] == ["[CLS]", "a", "rare", "dull", "film", "[SEP]"]
    with pytest.raises(BadSetting, match="'word' or 'token'"):
        Look(level="sentence")  # type: ignore[arg-type]


def test_the_texts_of_a_pair_are_told_apart() -> None:
    pair = replace(
        FINE,
        texts=("a rare", " dull film"),
        sequences=(None, 0, 0, 1, 1, None),
        spans=(None, (0, 1), (2, 6), (1, 5), (6, 10), None),
        word_ids=(None, 0, 1, 0, 1, None),
    )
    assert "".join(cell.before + cell.text for cell in cells(pair, "word")) == "a rare |  dull film"


def test_a_difference_is_of_shares_so_units_do_not_matter() -> None:
    other = replace(FINE, scores=tuple(1000 * score for score in FINE.scores), method="cat")
    rows = panels({"attcat": FINE, "cat": other}, Look(differences=True))[0]
    assert [row.name for row in rows.differences] == ["attcat \N{MINUS SIGN} cat"]
    assert [cell.share for cell in rows.differences[0].cells] == [0.0] * 4
    reversed_ = replace(FINE, scores=tuple(-score for score in FINE.scores), tuned_on_deletion=True)
    found = panels([{"a": FINE, "b": reversed_}], Look(differences=True))[0].differences[0]
    assert [cell.share for cell in found.cells] == [0.5, 2.0, -1.0, 0.0]
    assert found.tuned_on_deletion  # because one of the two has
    with pytest.raises(UsageError, match="different texts"):
        difference(panels(FINE, Look())[0].rows[0], panels(attribution_of(["x"], [1.0]), Look())[0].rows[0])


def test_a_layer_map_has_a_row_for_each_layer_and_their_sum_on_one_scale() -> None:
    layered = replace(FINE, layers=((0.0, 0.5, 4.0, 0.0, 0.0, 0.0), (0.0, 0.0, -2.0, -1.0, 0.0, 0.0)))
    found = layer_map("attcat", layered, "word")
    assert [row.name for row in found.rows] == ["block 1", "block 2", "sum"]
    assert [[cell.share for cell in row.cells] for row in found.rows] == [
        [0.125, 1.0, 0.0, 0.0],
        [0.0, -0.5, -0.25, 0.0],
        [0.125, 0.5, -0.25, 0.0],
    ]
    assert panels(layered, Look())[0].layers == (found,)
    assert panels(FINE, Look())[0].layers == ()
    with pytest.raises(UsageError, match=r"attcat has no scores by layer here; use explain\(..., layers=True\)"):
        layer_map("attcat", FINE, "word")


def test_attributions_of_one_text_that_follow_one_another_are_one_panel() -> None:
    cat, settings = replace(FINE, method="cat"), replace(FINE, settings={"layers": "outputs"})
    elsewhere = attribution_of(["x"], [1.0])
    assert [list(group) for group in group_results([FINE, cat, settings, elsewhere, FINE])] == [
        ["attcat", "cat", "attcat(layers=outputs)"],
        ["attcat"],
        ["attcat"],
    ]
    assert [list(group) for group in group_results([{"one": FINE}, {"two": FINE}])] == [["one"], ["two"]]
    assert group_results(FINE) == [{"attcat": FINE}]
    assert group_results([]) == group_results({}) == []
    assert [list(group) for group in group_results([FINE, FINE])] == [["attcat"], ["attcat"]]  # a repeated text
    with pytest.raises(UsageError, match="an int cannot be shown"):
        group_results([3])  # type: ignore[list-item]


def test_what_was_cut_or_averaged_is_said() -> None:
    assert panels(FINE, Look())[0].notes == ()
    notes = panels(replace(FINE, n_cut=7, n_windows=3), Look())[0].notes
    assert "7 tokens were cut" in notes[0]
    assert "3 overlapping windows" in notes[1]


@pytest.mark.parametrize("code", [0xE0000, 0xE0041, 0xE007F])
def test_tag_characters_are_shown(code: int) -> None:
    """They look like nothing, but a model reads them."""
    assert visible(f"a{chr(code)}b") == f"a⟨U+{code:04X}⟩b"
    assert visible("\U000dffff\U000e0080") == "\U000dffff\U000e0080"  # their neighbours


@given(st.text())
def test_nothing_visible_is_obeyed(text: str) -> None:
    shown = visible(text)
    assert not set(shown) & set(
        "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff"
    )
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown)
    shown.encode()  # also where the text had half a surrogate pair


def test_ordinary_text_is_left_alone() -> None:
    text = "naïve café 電影 שלום 👩\u200d👩\u200d👧 don't"
    assert visible(text) == text
    assert visible("a\tb\nc") == "a b c"
    assert visible("\x1b[31m") == "␛[31m"
    assert visible("\u202e") == "⟨U+202E⟩"
    assert visible("\ud800\udfff\ue000") == "⟨U+D800⟩⟨U+DFFF⟩\ue000"
    assert all(character not in visible(" ".join(NASTY)) for character in "\x00\x1b\u202e\u2066\u2069\u2028")


def test_every_shade_can_be_read() -> None:
    for step in range(-STEPS, STEPS + 1):
        assert contrast(ink(step), shade(step)) >= 4.5
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    assert (shade(STEPS), shade(-STEPS), shade(0)) == (FOR, AGAINST, NEUTRAL)


@pytest.mark.parametrize(("share", "step"), [(0.0, 0), (1.0, 20), (-1.0, -20), (7.0, 20), (-7.0, -20), (0.024, 0)])
def test_shares_become_steps(share: float, step: int) -> None:
    assert step_of(share) == step


# Machado, Oliveira and Fernandes 2009, severity 1: what people without red, green or blue cones see.
DICHROMATS: dict[str, Any] = {
    "protan": [(0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)],
    "deutan": [(0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)],
    "tritan": [(1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)],
}


@pytest.mark.parametrize("kind", DICHROMATS)
def test_for_and_against_are_told_apart_by_colour_blind_people(kind: str) -> None:
    for step in (5, 10, 20):
        one, other = (
            [sum(weight * c for weight, c in zip(row, shade(side * step), strict=True)) for row in DICHROMATS[kind]]
            for side in (1, -1)
        )
        distance = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
        assert distance > 2 * step
