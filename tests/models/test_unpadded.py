"""Evaluations that skip padding: the logits of the plain model, for the models that allow it, and only for them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.tiny import WORDS, model_of, token_subject
from torch import Tensor, nn
from transformers import BertForSequenceClassification

import whichtoken as wt
from whichtoken.models import Batch, Subject, window_row
from whichtoken.models.encoding import even_batches, share_among_cores
from whichtoken.models.shortcuts import _lay_out, skip_padding

SubjectOf = Callable[..., wt.Subject]
TEXTS = [" ".join(WORDS[number : 2 + 3 * number]) for number in range(4)]
LONG = " ".join((WORDS * 4)[:20])
FULL = " ".join((WORDS * 4)[:30])  # with two special tokens, a row that attention reads as it is
HALF = " ".join((WORDS * 4)[:14])  # two of them fill a chunk
WIDE = " ".join((WORDS * 4)[:38])  # longer than the shortest chunk


def batch_of(subject: Subject, texts: list[str]) -> Batch:
    documents = subject.encode([(text,) for text in texts])
    return subject.batch([window_row(document, document.windows[0]) for document in documents])


def plain_logits(subject: Subject, batch: Batch) -> Tensor:
    with torch.no_grad():
        logits: Tensor = subject.model(input_ids=batch.ids, attention_mask=batch.mask.long()).logits
    return logits


@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra", "roberta", "xlm-roberta"])
@pytest.mark.parametrize(
    "texts", [TEXTS, TEXTS[3:] * 2, [LONG, TEXTS[1]], [FULL, FULL], [FULL], [HALF] * 4, [WIDE, LONG, *TEXTS]]
)
def test_logits_are_those_of_the_plain_model(subject_of: SubjectOf, kind: str, texts: list[str]) -> None:
    subject = subject_of(kind).with_twin()
    batch = batch_of(subject, texts)
    assert subject.skips_padding
    torch.testing.assert_close(subject.logits(batch), plain_logits(subject_of(kind), batch), rtol=1e-10, atol=1e-12)


def test_the_last_block_computes_the_first_token_only(subject_of: SubjectOf) -> None:
    names = ("attention.self.query", "attention.self.key", "attention.output.dense", "intermediate")
    subject, seen = subject_of("bert").with_twin(), {name: list[torch.Size]() for name in names}
    batch = batch_of(subject, TEXTS)
    assert subject.skips_padding

    def watch(shapes: list[torch.Size], module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        shapes.append(output.shape[:2])

    for block in subject.blocks:
        for name in names:
            block.get_submodule(name).register_forward_hook(partial(watch, seen[name]))
    subject.logits(batch)
    n_tokens, n_rows = int(batch.mask.sum()), len(TEXTS)
    assert n_tokens < batch.mask.numel()
    found = {name: [shape[1] for shape in shapes] for name, shapes in seen.items()}
    assert found == {name: [n_tokens, n_tokens, n_tokens if "key" in name else n_rows] for name in names}


@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra", "roberta"])
@pytest.mark.parametrize("texts", [TEXTS, [WIDE, LONG, *TEXTS], [LONG, LONG], [FULL]])
def test_gradients_are_those_of_a_pass_with_padding(
    subject_of: SubjectOf, kind: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, skipped = subject_of(kind), list[bool]()

    def watch(of: Subject, mask: Tensor) -> Any:
        skipped.append(torch.is_grad_enabled())
        return skip_padding(of, mask)

    monkeypatch.setattr("whichtoken.models.shortcuts.skip_padding", watch)
    methods = [wt.method("gradient-x-input"), wt.method("integrated-gradients", steps=4)]
    found = wt.explain(subject, texts, methods)
    assert skipped
    assert all(skipped)
    n_passes = len(skipped)
    with subject.model.register_forward_hook(lambda *_: None):  # a model with hooks gets no shortcut
        expected = wt.explain(subject, texts, methods)
    assert len(skipped) == n_passes
    for mine, reference in zip(found, expected, strict=True):
        for label in mine:
            assert mine[label].scores == pytest.approx(reference[label].scores, rel=1e-9, abs=1e-12)


def test_rows_are_put_into_as_few_chunks_as_fit() -> None:
    """Each chunk has 32 tokens: whole rows, in their order."""
    lengths = [20, 12, 1, 30, 2]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    everywhere, of_first = _lay_out(mask, torch.float64)
    assert everywhere.n_chunks == 3
    assert _lay_out(mask[:1, :20], torch.float64)[0].keys is None  # with gradients, rows of one length stay as they are
    with torch.no_grad():
        assert _lay_out(mask[:1, :20], torch.float64)[0].keys is not None
    assert everywhere.read is not None
    assert everywhere.read.tolist() == [*range(33), *range(33, 63), 64, 65]
    assert of_first.queries is not None
    assert of_first.queries.view(3, 2).tolist() == [[0, 20], [32, 33], [63, 63]]
    assert of_first.read is not None
    assert of_first.read.tolist() == [0, 1, 2, 3, 4]


def test_heads_that_read_every_token_get_every_token() -> None:
    subject = token_subject("bert").with_twin()
    batch = batch_of(subject, TEXTS)
    assert subject.skips_padding
    expected = plain_logits(subject, batch)[batch.mask]
    torch.testing.assert_close(subject.logits(batch)[batch.mask], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["albert", "deberta-v2", "gpt2", "llama", "modernbert", "mpnet"])
def test_other_models_keep_their_padding(subject_of: SubjectOf, kind: str) -> None:
    subject = subject_of(kind).with_twin()
    batch = batch_of(subject, TEXTS)
    assert not subject.skips_padding
    torch.testing.assert_close(subject.logits(batch), plain_logits(subject_of(kind), batch), rtol=1e-10, atol=1e-12)


def test_tokens_that_attend_to_earlier_ones_only_keep_their_padding(subject_of: SubjectOf) -> None:
    subject = wt.Subject(model_of("bert", is_decoder=True), subject_of("bert").tokenizer).with_twin()
    batch = batch_of(subject, TEXTS)
    assert not subject.skips_padding
    torch.testing.assert_close(subject.logits(batch), plain_logits(subject, batch), rtol=1e-10, atol=1e-12)


class MeanForSequenceClassification(BertForSequenceClassification):  # type: ignore[misc]
    """A head of the user, which reads all tokens."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **rest: Any) -> Any:
        output = super().forward(input_ids, attention_mask, output_hidden_states=True, return_dict=True)
        real = attention_mask[:, :, None]
        output.logits = self.classifier((output.hidden_states[-1] * real).sum(1) / real.sum(1))
        return output


