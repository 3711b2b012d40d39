"""Plain texts through a spaCy pipeline. No trained one is needed: a small component writes the parses down."""

import sys
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

import whichtoken as wt
from whichtoken.errors import BadInput, BadSetting, UsageError


@Language.component("whichtoken-test-parses")
def parses(doc: Any) -> Any:
    """Every word depends on the one before it, as its direct object; a full stop ends a sentence."""
    heads, root = [], 0
    for token in doc:
        heads.append(token.i if token.i == root else token.i - 1)
        if token.text == ".":
            root = token.i + 1
    relations = ["ROOT" if head == i else "dobj" for i, head in enumerate(heads)]
    spaces = [bool(token.whitespace_) for token in doc]
    return Doc(doc.vocab, [t.text for t in doc], spaces=spaces, heads=heads, deps=relations)


def blank_parser() -> Any:
    made = spacy.blank("en")
    made.add_pipe("whichtoken-test-parses")
    return made


@pytest.fixture(scope="module")
def nlp() -> Any:
    return blank_parser()


def test_texts_are_split_into_sentences_with_words_in_their_places(nlp: Any) -> None:
    first, second, third = wt.heads.parse_texts(["It won.  Nobody did.", "naïve 😀 film"], nlp)
    assert (first.text.strip(), second.text.strip(), third.text) == ("It won.", "Nobody did.", "naïve 😀 film")
    assert [second.text[slice(*word.span)] for word in second.words] == ["Nobody", "did", "."]
    assert [third.text[slice(*word.span)] for word in third.words] == ["naïve", "😀", "film"]
    assert [word.head for word in first.words] == [None, 0, 1]
    assert [word.relation for word in third.words] == ["ROOT", "obj", "obj"]  # spaCy's dobj


def test_contractions_are_words_of_their_own(nlp: Any) -> None:
    (found,) = wt.heads.parse_texts(["don't"], nlp)
    assert [word.span for word in found.words] == [(0, 2), (2, 5)]


def test_white_space_is_no_word_and_pairs_are_two_texts(nlp: Any, tmp_path: Path) -> None:
    (found,) = wt.heads.parse_texts(["a \n b"], nlp)
    assert [found.text[slice(*word.span)] for word in found.words] == ["a", "b"]
    (tmp_path / "pairs.csv").write_text("premise,hypothesis\nIt won,He did\n", encoding="utf-8")
    assert [s.text for s in wt.heads.parse_texts(tmp_path / "pairs.csv", nlp)] == ["It won", "He did"]


def test_a_text_longer_than_the_pipeline_takes_is_named_by_its_row(tmp_path: Path) -> None:
    short = blank_parser()
    short.max_length = 10
    (tmp_path / "x.csv").write_text("text\nIt won.\nNobody did sleep.\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"x.csv, row 3: the text has 17 characters, the pipeline takes 10; split it"):
        list(wt.heads.parse_texts(tmp_path / "x.csv", short))


def test_what_cannot_parse_is_refused(nlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting, match="returns no dependencies"):
        list(wt.heads.parse_texts(["It won."], spacy.blank("en")))
    with pytest.raises(BadSetting, match="pipeline=7 is not allowed"):
        wt.heads.parse_texts(["It won."], 7)
    with pytest.raises(BadInput, match="no texts to parse"):
        list(wt.heads.parse_texts([], nlp))
    with pytest.raises(BadInput, match="row 1 has an empty text"):
        list(wt.heads.parse_texts(["It won.", " "], nlp))
    with pytest.raises(UsageError, match="no spaCy pipeline 'xx_none'; install one: python -m spacy download"):
        wt.heads.parse_texts(["It won."], "xx_none")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UsageError, match=r"pip install 'whichtoken\[syntax\]'"):
        wt.heads.parse_texts(["It won."], "en_core_web_sm")
