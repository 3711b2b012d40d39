"""Hooks of the user fire in our passes as they do in the user's own, and may explain the model themselves."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.tiny import KINDS, model_of

import whichtoken as wt
from whichtoken.lrp import C21, propagating, rules
from whichtoken.models import attention

TEXT = ["It is very slow."]
Register = Callable[[Any, Callable[..., None]], Any]
# How to register a hook that only looks, for each kind of hook that a pass calls.
KINDS_OF_HOOKS: dict[str, Register] = {
    "forward": lambda module, hook: module.register_forward_hook(hook),
    "forward with kwargs": lambda module, hook: module.register_forward_hook(hook, with_kwargs=True),
    "always called": lambda module, hook: module.register_forward_hook(hook, always_call=True),
    "before": lambda module, hook: module.register_forward_pre_hook(hook),
    "before with kwargs": lambda module, hook: module.register_forward_pre_hook(hook, with_kwargs=True),
    "backward": lambda module, hook: module.register_full_backward_hook(hook),
    "before backward": lambda module, hook: module.register_full_backward_pre_hook(hook),
}
N_ARGUMENTS = {
    "forward": 3,
    "forward with kwargs": 4,
    "always called": 3,
    "before": 2,
    "before with kwargs": 3,
    "backward": 3,
    "before backward": 2,
}


def subject_for() -> wt.Subject:
    return wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")


def explain_with_a_hook(subject: wt.Subject, method: str) -> wt.Results:
    """Explain a model that has a hook, so that it gets no shortcut, and other results can be the same bits."""
    with subject.model.register_forward_hook(lambda *_: None):
        return wt.explain(subject, TEXT, [method])


@pytest.mark.parametrize("kind", KINDS_OF_HOOKS)
@pytest.mark.parametrize("method", ["attcat", "full-lrp"])
@pytest.mark.parametrize("place", ["encoder.layer.1", "encoder.layer.1.attention.output.dense"])
def test_every_kind_of_hook_fires_once_for_each_pass(kind: str, method: str, place: str) -> None:
    subject, calls = subject_for(), []
    plain = explain_with_a_hook(subject, method)
    module = subject.model.bert.get_submodule(place)

    def hook(*arguments: Any) -> None:
        assert arguments[0] is not module
        calls.append(len(arguments))

    with KINDS_OF_HOOKS[kind](module, hook):
        assert wt.explain(subject, TEXT, [method]) == plain
    assert calls == [N_ARGUMENTS[kind]]


@pytest.mark.parametrize("kind", ["backward", "before backward"])
def test_backward_hooks_of_the_embeddings_are_no_obstacle(kind: str) -> None:
    """Gradients of hidden states end before them; relevance reaches them, with torch's usual warning about ids."""
    subject, calls = subject_for(), []
    plain = explain_with_a_hook(subject, "attcat") + explain_with_a_hook(subject, "full-lrp")
    with KINDS_OF_HOOKS[kind](subject.model.bert.embeddings, lambda *_: calls.append(1)):
        assert wt.explain(subject, TEXT, ["attcat"])[0]["attcat"] == plain[0]["attcat"]
        assert not calls
        with pytest.warns(UserWarning, match="since no inputs require gradients"):
            assert wt.explain(subject, TEXT, ["full-lrp"])[0]["full-lrp"] == plain[1]["full-lrp"]
        assert len(calls) == 1


def test_a_hook_that_is_always_called_sees_a_pass_that_fails() -> None:
    subject, calls = subject_for(), []

    def fail(*_: object) -> None:
        raise RuntimeError("as if the machine were out of memory")

    layer = subject.model.bert.encoder.layer[0]
    with (
        layer.register_forward_hook(fail),
        layer.register_forward_hook(lambda *_: calls.append(1), always_call=True),
        pytest.raises(RuntimeError, match="out of memory"),
    ):
        wt.explain(subject, TEXT, "attcat")
    assert calls == [1]


def test_a_hook_that_changes_the_model_is_part_of_what_is_explained() -> None:
    subject = subject_for()
    plain = wt.explain(subject, TEXT, methods="attcat")[0]["attcat"]
    with subject.model.bert.encoder.layer[0].register_forward_hook(lambda module, args, output: output * 2):
        changed = wt.explain(subject, TEXT, methods="attcat")[0]["attcat"]
        with torch.no_grad():
            logits = subject.model(**subject.tokenizer(TEXT, return_tensors="pt")).logits
    assert changed.scores != plain.scores
    assert changed.probability == pytest.approx(logits.softmax(-1).max().item(), rel=1e-12)


@pytest.mark.parametrize("outer", ["attcat", "full-lrp", "tis"])
@pytest.mark.parametrize("inner", ["attcat", "full-lrp"])
def test_a_hook_may_explain_the_model(outer: str, inner: str) -> None:
    """In the passes of its own call it does not run again, and rules of the pass that called it do not reach there."""
    subject, found = subject_for(), []
    plain = {name: explain_with_a_hook(subject, name) for name in (outer, inner)}

    def hook(*_: object) -> None:
        found.append(wt.explain(subject, TEXT, [inner]))

    with subject.model.bert.encoder.layer[1].register_forward_hook(hook):
        explained = wt.explain(subject, TEXT, [outer])[0][outer]
    assert explained.scores == pytest.approx(plain[outer][0][outer].scores, rel=1e-9, abs=1e-12)
    assert len(found) >= 1
    assert all(result == plain[inner] for result in found)


