"""Model randomisation: what is drawn anew, what is left, and what is said of methods known to pass or to fail."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from tests.tiny import CORPUS, KINDS, MAIN_KINDS, class_goal, model_of, with_heads, with_references
from torch import Tensor

import whichtoken as wt
from whichtoken.core.trace import Site, needs
from whichtoken.errors import BadInput, BadSetting, LibraryMismatch
from whichtoken.heads.mask import all_heads
from whichtoken.metrics.randomisation import Sanity, randomised, sanity_check
from whichtoken.models import capture, window_row

TEXTS: list[Any] = [*CORPUS, "The actors were wonderful, but the plot was dull.", ("A man sleeps.", "Nobody is awake.")]


@cache
def subject_for(kind: str = "bert") -> wt.Subject:
    return wt.Subject(model_of(kind), KINDS[kind].tokenizer(), name=kind)


def hidden(subject: wt.Subject) -> list[Tensor]:
    """What each block reads, what the last one writes, and the logits."""
    document = subject.encode([("The actors were slow.",)])[0]
    batch = subject.batch([window_row(document, document.windows[0])])
    trace = capture(subject, batch, lambda logits: class_goal(subject, logits.argmax(-1)), needs("hidden"))
    return [*trace.value(Site.HIDDEN), trace.logits]


def taus(found: list[Sanity], method: str) -> list[float | None]:
    return [sanity.tau for sanity in found if sanity.method == method]


TWICE = ("electra", "xlm-roberta", "qwen2")  # whose blocks are those of another kind


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in TWICE else kind for kind in MAIN_KINDS]
)
def test_what_comes_before_the_randomised_blocks_is_as_it_was(kind: str) -> None:
    subject = subject_for(kind)
    before, n = hidden(subject), len(subject.blocks)
    shared = n < subject.n_layers  # the one block of ALBERT is all of them
    for n_blocks in range(n + 1):
        after = hidden(randomised(subject, n_blocks))
        same = 1 if shared and n_blocks else subject.n_layers - n_blocks + 1
        if n_blocks == 0:
            same -= 1  # the last output, which some models have behind a norm that is part of the head
        assert all(torch.equal(a, b) for a, b in zip(before[:same], after[:same], strict=True))
        start = subject.n_layers + 1 if n_blocks == 0 else same
        assert not any(torch.allclose(a, b) for a, b in zip(before[start:], after[start:], strict=True))
    everything = hidden(randomised(subject, n + 1))
    assert not any(torch.allclose(a, b) for a, b in zip(before, everything, strict=True))


def test_the_head_of_bert_is_its_pooler_and_its_classifier() -> None:
    assert changed(subject_for(), randomised(subject_for(), 0)) == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "classifier.weight",
        "classifier.bias",
    }


def test_every_weight_is_drawn_in_the_end() -> None:
    for kind in ("bert", "deberta-v2", "gpt2"):
        subject = subject_for(kind)
        everything = randomised(subject, len(subject.blocks) + 1)
        assert changed(subject, everything) == set(dict(subject.model.named_parameters()))


def changed(subject: wt.Subject, other: wt.Subject) -> set[str]:
    mine, theirs = subject.model.state_dict(), other.model.state_dict()
    return {name for name, tensor in mine.items() if not torch.equal(tensor, theirs[name])}


def test_weights_keep_their_mean_and_spread_and_constants_stay() -> None:
    model = model_of("bert")
    with torch.no_grad():
        model.bert.pooler.dense.bias.fill_(0.25)
        model.bert.pooler.dense.weight.add_(3)
    subject = wt.Subject(model, KINDS["bert"].tokenizer())
    pooler = randomised(subject, 0).model.bert.pooler.dense
    assert torch.equal(pooler.bias, model.bert.pooler.dense.bias)
    before, after = model.bert.pooler.dense.weight.detach(), pooler.weight.detach()
    assert float(after.mean()) == pytest.approx(float(before.mean()), abs=0.05)
    assert float(after.std()) == pytest.approx(float(before.std()), rel=0.1)
    assert abs(float(torch.corrcoef(torch.stack([before.flatten(), after.flatten()]))[0, 1])) < 0.15


def test_seeds_repeat_and_more_blocks_keep_what_was_drawn_for_fewer() -> None:
    one, same, other = (randomised(subject_for(), 1, seed) for seed in (0, 0, 1))
    assert not changed(one, same)
    assert one.fingerprint() == same.fingerprint() != other.fingerprint() != subject_for().fingerprint()
    assert changed(one, other) == changed(subject_for(), one)
    two = randomised(subject_for(), 2)
    assert changed(one, two) == {f"bert.encoder.layer.1.{name}" for name in one.blocks[1].state_dict()}


def test_a_copy_says_that_it_is_one() -> None:
    hub = replace(subject_for(), name="", revision="1234")
    found = randomised(hub, 2, seed=5)
    assert found.title == "BertForSequenceClassification, head and 2 blocks randomised with seed 5"
    assert found.fingerprint().startswith("sha256:")
    assert randomised(hub, 4).title.endswith("everything randomised with seed 0")


def test_the_model_is_left_as_found() -> None:
    subject = with_heads(with_references(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())))
    before = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    learning = [parameter.requires_grad for parameter in subject.model.parameters()]
    sanity_check(subject, TEXTS[:3], ["attcat", "contrast-cat", "mask-lrp"], depths=[0, 4])
    after = subject.model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert [parameter.requires_grad for parameter in subject.model.parameters()] == learning
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    copied = randomised(subject, 1).model.parameters()
    assert not {p.data_ptr() for p in copied} & {p.data_ptr() for p in subject.model.parameters()}


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_attention_does_not_see_the_head_and_gradients_do(kind: str) -> None:
    methods = ["raw-attention", "rollout", "attcat", "random"]
    found = sanity_check(subject_for(kind), TEXTS, methods)
    assert [(s.method, s.n_blocks) for s in found] == [(name, n) for name in methods for n in range(5)]
    assert taus(found, "random") == [1, 1, 1, 1, 1]
    for name in ("raw-attention", "rollout"):
        head, *more = taus(found, name)
        assert head == 1
        assert all(tau is not None and tau < 0.99 for tau in more)
    assert all(tau is not None and tau < 0.9 for tau in taus(found, "attcat"))
    assert all(s.n_texts == len(TEXTS) for s in found if s.method != "raw-attention")


def test_tau_is_the_mean_over_texts_for_the_class_that_was_predicted() -> None:
    subject = subject_for()
    (found,) = sanity_check(subject, TEXTS, ["attcat"], seed=3, depths=[2])
    other = randomised(subject, 2, seed=3)
    total, swayed, labels = 0.0, 0, set()
    for text in TEXTS:
        before = wt.explain(subject, [text], methods="attcat")[0]["attcat"]
        after = wt.explain(other, [text], target=before.label, methods="attcat")[0]["attcat"]
        swayed += wt.explain(other, [text], methods="attcat")[0]["attcat"].label != before.label
        labels.add(before.label)
        total += slow_tau_b(content(before), content(after))
    assert swayed  # so it matters which class is explained
    assert len(labels) > 1
    assert found.tau == pytest.approx(total / len(TEXTS), abs=1e-12)
    assert (found.method, found.n_blocks, found.n_texts) == ("attcat", 2, len(TEXTS))


def content(found: wt.Attribution) -> list[float]:
    return [score for score, span in zip(found.scores, found.spans, strict=True) if span is not None]


def slow_tau_b(a: Sequence[float], b: Sequence[float]) -> float:
    agree, of_a, of_b = 0, 0, 0
    for i in range(len(a)):
        for j in range(i):
            one, two = (a[i] > a[j]) - (a[i] < a[j]), (b[i] > b[j]) - (b[i] < b[j])
            agree, of_a, of_b = agree + one * two, of_a + one * one, of_b + two * two
    return agree / math.sqrt(of_a * of_b)


def test_the_same_seed_gives_the_same_answer() -> None:
    one, same, other = (sanity_check(subject_for(), TEXTS, ["attcat"], seed, [1]) for seed in (1, 1, 2))
    assert one == same != other


def test_methods_that_need_references_or_heads_have_them_on_each_model() -> None:
    subject = subject_for()
    elsewhere = with_references(subject_for(), layers="inputs").references
    every = all_heads(subject.n_layers, subject.n_heads, subject.title, subject.fingerprint())
    methods: list[Any] = [
        "contrast-cat@paper",
        wt.method("contrast-cat", references=elsewhere, refine=False),
        wt.method("contrast-cat", references=list(CORPUS)),
        wt.method("mask-lrp", heads=every),
        "mask-lrp",
    ]
    found = sanity_check(with_heads(subject), TEXTS[:4], methods, depths=[0, 3])
    names = [m if isinstance(m, str) else m.label for m in methods]
    assert [s.method for s in found] == [name for name in names for _ in range(2)]
    assert all(s.tau is not None and s.tau < 0.99 for s in found)


def test_a_head_mask_of_another_model_is_refused() -> None:
    other = randomised(subject_for(), 1)
    foreign = all_heads(other.n_layers, other.n_heads, other.title, other.fingerprint())
    with pytest.raises(LibraryMismatch, match="was built for bert, head and 1 blocks randomised"):
        sanity_check(subject_for(), TEXTS[:2], [wt.method("mask-lrp", heads=foreign)])


def test_a_method_that_ranks_nothing_has_no_tau() -> None:
    """Agreement of 0 would read as if it had passed."""
    subject = subject_for()
    every = all_heads(subject.n_layers, subject.n_heads, subject.title, subject.fingerprint())
    none = replace(every, added=tuple((False,) * subject.n_heads for _ in range(subject.n_layers)))
    found = sanity_check(subject, TEXTS[:2], ["random", wt.method("mask-lrp", preset="paper", heads=none)], depths=[0])
    assert [(s.tau, s.n_texts) for s in found] == [(1, 2), (None, 0)]


def test_a_single_word_does_not_count() -> None:
    (found,) = sanity_check(subject_for(), ["film", *TEXTS[:2], "slow"], ["random"], depths=[1])
    assert found.n_texts == 2
    with pytest.raises(BadInput, match="no text has two content tokens"):
        sanity_check(subject_for(), ["film", "slow"], ["attcat"])


@pytest.mark.parametrize("n_blocks", [-1, 5, 1.5, True])
def test_blocks_that_are_not_there_are_named(n_blocks: Any) -> None:
    for ask in (lambda: randomised(subject_for(), n_blocks), lambda: sanity(depths=[0, n_blocks])):
        with pytest.raises(BadSetting, match="0 to 4: bert has 3 blocks, and one more includes the embeddings"):
            ask()


def sanity(**settings: Any) -> list[Sanity]:
    return sanity_check(subject_for(), TEXTS[:1], ["attcat"], **settings)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(BadSetting, match="seed=-1"):
        sanity(seed=-1)
    with pytest.raises(BadSetting, match="seed='1'"):
        randomised(subject_for(), 0, "1")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no texts"):
        sanity_check(subject_for(), [], ["attcat"])
    for ask in (lambda: randomised(subject_for().model, 0), lambda: sanity_check(subject_for().model, TEXTS, ["cat"])):
        with pytest.raises(BadSetting, match=r"wt\.load"):
            ask()
