"""What every registered method must do in every task and on every architecture. Add no exceptions: fix the method."""

import hashlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import (
    IMAGE_KINDS,
    KINDS,
    QUESTION_KINDS,
    class_goal,
    image_model_of,
    language_subject,
    model_of,
    question_subject,
    token_subject,
    with_heads,
    with_references,
)
from transformers import ViTImageProcessorPil

import whichtoken as wt
from whichtoken.core.registry import find, method_names, parse
from whichtoken.core.trace import Ask, Method
from whichtoken.data.prompts import Prompt
from whichtoken.errors import UndeclaredSite
from whichtoken.models import ModelProbe, capture, window_row
from whichtoken.models.architectures import ARCHITECTURES
from whichtoken.targets import AnswerRequest
from whichtoken.tasks import task_for

# Fewer steps, masks and references than the defaults: how many there are changes no promise that is tested here.
SMALL: dict[str, dict[str, Any]] = {
    "integrated-gradients": {"steps": 4},
    "tis": {"n_masks": 12},
    "contrast-cat": {"n": 3},
    "refined-noise": {"n": 3},
    "posterior": {"budget": 8, "per_round": 4, "prior": "attcat+alti"},
    "lime": {"budget": 12},
    "kernel-shap": {"budget": 12},
    "context-cite": {"ablations": 12},
}
WRITTEN = [label for name in method_names() for label in (name, *(f"{name}@{preset}" for preset in find(name).presets))]
METHODS = {method.label: method for text in WRITTEN for method in [parse(text, **SMALL.get(text.split("@")[0], {}))]}
TEXTS = sorted(name for name, row in ARCHITECTURES.items() if row.reads == "tokens")
GENERATING = [name for name in TEXTS if ARCHITECTURES[name].causal]
QUESTIONS = [
    ("Is it slow?", "The film was slow, but the music was touching."),
    ("a man", "It is a rare plot."),
    ("Who won", "The actors were won, it was the end of a man."),
]
OTHER_QUESTIONS = [
    ("Is it rare?", "Nobody did sleep, it was the end of the film."),
    ("the plot", "A man is touching the music."),
]


@dataclass(frozen=True)
class Case:
    """A task on an architecture, and inputs of different lengths for it."""

    task: str
    kind: str

    def __str__(self) -> str:
        return f"{self.task}-{self.kind}"

    @property
    def inputs(self) -> list[Any]:
        if self.task == "answer":
            return QUESTIONS
        if self.task == "image":
            return [np.random.default_rng(seed).integers(0, 256, (14, 13, 3), np.uint8) for seed in range(3)]
        if self.task == "generate":
            return [
                Prompt("The actors were wonderful, but naïve 😀.", continuation=" It is. A rare plot."),
                Prompt("A man sleeps. Nobody", continuation=" is awake."),
                Prompt("dull", continuation=" film"),
            ]
        if self.task == "tokens":
            return ["The actors were wonderful, but naïve 😀.", "A man sleeps. Nobody is awake.", "dull"]
        return ["The actors were wonderful, but naïve 😀.", ("A man sleeps.", "Nobody is awake."), "dull"]

    @property
    def target(self) -> Any:
        return {"answer": None, "generate": None, "tokens": "LOC"}.get(self.task, 0)

    @property
    def answer(self) -> AnswerRequest | None:
        return AnswerRequest(rows="sentence") if self.task == "generate" else None

    @property
    def token(self) -> tuple[int, int] | None:
        return (0, 10) if self.task == "tokens" else None  # two words, three words, one word

    def methods(self) -> list[Method]:
        return [method for method in METHODS.values() if task_for(subject_for(self)).can_run(method) is None]


CASES = [
    *(Case("classify", kind) for kind in TEXTS),
    *(Case("answer", kind) for kind in QUESTION_KINDS),
    *(Case("image", kind) for kind in IMAGE_KINDS),
    *(Case("tokens", kind) for kind in TEXTS if kind not in ("gemma3_text", "olmo2")),  # which have no such class
    *(Case("generate", kind) for kind in GENERATING),
]


# These share blocks (BERT, RoBERTa, Llama) or the code of their task with a quick case; see also tests/models.
SLOW = {
    *(Case("classify", kind) for kind in ("electra", "xlm-roberta", *GENERATING) if kind not in ("gpt2", "llama")),
    *(Case("generate", kind) for kind in GENERATING if kind != "llama"),
    *(Case("answer", kind) for kind in QUESTION_KINDS if kind not in ("bert", "gpt2")),
    *(Case("image", kind) for kind in IMAGE_KINDS if kind not in ("vit", "dinov2_with_registers")),
    *(Case("tokens", kind) for kind in TEXTS if kind != "bert"),
}


def parameters(cases: list[Case], slow: Collection[Case] = SLOW) -> Any:
    """What a case has computed is kept, so its tests run on one worker."""
    marks = {
        case: [pytest.mark.xdist_group(str(case)), *([pytest.mark.slow] if case in slow else [])] for case in cases
    }
    return pytest.mark.parametrize("case", [pytest.param(case, marks=marks[case]) for case in cases], ids=str)


