"""How tokens are shown: as the text has them, with its spaces and no others, whatever the tokenizer calls them."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests import tiny
from tests.render.shown import FINE

from whichtoken.records import Attribution
from whichtoken.render.html import to_html
from whichtoken.render.latex import to_latex
from whichtoken.render.rows import Look, cells, difference, panels
from whichtoken.render.terminal import print_each

WORDPIECE, ROBERTA, GPT2 = tiny.wordpiece(), tiny.byte_bpe(tiny.ROBERTA), tiny.byte_bpe(tiny.GPT2)
SENTENCEPIECE, FALLBACK = tiny.unigram(tiny.BERT), tiny.byte_fallback()
TOKENIZERS = [WORDPIECE, ROBERTA, GPT2, SENTENCEPIECE, FALLBACK]


def read(tokenizer: Any, *texts: str) -> Attribution:
    """An attribution whose scores are 1, 2, 3 ..."""
    (encoding,) = tokenizer(*([text] for text in texts)).encodings
    sequences = tuple(encoding.sequence_ids)
    spans = tuple(None if s is None else tuple(span) for s, span in zip(sequences, encoding.offsets, strict=True))
    scores = tuple(float(i + 1) for i in range(len(sequences)))
    return replace(
        FINE,
        texts=texts,
        tokens=tuple(encoding.tokens),
        spans=spans,
        sequences=sequences,
        word_ids=tuple(encoding.word_ids),
        scores=scores,
    )


def line(attribution: Attribution) -> str:
    return "".join(cell.before + cell.text for cell in cells(attribution, "token"))


def texts(attribution: Attribution) -> list[str]:
    return [cell.text for cell in cells(attribution, "token")]


def test_punctuation_and_word_pieces_stand_as_in_the_text() -> None:
    found = read(WORDPIECE, "The film was not-so-great, <br /> but slow.")
    assert line(found) == "[CLS] The film was not-so-great, <br /> but slow. [SEP]"
    assert texts(read(WORDPIECE, "It was unslow")) == ["[CLS]", "It", "was", "u", "n", "slow", "[SEP]"]
    assert found.tokens[1] == "the"  # the record keeps what the tokenizer says


@pytest.mark.parametrize("tokenizer", [ROBERTA, GPT2])
def test_byte_level_tokens_are_shown_as_text(tokenizer: Any) -> None:
    found = read(tokenizer, "The film was very slow.")
    assert "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}" not in line(found)  # how these tokenizers write a space
    assert "film" in texts(found)


def test_a_space_that_is_part_of_a_token_is_neither_lost_nor_doubled() -> None:
    found = read(GPT2, "a naïve  end")
    assert found.tokens[1] == "Ġn"
    assert [(cell.before, cell.text) for cell in cells(found, "token")][:3] == [("", "a"), (" ", "n"), ("", "a")]


@pytest.mark.parametrize("tokenizer", [ROBERTA, GPT2, SENTENCEPIECE, FALLBACK])
def test_a_token_of_white_space_is_an_open_box_in_its_place(tokenizer: Any) -> None:
    shown = line(read(tokenizer, "The  x")).replace("<s> ", "").replace(" </s>", "")
    shown = shown.replace("[CLS] ", "").replace(" [SEP]", "").removeprefix("␣")  # SentencePiece adds one in front
    assert shown.replace("␣", " ") == "The  x"
    assert "␣" in shown


def test_a_line_break_is_shown_as_one() -> None:
    assert line(read(GPT2, "a\n\tb")) == "a↵␣b"


@pytest.mark.parametrize("tokenizer", [ROBERTA, GPT2, FALLBACK])
@pytest.mark.parametrize("character", ["🤖", "電"])
def test_a_character_of_several_tokens_is_shown_once(tokenizer: Any, character: str) -> None:
    found = read(tokenizer, f"a{character}b")
    parts = [cell for cell in cells(found, "token") if cell.text == "·"]
    shown = texts(found)
    count = len(parts) + 1
    assert count >= 3
    at = shown.index(character)
    assert shown[at : at + count] == [character, *["·"] * (count - 1)]
    assert [part.called for part in parts] == [f"{character} ({n} of {count})" for n in range(2, count + 1)]
    assert cells(found, "token")[at].called == f"{character} (1 of {count})"
    assert all(part.before == "" for part in parts)


def test_an_emoji_that_is_one_token_is_that_emoji() -> None:
    assert texts(read(GPT2, "😀😀")) == ["😀", "😀"]


def test_a_token_for_no_character_is_shown_too() -> None:
    """SentencePiece puts a space before the first word, and gives it the place of the word's first letter."""
    found = read(SENTENCEPIECE, "The")
    assert found.tokens[1] == "▁"
    assert texts(found) == ["[CLS]", "␣", "T", "h", "e", "[SEP]"]
    nowhere = replace(
        FINE, spans=(None, (0, 0), (0, 0), (0, 0), (0, 0), None), tokens=("[CLS]", "▁a", "##b", "Ġ", "", "[SEP]")
    )
    assert texts(nowhere) == ["[CLS]", "a", "b", "␣", "·", "[SEP]"]


