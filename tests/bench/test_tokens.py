"""Benchmarks of models that label tokens: one entity per text, gold tags, and texts without entities."""

from pathlib import Path

import pytest
import torch
from tests.tiny import CORPUS, TAGS, token_subject

import whichtoken as wt
from whichtoken.bench._protocol import Protocol
from whichtoken.bench._run import gather, prepare
from whichtoken.bench.measure import explain_items
from whichtoken.data.tagged import read_tagged, word_spans
from whichtoken.errors import BadInput
from whichtoken.models import LogitCache
from whichtoken.tasks import BenchInput

SHIFT = 1.0
ROWS = [
    {"tokens": ["The", "actors", "were", "won", ",", "it", "is", "slow"], "ner_tags": [0, 1, 2, 0, 0, 3, 0, 0]},
    {"tokens": ["A", "man", "is", "touching", "the", "music", "."], "ner_tags": [3, 0, 0, 0, 0, 0, 0]},
    {"tokens": ["it", "is", "slow"], "ner_tags": [0, 0, 0]},
]


def test_texts_without_an_entity_are_left_out_and_counted() -> None:
    subject = token_subject()
    texts = [text for text in CORPUS if wt.explain(subject, [text], ["random"], long="truncate")]
    with torch.no_grad():  # most words are now outside
        subject.model.classifier.bias[0] += SHIFT
    named = [bool(wt.explain(subject, [text], ["random"], long="truncate")) for text in texts]
    assert any(named)
    assert not all(named)
    protocol = wt.bench.protocol(metrics=("aopc",), min_tokens=1)
    table = wt.bench.run(subject, texts, ["attcat"], protocol=protocol)
    facts = dict(table.facts)
    assert facts["texts"].startswith(f"{sum(named)} of {len(texts)}, of at least 1 tokens")
    assert facts["texts"].endswith(f"; {named.count(False)} without anything to explain are left out")
    assert facts["label of the first entity"] == "the predicted one"


def test_the_first_entity_is_measured_or_the_gold_one() -> None:
    subject = token_subject()
    for target, labels in (("predicted", None), ("gold", [[1, 2], [3]])):
        bench = prepare(subject, ["random"], Protocol(target=target, metrics=("aopc",), min_tokens=1))  # type: ignore[arg-type]
        sample = gather(bench, bench.task.examples(ROWS, None, None))
        items = sorted(sample.items, key=lambda item: item.row)
        results = explain_items(bench, items, LogitCache(bench.task.subject))
        records = [result["random"] for result in results]
        if labels is None:
            inputs = [ROWS[item.row]["tokens"] for item in items]
            first = [wt.explain(subject, [words], ["random"], long="truncate")[0]["random"] for words in inputs]
            assert [(r.label, r.target) for r in records] == [(r.label, r.target) for r in first]
        else:
            assert [list(record.target.labels) for record in records] == labels  # type: ignore[union-attr]
            assert [record.label for record in records] == ["actors were: LOC", "A: B-PER"]
            assert sample.n_without_truth == 1


def test_every_word_of_a_part_of_speech_tagger_can_be_drawn() -> None:
    subject = token_subject(labels=("ADJ", "DET", "NOUN"))
    words = [f"{word} it is slow but the plot was rare and won" for word in ("the", "a", "man", "film", "music")]
    bench = prepare(subject, ["random"], Protocol(metrics=("aopc",), min_tokens=1))
    sample = gather(bench, [BenchInput((text,)) for text in words])
    results = explain_items(bench, sample.items, LogitCache(bench.task.subject))
    again = explain_items(bench, sample.items, LogitCache(bench.task.subject))
    targets = [result["random"].target for result in results]
    assert targets == [result["random"].target for result in again]
    assert len({target.tokens for target in targets}) > 1  # type: ignore[union-attr]


def test_gold_labels_are_needed_only_where_they_are_explained(tmp_path: Path) -> None:
    subject = token_subject()
    gold = Protocol(target="gold", metrics=("aopc",), min_tokens=1)
    for rows, message in (
        ([ROWS[0]["tokens"]], "row 0: this protocol explains gold labels, but there are none"),
        ([{**ROWS[0], "ner_tags": ["B-LOK"] * 8}], "row 0: unknown label 'B-LOK'"),
        ([{**ROWS[0], "ner_tags": [0]}], "row 0: 8 words and 1 tags in ner_tags; give one tag for each word"),
        ([ROWS[0], {"tokens": "It is"}], "row 1 is .*expected a list of words, as in the rows before it"),
    ):
        with pytest.raises(BadInput.__bases__[0], match=message):
            wt.bench.run(subject, rows, ["random"], protocol=gold)


def test_rows_of_words_and_texts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"words": ["It", "is"], "upos": ["PRON", "AUX"]}\n', encoding="utf-8")
    (row,) = read_tagged(path)
    assert (row.words, row.tags, row.where) == (("It", "is"), ("PRON", "AUX"), f"{path}, row 1")  # type: ignore[union-attr]
    assert [example.texts for example in read_tagged(iter(CORPUS))] == [(text,) for text in CORPUS]  # type: ignore[union-attr]
    assert word_spans(["It", "is", "slow"]) == [(0, 2), (3, 5), (6, 10)]
    assert list(read_tagged([])) == []
    assert len(TAGS) == 5
