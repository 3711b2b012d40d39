"""Decoders: which token is read, that padding cannot be noticed, and that no method is silent under a causal mask."""

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch
from tests.tiny import KINDS, class_goal, model_of, with_heads, with_references

import whichtoken as wt
from whichtoken.core.registry import find, method_names, parse
from whichtoken.core.trace import Method, Site, needs
from whichtoken.models import Batch, capture, window_row

PAD = {"gpt2": "<|endoftext|>", "llama": "<unk>", "qwen2": "<|endoftext|>"}  # of GPT-2 and Qwen2 also the end of a text
ASKING: list[str | Method] = [
    "attcat",
    "gae",
    "refined-noise",
    wt.method("tis", n_masks=8),
]  # one for each way to ask a model
TEXTS = ["It is very slow.", "The actors were wonderful, but slow.", "dull"]
WRITTEN = [label for name in method_names() for label in (name, *(f"{name}@{preset}" for preset in find(name).presets))]
LABELS = sorted({parse(label).label for label in WRITTEN})

each_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "qwen2" else kind for kind in sorted(PAD)]
)


@cache
def subject_for(kind: str, padded: bool = True) -> wt.Subject:
    """`padded`: whether the model and its tokenizer name a padding token. Nobody else has this tokenizer."""
    tokenizer = deepcopy(KINDS[kind].tokenizer())
    tokenizer.pad_token = PAD[kind] if padded else None
    model = model_of(kind) if padded else model_of(kind, pad_token_id=None)
    return wt.Subject(model, tokenizer, name=kind)


@cache
def equipped(kind: str) -> wt.Subject:
    """With what any method may ask for."""
    return with_heads(with_references(subject_for(kind)))


def batch_of(subject: wt.Subject, texts: list[str]) -> Batch:
    documents = subject.encode([(text,) for text in texts])
    return subject.batch([window_row(document, document.windows[0]) for document in documents])


def state_of(tokenizer: Any) -> tuple[object, ...]:
    backend = tokenizer.backend_tokenizer
    return tokenizer.padding_side, tokenizer.pad_token, len(tokenizer), backend.padding, backend.truncation


@each_kind
def test_the_side_on_which_a_tokenizer_pads_does_not_matter(kind: str) -> None:
    """Rows are always padded on the right, where positions need no thought and scores are the first of each row.

    All that a model sees is a batch of them. That their padding does not matter is in the contract suite.
    """
    subject, seen = subject_for(kind), {}
    for side in ("left", "right"):
        tokenizer = deepcopy(subject.tokenizer)
        tokenizer.padding_side = side
        tokenizer(TEXTS, padding=True)  # as when its owner had just used it: the backend now pads by itself
        before = state_of(tokenizer)
        assert tokenizer.backend_tokenizer.padding["direction"] == side
        other = wt.Subject(subject.model, tokenizer, kind)
        batch, results = batch_of(other, TEXTS), wt.explain(other, TEXTS, ASKING)
        assert state_of(tokenizer) == before
        assert torch.equal(batch.mask.cummin(-1).values, batch.mask)  # padding comes last
        seen[side] = [*(x.tolist() for x in (batch.ids, batch.mask, batch.types, batch.special)), results]
    assert seen["left"] == seen["right"]


