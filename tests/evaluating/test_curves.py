"""Curves of perturbed texts: what the model says of them, against asking it directly."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import whichtoken as wt
from whichtoken.errors import BadSetting, UnsupportedModel, UsageError
from whichtoken.evaluate import OpenInput, degrade, degrade_input, open_input
from whichtoken.models import LogitCache
from whichtoken.records import Attribution, Order, Plan
from whichtoken.reproduce.protocols import ninths
from whichtoken.tasks import task_for

SubjectOf = Callable[..., wt.Subject]
TEXT = "The actors were won, but it is slow."


def opened(attributions: list[Attribution], cache: LogitCache) -> OpenInput:
    return open_input(task_for(cache.subject), attributions, cache)


def explained(subject: wt.Subject, *methods: str, **how: object) -> list[Attribution]:
    return list(wt.explain(subject, [TEXT], methods, **how)[0].values())  # type: ignore[arg-type]


def probability(subject: wt.Subject, tokens: list[str], label: str) -> float:
    """Of what is left, asked of the model itself."""
    ids = torch.tensor([subject.tokenizer.convert_tokens_to_ids(tokens)])
    with torch.no_grad():
        return float(subject.model(input_ids=ids).logits.softmax(-1)[0, subject.labels.index(label)])


@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_a_curve_is_what_the_model_says_of_the_shortened_texts(order: Order, subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attribution = explained(subject, "attcat")[0]
    curve = degrade(subject, [attribution], order=order)[0]
    content = range(1, len(attribution.tokens) - 1)
    ranked = sorted(content, key=lambda i: -attribution.scores[i])
    ranked = ranked if order == "morf" else ranked[::-1]
    expected = []
    for tenth in range(10):
        gone = set(ranked[: round(tenth / 10 * len(content))])
        left = [token for i, token in enumerate(attribution.tokens) if i not in gone]
        expected.append(probability(subject, left, attribution.label))
    assert curve.probability == pytest.approx(expected, rel=1e-9)
    assert curve.probability[0] == pytest.approx(attribution.probability)
    assert curve.removed == tuple(k / 10 for k in range(10))
    assert (curve.order, curve.perturbation, curve.method) == (order, "delete", "attcat")


def test_the_most_relevant_first_is_the_least_relevant_first_of_the_opposite(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attribution = explained(subject, "attcat")[0]
    opposite = replace(attribution, scores=tuple(-score for score in attribution.scores))
    for how in ("delete", "mask", "pad"):
        for grid in ("tenths", "ninths", "twentieths", "all"):
            most = degrade(subject, [attribution], how, "morf", grid)[0]
            least = degrade(subject, [opposite], how, "lerf", grid)[0]
            assert most.probability == least.probability
            assert (most.grid, most.perturbation) == (grid, how)


def test_each_shortened_text_is_evaluated_once(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attributions = explained(subject, "attcat", "gae", "random")
    rows = 0

    def count(module: object, arguments: object, output: object) -> None:
        nonlocal rows
        rows += len(output.logits)  # type: ignore[attr-defined]

    with subject.model.register_forward_hook(count):
        curves = degrade(subject, [*attributions, *attributions])
    assert curves[:3] == curves[3:]
    assert 10 <= rows <= 1 + 3 * 9


def test_other_perturbations_and_contrasts(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    masked = degrade(subject, explained(subject, "attcat"), task_for(subject).removal("mask"))[0]
    assert masked.perturbation == "mask"
    attribution = explained(subject, "attcat", target=wt.Contrast("entailment", "neutral"))[0]
    curve = degrade(subject, [attribution])[0]
    assert curve.label == "entailment rather than neutral"
    assert curve.probability[0] == pytest.approx(attribution.probability)


def test_what_does_not_belong_together_is_refused(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attribution = explained(subject, "attcat")[0]
    assert degrade(subject, []) == []
    with pytest.raises(UsageError, match="different inputs or targets"):
        opened([attribution, replace(attribution, texts=("other",))], LogitCache(subject))
    with pytest.raises(UsageError, match="different inputs or targets"):
        opened([attribution, replace(attribution, target=wt.Contrast(1, 2))], LogitCache(subject))
    with pytest.raises(UsageError, match="explain a model other than tiny bert"):
        degrade(subject_of("bert", labels=2), [attribution])
    with pytest.raises(UsageError, match="tokens are not those that tiny bert reads in one pass"):
        degrade(subject, [replace(attribution, tokens=attribution.tokens[::-1])])
    with pytest.raises(UsageError, match="unknown label 'funny'; known: contradiction, entailment, neutral"):
        degrade(subject, [replace(attribution, target=wt.Class("funny"))])
    with pytest.raises(BadSetting, match="most relevant first"):
        degrade(subject, [attribution], order="best")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="level='letter'"):
        degrade(subject, [attribution], level="letter")
    with pytest.raises(UsageError, match="unknown perturbation 'burn'; known: delete, mask, pad"):
        degrade(subject, [attribution], "burn")


def test_attributions_of_many_texts_come_back_in_their_order(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    results = wt.explain(subject, ["It is slow.", TEXT], ["attcat", "gae"])
    mixed = [results[1]["gae"], results[0]["attcat"], results[1]["attcat"], results[0]["gae"]]
    together = degrade(subject, mixed)
    for curve, one in zip(together, mixed, strict=True):
        assert curve.probability == pytest.approx(degrade(subject, [one])[0].probability, rel=1e-9)
    assert [curve.method for curve in together] == ["gae", "attcat", "attcat", "gae"]


def test_words_go_as_one(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attribution = wt.explain(subject, ["Charming actors were slow"], ["attcat"])[0]["attcat"]
    words = attribution.words()
    assert len(words) == 4 < len(attribution.tokens) - 2
    curve = degrade(subject, [attribution], grid="all", level="word")[0]
    left = sorted(words, key=lambda word: word.score)  # the lowest stays longest
    for n_left, found in zip(range(4, 0, -1), curve.probability, strict=False):
        kept = sorted(left[:n_left], key=lambda word: word.span)
        text = " ".join(word.text for word in kept)
        alone = wt.explain(subject, [text], ["random"], attribution.label)[0]["random"].probability
        assert found == pytest.approx(alone, rel=1e-9)
    assert curve.level == "word"


def test_random_orders_are_the_same_for_every_method_and_follow_the_seed(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attributions = explained(subject, "attcat", "gae")
    first, second = degrade(subject, attributions, order="random", grid="all")
    assert first.probability == second.probability
    text = opened(attributions, LogitCache(subject))
    another = replace(text, opened=replace(text.opened, key="another text of as many tokens"))
    found = [
        degrade_input(source, attributions[:1], [Plan(order="random", grid="all", seed=seed)])[0][0].probability
        for source, seed in ((text, 0), (text, 1), (another, 0), (text, 0))
    ]  # of one cache: equal orders give equal bits
    assert found[0] == found[3] == pytest.approx(first.probability)
    assert len(set(found)) == 3
    assert len({outputs[-1] for outputs in found}) == 1  # nothing is left, in whichever order


def test_several_plans_share_what_they_ask(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attributions = explained(subject, "attcat", "gae")
    cache = LogitCache(subject)
    text = opened(attributions, cache)
    plans = [Plan(order=order, grid=grid) for order in ("morf", "lerf") for grid in ("tenths", "all", "tenths")]
    found = degrade_input(text, attributions, plans)
    assert [len(curves) for curves in found] == [2] * 6
    assert found[0] == found[2]
    for plan, curves in zip(plans, found, strict=True):
        for curve, alone in zip(curves, degrade(subject, attributions, order=plan.order, grid=plan.grid), strict=True):
            assert curve.probability == pytest.approx(alone.probability, rel=1e-9)
    n = len(text.units("token"))
    assert cache.tally.asked == 2 * 2 * (10 + 10 + n + 1)
    assert cache.tally.evaluated <= 2 + 4 * (n - 1)  # the tenths of a text are among its single steps


@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_what_is_ranked_last_stays_as_in_the_authors_code(order: Order, subject_of: SubjectOf) -> None:
    """Special tokens take part in the ranking: a word is kept only if it is the last of all."""
    subject = subject_of("bert")
    attribution = explained(subject, "attcat")[0]
    n, sign = len(attribution.tokens), 1 if order == "morf" else -1
    content = tuple(float(i) for i in range(1, n - 1))
    everything_goes = replace(attribution, scores=(-99.0 * sign, *content, -99.0 * sign))
    one_stays = replace(attribution, scores=(99.0 * sign, *content, 99.0 * sign))
    plan = Plan(order=order, grid="ninths")
    text = opened([attribution], LogitCache(subject))
    curves = degrade_input(text, [everything_goes, one_stays], [plan])[0]
    gone, kept = (curve.probability[-1] for curve in curves)
    assert gone == pytest.approx(probability(subject, ["[CLS]", "[SEP]"], attribution.label), rel=1e-9)
    last = attribution.tokens[1] if order == "morf" else attribution.tokens[-2]
    assert kept == pytest.approx(probability(subject, ["[CLS]", last, "[SEP]"], attribution.label), rel=1e-9)
    other = degrade_input(text, [one_stays], [replace(plan, grid="all")])[0][0]  # which spares nothing
    assert other.probability[-1] == gone
    ranked = sorted(range(1, n - 1), key=lambda i: -sign * content[i - 1])[:-1]
    for count, found in zip(ninths(n).counts, curves[1].probability, strict=True):  # shares of all tokens
        left = [token for i, token in enumerate(attribution.tokens) if i not in ranked[:count]]
        assert found == pytest.approx(probability(subject, left, attribution.label), rel=1e-9)


@pytest.mark.parametrize("grid", ["all", "tenths-to-all", "twentieths"])
def test_where_no_special_token_stays_one_stands_for_nothing(grid: str, subject_of: SubjectOf) -> None:
    subject = subject_of("gpt2")
    attribution = explained(subject, "random")[0]
    assert None not in attribution.sequences
    curve = degrade(subject, [attribution], grid=grid)[0]
    assert curve.removed[-1] == 1
    assert curve.probability[-1] == pytest.approx(probability(subject, ["<|endoftext|>"], curve.label), rel=1e-9)


def test_two_passes_may_differ_by_what_their_precision_allows(subject_of: SubjectOf) -> None:
    """Explaining keeps attention and asking does not: in bfloat16 some texts of a Llama are 0.03 apart."""
    subject = subject_of("bert")
    attribution = explained(subject, "attcat")[0]
    apart = replace(attribution, probability=attribution.output - 0.05)
    assert degrade(subject, [apart])[0].probability == degrade(subject, [attribution])[0].probability


@pytest.mark.parametrize("kind", ["roberta", "mpnet", "xlm-roberta", "gpt2", "llama"])
def test_padding_is_refused_where_the_model_looks_for_it(kind: str, subject_of: SubjectOf) -> None:
    subject = subject_of(kind)
    with pytest.raises(UnsupportedModel, match="use the perturbation 'mask' or 'delete'"):
        degrade(subject, explained(subject, "random"), "pad")
