"""Probe.keep: the probability of what is left, each distinct sequence asked once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import KINDS, MAIN_KINDS, class_goal, model_of

import whichtoken as wt
from whichtoken.core.perturb import Delete, Replace
from whichtoken.core.rows import Row
from whichtoken.errors import BadSetting, NotFinite, UnsupportedModel
from whichtoken.models import ModelProbe, window_row
from whichtoken.tasks import task_for

SubjectOf = Callable[..., wt.Subject]
TEXTS = ["It is very slow.", "The actors were wonderful, but naïve 😀."]


def probe_of(subject: wt.Subject, texts: list[Any], **changes: Any) -> ModelProbe:
    documents = subject.encode([(text,) if isinstance(text, str) else text for text in texts])
    batch = subject.batch([window_row(document, document.windows[0]) for document in documents])
    return ModelProbe(subject, batch, class_goal(subject, torch.arange(len(texts)) % 3), **changes)


def random_patterns(probe: ModelProbe, n: int) -> torch.Tensor:
    shape = (probe.batch.ids.shape[0], n, probe.batch.ids.shape[1])
    return torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.5


def stock_probability(kind: str, ids: list[int], label: int) -> float:
    with torch.no_grad():
        logits = model_of(kind)(torch.tensor([ids])).logits
    return float(logits.softmax(-1)[0, label])


@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_what_is_left_is_what_the_stock_model_says_of_it(kind: str, subject_of: SubjectOf) -> None:
    probe = probe_of(subject_of(kind), TEXTS)
    patterns = random_patterns(probe, 4)
    found = probe.keep(patterns)
    for row in range(2):
        for n in range(4):
            positions = (probe.batch.mask[row] & (patterns[row, n] | probe.batch.special[row])).nonzero()[:, 0]
            ids = probe.batch.ids[row][positions].tolist()
            assert float(found[row, n]) == pytest.approx(stock_probability(kind, ids, row), rel=1e-6)


@pytest.mark.parametrize(("name", "filler"), [("mask", "mask_token_id"), ("pad", "pad_token_id")])
def test_replacing_keeps_the_length(name: str, filler: str, subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    probe = probe_of(subject, TEXTS, perturbation=task_for(subject).removal(name))
    patterns = random_patterns(probe, 3)
    found = probe.keep(patterns)
    token = getattr(KINDS["bert"].tokenizer(), filler)
    for row in range(2):
        real = probe.batch.mask[row]
        for n in range(3):
            kept = (patterns[row, n] | probe.batch.special[row])[real]
            ids = torch.where(kept, probe.batch.ids[row][real], token).tolist()
            assert len(ids) == int(real.sum())
            assert float(found[row, n]) == pytest.approx(stock_probability("bert", ids, row), rel=1e-9)


def test_token_types_stay_with_their_tokens(subject_of: SubjectOf) -> None:
    probe = probe_of(subject_of("bert"), [("A man sleeps.", "Nobody is awake.")])
    first = probe.batch.types[0] == 0
    found = probe.keep(first[None, None] | False)
    ids = probe.batch.ids[0][first | probe.batch.special[0]]
    types = probe.batch.types[0][first | probe.batch.special[0]]
    with torch.no_grad():
        logits = model_of("bert")(ids[None], token_type_ids=types[None]).logits
    assert types.tolist().count(1) == 1
    assert float(found) == pytest.approx(float(logits.softmax(-1)[0, 0]), rel=1e-9)


def test_each_distinct_sequence_is_evaluated_once(subject_of: SubjectOf) -> None:
    subject = subject_of("bert").with_twin()
    probe = probe_of(subject, ["slow slow slow slow"])
    n = probe.batch.ids.shape[1]
    patterns = torch.ones(1, n + 3, n, dtype=torch.bool)
    for i in range(n):
        patterns[0, i, i] = False  # without one word: the same sequence whichever it is
    rows: list[int] = []
    with subject.model.register_forward_hook(lambda module, args, output: rows.append(len(output.logits))):
        found = probe.keep(patterns)
        assert sum(rows) == 2
        assert len(set(found[0].tolist())) == 2
        assert probe.distinct(patterns).tolist() == [2]
        assert probe.keep(patterns[:, ::2]).equal(found[:, ::2])  # remembered
        assert sum(rows) == 2
        replace(probe, picks=class_goal(subject, torch.tensor([1]))).keep(patterns)  # another question
        assert sum(rows) == 4


def test_no_gradients_and_fused_attention(subject_of: SubjectOf) -> None:
    subject = wt.Subject(model_of("bert", "eager"), KINDS["bert"].tokenizer())
    twin = subject.with_twin()
    probe = probe_of(twin, TEXTS)
    seen: list[tuple[bool, str]] = []

    def watch(module: Any, args: Any, output: Any) -> None:
        seen.append((torch.is_grad_enabled(), module.config._attn_implementation))

    with twin.model.register_forward_hook(watch):
        found = probe.keep(random_patterns(probe, 2))
    assert set(seen) == {(False, "sdpa")}
    assert not found.requires_grad
    assert subject.model.config._attn_implementation == "eager"


def test_batches_are_sorted_by_length_and_keep_the_budget(
    subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of("bert").with_twin()
    probe = probe_of(subject, TEXTS)
    patterns = random_patterns(probe, 12)
    expected = probe.keep(patterns)
    monkeypatch.setattr("whichtoken.models.subject.TOKENS_PER_BATCH", 30)
    shapes: list[tuple[int, ...]] = []
    hook = subject.model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple((args[0] if args else kwargs["input_ids"]).shape)),
        with_kwargs=True,
    )
    with hook:
        found = replace(probe).keep(patterns)  # a new one, which remembers nothing
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    assert shapes
    assert all(rows * longest <= 30 for rows, longest in shapes)
    assert [longest for _, longest in shapes] == sorted(longest for _, longest in shapes)


def test_special_tokens_and_nothing_else_may_be_left(subject_of: SubjectOf) -> None:
    for kind in ("bert", "gpt2"):
        probe = probe_of(subject_of(kind), TEXTS)
        found = probe.keep(torch.zeros(2, 1, probe.batch.ids.shape[1], dtype=torch.bool))
        tokenizer = KINDS[kind].tokenizer()
        ids = [tokenizer.cls_token_id, tokenizer.sep_token_id] if kind == "bert" else [tokenizer.eos_token_id]
        assert float(found[0, 0]) == pytest.approx(stock_probability(kind, ids, 0), rel=1e-9)


def test_no_patterns_give_no_probabilities(subject_of: SubjectOf) -> None:
    probe = probe_of(subject_of("bert"), TEXTS)
    assert probe.keep(torch.zeros(2, 0, probe.batch.ids.shape[1], dtype=torch.bool)).shape == (2, 0)


def test_a_contrast_has_the_probability_of_one_of_the_two(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    probe = probe_of(subject, TEXTS)
    goal = class_goal(subject, torch.tensor([0, 0]), torch.tensor([1, 2]))
    everything = torch.ones(2, 1, probe.batch.ids.shape[1], dtype=torch.bool)
    found = replace(probe, picks=goal).keep(everything)[:, 0]
    p = [
        replace(probe, picks=class_goal(subject, torch.full((2,), label))).keep(everything)[:, 0] for label in range(3)
    ]
    assert float(found[0]) == pytest.approx(float(p[0][0] / (p[0][0] + p[1][0])), rel=1e-9)
    assert float(found[1]) == pytest.approx(float(p[0][1] / (p[0][1] + p[2][1])), rel=1e-9)


def test_a_tokenizer_without_the_wanted_token_is_named(subject_of: SubjectOf) -> None:
    with pytest.raises(UnsupportedModel, match="tiny gpt2 has no mask token to replace words with"):
        task_for(subject_of("gpt2")).removal("mask")


def test_a_blank_text_has_every_word_replaced_and_keeps_the_rest(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    probe = probe_of(subject, TEXTS)
    filled = torch.where(probe.batch.special | ~probe.batch.mask, probe.batch.ids, subject.tokenizer.mask_token_id)
    with torch.no_grad():
        expected = subject.model.bert.embeddings(filled, token_type_ids=probe.batch.types)
    torch.testing.assert_close(probe.blank("mask")[probe.batch.mask], expected[probe.batch.mask])
    with pytest.raises(BadSetting, match=r"baseline='mask' is not allowed; .* 'zero': there is no mask token"):
        probe_of(subject_of("gpt2"), TEXTS).blank("mask")


def test_nan_is_not_passed_on() -> None:
    model = model_of("bert")
    probe = probe_of(wt.Subject(model, KINDS["bert"].tokenizer()), TEXTS)
    with torch.no_grad():
        model.classifier.bias.fill_(torch.nan)
    with pytest.raises(NotFinite, match="NaN or infinite logits"):
        probe.keep(random_patterns(probe, 1))


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=12))
def test_perturbations_only_touch_what_is_not_kept(rows: list[tuple[int, bool]]) -> None:
    places = tuple(range(len(rows)))  # as token types, so that they tell where a token comes from
    special = tuple(i < 50 for i, _ in rows)
    row, keep = Row(tuple(i for i, _ in rows), places, special), np.array([k for _, k in rows])
    left = Delete()(row, keep)
    assert list(left.ids) == [i for i, k in rows if k]
    assert [i < 50 for i in left.ids] == list(left.special)
    assert [row.ids[place] for place in left.types] == list(left.ids)
    for filler in (100, 101):
        replaced = Replace("mask", filler)(row, keep)
        assert list(replaced.ids) == [i if k else filler for i, k in rows]
        assert replaced.types == places
