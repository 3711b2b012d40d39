"""The server as a process, on loopback: it ends cleanly under load, and when callers are killed."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import model_of, wordpiece

pytestmark = pytest.mark.slow
STARTED = "open http://"
PATIENCE = 300  # seconds; only so that a test that fails ends
TEXT = "The actors were rare, but the plot was slow and the music was touching."


@pytest.fixture(autouse=True)
def _own_network(monkeypatch: pytest.MonkeyPatch, _no_network: None) -> None:
    """Loopback is allowed here."""
    monkeypatch.undo()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("model") / "tiny"
    model_of("bert").save_pretrained(where)
    wordpiece().save_pretrained(where)
    return where


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    process, port = start(folder, *options)
    try:
        assert process.poll() is None
        yield process, port
    finally:
        process.kill()
        process.communicate()


def start(folder: Path, *options: str) -> tuple["subprocess.Popen[str]", int]:
    """Return a server that accepts requests. If another process takes its port before it does, another one is tried."""
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "whichtoken", "serve", str(folder), "--port", str(port), "--dtype", "float64"]
        process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if STARTED in line:
                assert call(port, "GET", "/health")[0] == 200
                return process, port
        process.communicate()
        assert "cannot be used" in said[-1], said


def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, {} if sent is None else {"content-type": "application/json"})
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


def long_job(samples: str = "kernel-shap") -> dict[str, Any]:
    return {"model": "tiny", "input": {"kind": "text", "text": TEXT}, "methods": [samples, "posterior", "lime"]}


def test_sigterm_under_load_ends_every_stream_and_the_server(folder: Path) -> None:
    with served(folder) as (process, port):
        replies: list[bytes] = []
        started = threading.Semaphore(0)

        def ask() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("POST", "/api/explain", json.dumps(long_job()), {"content-type": "application/json"})
            response = connection.getresponse()
            first = response.readline()
            started.release()
            replies.append(first + response.read())
            connection.close()

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert started.acquire(timeout=PATIENCE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
        for thread in threads:
            thread.join(PATIENCE)
        assert len(replies) == 12
        endings = [reply.decode().strip().split("event: ")[-1].split("\n")[0] for reply in replies]
        assert set(endings) <= {"cancelled", "done"}
        assert "cancelled" in endings
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_killed_callers_leave_no_job_behind(folder: Path) -> None:
    """Their jobs take minutes each, so none can end by itself before the server notices that its caller is gone."""
    table = "\n".join(f"{TEXT} {number}" for number in range(500))
    body = json.dumps({"model": "tiny", "content": table, "format": "txt", "method": "posterior"}).encode()
    with served(folder) as (process, port):
        head = f"POST /api/review HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as caller:
                caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                with caller.makefile("rb") as reply:
                    assert reply.readline() == b"HTTP/1.1 200 OK\r\n"
        # The lane works on one job after the other: with the end of this one, all others have ended.
        status, events = call(port, "POST", "/api/explain", long_job() | {"methods": ["attcat"]})
        assert (status, b"event: done" in events) == (200, True)
        text = call(port, "GET", "/metrics")[1].decode()
        assert 'whichtoken_jobs{model="tiny"} 0' in text
        assert 'whichtoken_jobs_total{ended="cancelled",kind="review"} 8' in text
        assert "whichtoken_errors_total" not in text
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_requests_that_never_arrive_keep_nobody_out(folder: Path) -> None:
    with served(folder, "--limit", "header_seconds=1") as (_, port), ExitStack() as stack:
        half = [stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE)) for _ in range(300)]
        for caller in half:
            with suppress(ConnectionError):  # it was closed for a later one
                caller.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        click = {"model": "tiny", "input": {"kind": "text", "text": TEXT}}
        for request in (("GET", "/health"), ("GET", "/api/info"), ("POST", "/api/predict", click)):
            assert call(port, *request)[0] == 200
        for caller in half:
            with suppress(ConnectionError):
                while caller.recv(1000):  # until the server closes it
                    pass


def test_the_client_of_the_documentation_works(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
    source = page.split("```python\n")[1].split("```")[0]
    with served(folder) as (_, port):
        own = source.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("whichtoken-default", "tiny")
        done = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()][:2] == ["attcat", "posterior"]
    assert "->" in done.stdout.splitlines()[2]
