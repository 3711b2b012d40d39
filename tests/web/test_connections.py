"""Connections that have not sent a request: how long they may wait, and how many. Without sockets, without clocks."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from whichtoken.web.connections import Connection, WaitingRoom
from whichtoken.web.guard import HEADERS
from whichtoken.web.limits import Limits

HALF, REST = b"GET / HTTP/1.1\r\nhost: a\r\n", b"\r\n"
ELSEWHERE = "192.0.2.9"


@dataclass(eq=False)
class Timer:
    seconds: float
    call: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass(eq=False)
class Caller:
    """The other end of a connection: what it was sent, and how it was left."""

    address: str
    sent: bytearray = field(default_factory=bytearray)
    left: str = ""
    connection: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.address, 50000) if name == "peername" else default

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self, how: str = "closed") -> None:
        if not self.left:
            self.left = how
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def abort(self) -> None:
        self.close("aborted")

    def is_closing(self) -> bool:
        return bool(self.left)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Server:
    """Connections of a server, the timers that they set, and an application that replies once it is released."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.timers, self.state, self.release = limits, list[Timer](), ServerState(), asyncio.Event()
        config = uvicorn.Config(self.reply, log_config=None, ws="none", lifespan="off", interface="asgi3")
        self.open = partial(Connection, WaitingRoom(limits), config, self.state, {}, self)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """Be the event loop of the connections, except for timers."""
        return getattr(asyncio.get_running_loop(), name)

    def call_later(self, seconds: float, call: Callable[..., None], *parts: Any) -> Timer:
        self.timers.append(Timer(seconds, partial(call, *parts)))
        return self.timers[-1]

    def run_out(self, seconds: float) -> None:
        """Let all timers of this length run out."""
        due = [timer for timer in self.timers if timer.seconds == seconds and not timer.is_cancelled]
        for timer in due:
            self.timers.remove(timer)
            timer.call()

    async def reply(self, scope: Any, receive: Any, send: Any) -> None:
        await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def finish(self) -> None:
        """Let the application reply to all requests."""
        self.release.set()
        await asyncio.gather(*self.state.tasks)

    def connect(self, data: bytes = b"", address: str = ELSEWHERE) -> Caller:
        caller = Caller(address)
        caller.connection = self.open()
        caller.connection.connection_made(caller)
        if data:
            caller.connection.data_received(data)
        return caller


def with_server(limits: Limits, scenario: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(Server(limits))

    with ThreadPoolExecutor(1) as thread:  # a browser of other tests leaves an event loop running in this one
        thread.submit(asyncio.run, run()).result()


def error_of(caller: Caller) -> tuple[int, str]:
    head, _, body = bytes(caller.sent).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert headers.items() >= {**HEADERS, "connection": "close", "content-length": str(len(body))}.items()
    error = json.loads(body)["error"]
    assert error["status"] == int(status.split()[1])
    return error["status"], error["kind"]


def test_headers_that_do_not_arrive_in_time_end_the_connection() -> None:
    async def scenario(server: Server) -> None:
        half, idle, whole = server.connect(HALF), server.connect(), server.connect(HALF + REST)
        half.connection.data_received(b"more: more\r\n")
        server.run_out(7)
        assert (half.left, error_of(half)) == ("closed", (408, "TooSlow"))
        assert (idle.left, bytes(idle.sent)) == ("closed", b"")
        await server.finish()
        assert (whole.left, bytes(whole.sent[:15])) == ("", b"HTTP/1.1 200 OK")

    with_server(Limits(header_seconds=7), scenario)


def test_a_second_request_must_arrive_in_time_too() -> None:
    async def scenario(server: Server) -> None:
        caller = server.connect(HALF + REST)
        await server.finish()
        caller.connection.data_received(HALF)
        caller.connection.data_received(REST)
        await server.finish()
        assert (caller.left, caller.sent.count(b"HTTP/1.1 200 OK")) == ("", 2)
        caller.connection.data_received(HALF)
        server.run_out(7)
        assert caller.left == "closed"

    with_server(Limits(header_seconds=7), scenario)


def test_a_connection_that_ended_leaves_nothing_behind() -> None:
    async def scenario(server: Server) -> None:
        ended = [server.connect(data) for data in (b"", HALF, HALF + REST)]
        ended[2].connection.pause_writing()
        for caller in ended:
            caller.connection.connection_lost(None)
        await server.finish()
        assert all(timer.is_cancelled for timer in server.timers)
        assert not [caller.left for caller in [server.connect(HALF) for _ in range(3)] if caller.left]

    with_server(Limits(connections=3), scenario)


def test_a_connection_that_was_served_and_is_kept_waits_like_others() -> None:
    async def scenario(server: Server) -> None:
        kept = server.connect(HALF + REST)
        await server.finish()
        left = [kept.left]
        server.connect(HALF)
        assert [*left, kept.left] == ["", "closed"]

    with_server(Limits(connections=1), scenario)


def test_of_too_many_connections_the_one_that_waited_longest_is_closed() -> None:
    async def scenario(server: Server) -> None:
        served = server.connect(HALF + REST, "192.0.2.1")
        callers = [server.connect(HALF, f"192.0.2.{number}") for number in range(2, 6)]
        assert [caller.left for caller in callers] == ["closed", "closed", "", ""]
        assert error_of(callers[0]) == (503, "TooManyConnections")
        callers[2].connection.data_received(REST)
        last = server.connect(HALF, "192.0.2.7")
        assert [caller.left for caller in (*callers[2:], last)] == ["", "", ""], "one is served and counts no longer"
        await server.finish()
        for caller in (served, callers[2]):
            assert caller.sent.startswith(b"HTTP/1.1 200 OK")

    with_server(Limits(connections=2), scenario)


@pytest.mark.parametrize(("address", "closed"), [(ELSEWHERE, "closed"), ("127.0.0.1", ""), ("::1", "")])
def test_only_so_many_connections_of_another_computer_wait(address: str, closed: str) -> None:
    """Those of this computer may come from a proxy, so from many callers."""

    async def scenario(server: Server) -> None:
        other = server.connect(HALF, "192.0.2.1")
        callers = [server.connect(HALF, address) for _ in range(3)]
        assert [caller.left for caller in callers] == [closed, "", ""]
        assert not other.left

    with_server(Limits(address_connections=2), scenario)


def test_a_reply_that_nobody_takes_ends_the_connection() -> None:
    async def scenario(server: Server) -> None:
        stuck, slow = server.connect(HALF + REST), server.connect(HALF + REST)
        for caller in (stuck, slow):
            caller.connection.pause_writing()
        slow.connection.resume_writing()
        server.run_out(9)
        assert (stuck.left, slow.left) == ("aborted", "")
        await server.finish()

    with_server(Limits(job_seconds=9), scenario)
