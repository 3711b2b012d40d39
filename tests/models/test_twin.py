"""The twin: what runs is a copy that shares the weights, and the user's model is never touched."""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.tiny import CORPUS, KINDS, image_model_of, images, model_of, with_heads, with_references

import whichtoken as wt
from whichtoken.core.registry import method_names
from whichtoken.errors import UnsupportedModel
from whichtoken.models.architectures import ARCHITECTURES

TEXTS = sorted(name for name, row in ARCHITECTURES.items() if row.reads == "tokens")
SENTENCES = ["It is very slow.", "The actors were wonderful."]


def subject_for(kind: str) -> wt.Subject:
    return with_heads(with_references(wt.Subject(model_of(kind), KINDS[kind].tokenizer(), name=kind)))


def untouchable(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing an attribute of one of its modules, hooking it or freezing its parameters raises from now on."""
    guarded = {id(module) for module in model.modules()} | {id(p) for p in model.parameters()}

    def refuse(*_: object) -> Any:
        raise AssertionError("the user's model was touched")

    for cls in (torch.nn.Module, torch.Tensor):
        for name in ("__setattr__", "__delattr__"):
            own = getattr(cls, name)

            def guard(self: Any, *args: Any, own: Any = own) -> Any:
                return refuse() if id(self) in guarded else own(self, *args)

            monkeypatch.setattr(cls, name, guard)
    freeze = torch.Tensor.requires_grad_

    def requires_grad_(self: torch.Tensor, *args: bool) -> torch.Tensor:
        return refuse() if id(self) in guarded else freeze(self, *args)

    monkeypatch.setattr(torch.Tensor, "requires_grad_", requires_grad_)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if name.endswith("_hooks") and isinstance(value, OrderedDict):
                vars(module)[name] = Locked(value)


class Locked(OrderedDict[Any, Any]):
    """Hooks of a module, to which none can be added; a copy of them is an ordinary dictionary."""

    def __init__(self, held: Any = ()) -> None:
        super().__init__()
        for key, value in OrderedDict(held).items():
            super().__setitem__(key, value)

    def __setitem__(self, key: object, value: object) -> None:
        raise AssertionError("the user's model was hooked")

    def __deepcopy__(self, memo: Any) -> OrderedDict[Any, Any]:
        return OrderedDict(self)


@pytest.mark.parametrize("kind", TEXTS)
def test_no_call_touches_the_users_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_for(kind)
    config = subject.model.config.to_dict()
    untouchable(subject.model, monkeypatch)
    every_door = ["attcat", "attcat@repo", "alti", "contrast-cat", "full-lrp", "mask-lrp", "gradient-x-input"]
    methods = method_names() if kind == "bert" else every_door
    result = wt.explain(subject, SENTENCES[:1], methods, layers=True)[0]
    wt.degrade(subject, list(result.values()))
    wt.references.build(subject, CORPUS, rule="random", min_tokens=1)
    assert subject.model.config.to_dict() == config
    with pytest.raises(AssertionError, match="touched"):
        subject.model.eval()


def test_no_call_touches_an_image_model(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = wt.Subject(image_model_of("vit"), None)
    untouchable(subject.model, monkeypatch)
    wt.explain(subject, images=list(images(2)), methods=["attcat", "full-lrp", "token-tm"])


def test_weights_are_shared_and_updates_in_place_are_seen() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    twin = subject.with_twin()
    pairs = list(zip(subject.model.parameters(), twin.model.parameters(), strict=True))
    assert all(a.data_ptr() == b.data_ptr() and a.requires_grad and not b.requires_grad for a, b in pairs)
    assert twin.with_twin() is twin
    with torch.no_grad():
        subject.model.classifier.bias.add_(1.0)
    assert twin.model.classifier.bias.equal(subject.model.classifier.bias)


def test_the_next_call_sees_weights_that_were_replaced() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    before = wt.explain(subject, SENTENCES)[0]["attcat"]
    other = {name: tensor * 1.1 for name, tensor in subject.model.state_dict().items()}
    subject.model.load_state_dict(other, assign=True)
    after = wt.explain(subject, SENTENCES)[0]["attcat"]
    assert after.revision != before.revision
    assert after.scores != before.scores


def test_tied_weights_stay_tied() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    first, second = (subject.model.bert.encoder.layer[i].output.dense for i in (0, 1))
    second.weight = first.weight
    layers = subject.with_twin().model.bert.encoder.layer
    assert layers[0].output.dense.weight is layers[1].output.dense.weight


def test_hooks_of_the_user_fire_on_the_users_object_once_for_each_pass() -> None:
    class Counter:
        calls = 0

        def count(self, *_: object) -> None:
            self.calls += 1

    subject, counter = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), Counter()
    with subject.model.register_forward_hook(counter.count):
        wt.explain(subject, SENTENCES[:1], ["attcat"])
        assert counter.calls == 1
        wt.explain(subject, SENTENCES[:1], ["attcat", "full-lrp"])
        assert counter.calls == 3


def test_a_model_that_cannot_be_copied_is_refused_in_one_line() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    subject.model.open_file = threading.Lock()
    with pytest.raises(UnsupportedModel, match=r"BertForSequenceClassification cannot be copied.*lock") as caught:
        wt.explain(subject, SENTENCES)
    assert "\n" not in str(caught.value)


def test_other_threads_call_the_model_while_it_is_explained() -> None:
    """Without the twin, integrated gradients spoiled every such call."""
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    tokens = KINDS["bert"].tokenizer()(SENTENCES[0], return_tensors="pt")
    expected = subject.model(**tokens).logits
    done = threading.Event()

    def call() -> int:
        wrong = 0
        while not done.is_set():
            wrong += not subject.model(**tokens).logits.equal(expected)
        return wrong

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        for name in ("integrated-gradients", "tis", "attcat", "full-lrp"):
            wt.explain(subject, SENTENCES, [name])
        done.set()
        assert [call.result() for call in calls] == [0, 0]