TEXT_CASES = [case for case in CASES if case.task == "classify"]
each_case = parameters(CASES)
each_text = parameters(TEXT_CASES)
each_method = pytest.mark.parametrize("label", sorted(METHODS))


def subject_for(case: Case, attention: str | None = None) -> wt.Subject:
    return _subject(case, attention)


@cache
def _subject(case: Case, attention: str | None) -> wt.Subject:
    if case.task == "image":
        size = {"height": 12, "width": 12}
        return with_heads(
            wt.Subject(image_model_of(case.kind, attention), ViTImageProcessorPil(size=size), name="image")
        )
    if case.task == "answer":
        subject = with_heads(question_subject(case.kind, attention))
        recipe: dict[str, Any] = {"min_tokens": 1, "layers": "all", "dtype": "float64", "gamma": 1.0}
        return subject.with_references(wt.references.build(subject, OTHER_QUESTIONS, **recipe))
    if case.task == "tokens":
        return with_heads(token_subject(case.kind, attention))
    if case.task == "generate":
        return with_heads(language_subject(case.kind, attention))
    tokenizer = KINDS[case.kind].tokenizer()
    return with_heads(with_references(wt.Subject(model_of(case.kind, attention), tokenizer, name=case.kind)))


def explained(case: Case, methods: list[Method], inputs: list[Any], attention: str | None = None) -> list[Any]:
    subject = subject_for(case, attention)
    return list(
        wt.explain_each(subject, inputs, methods, target=case.target, layers=True, token=case.token, answer=case.answer)
    )


@dataclass(frozen=True)
class Together:
    """All methods on all inputs in one call: one padded batch, shared passes; and the model before and after."""

    results: list[Any]
    before: dict[str, Any]
    after: dict[str, Any]


@cache
def together(case: Case) -> Together:
    before = state_of(subject_for(case))
    results = explained(case, case.methods(), case.inputs)
    return Together(results, before, state_of(subject_for(case)))


def assert_close(found: list[Any], expected: list[Any], tolerance: float = 1e-9) -> None:
    for mine, reference in zip(found, expected, strict=True):
        for label, attribution in mine.items():
            assert attribution.tokens == reference[label].tokens
            for a, b in zip(numbers(attribution), numbers(reference[label]), strict=True):
                worst = float((a - b).abs().max())
                assert worst <= tolerance * float(b.abs().max()) + 1e-15, f"{label}: {a} is not {b}"


def numbers(attribution: wt.Attribution) -> list[torch.Tensor]:
    """Scores with what layers add, of parts of an answer, and of single pixels where a method has them."""
    picture = attribution.picture
    pixels = [torch.tensor(picture.pixels)] if picture is not None and picture.pixels else []
    parts = [] if attribution.generated is None else [row.scores for row in attribution.generated.rows]
    return [torch.tensor([attribution.scores, *attribution.layers, *parts], dtype=torch.float64), *pixels]


def test_every_architecture_has_a_tiny_model() -> None:
    assert sorted(KINDS) == TEXTS


@each_case
def test_scores_are_finite_and_as_many_as_tokens(case: Case) -> None:
    labels = [method.label for method in case.methods()]
    for result in together(case).results:
        assert list(result) == labels
        for attribution in result.values():
            assert len(attribution.scores) == len(attribution.tokens) == len(attribution.spans)
            assert torch.tensor(attribution.scores).isfinite().all()
    if case.task == "answer":  # a map of one class may have no positive entry; of the ends of answers some has one
        for label in labels:
            assert any(any(result[label].scores) for result in together(case).results), label


@each_case
def test_what_layers_add_sums_to_the_scores(case: Case) -> None:
    for result in together(case).results:
        layered = {label: attribution for label, attribution in result.items() if attribution.layers}
        assert {"attcat", "cat", "grad-sam"} <= set(layered)
        summing = {name for name in method_names() if find(name).sums_layers}
        assert {label for label in layered if label in method_names()} == summing & set(result)
        assert case.task in ("image", "tokens", "generate") or any(
            label.startswith("contrast-cat") for label in layered
        )
        for label, attribution in layered.items():
            terms, total = (torch.tensor(x, dtype=torch.float64) for x in (attribution.layers, attribution.scores))
            worst = float((terms.sum(0) - total).abs().max())
            assert worst <= 1e-9 * float(terms.abs().max()), label


@each_case
def test_a_padded_batch_gives_what_each_input_gives_alone(case: Case) -> None:
    """The two that are padded; the longest has no padding in either."""
    alone = [explained(case, case.methods(), [item])[0] for item in case.inputs[1:]]
    assert_close(alone, together(case).results[1:])


# How inputs are batched and put back in order does not depend on the model.
@parameters(CASES, slow=[case for case in CASES if case in SLOW or case.kind not in ("bert", "gpt2", "vit")])
def test_the_order_of_inputs_does_not_matter(case: Case) -> None:
    found = explained(case, case.methods(), case.inputs[::-1])[::-1]
    assert_close(found, together(case).results)
    if case.task != "image":  # batches are sorted by length: the same batch, so the same bits
        assert found == together(case).results


