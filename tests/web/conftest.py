"""One server of tiny models for all tests of the web page that leave it as it was."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.web.calling import Caller, SlowClicks


@pytest.fixture(scope="session")
def caller() -> Iterator["Caller"]:
    from tests.web.calling import make_caller  # here, because it imports torch

    made = make_caller(names=["texts", "bert", "bert-2", "images", "llama"])
    yield made
    made.service.stop()


@pytest.fixture
def clicks(monkeypatch: pytest.MonkeyPatch) -> Iterator["SlowClicks"]:
    from tests.web.calling import SlowClicks

    made = SlowClicks()
    monkeypatch.setattr("whichtoken.web.app.switch", made)
    yield made
    made.release.set()
