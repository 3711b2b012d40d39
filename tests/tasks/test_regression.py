"""Models that predict a value, not a probability: explained, removed from, shown and stored as a number."""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import CORPUS, image_model_of, images, model_of, with_heads, wordpiece

import whichtoken as wt
from whichtoken.core.picks import Link
from whichtoken.core.registry import method_names
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.evaluate import aopc_bounds, open_input
from whichtoken.metrics.curves import METRICS, aopc, auc, comprehensiveness, log_odds, per_step, sufficiency
from whichtoken.models import LogitCache
from whichtoken.reproduce.pixels import degrade_images
from whichtoken.tasks import task_for
from whichtoken.tasks.classify import link_of

TEXT = "The film was slow, but the music was touching."
SMALL: dict[str, Any] = {
    "integrated-gradients": {"steps": 4},
    "tis": {"n_masks": 12},
    "refined-noise": {"n": 3},
    "lime": {"budget": 12},
    "kernel-shap": {"budget": 12},
}
IDENTITY = "torch.nn.modules.linear.Identity"


@cache
def subject(**config: Any) -> wt.Subject:
    """A random model with one output, named as in most configurations."""
    model = model_of("bert", labels=1, id2label={0: "LABEL_0"}, **{"problem_type": "regression", **config})
    return wt.Subject(model, wordpiece(), name="tiny")


@cache
def two_outputs() -> wt.Subject:
    model = model_of("bert", labels=2, id2label={0: "valence", 1: "arousal"}, problem_type="regression")
    return wt.Subject(model, wordpiece(), name="two")


def value(ids: list[int], output: int = 0, of: wt.Subject | None = None) -> float:
    with torch.no_grad():
        return float((of or subject()).model(torch.tensor([ids])).logits[0, output])


def explained(name: str = "attcat", text: Any = TEXT) -> wt.Attribution:
    return wt.explain(subject(), [text], [name])[0][name]


def test_the_predicted_value_is_explained_not_its_sigmoid() -> None:
    record, ids = explained("gradient-x-input"), wordpiece()(TEXT)["input_ids"]
    assert record.probability is None
    assert record.value == pytest.approx(value(ids), rel=1e-9)
    assert (record.output, record.reading) == (record.value, "value")
    assert (record.label, record.target) == ("LABEL_0", wt.Class(0))
    model = subject().model
    embedded = model.bert.embeddings(torch.tensor([ids])).detach().requires_grad_()
    mask = torch.ones(1, 1, 1, len(ids), dtype=torch.bool)
    hidden = model.bert.encoder(embedded, attention_mask=mask).last_hidden_state
    (gradient,) = torch.autograd.grad(model.classifier(model.bert.pooler(hidden))[0, 0], embedded)
    assert record.scores == pytest.approx((gradient * embedded).sum(-1)[0].tolist(), rel=1e-9)


@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_curves_hold_the_values_that_remain(order: Any) -> None:
    record, ids = explained(), wordpiece()(TEXT)["input_ids"]
    (curve,) = wt.degrade(subject(), [record], order=order)
    ranked = sorted(range(1, len(ids) - 1), key=lambda i: -record.scores[i])
    ranked = ranked if order == "morf" else ranked[::-1]
    assert curve.probability == ()
    assert curve.outputs == curve.value
    for step, y in enumerate(curve.value):
        gone = ranked[: round(step / 10 * len(ranked))]
        assert y == pytest.approx(value([x for i, x in enumerate(ids) if i not in gone]), rel=1e-9)


def test_metrics_measure_the_change_of_the_value() -> None:
    (curve,) = wt.degrade(subject(), [explained()])
    first, *rest = curve.value
    assert aopc(curve) == pytest.approx(sum(first - y for y in rest) / len(rest))
    changes = [y - first for y in curve.value]
    area = sum(0.1 * (a + b) / 2 for a, b in pairwise(changes)) / 0.9
    assert auc(curve) == pytest.approx(area)
    assert auc(replace(curve, value=tuple(y + 7 for y in curve.value))) == pytest.approx(area)
    for order, metric in (("morf", comprehensiveness), ("lerf", sufficiency)):
        (kept,) = wt.degrade(subject(), [explained()], order=order, grid="eraser")  # type: ignore[arg-type]
        first, *rest = kept.value
        assert metric(kept) == pytest.approx(sum(first - y for y in rest) / len(rest))


def test_what_needs_probabilities_is_refused() -> None:
    (curve,) = wt.degrade(subject(), [explained()])
    for measure in (log_odds, METRICS["log-odds"].measure, lambda curve: per_step(curve, "log-odds")):
        with pytest.raises(UsageError, match="log-odds needs probabilities, and this curve holds predicted values"):
            measure(curve)