@parameters([case for case in CASES if case.kind == "vit"])
def test_the_same_call_gives_the_same_bits(case: Case) -> None:
    """That it does for texts and questions is part of the test above."""
    assert explained(case, case.methods(), case.inputs) == together(case).results


@each_case
def test_the_models_attention_implementation_does_not_matter(case: Case) -> None:
    if not subject_for(case).model._supports_sdpa:
        pytest.skip("this architecture has eager attention only")
    assert subject_for(case).model.config._attn_implementation == "sdpa"
    # Transformers' eager attention of ModernBERT computes the softmax in float32.
    tolerance = 1e-7 if case.kind == "modernbert" else 1e-9
    assert_close(explained(case, case.methods(), case.inputs[:2], "eager"), together(case).results[:2], tolerance)


@each_case
def test_the_model_is_left_as_found(case: Case) -> None:
    assert together(case).after == together(case).before


@each_text
def test_the_model_is_left_as_found_when_an_error_passes_through(case: Case) -> None:
    """One method for each way through the code: what it asks of its probe, which view it reads, by which rules."""
    subject = subject_for(case)
    ways = {(m.needs.view, m.needs.asks, frozenset(rules for rules, _ in m.needs.relevance)): m for m in case.methods()}
    assert len(ways) > 8

    def fail(*_: object) -> None:
        raise RuntimeError("as if the machine were out of memory")

    with subject.blocks[-1].register_forward_hook(fail):
        before = state_of(subject)
        for method in ways.values():
            with pytest.raises(RuntimeError, match="out of memory"):
                explained(case, [method], case.inputs[:2])
            assert state_of(subject) == before, method.label


@each_method
def test_a_method_reads_what_it_declares_and_nothing_else(label: str) -> None:
    subject, method = subject_for(CASES[0]), METHODS[label]
    documents = subject.encode([("It is very slow.",)])
    batch = subject.batch([window_row(documents[0], documents[0].windows[0])])
    goal = class_goal(subject, torch.tensor([1]))
    trace = capture(subject, batch, lambda logits: goal, method.needs)
    probe = ModelProbe(subject, batch, goal)
    method(trace, probe)
    for site in method.needs.values:
        less = replace(method.needs, values=method.needs.values - {site})
        with pytest.raises(UndeclaredSite, match=f"values of {site}"):
            method(trace.restrict(less), probe)
    for site in method.needs.grads:
        less = replace(method.needs, grads=method.needs.grads - {site})
        with pytest.raises(UndeclaredSite, match=f"grads of {site}"):
            method(trace.restrict(less), probe)
    for rules, site in method.needs.relevance:
        less = replace(method.needs, relevance=method.needs.relevance - {(rules, site)})
        with pytest.raises(UndeclaredSite, match=f"relevance under {rules.name} of {site}"):
            method(trace.restrict(less), probe)


@each_method
def test_a_method_asks_what_it_declares_and_nothing_else(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set()
    kinds = {
        "keep": Ask.DELETIONS,
        "outputs": Ask.ANSWERS,
        "log_odds": Ask.ANSWERS,
        "keep_in_place": Ask.REMOVALS,
        "references": Ask.REFERENCES,
        "heads": Ask.HEADS,
        "trace": Ask.PASSES,
        "differentiate": Ask.PASSES,
    }
    for name, kind in kinds.items():
        original = getattr(ModelProbe, name)

        def spy(self: Any, *args: Any, _kind: Ask = kind, _original: Any = original) -> Any:
            asked.add(_kind)
            return _original(self, *args)

        monkeypatch.setattr(ModelProbe, name, spy)
    explained(CASES[0], [METHODS[label]], CASES[0].inputs[:1])
    assert asked == METHODS[label].needs.asks


# One that reads attention through transformers' interface and one that reads it by hooks are enough for every change.
@parameters(TEXT_CASES, slow=[case for case in TEXT_CASES if case.kind not in ("bert", "deberta-v2")])
def test_threads_may_share_a_model_and_methods_need_no_company(case: Case) -> None:
    together(case)  # makes the model before threads share it
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda method: explained(case, [method], case.inputs[:2]), case.methods())
        for results in answers:
            assert_close(results, together(case).results[:2])


def state_of(subject: wt.Subject) -> dict[str, Any]:
    """All that a careless explainer could leave changed."""
    model, backend = subject.model, getattr(subject.processor, "backend_tokenizer", None)
    weights = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        weights.update(name.encode() + tensor.numpy().tobytes())
    return {
        "weights": weights.hexdigest(),
        "class": type(model),
        "config": model.config.to_dict(),
        "attention": model.config._attn_implementation,
        "learning": [parameter.requires_grad for parameter in model.parameters()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "modules": list(_modules(model)),
        "tokenizer": backend and (backend.truncation, backend.padding, len(subject.processor)),
        "grad_enabled": torch.is_grad_enabled(),
    }


def _modules(model: torch.nn.Module) -> Iterator[object]:
    for name, module in model.named_modules():
        hooks = [len(value) for key, value in vars(module).items() if key.endswith("_hooks")]
        yield name, type(module), module.training, hooks, module.__dict__.get("forward")
