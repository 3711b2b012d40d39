"""Calls of the server without a network: one request, its reply, and callers that go away in the middle."""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

from PIL import Image
from tests.tiny import (
    image_model_of,
    images,
    language_subject,
    model_of,
    panicking_tokenizer,
    question_subject,
    token_subject,
    with_references,
    wordpiece,
)
from transformers import ViTImageProcessor

import whichtoken as wt
from whichtoken.models.cancelling import Cancelled, check_cancelled
from whichtoken.web.app import make_app
from whichtoken.web.guard import AsgiApp
from whichtoken.web.limits import Access, Limits
from whichtoken.web.replies import PredictReply
from whichtoken.web.service import Service, make_service

TEXT = "The actors were rare, but the plot was slow."
HOST = "127.0.0.1:8080"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The kind of the error, which must have the form of all errors."""
        error = self.json["error"]
        assert set(error) == {"kind", "message", "status"}
        assert error["status"] == self.status
        assert "\n" not in error["message"]
        return str(error["kind"])

    @property
    def events(self) -> list[tuple[str, Any]]:
        return parse_events(self.body)


def parse_events(body: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            assert [line.partition(": ")[0] for line in lines] == ["event", "data"]
            found.append((lines[0][7:], json.loads(lines[1][6:])))
    return found


@dataclass(frozen=True)
class Caller:
    """A client of the application."""

    app: AsgiApp
    service: Service

    def get(self, path: str, query: str = "", **headers: str) -> Reply:
        return self.call("GET", path, query=query, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.call("POST", path, json.dumps(body).encode(), headers=headers)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Sequence[bytes] = b"",
        query: str = "",
        headers: Mapping[str, str] | None = None,
        leave_after: Callable[[bytes], bool] | None = None,
        leave_when: threading.Event | None = None,
        raw: Iterable[tuple[bytes, bytes]] = (),
        hangs: bool = False,
        address: str = "127.0.0.1",
    ) -> Reply:
        """Make one request. `leave_after`: go away once the reply so far fulfils this. `leave_when`: go away once this
        is set. `raw`: further headers. `hangs`: the end of the body never arrives. `address`: of the caller.
        """
        usual = {"host": HOST, **({"content-type": "application/json"} if body else {})}
        given = usual | {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        lines = [(name.encode(), value.encode()) for name, value in given.items() if value]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [*lines, *raw],
            "client": (address, 50000),
            "server": ("127.0.0.1", 8080),
        }
        pieces = [body] if isinstance(body, bytes) else list(body)
        # In a thread of its own, because a browser of other tests leaves an event loop running in this one.
        with ThreadPoolExecutor(1) as thread:
            calling = self._call(scope, pieces, leave_after, leave_when, hangs)
            return thread.submit(asyncio.run, calling).result()

    async def _call(
        self,
        scope: dict[str, Any],
        body: list[bytes],
        leave_after: Callable[[bytes], bool] | None,
        leave_when: threading.Event | None,
        hangs: bool,
    ) -> Reply:
        waiting, gone = list(body), asyncio.Event()
        started: dict[str, Any] = {}
        received = bytearray()

        async def receive() -> dict[str, Any]:
            if waiting:
                return {"type": "http.request", "body": waiting.pop(0), "more_body": hangs or bool(waiting)}
            await (gone.wait() if leave_when is None else asyncio.to_thread(leave_when.wait))
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            received.extend(message.get("body", b""))
            if leave_after is not None and leave_after(bytes(received)):
                gone.set()

        await self.app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in started["headers"]}
        return Reply(started["status"], headers, bytes(received))


class SlowClicks:
    """Clicks that take until they are released, or cancelled before their next pass."""

    def __init__(self) -> None:
        self.entered, self.release, self.cancelled = (threading.Event() for _ in range(3))
        self.n_done = 0

    def __call__(self, job: Any) -> PredictReply:
        self.entered.set()
        try:
            while not self.release.wait(0.01):
                check_cancelled()
        except Cancelled:
            self.cancelled.set()
            raise
        self.n_done += 1
        return PredictReply((), (), (), None, "")


@cache
def subjects() -> dict[str, wt.Subject]:
    """A tiny model of each kind, by the name that the server gives it."""
    texts = with_references(wt.Subject(model_of("bert"), wordpiece(), name="texts"))
    vit = wt.Subject(image_model_of("vit"), ViTImageProcessor(size={"height": 12, "width": 12}), name="images")
    return {
        "texts": texts,
        "bert": question_subject("bert"),
        "bert-2": token_subject("bert"),
        "images": vit,
        "llama": language_subject("llama"),
        "brittle": wt.Subject(model_of("bert"), panicking_tokenizer(), name="brittle"),
    }


def make_caller(limits: Limits | None = None, access: Access | None = None, **more: Any) -> Caller:
    names = more.pop("names", ["texts"])
    service = make_service([subjects()[name] for name in names], limits, **more)
    return Caller(make_app(service, access or Access()), service)


def text_request(text: str = TEXT, **more: Any) -> dict[str, Any]:
    return {"model": "texts", "input": {"kind": "text", "text": text}, **more}


def image_base64(size: tuple[int, int] = (12, 12), form: str = "PNG") -> str:
    pixels = (images(1)[0].permute(1, 2, 0).numpy() * 40 + 128).clip(0, 255).astype("uint8")
    file = BytesIO()
    Image.fromarray(pixels).resize(size).save(file, form)
    return base64.b64encode(file.getvalue()).decode()