def test_bounds_are_of_the_value() -> None:
    """All orders of a short text, tried one by one."""
    record = explained(text="it is slow film")
    ids = wordpiece()("it is slow film")["input_ids"]
    source = open_input(task_for(subject()), [record], LogitCache(subject()))
    bounds = aopc_bounds(
        source, wt.bench.protocol(grids=("all",), metrics=("aopc",), perturbations=("delete",)).plans()[0]
    )
    content = range(1, len(ids) - 1)
    drops = []
    for order in permutations(content):
        left = [[x for i, x in enumerate(ids) if i not in order[:n]] for n in range(len(order) + 1)]
        y = [value(each) for each in left]
        drops.append(sum(y[0] - other for other in y[1:]) / (len(y) - 1))
    assert (bounds.lower, bounds.upper) == pytest.approx((min(drops), max(drops)), rel=1e-9)


def test_every_method_runs_except_contrast_cat() -> None:
    heads = with_heads(subject())
    task = task_for(heads)
    methods = [wt.method(name, **SMALL.get(name, {})) for name in method_names()]
    refused = {method.name: reason.why for method in methods if (reason := task.can_run(method)) is not None}
    assert refused == {
        "contrast-cat": "its references are texts with a low probability of a class, and this model predicts a value"
    }
    results = wt.explain(heads, [TEXT, "very slow film"], [m for m in methods if m.name not in refused])
    assert len(results[0]) == len(methods) - 1 >= 23
    for result in results:
        assert len({record.value for record in result.values()}) == 1
        assert all(torch.tensor(record.scores).isfinite().all() for record in result.values())
    with pytest.raises(UsageError, match="contrast-cat cannot explain texts: its references are texts with a low"):
        wt.explain(heads, [TEXT], ["contrast-cat"])
    with pytest.raises(UsageError, match="references are texts with a low probability of a class, and this model"):
        wt.references.build(subject(), CORPUS)


def test_tis_averages_values() -> None:
    """Shifting all values by a constant shifts no score: they are scaled to 0..1."""
    shifted = wt.Subject(model_of("bert", labels=1, problem_type="regression"), wordpiece())
    with torch.no_grad():
        shifted.model.classifier.bias += 100
    tis = wt.method("tis", n_masks=12)
    found = [wt.explain(one, [TEXT], [tis])[0][tis.label] for one in (subject(), shifted)]
    assert found[1].scores == pytest.approx(found[0].scores, abs=1e-9)
    assert found[0].value is not None
    assert found[1].value == pytest.approx(found[0].value + 100)


def test_windows_of_a_long_text_are_averaged() -> None:
    text = " ".join([TEXT] * 6)
    record = wt.explain(subject(), [text], ["attcat"], long="window")[0]["attcat"]
    (document,) = subject().encode([(text,)], "window")
    values = [value([document.ids[i] for i in window]) for window in document.windows]
    assert len(values) == record.n_windows > 1
    assert record.value == pytest.approx(sum(values) / len(values), rel=1e-9)


def test_an_image_model_with_one_output_predicts_a_value() -> None:
    model = image_model_of("vit", num_labels=1, problem_type="regression")
    with torch.no_grad():  # so that values of different images differ by less than probabilities may
        for parameter in model.classifier.parameters():
            parameter.mul_(1e-3)
    one = wt.Subject(model, None, name="vit")
    pixels = images(1)
    record = wt.explain(one, images=list(pixels), methods=["gae"])[0]["gae"]
    with torch.no_grad():
        expected = float(model(pixels).logits)
    assert record.probability is None
    assert record.value == pytest.approx(expected, rel=1e-9)
    (curve,) = wt.degrade(one, [record], "mean", inputs=list(pixels))
    assert curve.value[0] == pytest.approx(expected, rel=1e-9)
    assert len(set(curve.value)) > 5
    with pytest.raises(UsageError, match="another input was explained"):
        wt.degrade(one, [record], "mean", inputs=[images(1, seed=6)[0]])
    with pytest.raises(UsageError, match=r"vit predicts a value, and these curves are of classes; use wt.degrade"):
        degrade_images(one, pixels, {"gae": [record]})


def test_one_of_several_outputs_has_to_be_chosen() -> None:
    message = "target=None is not allowed; it must be one output of two, which predicts 2 values: 0 valence, 1 arousal"
    with pytest.raises(BadSetting, match=message):
        wt.explain(two_outputs(), [TEXT], methods="attcat")
    record = wt.explain(two_outputs(), [TEXT], target="arousal", methods="attcat")[0]["attcat"]
    assert (record.label, record.target) == ("arousal", wt.Class(1))
    ids = wordpiece()(TEXT)["input_ids"]
    assert record.value == pytest.approx(value(ids, 1, two_outputs()), rel=1e-9)
    (curve,) = wt.degrade(two_outputs(), [record])
    assert curve.value[0] == pytest.approx(record.value, rel=1e-12)


