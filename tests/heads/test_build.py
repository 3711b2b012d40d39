"""heads.build: attention is that of the stock model, and neither batches nor padding change what is counted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.heads.corpus import CORPUS, MUSIC, SHORT, SLOW, conllu, sentence
from tests.tiny import MAX_TOKENS, model_of, wordpiece

import whichtoken as wt
from whichtoken.errors import BadInput, BadSetting, LibraryMismatch, NotFinite, UnknownName, UsageError
from whichtoken.heads import _build as heads
from whichtoken.heads._build import strongest_keys
from whichtoken.heads.sentence import Parsed, Sentence

SubjectOf = Callable[..., wt.Subject]
both = pytest.mark.parametrize("kind", ["bert", "gpt2"])
RELATION = {"bert": "nsubj", "gpt2": "punct"}  # a decoder cannot look ahead, to the verb after a subject
MANY = [*CORPUS, SLOW, MUSIC, *CORPUS]


def stock_pointers(subject: wt.Subject, sentence: Sentence) -> tuple[np.ndarray[Any, Any], list[tuple[int, int]]]:
    """From transformers' own eager attention of one text: layer head query; and the tokens' characters."""
    encoded = subject.tokenizer(sentence.text, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    model = model_of(subject.model.config.model_type, attention="eager")
    with torch.no_grad():
        found = model(**encoded, output_attentions=True).attentions
    return torch.stack(found)[:, 0].argmax(-1).numpy(), [(start, end) for start, end in offsets]


@both
def test_the_shares_are_those_of_the_stock_model_counted_slowly(kind: str, subject_of: SubjectOf) -> None:
    subject = subject_of(kind)
    mask = wt.heads.build(subject, CORPUS, relations=[RELATION[kind]], corpus="three sentences")
    found = mask.statistics
    assert found is not None
    assert (mask.model, mask.fingerprint) == (f"tiny {kind}", subject.fingerprint())
    assert (mask.n_layers, mask.n_heads, mask.origin) == (3, 3, "measured")
    assert (found.corpus, found.n_sentences, found.n_cut, found.n_unaligned) == ("three sentences", 3, 0, 0)
    read = [(one, *stock_pointers(subject, one)) for one in CORPUS]
    assert found.n_tokens == sum(p.shape[2] for _, p, _ in read)
    hits = np.zeros((3, 3))
    count = 0
    for one, pointers, spans in read:
        for word in one.words:
            if word.relation != RELATION[kind] or word.head is None:
                continue
            count += 1
            inside = [i for i, (_, end) in enumerate(spans) if word.span[0] < end <= word.span[1]]
            start, end = one.words[word.head].span
            for layer in range(3):
                for head in range(3):
                    hits[layer, head] += start < spans[pointers[layer, head, inside[0]]][1] <= end
    (relation,) = found.relations
    assert (relation.name, relation.n_measured) == (RELATION[kind], count)
    assert np.array(relation.shares) == pytest.approx(hits / count)
    assert hits.any()
    for layer in range(3):
        for head in range(3):
            offsets = [int(p[layer, head, i]) - i for _, p, _ in read for i in range(p.shape[2])]
            counts = [offsets.count(o) for o in set(offsets) if o]
            assert found.offset_shares[layer][head] == pytest.approx(max(counts, default=0) / len(offsets))


@both
def test_batches_and_padding_change_nothing(kind: str, subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(kind)
    together = wt.heads.build(subject, MANY, min_count=1)
    assert together.statistics is not None
    assert together.statistics.n_sentences == len(MANY)
    monkeypatch.setattr(heads, "PAIRS_PER_BATCH", 1)  # each sentence alone
    assert wt.heads.build(subject, MANY, min_count=1) == together
    monkeypatch.undo()
    monkeypatch.setattr(heads, "SENTENCES_AT_ONCE", 2)
    assert wt.heads.build(subject, iter(MANY), min_count=1) == together


def test_equal_attention_points_to_the_first() -> None:
    attention = torch.tensor([[[[0.2, 0.3, 0.3 + 1e-9, 0.2], [0.1, 0.2, 0.3, 0.4]]]], dtype=torch.float64)
    assert strongest_keys(attention).tolist() == [[[1, 3]]]
    with pytest.raises(NotFinite):
        strongest_keys(torch.full((1, 1, 1, 1), float("nan")))


def test_a_sentence_over_the_limit_is_cut_and_counted(subject_of: SubjectOf) -> None:
    text = "the film " * MAX_TOKENS
    rows = [("the", 2, "amod"), ("film", 0, "root")]
    words: list[tuple[str, int, str]] = [
        (form, head and head + 2 * i, relation) for i in range(MAX_TOKENS) for form, head, relation in rows
    ]
    found = wt.heads.build(subject_of("bert"), [sentence(text, *words), SHORT]).statistics
    assert found is not None
    assert (found.n_sentences, found.n_cut, found.n_tokens) == (2, 1, MAX_TOKENS + 5)
    read = MAX_TOKENS - 2
    assert found.n_unaligned == 2 * MAX_TOKENS - read
    amod = next(relation for relation in found.relations if relation.name == "amod")
    assert (amod.n_found, amod.n_measured) == (MAX_TOKENS, read // 2)


def test_sentences_without_tokens_are_left_out_and_counted(subject_of: SubjectOf) -> None:
    nothing = Sentence("\u200b", (Parsed((0, 1), None, "root"),))
    found = wt.heads.build(subject_of("bert"), [SLOW, nothing, SHORT]).statistics
    assert found is not None
    assert (found.n_sentences, found.n_empty) == (2, 1)


def test_a_path_is_read_as_conllu_and_the_mask_written(subject_of: SubjectOf, tmp_path: Path) -> None:
    subject, out = subject_of("bert"), tmp_path / "heads.json"
    block = ["1 It 2 nsubj", "2 won 0 root SpaceAfter=No", "3 . 2 punct"]
    (tmp_path / "c.conllu").write_text(conllu(block), encoding="utf-8")
    mask = wt.heads.build(subject, tmp_path / "c.conllu", out=out)
    assert mask.statistics is not None
    assert mask.statistics.corpus == "c.conllu"
    assert wt.heads.load(out, subject) == mask
    assert subject.with_heads(out).heads == subject.with_heads(mask).heads == mask
    assert subject.heads is None


def test_a_mask_belongs_to_its_model(subject_of: SubjectOf, tmp_path: Path) -> None:
    mask = wt.heads.build(subject_of("bert"), CORPUS)
    other = wt.Subject(model_of("bert", labels=2), wordpiece())
    for changed in (mask, wt.heads.random_mask(mask), wt.heads.corrupt_mask(mask, 0.5)):
        assert subject_of("bert").with_heads(changed).heads == changed
        with pytest.raises(LibraryMismatch, match="this head mask was built for tiny bert"):
            other.with_heads(changed)
    with pytest.raises(LibraryMismatch):
        wt.heads.load(wt.heads.save(mask, tmp_path / "h.json"), other)
    with pytest.raises(BadSetting, match="a HeadMask"):
        other.with_heads(7)  # type: ignore[arg-type]


def test_a_model_without_a_head_that_qualifies_has_an_empty_mask(subject_of: SubjectOf) -> None:
    mask = wt.heads.build(subject_of("bert"), CORPUS)
    assert mask.n_selected == 0
    assert not any(flag for row in mask.selected for flag in row)
    assert wt.heads.random_mask(mask).selected == mask.selected
    assert subject_of("bert").with_heads(mask).heads == mask


@pytest.mark.parametrize(
    ("sentences", "settings", "error", "message"),
    [
        ([], {}, BadInput, "there is no sentence"),
        (["It won."], {}, BadInput, "is not a parsed sentence"),
        (7, {}, BadInput, "sentences is an int"),
        ("nowhere.conllu", {}, BadInput, "there is no file nowhere.conllu"),
        (CORPUS, {"syntactic": -1}, BadSetting, "syntactic=-1 is not allowed; it must be at least 0"),
        (CORPUS, {"positional": "x"}, BadSetting, "positional='x' is not allowed"),
        (CORPUS, {"relations": "nsubj"}, BadSetting, "relations='nsubj' is not allowed"),
        (CORPUS, {"min_count": 0}, BadSetting, "min_count=0 is not allowed; it must be at least 1"),
        (CORPUS, {"position": 1}, UnknownName, "did you mean 'positional'"),
        (CORPUS, {"out": "no/heads.json"}, UsageError, "there is no folder no"),
    ],
)
def test_what_cannot_be_is_refused(
    sentences: Any, settings: dict[str, Any], error: type[Exception], message: str, subject_of: SubjectOf
) -> None:
    with pytest.raises(error, match=message):
        wt.heads.build(subject_of("bert"), sentences, **settings)


def test_relations_can_be_chosen(subject_of: SubjectOf) -> None:
    found = wt.heads.build(subject_of("bert"), CORPUS, relations=["det", "obj"]).statistics
    assert found is not None
    assert [(relation.name, relation.n_found) for relation in found.relations] == [("det", 3), ("obj", 1)]


def test_the_subject_comes_first() -> None:
    wrong: Sequence[Any] = CORPUS
    with pytest.raises(BadSetting, match="subject='list' is not allowed"):
        wt.heads.build(wrong, wrong)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="subject='int'"):
        wt.heads.load("x.json", 7)  # type: ignore[arg-type]
