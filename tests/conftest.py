"""For all tests: shapes are checked at run time, the network is out of reach, and torch uses one thread."""

import socket
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# The modules of tensors. Those at the boundary check what callers pass by themselves, with errors for people.
install_import_hook(
    [
        f"whichtoken.{m}"
        for m in (
            "core.ops",
            "core.trace",
            "core.perturb",
            "methods",
            "models.attention",
            "models.capture",
            "models.probe",
        )
    ],
    "beartype.beartype",
)

import torch  # noqa: E402
from tests.tiny import KINDS, model_of  # noqa: E402

from whichtoken import Subject  # noqa: E402

torch.set_num_threads(1)
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=2000, deadline=None)  # pytest --hypothesis-profile=search
settings.load_profile("same")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> NoReturn:
        raise AssertionError("a test tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


_made: dict[Any, Subject] = {}


@pytest.fixture
def subject_of() -> Callable[..., Subject]:
    """Subjects by kind, each made once."""

    def make(kind: str, **settings: Any) -> Subject:
        key = (kind, *sorted(settings.items()))
        if key not in _made:
            _made[key] = Subject(model_of(kind, **settings), KINDS[kind].tokenizer(), name=f"tiny {kind}")
        return _made[key]

    return make
