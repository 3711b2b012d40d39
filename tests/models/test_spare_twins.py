"""Between two calls, a twin is kept: whatever has changed meanwhile is noticed, or shared."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from tests.models.test_peft import adapt
from tests.tiny import KINDS, model_of
from torch import nn

import whichtoken as wt
from whichtoken.models.twin import take_snapshot

SENTENCES = ["It is very slow.", "The actors were wonderful."]
METHODS = ["attcat", "full-lrp", "posterior"]


def subject_for(kind: str = "bert", attention: str | None = None) -> wt.Subject:
    return wt.Subject(model_of(kind, attention), KINDS[kind].tokenizer(), name=kind)


def explain(subject: wt.Subject) -> Any:
    return list(wt.explain(subject, SENTENCES, METHODS))


def scores_of(results: Any) -> list[Any]:
    """Shortcuts, which a hook rules out, and batches of another size change the last digits."""
    return [pytest.approx(record.scores, rel=1e-9, abs=1e-12) for result in results for record in result.values()]


def attention_of(model: Any) -> Any:
    return model.bert.encoder.layer[1].attention.self


def train(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)


def load(model: Any, assign: bool) -> None:
    model.load_state_dict({name: tensor * 1.1 for name, tensor in model.state_dict().items()}, assign=assign)


def replace_data(model: Any) -> None:
    model.classifier.weight.data = model.classifier.weight.data * 2


def write_data(model: Any) -> None:
    model.bert.encoder.layer[0].output.dense.weight.data.mul_(1.5)


def replace_module(model: Any) -> None:
    made = nn.Linear(24, 24, dtype=torch.float64).eval()
    with torch.no_grad():
        made.weight.copy_(torch.eye(24))
    attention_of(model).query = made


def replace_parameter(model: Any) -> None:
    model.classifier.bias = nn.Parameter(model.classifier.bias.detach() + 1)


def add_hook(model: Any) -> None:
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, output: output * 1.5)


def set_attribute(model: Any) -> None:
    attention_of(model).scaling *= 2


def set_config(model: Any) -> None:
    model.config.id2label[0] = "other"


def set_forward(model: Any) -> None:
    attention_of(model).query.forward = lambda hidden: hidden * 2.0


CHANGES: dict[str, Callable[[Any], None]] = {
    "a training step": train,
    "weights loaded in place": partial(load, assign=False),
    "weights loaded as other tensors": partial(load, assign=True),
    "another dtype": lambda model: model.to(torch.float32),
    "other data of a parameter": replace_data,
    "data of a parameter written in place": write_data,
    "another module": replace_module,
    "another parameter": replace_parameter,
    "a hook": add_hook,
    "a number of a module": set_attribute,
    "an entry of the configuration": set_config,
    "another forward": set_forward,
}


def test_the_next_call_runs_on_the_same_twin() -> None:
    subject = subject_for()
    first = explain(subject)
    (spare,) = subject.spares
    assert explain(subject) == first == explain(subject_for())
    assert subject.spares[0].twin is spare.twin
    assert subject.with_twin().model is spare.twin
    assert subject.spares == []


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_between_two_calls_is_seen(name: str) -> None:
    subject = subject_for()
    before = explain(subject)
    assert subject.spares
    CHANGES[name](subject.model)
    after = explain(subject)
    assert after == explain(wt.Subject(subject.model, subject.processor, name="bert"))
    assert after != before


@pytest.mark.parametrize("name", ["a hook", "another forward", "a number of a module"])
def test_what_is_undone_is_seen(name: str) -> None:
    subject = subject_for()
    before, model = explain(subject), subject.model
    state = {id(module): dict(vars(module)) for module in model.modules()}
    hooks = dict(model.bert.encoder.layer[0]._forward_hooks)
    CHANGES[name](model)
    explain(subject)
    for module in model.modules():
        for key in set(vars(module)) - set(state[id(module)]):
            delattr(module, key)
        vars(module).update(state[id(module)])
    model.bert.encoder.layer[0]._forward_hooks.clear()
    model.bert.encoder.layer[0]._forward_hooks.update(hooks)
    assert explain(subject) == before


def test_what_a_call_leaves_in_its_twin_is_seen() -> None:
    subject = subject_for()
    before = explain(subject)
    spoilt = subject.spares[0].twin
    spoilt.bert.encoder.layer[0].register_forward_hook(lambda module, args, output: output * 2)
    assert explain(subject) == before
    assert subject.spares[0].twin is not spoilt


def test_a_call_that_fails_keeps_no_twin() -> None:
    subject = subject_for()

    def fail(*_: object) -> None:
        raise RuntimeError("as if the machine were out of memory")

    with subject.model.register_forward_hook(fail), pytest.raises(RuntimeError, match="out of memory"):
        explain(subject)
    assert subject.spares == []


def test_calls_at_the_same_time_have_twins_of_their_own() -> None:
    """One inside another, by a hook, and several threads."""
    subject, inner = subject_for(), list[Any]()
    plain = explain(subject)
    handle = subject.model.register_forward_hook(lambda *_: None if inner else inner.append(explain(subject)))
    outer = explain(subject)
    handle.remove()
    found = [record.scores for result in plain for record in result.values()]
    assert found == scores_of(outer)
    assert found == scores_of(inner[0])
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: explain(subject), range(8))) == [plain] * 8
    assert len(subject.spares) <= 1


def test_results_that_are_taken_one_by_one_keep_their_twin() -> None:
    subject = subject_for()
    explain(subject)
    results = wt.explain_each(subject, SENTENCES * 40, "posterior")
    first = next(results)
    assert subject.spares == []
    (other,) = wt.explain(subject, SENTENCES[:1], "posterior")
    assert [first["posterior"].scores] == scores_of([other])
    assert len(list(results)) == 79


class Odd:
    """An object whose changes nobody can notice."""


def test_a_model_with_unknown_parts_has_a_new_twin_in_each_call() -> None:
    subject = subject_for()
    subject.model.bert.encoder.layer[0].odd = Odd()
    assert take_snapshot(subject.model) is None
    explain(subject)
    assert subject.spares == []


def test_a_twin_with_values_of_its_own_is_not_kept() -> None:
    """A tensor in a list is copied, so a change of it would not reach the twin."""
    subject = subject_for()
    subject.model.bert.encoder.layer[0].others = [torch.ones(3)]
    explain(subject)
    assert subject.spares == []


def test_adapters_that_are_merged_or_not_between_two_calls() -> None:
    """A twin in which adapters were merged has weights of its own."""
    adapted = adapt()
    subject = wt.Subject(adapted, KINDS["bert"].tokenizer(), name="bert")
    for change in (lambda: None, adapted.merge_adapter, adapted.unmerge_adapter, lambda: train(adapted)):
        change()
        found = explain(subject)
        assert subject.spares == []
        assert found == explain(wt.Subject(adapted, subject.processor, name="bert"))


def test_the_twin_of_another_model_is_not_used() -> None:
    subject, other = subject_for(), model_of("bert")
    explain(subject)
    train(other)
    found = explain(replace(subject, model=other))
    assert found == explain(wt.Subject(other, subject.processor, name="bert"))
    assert explain(subject) == explain(subject_for())


def test_what_belongs_to_a_call_is_not_kept_with_the_twin() -> None:
    subject = subject_for()
    explain(subject)
    longer = wt.Subject(subject.model, subject.processor, name="other", max_tokens=5)
    longer.spares.extend(subject.spares)
    (record,) = wt.explain(longer, SENTENCES[:1], "attcat")[0].values()
    assert (record.model, len(record.tokens)) == ("other", 5)
