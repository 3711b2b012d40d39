"""One pass over the stock model: what is captured is what the model itself shows."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from tests.tiny import KINDS, MAIN_KINDS, class_goal, model_of

import whichtoken as wt
from whichtoken.core.picks import Picks
from whichtoken.core.trace import Needs, Site, needs
from whichtoken.errors import UndeclaredSite, UnsupportedModel
from whichtoken.lrp import C21, CP_LRP, RuleSet
from whichtoken.models import Batch, capture, window_row

SubjectOf = Callable[..., wt.Subject]
TEXTS = ["It is very slow.", "The actors were wonderful, but naïve 😀."]
ALL = needs("embeddings hidden attention", "embeddings hidden attention")
each_kind = pytest.mark.parametrize("kind", MAIN_KINDS)


def second(subject: wt.Subject) -> Callable[[torch.Tensor], Picks]:
    return lambda logits: class_goal(subject, torch.ones(len(logits), dtype=torch.long))


def batch_of(subject: wt.Subject, texts: list[str]) -> Batch:
    documents = subject.encode([(text,) for text in texts])
    return subject.batch([window_row(document, document.windows[0]) for document in documents])


def stock(kind: str, batch: Batch, row: int) -> tuple[Any, torch.Tensor]:
    """The stock eager model on one row without its padding, with gradients to be taken."""
    keep = batch.mask[row]
    types = {"token_type_ids": batch.types[row][keep][None]} if kind in ("bert", "electra", "albert") else {}
    model = model_of(kind, "eager")
    out = model(batch.ids[row][keep][None], output_attentions=True, output_hidden_states=True, **types)
    return out, keep


@each_kind
def test_what_is_captured_is_what_the_stock_model_shows(kind: str, subject_of: SubjectOf) -> None:
    subject = subject_of(kind)
    batch = batch_of(subject, TEXTS)
    trace = capture(subject, batch, second(subject), ALL)
    exact = 1e-4 if kind in ("llama", "qwen2", "modernbert") else 1e-10  # their eager softmax is in float32
    for row in range(len(TEXTS)):
        out, keep = stock(kind, batch, row)
        n = int(keep.sum())
        hidden = out.hidden_states[:-1]  # the last one is after the final norm in some models
        grads = torch.autograd.grad(out.logits[0, 1], [*out.attentions, *hidden])
        torch.testing.assert_close(trace.logits[row], out.logits[0], rtol=0, atol=exact)
        layers = len(out.attentions)
        assert len(trace.value(Site.ATTENTION)) == layers == len(trace.value(Site.HIDDEN)) - 1
        for layer in range(layers):
            attention, gradient = trace.value(Site.ATTENTION)[layer][row], trace.grad(Site.ATTENTION)[layer][row]
            theirs = out.attentions[layer][0]
            torch.testing.assert_close(attention[:, :n, :n], theirs, rtol=0, atol=exact)
            torch.testing.assert_close(
                gradient[:, :n, :n],
                grads[layer][0] * (theirs != 0),
                rtol=0,
                atol=exact * float(grads[layer].abs().max()),
            )
            assert attention[:, n:].abs().sum() + attention[..., n:].abs().sum() == 0
            assert gradient[:, n:].abs().sum() + gradient[..., n:].abs().sum() == 0
            torch.testing.assert_close(
                trace.value(Site.HIDDEN)[layer][row, :n], hidden[layer][0], rtol=0, atol=10 * exact
            )
            theirs = grads[layers + layer][0]
            torch.testing.assert_close(
                trace.grad(Site.HIDDEN)[layer][row, :n], theirs, rtol=0, atol=10 * exact * float(theirs.abs().max())
            )
        assert trace.value(Site.HIDDEN)[0][row].equal(trace.value(Site.EMBEDDINGS)[0][row])
        assert trace.grad(Site.HIDDEN)[-1][row, n:].abs().sum() == 0


@each_kind
def test_the_read_out_position_is_the_one_that_the_classifier_reads(kind: str, subject_of: SubjectOf) -> None:
    """The gradient of the last block's output is zero wherever the head does not look."""
    subject = subject_of(kind)
    trace = capture(subject, batch_of(subject, TEXTS), second(subject), needs("", "hidden"))
    read = trace.grad(Site.HIDDEN)[-1].abs().sum(-1) > 0
    assert (read == (trace.readout > 0)).all()
    torch.testing.assert_close(trace.readout.sum(-1), torch.ones(2, dtype=torch.float64))


