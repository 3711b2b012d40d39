"""What every registered method must do on every supported architecture. Add no exceptions here: fix the method."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from tests.tiny import KINDS, class_goal, model_of, with_heads, with_references

import whichtoken as wt
from whichtoken.core.registry import find, method_names, parse
from whichtoken.core.trace import Ask
from whichtoken.errors import UndeclaredSite
from whichtoken.models import ModelProbe, capture, window_row
from whichtoken.models.architectures import ARCHITECTURES

INPUTS = [
    "It is very slow.",
    "The actors were wonderful, but naïve 😀.",
    ("A man sleeps.", "Nobody is awake."),
    "dull",
]
WRITTEN = [label for name in method_names() for label in (name, *(f"{name}@{preset}" for preset in find(name).presets))]
LABELS = sorted({parse(label).label for label in WRITTEN})  # a preset that equals the defaults is not tried twice

TEXTS = sorted(name for name, row in ARCHITECTURES.items() if row.reads == "tokens")

# What a kind has computed is kept, so its tests stay together.
each_kind = pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in TEXTS])
each_method = pytest.mark.parametrize("label", LABELS)


@cache
def subject_for(kind: str, attention: str | None) -> wt.Subject:
    return with_heads(with_references(wt.Subject(model_of(kind, attention), KINDS[kind].tokenizer(), name=kind)))


def explained(kind: str, labels: list[str], inputs: list[Any], attention: str | None = None) -> list[Any]:
    return wt.explain(subject_for(kind, attention), inputs, labels, target="entailment", layers=True)


@cache
def together(kind: str) -> list[Any]:
    """All methods on all inputs in one call: one padded batch, shared passes."""
    return explained(kind, LABELS, INPUTS)


def assert_close(found: list[Any], expected: list[Any]) -> None:
    for mine, reference in zip(found, expected, strict=True):
        for label, attribution in mine.items():
            assert attribution.tokens == reference[label].tokens
            a, b = (torch.tensor([x.scores, *x.layers], dtype=torch.float64) for x in (attribution, reference[label]))
            worst = float((a - b).abs().max())
            assert worst <= 1e-9 * float(b.abs().max()) + 1e-15, f"{label}: {a} is not {b}"


def test_every_architecture_has_a_tiny_model() -> None:
    assert sorted(KINDS) == TEXTS


@each_kind
def test_scores_are_finite_and_as_many_as_tokens(kind: str) -> None:
    for result in together(kind):
        assert list(result) == LABELS
        for attribution in result.values():
            assert len(attribution.scores) == len(attribution.tokens) == len(attribution.spans)
            assert torch.tensor(attribution.scores).isfinite().all()


@each_kind
def test_what_layers_add_sums_to_the_scores(kind: str) -> None:
    for result in together(kind):
        layered = {label: attribution for label, attribution in result.items() if attribution.layers}
        assert {"attcat", "cat", "contrast-cat", "grad-sam"} <= set(layered)
        for label, attribution in layered.items():
            terms, total = (torch.tensor(x, dtype=torch.float64) for x in (attribution.layers, attribution.scores))
            worst = float((terms.sum(0) - total).abs().max())
            assert worst <= 1e-9 * float(terms.abs().max()), label


@each_kind
def test_a_padded_batch_gives_what_each_input_gives_alone(kind: str) -> None:
    assert_close([explained(kind, LABELS, [item])[0] for item in INPUTS], together(kind))


@each_kind
def test_the_order_of_inputs_does_not_matter(kind: str) -> None:
    assert_close(explained(kind, LABELS, INPUTS[::-1])[::-1], together(kind))


@each_kind
def test_the_same_call_gives_the_same_bits(kind: str) -> None:
    assert explained(kind, LABELS, INPUTS) == together(kind)


@each_kind
def test_the_models_attention_implementation_does_not_matter(kind: str) -> None:
    if not model_of(kind)._supports_sdpa:
        pytest.skip("this architecture has eager attention only")
    assert subject_for(kind, None).model.config._attn_implementation == "sdpa"
    assert_close(explained(kind, LABELS, INPUTS, "eager"), together(kind))


@each_kind
def test_the_model_is_left_as_found(kind: str) -> None:
    subject = subject_for(kind, None)
    before = state_of(subject)
    explained(kind, LABELS, INPUTS[:2])
    assert state_of(subject) == before


@each_kind
@each_method
def test_the_model_is_left_as_found_when_an_error_passes_through(kind: str, label: str) -> None:
    subject = subject_for(kind, None)

    def fail(*_: object) -> None:
        raise RuntimeError("as if the machine were out of memory")

    with subject.blocks[-1].register_forward_hook(fail):
        before = state_of(subject)
        with pytest.raises(RuntimeError, match="out of memory"):
            explained(kind, [label], INPUTS[:2])
        assert state_of(subject) == before


@each_method
def test_a_method_reads_what_it_declares_and_nothing_else(label: str) -> None:
    subject, method = subject_for("bert", None), parse(label)
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
        "keep_in_place": Ask.REMOVALS,
        "references": Ask.REFERENCES,
        "heads": Ask.HEADS,
        "trace": Ask.PASSES,
    }
    for name, kind in kinds.items():
        original = getattr(ModelProbe, name)

        def spy(self: Any, *args: Any, _kind: Ask = kind, _original: Any = original) -> Any:
            asked.add(_kind)
            return _original(self, *args)

        monkeypatch.setattr(ModelProbe, name, spy)
    explained("bert", [label], INPUTS[:1])
    assert asked == parse(label).needs.asks


@each_kind
def test_threads_may_share_a_model_and_methods_need_no_company(kind: str) -> None:
    together(kind)  # makes the model before threads share it
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda label: explained(kind, [label], INPUTS[:2]), LABELS)
        for results in answers:
            assert_close(results, together(kind)[:2])


def state_of(subject: wt.Subject) -> dict[str, Any]:
    """All that a careless explainer could leave changed."""
    model, backend = subject.model, subject.tokenizer.backend_tokenizer
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
        "tokenizer": (backend.truncation, backend.padding, len(subject.tokenizer)),
        "grad_enabled": torch.is_grad_enabled(),
    }


def _modules(model: torch.nn.Module) -> Iterator[object]:
    for name, module in model.named_modules():
        hooks = [len(value) for key, value in vars(module).items() if key.endswith("_hooks")]
        yield name, type(module), module.training, hooks, module.__dict__.get("forward")
