"""The twin: what runs is a copy that shares the weights, and the user's model is never touched."""

import copy
import threading
from collections import OrderedDict
from typing import Any

import pytest
import torch
from tests.tiny import CORPUS, KINDS, MAIN_KINDS, image_model_of, images, model_of, with_heads, with_references

import whichtoken as wt
from whichtoken.core.registry import method_names
from whichtoken.errors import UnsupportedModel
from whichtoken.models.twin import make_twin

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


@pytest.mark.parametrize("kind", MAIN_KINDS)
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
    before = wt.explain(subject, SENTENCES, methods="attcat")[0]["attcat"]
    other = {name: tensor * 1.1 for name, tensor in subject.model.state_dict().items()}
    subject.model.load_state_dict(other, assign=True)
    after = wt.explain(subject, SENTENCES, methods="attcat")[0]["attcat"]
    assert after.revision != before.revision
    assert after.scores != before.scores


def test_tied_weights_stay_tied() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    first, second = (subject.model.bert.encoder.layer[i].output.dense for i in (0, 1))
    second.weight = first.weight
    layers = subject.with_twin().model.bert.encoder.layer
    assert layers[0].output.dense.weight is layers[1].output.dense.weight


def test_tied_weights_give_the_scores_of_equal_ones_and_take_no_memory() -> None:
    tied, equal = (wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()) for _ in range(2))
    for subject, share in ((tied, lambda weight: weight), (equal, lambda weight: torch.nn.Parameter(weight.clone()))):
        first, second = (subject.model.bert.encoder.layer[i].output.dense for i in (0, 1))
        second.weight = share(first.weight)
    assert (
        wt.explain(tied, SENTENCES, methods="attcat")[0]["attcat"].scores
        == wt.explain(equal, SENTENCES, methods="attcat")[0]["attcat"].scores
    )
    assert memory_of(tied.with_twin().model) == memory_of(tied.model)
    assert len(memory_of(tied.model)) == len(memory_of(equal.model)) - 1


def memory_of(model: torch.nn.Module) -> set[int]:
    tensors = [*model.parameters(), *model.buffers()]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


class Scale(torch.nn.Module):
    """A module whose backward pass needs its buffer, as that of a batch norm does, and a tensor that is no buffer."""

    factor: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.full((24,), 1.5, dtype=torch.float64))
        self.other = torch.full((24,), 0.5, dtype=torch.float64)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * self.factor * self.other


@pytest.mark.parametrize(
    "method", [wt.method("attcat"), wt.method("full-lrp"), wt.method("integrated-gradients", steps=2)]
)
def test_weights_may_change_between_the_forward_and_the_backward_pass(method: Any) -> None:
    """A hook plays another thread that trains, with a rate of 0; buffers and other tensors may change, too."""
    subject, scale, steps = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), Scale(), []
    subject.model.bert.encoder.layer[1].output.dropout = scale.eval()
    with subject.model.register_forward_hook(lambda *_: None):  # the same kernels: a hook rules shortcuts out
        plain = wt.explain(subject, SENTENCES, [method])

    def step(*_: object) -> None:
        with torch.no_grad():
            for tensor in (*subject.model.parameters(), scale.factor, scale.other):
                tensor.mul_(1.0)
        steps.append(1)

    with subject.model.register_forward_hook(step):
        assert wt.explain(subject, SENTENCES, [method]) == plain
    assert steps


def test_weights_may_be_replaced_while_they_are_copied() -> None:
    """An attribute that is being copied plays another thread that loads weights."""
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    other = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    replaced = memory_of(subject.model)

    class LoadsWeights:
        def __deepcopy__(self, memo: Any) -> None:
            subject.model.load_state_dict(other, assign=True)

    subject.model.bert.embeddings.another_thread = LoadsWeights()
    twin = subject.with_twin().model
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    assert memory_of(twin) <= replaced
    assert subject.model.classifier.weight.data_ptr() == other["classifier.weight"].data_ptr()


def test_results_follow_a_change_of_the_dtype() -> None:
    subject = wt.Subject(model_of("bert").float(), KINDS["bert"].tokenizer())
    single = wt.explain(subject, SENTENCES, methods="attcat")[0]["attcat"]
    subject.model.to(torch.float64)
    double = wt.explain(subject, SENTENCES, methods="attcat")[0]["attcat"]
    fresh = wt.explain(
        wt.Subject(model_of("bert").float().double(), KINDS["bert"].tokenizer()), SENTENCES, methods="attcat"
    )[0]["attcat"]
    assert double.scores == fresh.scores
    assert double.scores != single.scores
    assert double.scores == pytest.approx(single.scores, rel=1e-3, abs=1e-6)
    assert double.revision != single.revision