def test_only_declared_sites_are_kept(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    trace = capture(subject, batch_of(subject, TEXTS), second(subject), needs("hidden", "attention"))
    assert set(trace.values) == {Site.HIDDEN}
    assert set(trace.grads) == {Site.ATTENTION}
    with pytest.raises(UndeclaredSite, match="reads values of attention but declares hidden"):
        trace.value(Site.ATTENTION)
    assert not any(t.requires_grad or t.grad_fn for t in (*trace.values[Site.HIDDEN], trace.logits, trace.target))


def test_other_embeddings_take_the_place_of_the_models(subject_of: SubjectOf) -> None:
    for kind in ("bert", "gpt2"):
        subject = subject_of(kind)
        batch = batch_of(subject, TEXTS)
        trace = capture(subject, batch, second(subject), needs("embeddings"))
        own = trace.value(Site.EMBEDDINGS)[0]
        assert capture(subject, batch, second(subject), Needs(), own).logits.equal(trace.logits)
        moved = own + 0.1 * torch.randn(own.shape, dtype=own.dtype, generator=torch.Generator().manual_seed(0))
        assert not capture(subject, batch, second(subject), Needs(), moved).logits.allclose(trace.logits)


def test_no_gradient_is_computed_for_weights(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    assert all(parameter.requires_grad for parameter in subject.model.parameters())
    frozen: list[bool] = []

    def watch(module: torch.nn.Module, *_: object) -> None:
        frozen.append(not any(p.requires_grad for p in module.parameters()))

    with subject.model.register_forward_hook(watch):
        capture(subject, batch_of(subject, TEXTS), second(subject), ALL)
    assert frozen == [True]
    assert all(parameter.requires_grad and parameter.grad is None for parameter in subject.model.parameters())


def test_parameters_that_were_frozen_stay_frozen() -> None:
    model = model_of("bert")
    model.bert.embeddings.requires_grad_(False)
    subject = wt.Subject(model, KINDS["bert"].tokenizer())
    capture(subject, batch_of(subject, TEXTS), second(subject), ALL)
    assert not any(p.requires_grad for p in model.bert.embeddings.parameters())
    assert all(p.requires_grad for p in model.classifier.parameters())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_gradients_are_there_also_where_the_caller_switched_them_off(context: Any, subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    expected = capture(subject, batch_of(subject, TEXTS), second(subject), ALL)
    with context():
        found = capture(subject, batch_of(subject, TEXTS), second(subject), ALL)
    assert found.grad(Site.HIDDEN)[0].equal(expected.grad(Site.HIDDEN)[0])


def test_a_model_whose_attention_cannot_be_seen_is_refused() -> None:
    """As if a compiled or patched model went round the attention interface."""
    model = model_of("bert")
    subject = wt.Subject(model, KINDS["bert"].tokenizer())
    skipped = model.bert.encoder.layer[1].attention
    skipped.forward = lambda hidden, *args, **kwargs: (hidden, None)
    for wanted in (ALL, needs("hidden", hide_special=True)):
        with pytest.raises(UnsupportedModel, match="the attention of 2 blocks was intercepted, expected 3"):
            capture(subject, batch_of(subject, TEXTS), second(subject), wanted)


def test_a_model_that_ignores_the_attention_implementation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers only logs for classes that are not written in a file."""
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    monkeypatch.setattr(subject.model, "set_attn_implementation", lambda name: None)
    with pytest.raises(UnsupportedModel, match="does not allow its attention implementation to be changed"):
        capture(subject, batch_of(subject, TEXTS), second(subject), needs("hidden", hide_special=True))


def test_a_model_whose_first_block_reads_something_else_is_refused() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    with (
        subject.blocks[0].register_forward_pre_hook(lambda module, args: (args[0] * 2, *args[1:])),
        pytest.raises(UnsupportedModel, match="its first block does not read its embeddings"),
    ):
        capture(subject, batch_of(subject, TEXTS), second(subject), needs("hidden"))


def test_a_decoder_reads_the_last_token_that_is_not_padding_by_id(subject_of: SubjectOf) -> None:
    subject = subject_of("gpt2")
    batch = batch_of(subject, ["It is slow<|endoftext|>", "It is very very very slow"])
    trace = capture(subject, batch, second(subject), needs("", "hidden"))
    assert int(trace.readout[0].argmax()) == int(batch.mask[0].sum()) - 2
    assert ((trace.grad(Site.HIDDEN)[-1].abs().sum(-1) > 0) == (trace.readout > 0)).all()


def test_a_query_without_any_key_attends_to_nothing(subject_of: SubjectOf) -> None:
    subject = subject_of("llama")
    trace = capture(subject, batch_of(subject, TEXTS), second(subject), needs("attention", hide_special=True))
    for attention in trace.value(Site.ATTENTION):
        assert (attention[:, :, 0] == 0).all()  # the first query sees only the first key, which is hidden
        torch.testing.assert_close(attention[:, :, 1, 1], torch.ones_like(attention[:, :, 1, 1]))


@pytest.mark.parametrize("hide_special", [False, True])
@pytest.mark.parametrize("kind", ["modernbert", "gpt2", "llama"])
def test_there_is_no_gradient_where_the_model_cannot_attend(
    kind: str, hide_special: bool, subject_of: SubjectOf
) -> None:
    """The future of a causal model, the outside of a sliding window; keys that the view hides do count."""
    subject = subject_of(kind)
    documents = subject.encode([("A man sleeps.", "Nobody is awake."), ("dull",)])
    batch = subject.batch([window_row(document, document.windows[0]) for document in documents])
    plain = capture(subject, batch, second(subject), needs("attention"))
    trace = capture(subject, batch, second(subject), needs("", "attention", hide_special=hide_special))
    for attention, gradient in zip(plain.value(Site.ATTENTION), trace.grad(Site.ATTENTION), strict=True):
        assert (gradient[attention == 0] == 0).all()
    assert any((attention[0] == 0).any() for attention in plain.value(Site.ATTENTION))
    if batch.special[0].any():
        assert any((gradient[0][..., batch.special[0]] != 0).any() for gradient in trace.grad(Site.ATTENTION))


def test_all_passes_of_a_capture_explain_the_same(subject_of: SubjectOf) -> None:
    """Rules may round differently, so the class is not chosen again under them."""
    subject, asked = subject_of("bert"), []

    def choose(logits: torch.Tensor) -> Picks:
        asked.append(logits)
        return class_goal(subject, torch.tensor([len(asked) - 1]))

    wanted = Needs(grads=frozenset({Site.ATTENTION}), relevance=frozenset({(C21, Site.HIDDEN), (CP_LRP, Site.HIDDEN)}))
    document = subject.encode([("It is slow.",)])[0]
    trace = capture(subject, subject.batch([window_row(document, document.windows[0])]), choose, wanted)
    assert len(asked) == 1
    assert trace.label.tolist() == [0]


def relevance_of(subject: wt.Subject, rules: RuleSet, embeddings: torch.Tensor | None = None) -> torch.Tensor:
    wanted = Needs(relevance=frozenset({(rules, Site.EMBEDDINGS)}))
    trace = capture(subject, batch_of(subject, TEXTS), second(subject), wanted, embeddings)
    return trace.relevance(rules, Site.EMBEDDINGS)[0]


def test_gradients_times_inputs_are_refused_in_half_precision() -> None:
    subject = wt.Subject(model_of("bert").half(), KINDS["bert"].tokenizer())
    with pytest.raises(UnsupportedModel, match="underflows in float16"):
        relevance_of(subject, CP_LRP)


@pytest.mark.parametrize(("kind", "dtype"), [("bert", torch.float16), *((kind, torch.float32) for kind in MAIN_KINDS)])
def test_relevance_is_propagated_in_float64_whatever_the_models_dtype(kind: str, dtype: torch.dtype) -> None:
    model = model_of(kind).to(dtype)
    narrow, wide = (wt.Subject(m, KINDS[kind].tokenizer()) for m in (model, deepcopy(model).double()))
    read = capture(narrow, batch_of(narrow, TEXTS), second(narrow), needs("embeddings")).value(Site.EMBEDDINGS)[0]
    found, expected = relevance_of(narrow, C21), relevance_of(wide, C21, read.double())
    # Llama and Qwen2 have a norm that rounds to float32, DeBERTa-v2 position embeddings that are computed apart.
    exact = 1e-4 if kind in ("llama", "qwen2", "deberta-v2") else 1e-5  # sums of like sign are in float32
    assert float((found - expected).abs().max()) < exact * float(expected.abs().max())
