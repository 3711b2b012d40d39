"""explain: as its users call it, and as they call it wrongly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiny import model_of, with_heads, with_references, wordpiece

import whichtoken as wt
from whichtoken.core.registry import method_names
from whichtoken.core.trace import Method, Needs, Probe, Scores, Trace
from whichtoken.data.examples import TextExample
from whichtoken.data.prompts import Prompt
from whichtoken.errors import BadInput, BadSetting, NotFinite, UnknownName
from whichtoken.methods.random import Random
from whichtoken.tasks.sources import count_characters

SubjectOf = Callable[..., wt.Subject]
PAIR = ("A man sleeps.", "Nobody is awake.")


def test_as_in_the_readme(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    results = wt.explain(subject, ["It is very slow.", "A rare, charming film."], methods=["attcat", "rollout", "gae"])
    assert [list(result) for result in results] == [["attcat", "rollout", "gae"]] * 2
    first = results[0]["attcat"]
    assert first.tokens == ("[CLS]", "it", "is", "ver", "##y", "slow", ".", "[SEP]")
    assert len(first.scores) == 8
    assert [word.text for word in first.words()] == ["It", "is", "very", "slow", "."]
    assert sum(word.score for word in first.words()) == pytest.approx(sum(first.scores[1:-1]))
    assert first.label in subject.labels
    assert 1 / 3 <= first.output <= 1
    paired = wt.explain(
        subject, [PAIR], methods=["attcat@repo", wt.method("grad-sam", axis="key")], target="entailment"
    )[0]
    assert list(paired) == ["attcat@repo", "grad-sam(axis=key)"]
    assert paired["attcat@repo"].label == "entailment"
    assert [w.text for w in paired["attcat@repo"].words() if w.sequence == 1] == ["Nobody", "is", "awake", "."]


def test_a_result_says_how_it_was_made(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    result = wt.explain(subject, ["slow"], ["attcat@repo"])[0]["attcat@repo"]
    assert result.method == "attcat"
    assert result.settings == {"layers": "inputs", "mask_special": True, "zero_special": False}
    assert result.model == "tiny bert"
    assert result.revision == subject.fingerprint()
    assert not result.tuned_on_deletion
    assert result.seconds > 0
    assert (result.n_cut, result.n_windows) == (0, 1)
    assert wt.Attribution.from_json(result.to_json()) == result


def test_the_predicted_class_is_that_of_the_untouched_model(subject_of: SubjectOf) -> None:
    """Also when the only method asked explains the pass with hidden special tokens."""
    subject = subject_of("bert")
    texts = [f"{a} {b} film" for a in ("slow", "rare", "dull") for b in ("music", "plot", "ending")]
    encoded = subject.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        plain = subject.model(**encoded).logits.softmax(-1)
        encoded["attention_mask"][:, 0] = 0
        hidden = subject.model(**encoded).logits.softmax(-1)
    assert (plain.argmax(-1) != hidden.argmax(-1)).any()
    for methods in (["cat@repo"], ["cat"], ["cat", "cat@repo"]):
        for row, result in enumerate(wt.explain(subject, texts, methods)):
            attribution = result[methods[-1]]
            assert attribution.label == subject.labels[int(plain[row].argmax())]
            assert attribution.probability == pytest.approx(float(plain[row].max()), rel=1e-9)


@pytest.mark.parametrize(
    "target",
    [
        1,
        np.int64(1),
        wt.Class(np.int64(1)),  # type: ignore[arg-type]  # records hold an int; requests may be any integer
        wt.Class(1),
        "entailment",
        "Entailment",
        wt.Class("entailment"),
    ],
)
def test_ways_to_name_a_class(target: Any, subject_of: SubjectOf) -> None:
    result = wt.explain(subject_of("bert"), ["slow"], ["gae"], target=target)[0]["gae"]
    assert result.label == "entailment"
    assert result == wt.explain(subject_of("bert"), ["slow"], ["gae"], target=1)[0]["gae"]


def test_a_contrast_is_the_difference_of_two_classes(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    methods = ["cat", "att-grads", "gradient-x-input"]

    def explained(target: Any) -> dict[str, wt.Attribution]:
        return wt.explain(subject, ["It is very slow."], methods, target)[0]

    contrast, a, b = explained(wt.Contrast("neutral", 0)), explained("neutral"), explained(0)
    for method in methods:
        difference = [x - y for x, y in zip(a[method].scores, b[method].scores, strict=True)]
        assert contrast[method].scores == pytest.approx(difference, rel=1e-9, abs=1e-12)
    assert contrast["cat"].label == "neutral rather than contradiction"
    p, q = a["cat"].output, b["cat"].output
    assert contrast["cat"].probability == pytest.approx(p / (p + q), rel=1e-9)


def test_single_logit_and_multi_label_heads_use_the_sigmoid() -> None:
    for changes in ({"labels": 1}, {"problem_type": "multi_label_classification"}):
        model = model_of("bert", **changes)
        subject = wt.Subject(model, wordpiece())
        result = wt.explain(subject, ["It is very slow."], ["attcat"])[0]["attcat"]
        with torch.no_grad():
            logits = model(**wordpiece()("It is very slow.", return_tensors="pt")).logits[0]
        assert result.label == subject.labels[int(logits.argmax())]
        assert result.probability == pytest.approx(float(logits.max().sigmoid()), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"methods": ["atcat"]}, UnknownName, "did you mean 'attcat'"),
        ({"methods": "atcat"}, UnknownName, "did you mean 'attcat'"),
        ({"methods": [3]}, BadSetting, "a list of names, or of results of whichtoken.method"),
        ({"methods": [Random]}, BadSetting, "a list of names, or of results of whichtoken.method"),
        ({"methods": []}, BadSetting, "at least one method"),
        ({"methods": [wt.method("gae", start_layer=3)]}, BadSetting, "at most 2: the model has 3 blocks"),
        ({"methods": [wt.method("rollout", start_layer=9)]}, BadSetting, "at most 2"),
        ({"target": wt.Class(2.0)}, BadSetting, "a label index or name"),  # type: ignore[arg-type]
        ({"target": wt.Class(True)}, BadSetting, "one of the model's 3 labels"),
        ({"target": wt.Contrast(1, None)}, BadSetting, "a label index or name"),  # type: ignore[arg-type]
        ({"target": "entailmnt"}, UnknownName, "unknown label 'entailmnt'; did you mean 'entailment'"),
        ({"target": 3}, BadSetting, "one of the model's 3 labels: 0 contradiction, 1 entailment, 2 neutral"),
        ({"target": -1}, BadSetting, "one of the model's 3 labels"),
        ({"target": True}, BadSetting, "one of the model's 3 labels"),
        ({"target": torch.tensor(1.0)}, BadSetting, "a label index or name"),
        ({"target": 1.5}, BadSetting, "a label index or name"),
        ({"target": wt.Contrast(1, "entailment")}, BadSetting, "two different labels"),
        ({"target": wt.Contrast(1, "nothing")}, UnknownName, "unknown label"),
    ],
)
def test_mistakes_are_named(call: dict[str, Any], error: type[Exception], message: str, subject_of: SubjectOf) -> None:
    with pytest.raises(error, match=message):
        wt.explain(subject_of("bert"), ["slow"], **call)


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ("classifier.bias", "first found in the classification head"),
        ("bert.encoder.layer.1.output.dense.weight", "first found in values of hidden, layer 2"),
        ("bert.embeddings.LayerNorm.weight", "first found in values of embeddings, layer 0"),
    ],
)
@pytest.mark.parametrize("method", ["gae", "cat@repo"])
def test_nan_in_the_model_is_located(weights: str, found: str, method: str) -> None:
    model = model_of("bert")
    with torch.no_grad():
        model.get_parameter(weights).fill_(torch.nan)
    with pytest.raises(NotFinite, match=f"^input 0: tiny gives NaN or infinite logits; {found}"):
        wt.explain(wt.Subject(model, wordpiece(), name="tiny"), ["slow", "film"], [method])


@dataclass(frozen=True)
class Broken(Method):
    name: ClassVar[str] = "broken"
    paper: ClassVar[str] = "none"

    @property
    def needs(self) -> Needs:
        return Needs()

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        return Scores(trace.readout.masked_fill(trace.lengths[:, None] > 4, torch.nan))


def test_nan_in_a_method_is_located(subject_of: SubjectOf) -> None:
    with pytest.raises(NotFinite, match=r"^input 1: broken gives NaN or infinite scores; .*in the method itself"):
        wt.explain(subject_of("bert"), ["slow", "It is very slow."], [Broken()])


def test_one_pass_serves_all_methods_of_a_view(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    calls: list[int] = []
    with subject.model.register_forward_hook(lambda *_: calls.append(1)):
        wt.explain(subject, ["slow"], ["attcat", "rollout", "gae", "cat", "gradient-x-input", "cam", "random"])
        assert len(calls) == 1
        wt.explain(subject, ["slow"], ["attcat", "attcat@repo", "cat@repo"])
        assert len(calls) == 3


def test_something_that_is_not_a_subject_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"subject='BertForSequenceClassification' .* wt.Subject\(model, processor\)"):
        wt.explain(model_of("bert"), ["slow"])


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_every_method_works_where_the_caller_switched_gradients_off(context: Any, subject_of: SubjectOf) -> None:
    methods = [*method_names(), "cat@repo", "attcat@repo"]
    subject = with_heads(with_references(subject_of("bert")))
    expected = wt.explain(subject, ["It is very slow."], methods)
    with context():
        assert wt.explain(subject, ["It is very slow."], methods) == expected


def test_attention_that_is_captured_bounds_the_batch(subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, texts = subject_of("bert"), ["slow film"] * 6
    rows: list[int] = []
    monkeypatch.setattr("whichtoken.scoring.PAIRS_PER_BATCH", 2 * 4**2 * 9)  # two texts of 4 tokens, 9 heads
    with subject.model.register_forward_hook(lambda module, args, output: rows.append(len(output.logits))):
        wt.explain(subject, texts, ["gradient-x-input"])
        wt.explain(subject, texts, ["gae"])
        wt.explain(subject, texts[:2], ["transatt"])  # the gradient of attention, and its relevance: as much again
    assert rows == [6, 2, 2, 2, 1, 1, 1, 1]


def test_many_texts_go_through_in_several_batches(subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of("bert")
    texts = ["slow " * n for n in (9, 1, 5, 2, 8, 3)]
    expected = wt.explain(subject, texts, methods="attcat")
    monkeypatch.setattr("whichtoken.scoring.TOKENS_PER_BATCH", 20)
    for one, other in zip(wt.explain(subject, texts, methods="attcat"), expected, strict=True):
        assert one["attcat"].texts == other["attcat"].texts
        assert one["attcat"].scores == pytest.approx(other["attcat"].scores, rel=1e-9)


def test_a_float32_and_a_bfloat16_model_work() -> None:
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.bfloat16, 0.5)):
        subject = wt.Subject(model_of("bert").to(dtype), wordpiece())
        exact = wt.explain(wt.Subject(model_of("bert"), wordpiece()), ["It is very slow."], ["attcat"], target=0)
        found = wt.explain(subject, ["It is very slow."], ["attcat"], target=0)
        scale = max(abs(score) for score in exact[0]["attcat"].scores)
        assert found[0]["attcat"].scores == pytest.approx(exact[0]["attcat"].scores, abs=tolerance * scale)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "xlm-roberta", "llama"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=25), second=st.none() | st.text(min_size=1, max_size=10))
def test_any_text_is_explained_or_refused_with_a_reason(
    kind: str, text: str, second: str | None, subject_of: SubjectOf
) -> None:
    item = text if second is None else (text, second)
    try:
        result = wt.explain(subject_of(kind), [item], ["attcat"])[0]["attcat"]
    except BadInput:  # says which input and why: tests/models/test_encoding.py
        return
    for sequence, span in zip(result.sequences, result.spans, strict=True):
        assert (sequence is None) == (span is None)
        if sequence is not None and span is not None:
            assert 0 <= span[0] <= span[1] <= len(result.texts[sequence])
    for word in result.words():
        assert result.texts[word.sequence][slice(*word.span)] == word.text
    assert sum(word.score for word in result.words()) == pytest.approx(
        sum(score for score, sequence in zip(result.scores, result.sequences, strict=True) if sequence is not None),
        rel=1e-9,
        abs=1e-12,
    )


def test_the_bar_is_out_of_the_way_when_a_result_is_printed(
    subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Bar:
        def __init__(self, **settings: Any) -> None:
            seen.append(f"total {settings['total']}")

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None: ...
        def update(self, count: int) -> None:
            seen.append(f"update {count}")

        def clear(self) -> None:
            seen.append("clear")

    monkeypatch.setattr("whichtoken._explain.tqdm", Bar)
    for _ in wt.explain_each(subject_of("bert"), ["slow", "rare"], ["attcat"]):
        seen.append("printed")
    assert seen == ["total 2", "update 2", "clear", "printed", "printed"]


def test_evaluations_count_what_a_method_would_have_asked_alone(subject_of: SubjectOf) -> None:
    subject = with_references(subject_of("bert"))
    text, names = "The actors were won, but it is slow.", ["attcat", "full-lrp", "integrated-gradients", "contrast-cat"]
    found = wt.explain(subject, [text], names)[0]
    steps = found["integrated-gradients"].settings["steps"]
    assert found["attcat"].evaluations == 1
    assert found["full-lrp"].evaluations == 2  # and one pass under its rules
    assert found["integrated-gradients"].evaluations > steps
    assert found["contrast-cat"].evaluations == 1 + found["contrast-cat"].details["evaluations"]
    together = wt.explain(subject, [text], [*names, "refined-noise"])[0]
    assert together["contrast-cat"].evaluations == found["contrast-cat"].evaluations  # whoever else asked


def test_long_texts_are_explained_in_smaller_chunks(subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """All results of a chunk are held in memory together."""
    taken: list[int] = []

    def texts() -> Iterator[str]:
        for number in range(7):
            taken.append(number)
            yield "it is slow"

    monkeypatch.setattr("whichtoken._explain.CHARACTERS_AT_ONCE", 2 * len("it is slow"))
    results = wt.explain_each(subject_of("bert"), texts(), "random")
    assert taken == []
    next(results)
    assert taken == [0, 1]
    assert len(list(results)) == 6


@pytest.mark.parametrize(
    ("item", "n_characters"),
    [
        ("it is", 5),
        (("it is", "slow"), 9),
        ({"text": "it is", "label": 1}, 5),
        (TextExample(("it", "is")), 4),
        ([{"role": "user", "content": "it is"}], 9),
        (Prompt("it is", documents=(("a", "slow"),), continuation="so"), 12),
        (3, 0),
    ],
)
def test_characters_are_counted_in_every_form_of_input(item: object, n_characters: int) -> None:
    assert count_characters(item) == n_characters