class Adapted(torch.nn.Module):
    """A linear module with adapters of low rank (LoRA), one of which is active, as in peft."""

    def __init__(self, base: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.base, self.active_adapter = base, names[0]
        self.down = torch.nn.ParameterDict({n: torch.full((2, 24), 0.1 * i).double() for i, n in enumerate(names, 1)})
        self.up = torch.nn.ParameterDict({n: torch.full((24, 2), 0.2 * i).double() for i, n in enumerate(names, 1)})

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        name = self.active_adapter
        added: torch.Tensor = hidden @ self.down[name].T @ self.up[name].T
        return self.base(hidden) + added  # type: ignore[no-any-return]


def test_results_follow_the_active_adapter() -> None:
    """Also if another thread, played by a hook, switches in the middle of a pass: a call keeps the adapter it found."""
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    attention = subject.model.bert.encoder.layer[1].attention.self
    attention.query = Adapted(attention.query, ("first", "second")).eval()
    results = {}
    for name in ("first", "second"):
        attention.query.active_adapter = name
        results[name] = wt.explain(subject, SENTENCES, methods="attcat")
        merged = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
        with torch.no_grad():
            update = attention.query.up[name] @ attention.query.down[name]
            merged.model.bert.encoder.layer[1].attention.self.query.weight += update
        expected = wt.explain(merged, SENTENCES, methods="attcat")[0]["attcat"]
        assert results[name][0]["attcat"].scores == pytest.approx(expected.scores, rel=1e-9)
    assert results["first"][0]["attcat"].revision != results["second"][0]["attcat"].revision

    def switch(*_: object) -> None:
        attention.query.active_adapter = "first"

    with subject.model.bert.embeddings.register_forward_hook(switch):
        assert wt.explain(subject, SENTENCES, methods="attcat") == results["second"]
    assert wt.explain(subject, SENTENCES, methods="attcat") == results["first"]


def test_a_model_that_was_made_in_inference_mode_can_be_explained() -> None:
    plain = wt.explain(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), SENTENCES, ["attcat", "full-lrp"])
    with torch.inference_mode():
        subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    assert wt.explain(subject, SENTENCES, ["attcat", "full-lrp"]) == plain


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


def test_a_model_that_cannot_be_copied_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    subject.model.open_file = threading.Lock()
    config = subject.model.config.to_dict()
    untouchable(subject.model, monkeypatch)
    with pytest.raises(UnsupportedModel, match=r"BertForSequenceClassification cannot be copied.*lock") as caught:
        wt.explain(subject, SENTENCES)
    assert "\n" not in str(caught.value)
    assert subject.model.config.to_dict() == config


class Part(torch.nn.Module):
    """Holds a list that other parts hold, too, and its own parent."""

    def __init__(self, shared: list[int]) -> None:
        super().__init__()
        self.shared, self.table, self.size = shared, {"of": shared}, 3
        self.parent: list[Any] = []  # not registered as a module


class OwnCopy(Part):
    """Says itself how it is copied."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnCopy":
        made = OwnCopy(copy.deepcopy(self.shared, memo))
        made.size = 4
        return made


class OwnState(Part):
    """Leaves out what is not to be copied."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "size": 5}


def test_parts_are_copied_as_deepcopy_would() -> None:
    shared = [1, 2]
    model: Any = torch.nn.Sequential(Part(shared), Part(shared), OwnCopy(shared), OwnState(shared))
    model[0].parent.append(model)
    for twin in (make_twin(model), copy.deepcopy(model)):
        assert [type(part) for part in twin] == [Part, Part, OwnCopy, OwnState]
        assert [part.size for part in twin] == [3, 3, 4, 5]
        assert all(part.shared is twin[0].shared for part in twin)
        assert twin[1].table["of"] is twin[0].shared is not shared
        assert twin[0].table is not twin[1].table
        assert twin[0].parent[0] is twin
    assert model[0].parent[0] is model


def test_the_twin_of_a_compiled_module_runs_itself() -> None:
    """What `module.compile` leaves in a module calls that module, so a twin with it would run the user's model."""
    model: Any = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0].compile(backend="eager")
    assert model[0]._compiled_call_impl is not None
    called: list[object] = []
    twin = make_twin(model)
    twin[0].register_forward_hook(lambda module, *_: called.append(module))
    twin(torch.ones(1, 2))
    assert called == [twin[0]]