def test_a_class_of_the_user_keeps_its_padding(subject_of: SubjectOf) -> None:
    model = MeanForSequenceClassification(model_of("bert").config).double().eval()
    subject = wt.Subject(model, subject_of("bert").tokenizer).with_twin()
    batch = batch_of(subject, TEXTS)
    assert not subject.skips_padding
    torch.testing.assert_close(subject.logits(batch), plain_logits(subject, batch), rtol=1e-10, atol=1e-12)


def test_hooks_of_the_user_see_rows(subject_of: SubjectOf) -> None:
    subject, shapes = subject_of("bert"), list[torch.Size]()

    def look(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        shapes.append(output.shape[:2])

    batch = batch_of(subject, TEXTS)
    with subject.blocks[-1].register_forward_hook(look):
        subject.logits(batch)
    assert shapes == [batch.ids.shape]


def test_batches_have_about_the_same_number_of_tokens() -> None:
    lengths = [10, 30, 20, 10, 30, 20, 10, 30, 20, 20]
    groups = list(even_batches(lengths, 100, lambda rows, longest: True))
    assert sorted(index for group in groups for index in group) == list(range(10))
    assert [sum(lengths[i] for i in group) for group in groups] == [110, 90]
    assert list(even_batches([], 100, lambda rows, longest: True)) == []


def test_attention_pads_rows_to_twice_their_tokens_at_most() -> None:
    lengths = [8] * 40 + [200]
    groups = [[lengths[i] for i in group] for group in even_batches(lengths, 10**6, lambda rows, longest: True)]
    assert groups == [[8] * 40, [200]]
    of_two = [len(group) for group in even_batches(lengths, 10**6, lambda rows, longest: rows <= 2)]
    assert of_two == [2] * 20 + [1]


def test_each_core_gets_as_many_groups() -> None:
    lengths = [9, 8, 7, 6, 5, 4, 3]
    groups = [[0, 1, 2], [3, 4], [5, 6]]
    assert sorted(map(sorted, share_among_cores(groups, lengths, 2))) == [[0], [1, 2], [3, 4], [5, 6]]
    assert list(share_among_cores(groups, lengths, 1)) == groups
    assert list(share_among_cores(groups, lengths, 3)) == groups
    assert sorted(share_among_cores([[0], [1], [2]], lengths, 2)) == [[0], [1], [2]]  # cannot be halved
    many = [[0, 1]] * 17
    assert list(share_among_cores(many, lengths, 2)) == many
    assert sorted(index for group in share_among_cores(groups, lengths, 8) for index in group) == list(range(7))


class _Reading(nn.Module):
    """A module of the user around one of the model's: what it reads should not depend on our shortcuts."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.shapes = inner, list[torch.Size]()

    def forward(self, x: Tensor) -> Any:
        self.shapes.append(x.shape[:2])
        return self.inner(x)


def test_modules_of_the_user_see_rows(subject_of: SubjectOf) -> None:
    subject = wt.Subject(model_of("bert"), subject_of("bert").tokenizer)
    batch, block = batch_of(subject, TEXTS), subject.blocks[-1]
    block.intermediate = reading = _Reading(block.get_submodule("intermediate")).eval()
    twin = subject.with_twin()
    assert not twin.skips_padding
    twin.logits(batch)
    assert twin.blocks[-1].get_submodule("intermediate").shapes == [batch.ids.shape]
    assert reading.shapes == []


def test_the_text_whose_logits_are_not_finite_is_named(subject_of: SubjectOf) -> None:
    """Texts in a chunk with it are not finite, either, if padding is skipped."""
    subject = wt.Subject(model_of("bert"), subject_of("bert").tokenizer)
    word = subject.encode([(WORDS[5],)])[0].ids[1]
    assert all(word not in document.ids for document in subject.encode([(text,) for text in TEXTS[:2]]))
    with torch.no_grad():
        subject.model.bert.embeddings.word_embeddings.weight[word] = torch.nan
    skipped, bad = list[str](), f"{TEXTS[1]} {WORDS[5]}"
    inputs = [TEXTS[0], bad, TEXTS[1]]
    found = list(
        wt.explain_each(subject, inputs, ["gradient-x-input"], on_bad_input=lambda text, error: skipped.append(text))
    )
    assert skipped == [bad]
    assert len(found) == 2