def test_a_hook_that_explains_runs_once_more_in_each_pass_of_the_call_that_it_makes() -> None:
    """The user's own pass calls it as it is; in the pass of the call that it makes there it runs, but not again."""
    subject, calls, found = subject_for(), [], []
    plain = wt.explain(subject, TEXT, "attcat")

    def hook(*_: object) -> None:
        calls.append(1)
        found.append(wt.explain(subject, TEXT, "attcat"))

    with subject.model.register_forward_hook(hook):
        subject.model(**subject.tokenizer(TEXT, return_tensors="pt"))
    assert len(calls) == 2
    assert found == [plain, plain]


def test_other_hooks_run_in_a_call_that_a_hook_makes() -> None:
    subject, calls, found = subject_for(), [], []
    first, second = subject.model.bert.encoder.layer[:2]

    def hook(*_: object) -> None:
        found.append(wt.explain(subject, TEXT, "attcat"))

    def double(module: Any, args: Any, output: Any) -> Any:
        calls.append(1)
        return output * 2

    with second.register_forward_hook(double):
        doubled = wt.explain(subject, TEXT, "attcat")
        with first.register_forward_hook(hook):
            assert wt.explain(subject, TEXT, "attcat") == doubled
    assert found == [doubled]
    assert len(calls) == 3


def test_a_hook_that_fails_runs_again_in_the_next_call() -> None:
    subject, calls = subject_for(), []

    def hook(*_: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("once")

    with subject.model.register_forward_hook(hook):
        with pytest.raises(RuntimeError, match="once"):
            wt.explain(subject, TEXT, "attcat")
        wt.explain(subject, TEXT, "attcat")
    assert len(calls) == 2


def halve(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output * 0.5


def test_a_hook_may_change_the_gate_of_a_model() -> None:
    """Scaling the gate is the same as scaling the other factor, whose gradient cp-lrp keeps."""
    found = []
    for name in ("act_fn", "up_proj"):
        subject = wt.Subject(model_of("llama"), KINDS["llama"].tokenizer(), name="llama")
        subject.model.model.layers[1].mlp.get_submodule(name).register_forward_hook(halve)
        found.append(wt.explain(subject, TEXT, "cp-lrp")[0]["cp-lrp"].scores)
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert any(found[0])


def test_attention_of_constants_has_the_gradients_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = wt.Subject(model_of("qwen3"), KINDS["qwen3"].tokenizer(), name="qwen3")
    for layer in subject.model.model.layers:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            norm.register_forward_hook(lambda module, args, output: output.detach())
    found = wt.explain(subject, TEXT, "attn-lrp")[0]["attn-lrp"].scores
    monkeypatch.setattr(attention, "attention_in_one_step", lambda rules: None)
    assert found == pytest.approx(wt.explain(subject, TEXT, "attn-lrp")[0]["attn-lrp"].scores, rel=1e-9)


def test_a_hook_may_use_the_weights_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_for()
    subject.model.bert.encoder.layer[1].attention.self.register_forward_hook(
        lambda module, args, output: (output[0] + output[1].mean(1) @ output[0], *output[1:])
    )
    found = wt.explain(subject, TEXT, "attn-lrp")[0]["attn-lrp"].scores
    monkeypatch.setattr(attention, "attention_in_one_step", lambda rules: None)
    assert found == pytest.approx(wt.explain(subject, TEXT, "attn-lrp")[0]["attn-lrp"].scores, rel=1e-9)


@pytest.mark.parametrize("method", ["full-lrp", "attn-lrp", "attcat"])
@pytest.mark.parametrize("large", [1, rules.LARGE])
def test_a_hook_may_give_each_head_its_own_mask(method: str, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "LARGE", large)
    subject, seen = subject_for(), list[torch.Size]()

    def block_the_first_key_for_the_first_head(module: Any, args: Any, kwargs: Any) -> Any:
        mask = kwargs.get("attention_mask")
        mask = torch.zeros(1, 1, 1, 1, dtype=torch.float64) if mask is None else mask
        tokens = args[0].shape[1]
        mask = mask.expand(len(args[0]), module.num_attention_heads, tokens, tokens).clone()
        mask[:, 0, 1:, 0] = torch.finfo(mask.dtype).min
        seen.append(mask.shape)
        return args, {**kwargs, "attention_mask": mask}

    hooked = subject.model.bert.encoder.layer[1].attention.self
    hooked.register_forward_pre_hook(block_the_first_key_for_the_first_head, with_kwargs=True)
    found = wt.explain(subject, TEXT * 2, method)[1][method].scores
    assert seen
    monkeypatch.setattr(attention, "weighs_in_one_step", lambda rules: False)
    monkeypatch.setattr(attention, "attention_in_one_step", lambda rules: None)
    assert found == pytest.approx(wt.explain(subject, TEXT * 2, method)[1][method].scores, rel=1e-9)


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_rules_that_the_user_applies_do_not_reach_an_explanation(kind: str) -> None:
    subject = wt.Subject(model_of(kind).requires_grad_(False), KINDS[kind].tokenizer(), name=kind)
    methods = ["attcat", "attn-lrp"]  # by gradients, and by rules of its own
    expected = wt.explain(subject, TEXT, methods)[0]
    with propagating(subject.model, C21):
        found = wt.explain(subject, TEXT, methods)[0]
    for method in methods:
        assert found[method].scores == pytest.approx(expected[method].scores, rel=1e-9)


def test_a_copy_of_a_model_to_which_the_user_applies_rules_has_its_own_weights() -> None:
    model = model_of("llama").requires_grad_(False)
    norm = model.model.norm
    x = torch.randn(1, 3, norm.weight.shape[0], dtype=norm.weight.dtype)
    with propagating(model, C21):
        copied = copy.deepcopy(model).model.norm
    norm.weight.zero_()
    assert copied(x).abs().sum() > 0
