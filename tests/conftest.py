"""For all tests: shapes are checked at run time, the network is out of reach, and torch uses one thread."""

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

if TYPE_CHECKING:
    from whichtoken import Subject

# Some virtual machines report AMX instructions that they cannot execute: products in bfloat16 end the process there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# Where tensors of many shapes meet. Modules at the boundary check what callers pass, with errors for people.
install_import_hook(["whichtoken.methods", "whichtoken.models.capture"], "beartype.beartype")

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=2000, deadline=None)  # pytest --hypothesis-profile=search
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first, so that no worker has it left at the end."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch  # here, because the process that only hands out tests should not wait for it

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> NoReturn:
        raise AssertionError("a test tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


_made: dict[Any, "Subject"] = {}


@pytest.fixture
def subject_of() -> Callable[..., "Subject"]:
    """Subjects by kind, each made once."""
    from tests.tiny import KINDS, model_of

    from whichtoken import Subject

    def make(kind: str, **settings: Any) -> Subject:
        key = (kind, *sorted(settings.items()))
        if key not in _made:
            _made[key] = Subject(model_of(kind, **settings), KINDS[kind].tokenizer(), name=f"tiny {kind}")
        return _made[key]

    return make
