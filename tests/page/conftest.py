"""One server and one browser for all tests of the page. Skipped without Chromium, Playwright or the extra `web`."""

import csv
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from select import select
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = ("playwright", "fastapi", "uvicorn")
MISSING = [name for name in NEEDED if find_spec(name) is None] + ([] if CHROMIUM else ["chromium"])
ROOT = Path(__file__).parents[2]
PATIENCE = 120_000  # milliseconds, for busy machines
ROWS = 25000  # of the data that the stored benchmark names


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder share the server, so they run in the same worker."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("page"))
            if MISSING:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(MISSING)}"))


def _write_texts(folder: Path) -> Path:
    """Write texts for the rows of the stored benchmark, which itself contains none."""
    path = folder / "data.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([f"text {row}, the plot was slow"] for row in range(ROWS))])
    return path


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server in a process of its own, and return its address."""
    data, port = _write_texts(tmp_path_factory.mktemp("page")), _free_port()
    command = [sys.executable, "-m", "tests.page.server", str(port), str(data)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    try:
        yield _when_ready(process, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _when_ready(process: "subprocess.Popen[str]", address: str) -> str:
    """Return the address once the server answers there."""
    while process.poll() is None:
        try:
            with urlopen(f"{address}/health", timeout=30) as answer:
                assert answer.status == 200
            return address
        except URLError:
            assert process.stderr is not None
            select([process.stderr], [], [], 0.1)  # until it says something, or for a tenth of a second
    pytest.fail(f"the server ended: {process.communicate()[1]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a part of the page; then check that it logged no error and asked no other host."""
    contexts, problems = [], []

    def watch_request(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != address:
            problems.append(f"request to {request.url}")

    def open_at(fragment: str = "", width: int = 1280, colours: str = "light", **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=colours, **settings)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
        page.on("request", watch_request)
        page.goto(f"{address}/{fragment}", wait_until="load")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert problems == []
