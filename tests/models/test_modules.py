"""Walking through modules gives what torch gives: order, names, and each module once."""

import pytest
from tests.tiny import model_of
from torch import nn

from whichtoken.models.twin import list_modules, list_named_modules


def nested() -> nn.Module:
    shared = nn.Linear(2, 2)
    inner = nn.Sequential(nn.ReLU(), shared)
    model = nn.Sequential(shared, inner, nn.ModuleList([inner, nn.Sequential()]))
    model.register_module("missing", None)
    inner.add_module("loop", model)
    return model


@pytest.mark.parametrize("kind", ["bert", "albert", "llama", "distilbert"])
def test_a_walk_through_a_model_is_that_of_torch(kind: str) -> None:
    model = model_of(kind)
    assert list_named_modules(model) == list(model.named_modules())
    assert list_modules(model) == list(model.modules())


def test_shared_missing_and_circular_modules_are_found_once() -> None:
    model = nested()
    assert list_named_modules(model) == list(model.named_modules())
    assert list_modules(model) == list(model.modules())
    assert len(list_modules(model)) == 6
