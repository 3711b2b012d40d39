"""Joining sub-words: slices of the original text, and nothing lost."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tiny import BERT, GPT2, LLAMA, ROBERTA, byte_bpe, byte_fallback, unigram, wordpiece

import whichtoken as wt
from whichtoken.models.encoding import Document, Fit, tokenize
from whichtoken.words import WordPiece, join_words, word_groups

TOKENIZERS = {
    "wordpiece": wordpiece(BERT),
    "roberta": byte_bpe(ROBERTA),
    "gpt2": byte_bpe(GPT2),
    "sentencepiece": unigram(ROBERTA),
    "llama": byte_fallback(LLAMA),
}
each_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)


def document(tokenizer: object, *texts: str) -> Document:
    return tokenize(tokenizer, [texts], Fit(10**6, "error"))[0]


def pieces_of(document: Document) -> list[WordPiece]:
    """Scores are powers of two, so that a sum tells exactly which tokens went into it."""
    rows = zip(document.sequences, document.word_ids, document.spans, strict=True)
    return [WordPiece(s, w, span, 2.0**i) for i, (s, w, span) in enumerate(rows) if s is not None and span is not None]


def words_of(tokenizer: object, *texts: str) -> list[str]:
    return [word.text for word in join_words(texts, pieces_of(document(tokenizer, *texts)))]


@each_tokenizer
def test_plain_words(tokenizer: object) -> None:
    assert "".join(words_of(tokenizer, "A rare, charming film.")) == "Arare,charmingfilm."
    assert words_of(tokenizer, "a  wonderful \n film") == ["a", "wonderful", "film"]


@pytest.mark.parametrize("kind", ["wordpiece", "roberta", "sentencepiece"])
def test_contractions_are_one_word_and_quotes_are_not(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert words_of(tokenizer, "it didn't end") == ["it", "didn't", "end"]
    assert words_of(tokenizer, "it is did n't") == ["it", "is", "did", "n't"]
    assert "电影'很好'吧" not in words_of(wordpiece(BERT), "电影'很好'吧")
    assert "'rare'" not in words_of(wordpiece(BERT), "a 'rare' film")
    assert words_of(wordpiece(BERT), "it's the actors' film") == ["it's", "the", "actors", "'", "film"]


@each_tokenizer
def test_accents_emoji_and_cjk_are_slices_of_the_text(tokenizer: object) -> None:
    text = "naïve café 👩‍👩‍👧 déjà 電影 很好 ﬁn"
    found = words_of(tokenizer, text)
    assert "".join(found) == text.replace(" ", "")
    assert {"naïve", "café", "👩‍👩‍👧", "déjà", "ﬁn"} <= set(found)


@each_tokenizer
def test_the_texts_of_a_pair_are_never_mixed(tokenizer: object) -> None:
    first, second = "A man sleeps", "sleeps nobody"
    joined = join_words((first, second), pieces_of(document(tokenizer, first, second)))
    assert [(w.sequence, w.text) for w in joined] == [
        (0, "A"),
        (0, "man"),
        (0, "sleeps"),
        (1, "sleeps"),
        (1, "nobody"),
    ]
    for word in joined:
        assert (first, second)[word.sequence][slice(*word.span)] == word.text


@each_tokenizer
@given(text=st.text(min_size=1, max_size=30))
@example("\u200b \n x")
@example("e\u0301 \U0001f468\u200d\U0001f469 \ufeff")
@example("\x00\x1f\x85\xa0 a\u3000b")
def test_any_text(tokenizer: object, text: str) -> None:
    try:
        whole = document(tokenizer, text)
    except (wt.WhichTokenError, UnicodeError):
        return  # refused with a reason; see test_encoding
    for span in whole.spans:
        assert span is None or 0 <= span[0] <= span[1] <= len(text)
    pieces = pieces_of(whole)
    words = join_words((text,), pieces)
    assert sum(word.score for word in words) == sum(piece.score for piece in pieces)
    for word in words:
        assert word.text == text[slice(*word.span)]
        assert word.text == word.text.strip()
    for left, right in itertools.pairwise(words):
        assert left.span[1] <= right.span[0]


def test_a_character_that_normalizes_to_several_words_stays_one() -> None:
    text = "a ﷺ film"  # U+FDFA becomes four Arabic words
    assert len(document(TOKENIZERS["sentencepiece"], text).tokens) > 8
    assert words_of(TOKENIZERS["sentencepiece"], text) == ["a", "ﷺ", "film"]


def test_white_space_tokens_join_the_word_that_follows_and_at_the_end_the_last() -> None:
    pieces = [
        WordPiece(0, 0, (0, 1), 1.0),
        WordPiece(0, 1, (1, 3), 2.0),
        WordPiece(0, 1, (3, 4), 4.0),
        WordPiece(0, 2, (4, 5), 8.0),
    ]
    joined = join_words(("a  b ",), pieces)
    assert [(w.text, w.score) for w in joined] == [("a", 1.0), ("b", 14.0)]


def test_a_text_of_nothing_but_white_space_tokens_is_one_word() -> None:
    joined = join_words(("  ",), [WordPiece(0, 0, (0, 1), 1.0), WordPiece(0, 0, (1, 2), 2.0)])
    assert [(w.text, w.score) for w in joined] == [("", 3.0)]


@each_tokenizer
def test_the_tokens_of_each_word_are_those_that_its_score_sums(tokenizer: object) -> None:
    texts = ("A rare, charming  film. Didn't 電影 \U0001f600 ", "very slow")
    found = document(tokenizer, *texts)
    groups = word_groups(found.texts, found.spans, found.sequences, found.word_ids)
    assert [sum(2.0**i for i in group) for group in groups] == [w.score for w in join_words(texts, pieces_of(found))]
    assert sorted(i for group in groups for i in group) == [i for i, s in enumerate(found.sequences) if s is not None]