@each_kind
def test_logits_are_those_of_a_batch_padded_on_the_left(kind: str) -> None:
    subject = subject_for(kind)
    tokenizer = deepcopy(subject.tokenizer)
    tokenizer.padding_side = "left"
    left = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert not left["attention_mask"][:, 0].all()
    # As for generation: else GPT-2 gives the first word another position, and rotary angles, float32, are rounded.
    positions = (left["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = subject.model(**left, position_ids=positions).logits
    found = subject.logits(batch_of(subject, TEXTS))
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


def with_padding_tokens(kind: str) -> dict[str, int]:
    """Texts that contain the token that stands for padding, and how many of their last tokens are not read."""
    pad = PAD[kind]
    return {
        "It is slow": 0,
        f"It is{pad} slow": 0,
        f"{pad}It is slow": 0,
        f"It is slow{pad}": 1,
        f"It is slow{pad}{pad}": 2,
    }


def read_position(subject: wt.Subject, texts: list[str]) -> list[int]:
    """Where the read-out is, checked: of the last block's output the logits depend on that position alone."""
    goal = class_goal(subject, torch.ones(len(texts), dtype=torch.long))
    trace = capture(subject, batch_of(subject, texts), lambda logits: goal, needs("", "hidden embeddings"))
    assert torch.equal(trace.readout.sum(-1), torch.ones(len(texts), dtype=torch.float64))
    assert torch.equal(trace.grad(Site.HIDDEN)[-1].abs().sum(-1) > 0, trace.readout == 1)
    behind = trace.readout.cumsum(-1) - trace.readout
    assert not (trace.grad(Site.EMBEDDINGS)[0] * behind[..., None]).any()
    for row, text in enumerate(texts):
        alone = subject.tokenizer([text], return_tensors="pt")
        with torch.no_grad():
            assert torch.allclose(trace.logits[row], subject.model(**alone).logits[0], rtol=1e-9, atol=1e-12)
    return trace.readout.argmax(-1).tolist()


@each_kind
def test_the_last_token_that_is_not_the_padding_token_is_read(kind: str) -> None:
    """By its id, so transformers does it: an end of text that is also the padding token is passed over."""
    subject = subject_for(kind)
    texts = with_padding_tokens(kind)
    lengths = [len(document.ids) for document in subject.encode([(text,) for text in texts])]
    expected = [length - 1 - behind for length, behind in zip(lengths, texts.values(), strict=True)]
    assert len(set(lengths)) > 1
    assert read_position(subject, list(texts)) == expected  # with padding
    assert [read_position(subject, [text])[0] for text in texts] == expected  # without


@pytest.mark.parametrize("kind", ["gpt2", "qwen2"])
def test_of_padding_tokens_alone_the_first_is_read(kind: str) -> None:
    subject = subject_for(kind)
    assert read_position(subject, [PAD[kind], PAD[kind] * 3, "dull"])[:2] == [0, 0]


@each_kind
def test_without_a_padding_token_the_last_token_is_read_whatever_it_is(kind: str) -> None:
    subject = subject_for(kind, padded=False)
    for text in with_padding_tokens(kind):
        assert read_position(subject, [text]) == [len(subject.encode([(text,)])[0].ids) - 1]


@each_kind
def test_texts_without_a_padding_token_are_explained_as_with_one(kind: str) -> None:
    without, padded = (wt.explain(subject_for(kind, which), TEXTS, ASKING) for which in (False, True))
    for mine, reference in zip(without, padded, strict=True):
        for label, attribution in mine.items():
            assert attribution.scores == pytest.approx(reference[label].scores, rel=1e-9, abs=1e-15)


ALIKE = ["Is it a slow, slow film?", "Is it a slow, slow plot?"]
SAME = 10  # tokens before the word that differs, at least
# The tokens of a word, or of a sentence, share its score; these texts have one sentence.
LEAST = {"posterior": 5, "kernel-shap": 5, "leave-one-out": 5, "lime": 5, "context-cite": 0}


@each_kind
def test_no_method_is_silent(kind: str) -> None:
    """Positive parts of a map can be all 0, of encoders too; of the opposite question they are then not."""
    subject = equipped(kind)
    targets = [wt.Contrast("entailment", "neutral"), wt.Contrast("neutral", "entailment")]
    pro, contra = (wt.explain(subject, ALIKE, LABELS, target=target) for target in targets)
    for label in LABELS:
        both = [torch.tensor([x[label].scores, y[label].scores]).T for x, y in zip(pro, contra, strict=True)]
        words = [number for number, span in enumerate(pro[0][label].spans) if span is not None][:-1]
        for scores in both:
            spoken = (scores[words].abs() > 1e-9 * scores.abs().max()).any(-1)
            assert spoken.sum() > len(words) / 2, f"{label}: {scores}"
            different = len(set(scores[words].abs().amax(-1).tolist()))
            assert different > LEAST.get(label, len(words) / 2), f"{label}: {scores}"
        assert (both[0][:SAME] - both[1][:SAME]).abs().max() > 1e-9 * both[0].abs().max(), f"{label} looks at no word"


def test_a_padding_token_of_minus_one_is_none() -> None:
    """As the configurations of the first Llama have it."""
    tokenizer = KINDS["llama"].tokenizer()
    model = model_of("llama")
    model.config.pad_token_id = -1
    subject = wt.Subject(model, tokenizer)
    assert subject.batches_of_one
    texts = ["It is very slow.", "The film was slow, but the music was touching."]
    assert [r["attcat"].scores for r in wt.explain(subject, texts, methods="attcat")] == [
        wt.explain(subject, [text], methods="attcat")[0]["attcat"].scores for text in texts
    ]