def test_the_texts_of_a_pair_are_told_apart() -> None:
    assert line(read(WORDPIECE, "It is slow.", "The end")) == "[CLS] It is slow. [SEP] The end [SEP]"
    assert line(read(GPT2, "It", "The")) == "It | The"  # no special token stands between them


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(text=st.text(alphabet="ab電🤖ï .-'\n", min_size=1, max_size=12))
def test_no_character_is_lost_doubled_or_added(tokenizer: Any, text: str) -> None:
    found = read(tokenizer, text)
    if not any(span for span in found.spans if span and span[1] > span[0]):
        return
    made = [cell for token, cell in zip(found.sequences, cells(found, "token"), strict=True) if token is not None]
    last = max((span or (0, 0))[1] for span in found.spans)
    shown = "".join(cell.before + cell.text for cell in made).lstrip(" ␣").replace("·", "")
    plain = text[:last].replace("\n", " ").strip()
    assert shown.replace("␣", " ").replace("↵", " ").strip() == plain


def test_lists_and_hovering_name_the_token() -> None:
    found = replace(read(GPT2, "a naïve"), scores=(0.0, 0.5, 0.0, 0.0, 2.0, 0.0))
    assert [cell.called for cell in panels(found, Look(level="token"))[0].rows[0].strongest(2)] == ["ï (2 of 2)", "n"]
    page = to_html(found, level="token")
    assert 'title="n, token Ġn: +0.5' in page
    assert 'title="ï (2 of 2), token ¯: +2' in page
    assert 'title="a: ' in page


def printed(attribution: Attribution, look: Look, colour: bool) -> str:
    file = StringIO()
    system: Any = "truecolor" if colour else None
    print_each(Console(file=file, width=200, force_terminal=colour, color_system=system), [attribution], look)
    return file.getvalue()


def test_a_terminal_shows_where_touching_tokens_end() -> None:
    found = replace(read(WORDPIECE, "unslow a"), scores=(0.0, 1.0, 0.01, 0.5, 0.0, 0.0))
    plain = printed(found, Look(level="token"), colour=False)
    assert "[CLS] u(+1.00)n(+0.01)slow(+0.50) a [SEP]" in plain
    coloured = printed(found, Look(level="token"), colour=True)
    assert "\x1b[4mn\x1b[0m" in coloured  # every second of those that touch is underlined
    assert "\x1b[4" not in printed(found, Look(), colour=True)


def test_a_page_draws_a_box_around_each_token_and_adds_no_character() -> None:
    found = read(WORDPIECE, "not-so")
    assert '<div class="words tokens" dir="auto">' in to_html(found, level="token")
    assert '<div class="words" dir="auto">' in to_html(found)
    assert ".whichtoken .tokens span{" in to_html(found, level="token")


def test_latex_leaves_a_hair_between_tokens_that_touch() -> None:
    found = replace(read(WORDPIECE, "not. a"), scores=(0.0,) * 7)
    assert r"[CLS] n\kern.08em o\kern.08em t\kern.08em . a [SEP]" in to_latex(found, level="token")
    assert "kern" not in to_latex(found)
    spaces = replace(read(GPT2, "a\n  b電"), scores=(0.0,) * 7)
    assert r"\textvisiblespace{}" in to_latex(spaces, level="token")
    assert r"\ensuremath{\hookleftarrow}" in to_latex(spaces, level="token")
    assert r"\textperiodcentered{}" in to_latex(spaces, level="token")


def test_tokens_of_two_methods_can_still_be_compared() -> None:
    found = read(GPT2, "a電")
    rows = panels({"a": found, "b": replace(found, method="b")}, Look(level="token", differences=True))[0]
    assert [cell.called for cell in rows.differences[0].cells] == [cell.called for cell in rows.rows[0].cells]
    assert difference(rows.rows[0], rows.rows[1]).cells[1].token == "é"
