"""Which token of an answer a foil is contrasted with."""

from collections import defaultdict
from functools import cache
from typing import Any

import pytest
import torch
from tests.tiny import language_subject

import whichtoken as wt
from whichtoken.errors import BadInput

PROMPT = "The film was slow, but the music was touching."


@cache
def subject(kind: str = "gpt2") -> wt.Subject:
    return language_subject(kind)


def contrast(answer: str, foil: str, kind: str = "gpt2") -> Any:
    return wt.explain(subject(kind), prompt=PROMPT, continuation=answer, foil=foil, methods="random")[0]["random"]


@pytest.fixture
def bigrams(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], float]:
    """Logits of a word after another, 0 if not set; spaces are tokens here, and the word before one decides."""
    table, names = defaultdict[tuple[str, str], float](float), subject().tokenizer.convert_ids_to_tokens
    vocabulary = names(range(len(subject().tokenizer)))

    def logits(self: wt.Subject, batch: Any, embeddings: Any = None) -> torch.Tensor:
        (ids,), (places,) = batch.ids.tolist(), batch.read.tolist()
        rows = []
        for place in places:
            if names(ids[place]) == "Ġ":
                last = names(ids[place - 1])
                rows.append([table[last, word] for word in vocabulary])
            else:
                rows.append([20.0 * (word == "Ġ") for word in vocabulary])
        return torch.tensor([rows], dtype=torch.float64)

    monkeypatch.setattr(wt.Subject, "logits", logits)
    return table


SENTENCE = " the film was slow"


def test_a_foil_replaces_the_word_that_leaves_the_answer_plausible(bigrams: dict[tuple[str, str], float]) -> None:
    for pair in (("the", "film"), ("film", "was"), ("music", "was"), ("was", "slow")):
        bigrams[pair] = 10
    bigrams["the", "music"] = 1
    bigrams["music", "film"] = -10
    # At the first word, the model is unsure: there the logits of the foil and of the answer are closest, and there the
    # foil is most probable, but then the rest would not follow.
    bigrams[".", "the"] = 1
    assert contrast(SENTENCE, "music").label == "film rather than music"
    bigrams["music", "film"] = 10
    assert contrast(SENTENCE, "music").label == "the rather than music"


def test_a_foil_that_begins_like_the_answer_is_contrasted_where_it_differs(
    bigrams: dict[tuple[str, str], float],
) -> None:
    bigrams["was", "music"] = 50
    assert contrast(SENTENCE, "music").label == "slow rather than music"
    assert contrast(SENTENCE, "the music").label == "film rather than music"


def test_whole_words_are_replaced_and_contrasted_at_the_token_that_differs(
    bigrams: dict[tuple[str, str], float],
) -> None:
    record = contrast(" it was 15, it is", "12")
    (place,) = record.target.tokens
    assert (record.tokens[place - 1 : place + 1], record.label) == (("1", "5"), "5 rather than 12")
    assert subject().tokenizer.convert_ids_to_tokens(list(record.target.rather_than)) == ["2"]
    assert contrast(" it was 15, it is", ".").label == ", rather than ."  # punctuation replaces punctuation


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("foil", ["actors", "music", "is"])
def test_the_choice_is_that_of_evaluating_every_replacement(
    kind: str, foil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, words, totals, evaluated = subject(kind), ["it", "was", "a", "film", "but", "slow"], {}, list[int]()
    for number in range(len(words)):
        text = " ".join([*words[:number], foil, *words[number + 1 :]])
        ids = own.tokenizer(f"{PROMPT} {text}", return_tensors="pt")["input_ids"]
        n_answer = len(own.tokenizer(f"{PROMPT} {text}")["input_ids"]) - len(own.tokenizer(PROMPT)["input_ids"])
        with torch.no_grad():
            logs = own.model(input_ids=ids).logits[0].log_softmax(-1)
        places = range(ids.shape[1] - n_answer, ids.shape[1])
        totals[words[number]] = sum(float(logs[i - 1, ids[0, i]]) for i in places)
    stock = wt.Subject.logits

    def count(self: wt.Subject, batch: Any) -> torch.Tensor:
        evaluated.append(len(batch.ids))
        return stock(self, batch)

    monkeypatch.setattr(wt.Subject, "logits", count)
    expected = max(totals, key=lambda word: totals[word])
    assert contrast(" " + " ".join(words), foil, kind).label == f"{expected} rather than {foil}"
    assert 2 <= sum(evaluated) <= 1 + len(words)


def test_a_foil_that_leaves_no_room_is_cut() -> None:
    answer = " it" + " was" * 30  # together with the prompt, up to the model's limit
    n_left = subject().limit - len(subject().tokenizer(PROMPT + answer)["input_ids"])
    full = answer + "." * n_left
    assert contrast(full, "touching").label.endswith("rather than touching")


def test_a_foil_that_the_answer_says_already_is_refused() -> None:
    with pytest.raises(BadInput, match="the foil 'slow' replaces no word of the answer; give another"):
        contrast(". slow", "slow")
