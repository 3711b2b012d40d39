"""Texts to model inputs: bad texts, long texts, and batches."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import KINDS, MAX_TOKENS, class_goal, model_of
from tokenizers import Tokenizer, models

import whichtoken as wt
from whichtoken.errors import BadInput, BadSetting
from whichtoken.models import Document, ModelProbe, batches, capture, window_row
from whichtoken.models.encoding import Fit, tokenize

SubjectOf = Callable[..., wt.Subject]
LONG = "The actors were wonderful, but the plot was dull and the music forgettable. " * 6


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["fine", ""], "input 1 has an empty text"),
        (["  \n\t "], "input 0 has an empty text"),
        ([("fine", " ")], "input 0 has an empty text"),
        (["\u200d\u200b"], "input 0: the tokenizer finds no token"),
        (["fine", 3], "input 1 is 3; expected a text, or a pair of texts"),
        ([None], "expected a text"),
        ([b"bytes"], "expected a text"),
        ([("a", "b", "c")], "expected a text, or a pair of texts"),
        ([("a", 1)], "expected a text, or a pair of texts"),
        (["\ud800"], "input 0 is not valid Unicode"),
        (None, "give exactly one of inputs, images, prompt, or question with context"),
        ({"a": "b"}, "no column has a usual name for texts"),
        ({"a": 7}, "expected a text, or a list of texts"),
    ],
)
def test_bad_inputs_are_named(inputs: Any, message: str, subject_of: SubjectOf) -> None:
    with pytest.raises(BadInput, match=message):
        wt.explain(subject_of("bert"), inputs)


def test_no_inputs_give_no_results(subject_of: SubjectOf) -> None:
    assert wt.explain(subject_of("bert"), []) == []


@pytest.mark.parametrize("kind", ["bert", "roberta", "llama"])
@pytest.mark.parametrize("lengths", [(1, 60), (60, 1), (60, 60), (30, 60), (60, 30), (18, 19), (19, 18)])
def test_texts_are_cut_where_the_tokenizer_would_cut_them(
    kind: str, lengths: tuple[int, int], subject_of: SubjectOf
) -> None:
    subject = subject_of(kind)
    pair = ("slow " * lengths[0]).strip(), ("film " * lengths[1]).strip()
    for texts in (pair, pair[:1]):
        document = subject.encode([texts])[0]
        expected = KINDS[kind].tokenizer()(*texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
        assert [document.ids[i] for i in document.windows[0]] == expected
        assert document.n_cut == len(document.ids) - len(expected)


def test_a_tokenizer_that_cuts_at_the_start_is_followed(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    subject.tokenizer.truncation_side = "left"
    try:
        result = wt.explain(subject, [LONG], methods="attcat")[0]["attcat"]
    finally:
        subject.tokenizer.truncation_side = "right"
    assert result.words()[-1].span == (len(LONG.strip()) - 1, len(LONG.strip()))


def test_truncation_says_how_much_was_cut(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    whole = len(subject.encode([(LONG,)])[0].ids)
    result = wt.explain(subject, [LONG, "short"], methods="attcat")
    assert result[0]["attcat"].n_cut == whole - MAX_TOKENS
    assert result[1]["attcat"].n_cut == 0
    assert result[0]["attcat"].words()[0].text == "The"


def test_long_texts_can_be_refused(subject_of: SubjectOf) -> None:
    with pytest.raises(BadInput, match=rf"input 1 has \d+ tokens, the model takes {MAX_TOKENS}; .*truncate"):
        wt.explain(subject_of("bert"), ["short", LONG], long="error")
    with pytest.raises(BadSetting, match="one of truncate, window, error"):
        wt.explain(subject_of("bert"), ["short"], long="cut")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_windows_cover_the_text_and_scores_are_their_mean(kind: str, subject_of: SubjectOf) -> None:
    subject = subject_of(kind)
    result = wt.explain(subject, [LONG, "short"], ["attcat", "gae"], target=1, long="window")[0]["attcat"]
    document = subject.encode([(LONG,)], "window")[0]
    assert result.n_windows == len(document.windows) > 2
    assert result.n_cut == 0
    assert len(result.tokens) == len(document.ids)
    assert {i for window in document.windows for i in window} == set(range(len(document.ids)))
    assert all(len(window) == MAX_TOKENS for window in document.windows)
    sums, counts = [0.0] * len(document.ids), [0] * len(document.ids)
    chosen = [i for i in range(len(document.ids)) if document.sequences[i] is not None]
    for window, part in zip(document.windows, windows_alone(subject, document), strict=True):
        for position, score in zip(window, part, strict=True):
            sums[position] += score
            counts[position] += 1
    assert [result.scores[i] for i in chosen] == pytest.approx([sums[i] / counts[i] for i in chosen], rel=1e-9)
    assert all(result.scores[i] == 0 for i in set(range(len(document.ids))) - set(chosen))


def windows_alone(subject: wt.Subject, document: Document) -> list[list[float]]:
    """Each window through the model by hand, one at a time."""
    method, found = wt.method("attcat"), []
    goal = class_goal(subject, torch.tensor([1]))
    for window in document.windows:
        batch = subject.batch([window_row(document, window)])
        trace = capture(subject, batch, lambda logits: goal, method.needs)
        found.append(method(trace, ModelProbe(subject, batch, goal)).tokens[0].tolist())
    return found


def test_a_text_in_windows_has_one_prediction() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    document = subject.encode([(LONG,)], "window")[0]
    batch = subject.batch([window_row(document, window) for window in document.windows])
    with torch.no_grad():
        subject.model.classifier.bias -= subject.logits(batch).mean(0)  # so that not all windows predict the same
    logits = subject.logits(batch)
    assert len(set(logits.argmax(-1).tolist())) > 1
    mean = logits.softmax(-1).mean(0)
    result = wt.explain(subject, ["short", LONG], ["attcat@repo"], long="window")[1]["attcat@repo"]
    assert result.label == subject.labels[int(mean.argmax())]
    assert result.probability == pytest.approx(float(mean.max()), rel=1e-9)


def test_windows_of_a_pair_run_over_the_longer_text(subject_of: SubjectOf) -> None:
    result = wt.explain(subject_of("bert"), [("It is slow.", LONG)], long="window", methods="attcat")[0]["attcat"]
    assert result.n_windows > 1
    assert [word.text for word in result.words() if word.sequence == 0] == ["It", "is", "slow", "."]
    with pytest.raises(BadInput, match="leaves no room; use long='truncate'"):
        wt.explain(subject_of("bert"), [(LONG, LONG)], long="window", methods="attcat")


def test_a_text_of_a_million_characters(subject_of: SubjectOf) -> None:
    text = "wonderful " * 100_000
    result = wt.explain(subject_of("bert"), [text], ["attcat", "rollout"])[0]["attcat"]
    assert result.texts == (text,)
    assert result.n_cut > 99_000
    assert len(subject_of("bert").encode([(text,)], "window")[0].windows) > 10_000
    short = wt.explain(subject_of("bert"), [text[:10_000]], ["gradient-x-input"], long="window")[0]["gradient-x-input"]
    assert len(short.words()) == 1_000


def test_special_tokens_that_fill_the_limit_are_named() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), max_tokens=2)
    with pytest.raises(BadInput, match="its 2 special tokens leave no room for words"):
        wt.explain(subject, ["slow"])


def test_subjects_that_share_a_tokenizer_do_not_disturb_each_other() -> None:
    """Each call tokenizes with a copy, so the tokenizer's own truncation neither matters nor changes."""
    tokenizer = KINDS["bert"].tokenizer()
    subjects = [wt.Subject(model_of("bert"), tokenizer) for _ in range(4)]
    tokenizer("slow", truncation=True, max_length=5)
    before = tokenizer.backend_tokenizer.truncation
    try:
        with ThreadPoolExecutor(4) as pool:
            lengths = pool.map(lambda i: len(subjects[i % 4].encode([(LONG,)])[0].ids), range(400))
            assert len(set(lengths)) == 1
        assert tokenizer.backend_tokenizer.truncation == before
    finally:
        tokenizer.backend_tokenizer.no_truncation()


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("shared", [True, False])
def test_a_tokenizer_is_copied_with_added_tokens(split: bool, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they get other ids when they are added to a tokenizer that shares the vocabulary."""
    tokenizer = copy.deepcopy(KINDS["bert"].tokenizer())
    tokenizer.add_tokens(["<new>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<rare>"]})
    tokenizer.split_special_tokens = split
    expected = tokenizer("slow <new> film <rare> [SEP]")["input_ids"]
    if not shared:
        monkeypatch.setattr(
            "whichtoken.models.encoding.Tokenizer", lambda model: Tokenizer(models.WordLevel({"x": 0}, "x"))
        )
    (document,) = tokenize(tokenizer, [("slow <new> film <rare> [SEP]",)], Fit(MAX_TOKENS, "error"))
    assert list(document.ids) == expected
    assert tokenizer.convert_tokens_to_ids("<new>") in expected


def test_special_tokens_typed_by_the_user_are_content(subject_of: SubjectOf) -> None:
    result = wt.explain(subject_of("bert"), ["slow [SEP] film"], methods="attcat")[0]["attcat"]
    assert [word.text for word in result.words()] == ["slow", "[SEP]", "film"]


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_batches_hold_everything_once_within_the_budget(lengths: list[int], budget: int) -> None:
    groups = list(batches(lengths, lambda rows, longest: rows * longest <= budget))
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= budget


def test_the_tokenizers_own_settings_are_restored(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    backend = subject.tokenizer.backend_tokenizer
    subject.tokenizer("slow", truncation=True, padding="max_length", max_length=8)
    before = backend.truncation, backend.padding
    assert None not in before
    try:
        assert wt.explain(subject, [LONG], methods="attcat")[0]["attcat"].n_cut > 0
        assert (backend.truncation, backend.padding) == before
    finally:
        backend.no_truncation()
        backend.no_padding()


def test_a_busy_group_takes_no_longer_rows() -> None:
    lengths = [10] * 30 + [11] * 5 + [12] * 2 + [90]
    groups = [[lengths[i] for i in group] for group in batches(lengths, lambda rows, longest: True)]
    assert groups == [[10] * 30 + [11] * 5, [12] * 2 + [90]]  # 300 tokens are enough; 11 is near enough; 24 are not
    assert list(batches([], lambda rows, longest: True)) == []
