"""Deletion curves, and the metrics that are computed from them."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import whichtoken as wt
from whichtoken.errors import BadSetting, UsageError
from whichtoken.evaluating import degrade
from whichtoken.metrics import METRICS, aopc, log_odds
from whichtoken.perturb import Mask
from whichtoken.records import Attribution, Curve

SubjectOf = Callable[..., wt.Subject]
TEXT = "The actors were won, but it is slow."


def explained(subject: wt.Subject, *methods: str, **how: object) -> list[Attribution]:
    return list(wt.explain(subject, [TEXT], methods, **how)[0].values())  # type: ignore[arg-type]


def probability(subject: wt.Subject, tokens: list[str], label: str) -> float:
    """Of what is left, asked of the model itself."""
    ids = torch.tensor([subject.tokenizer.convert_tokens_to_ids(tokens)])
    with torch.no_grad():
        return float(subject.model(input_ids=ids).logits.softmax(-1)[0, subject.labels.index(label)])


@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_a_curve_is_what_the_model_says_of_the_shortened_texts(order: str, subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attribution = explained(subject, "attcat")[0]
    curve = degrade(subject, [attribution], order)[0]  # type: ignore[arg-type]
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
    assert degrade(subject, [attribution], "morf")[0].probability == degrade(subject, [opposite], "lerf")[0].probability


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
    masked = degrade(subject, explained(subject, "attcat"), perturbation=Mask())[0]
    assert masked.perturbation == "mask"
    attribution = explained(subject, "attcat", target=wt.Contrast("entailment", "neutral"))[0]
    curve = degrade(subject, [attribution])[0]
    assert curve.label == "entailment rather than neutral"
    assert curve.probability[0] == pytest.approx(attribution.probability)


def test_what_does_not_belong_together_is_refused(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    attribution = explained(subject, "attcat")[0]
    assert degrade(subject, []) == []
    with pytest.raises(UsageError, match="different texts or labels"):
        degrade(subject, [attribution, replace(attribution, texts=("other",))])
    with pytest.raises(UsageError, match="of another model than tiny bert"):
        degrade(subject_of("bert", labels=2), [attribution])
    with pytest.raises(UsageError, match="other tokens than the model reads at once"):
        degrade(subject, [replace(attribution, tokens=attribution.tokens[::-1])])
    with pytest.raises(UsageError, match="label 'funny' is none of the model's: contradiction, entailment, neutral"):
        degrade(subject, [replace(attribution, label="funny")])
    with pytest.raises(BadSetting, match="the most relevant first"):
        degrade(subject, [attribution], "best")  # type: ignore[arg-type]


CURVE = Curve("k", "morf", "delete", (0.0, 0.5, 1.0), (0.8, 0.4, 0.2), "a", "m", {}, "model", "r", 0)


def test_metrics_by_hand() -> None:
    assert aopc(CURVE) == pytest.approx((0.4 + 0.6) / 2)
    assert log_odds(CURVE) == pytest.approx((math.log(0.5) + math.log(0.25)) / 2)
    assert math.isfinite(log_odds(replace(CURVE, probability=(0.8, 0.0, 0.0))))
    assert {name: metric.better for name, metric in METRICS.items()} == {"aopc": "higher", "log-odds": "lower"}
    with pytest.raises(UsageError, match="a curve needs the whole text"):
        aopc(replace(CURVE, removed=(0.1, 0.5, 1.0)))