@pytest.mark.parametrize("target", [wt.Contrast(0, 1), wt.Contrast("valence", "arousal")])
def test_values_are_not_contrasted(target: Any) -> None:
    with pytest.raises(BadSetting, match="it must be one output: two predicts values, which are not alternatives"):
        wt.explain(two_outputs(), [TEXT], target=target)
    with pytest.raises(BadSetting, match="it must be one output: tiny predicts a value"):
        wt.explain(subject(), [TEXT], target=wt.Contrast(0, 0))


def test_a_single_logit_is_a_probability_unless_the_configuration_or_the_caller_says_otherwise() -> None:
    """As `CrossEncoder` of sentence-transformers reads its configuration, in both of its forms."""
    assert link_of(subject(problem_type=None)) is Link.SIGMOID
    assert link_of(subject()) is Link.VALUE
    configs: list[dict[str, Any]] = [
        {"sbert_ce_default_activation_function": IDENTITY},
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.0.0"}},
    ]
    for config in configs:
        made = model_of("bert", labels=1, **config)
        assert link_of(wt.Subject(made, wordpiece())) is Link.VALUE
        assert link_of(wt.Subject(made, wordpiece(), reading="probability")) is Link.SIGMOID
    tanh = model_of("bert", labels=1, sbert_ce_default_activation_function="torch.nn.modules.activation.Tanh")
    assert link_of(wt.Subject(tanh, wordpiece())) is Link.VALUE
    sigmoid: dict[str, Any] = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}
    assert link_of(wt.Subject(model_of("bert", labels=1, **sigmoid), wordpiece())) is Link.SIGMOID
    assert link_of(replace(subject(problem_type=None), reading="value")) is Link.VALUE
    assert link_of(replace(subject(), reading="probability")) is Link.SIGMOID


def test_the_record_says_which_reading_it_has() -> None:
    plain = subject(problem_type=None)
    probable = wt.explain(plain, [TEXT], methods="attcat")[0]["attcat"]
    valued = wt.explain(replace(plain, reading="value"), [TEXT], methods="attcat")[0]["attcat"]
    assert (probable.value, valued.probability) == (None, None)
    assert valued.value is not None
    assert probable.probability == pytest.approx(float(torch.tensor(valued.value).sigmoid()))
    assert probable.scores == valued.scores
    with pytest.raises(UsageError, match="these attributions explain a probability, but tiny is read as a value; "):
        wt.degrade(replace(plain, reading="value"), [probable])
    with pytest.raises(UsageError, match="these attributions explain a value, but tiny is read as a probability; "):
        wt.degrade(plain, [valued])


def test_other_readings_are_refused() -> None:
    with pytest.raises(BadSetting, match="reading='logit' is not allowed; it must be None, 'probability' or 'value'"):
        replace(subject(), reading="logit")  # type: ignore[arg-type]
    for wide in (two_outputs(), wt.Subject(model_of("bert"), wordpiece())):
        with pytest.raises(BadSetting, match="reading='value' is not allowed; it must be None: only a single output"):
            replace(wide, reading="value")


def test_load_takes_a_reading(tmp_path: Path) -> None:
    subject(problem_type=None).model.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    assert wt.explain(wt.load(tmp_path), [TEXT], methods="attcat")[0]["attcat"].value is None
    assert wt.explain(wt.load(tmp_path, reading="value"), [TEXT], methods="attcat")[0]["attcat"].value is not None
    with pytest.raises(BadSetting, match="only a single output"):
        wt.load(reading="value")


def test_records_of_values_survive_json_and_others_are_written_as_before() -> None:
    record = explained()
    (curve,) = wt.degrade(subject(), [record])
    assert wt.Attribution.from_json(record.to_json()) == record
    assert wt.Curve.from_json(curve.to_json()) == curve
    assert json.loads(record.to_json())["probability"] is None
    assert json.loads(curve.to_json())["probability"] == []
    plain = wt.explain(subject(problem_type=None), [TEXT], methods="attcat")[0]["attcat"]
    (falling,) = wt.degrade(subject(problem_type=None), [plain])
    for written in (plain.to_json(), falling.to_json()):
        assert "value" not in json.loads(written)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": 0.5}, "Attribution: it must have a probability or a value, and not both"),
        ({"value": None}, "Attribution: it must have a probability or a value, and not both"),
    ],
)
def test_an_attribution_has_one_of_the_two(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArtifact, match=message):
        wt.Attribution.from_json(json.dumps(json.loads(explained().to_json()) | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": [0.5] * 10}, "Curve: it must have probabilities or values, and not both"),
        ({"value": [0.5] * 3}, "Curve: 10 removed, 3 value; there must be the same number of each"),
    ],
)
def test_a_curve_has_one_of_the_two(change: dict[str, Any], message: str) -> None:
    (curve,) = wt.degrade(subject(), [explained()])
    with pytest.raises(BadArtifact, match=message):
        wt.Curve.from_json(json.dumps(json.loads(curve.to_json()) | change))


def test_a_predicted_value_of_exactly_zero_is_stored() -> None:
    zero = replace(explained(), value=0.0)
    assert wt.Attribution.from_json(zero.to_json()) == zero
