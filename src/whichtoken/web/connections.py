"""Connections: how many may wait for a request, and how long, so that unfinished requests keep nobody out.

Nothing is known of a caller before the headers of a request have arrived, so no connection is refused: if too many
wait, the one that has waited longest is closed. Requests that have arrived are counted by the guard.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from whichtoken.web.encoding import to_bytes
from whichtoken.web.failures import describe_error
from whichtoken.web.guard import HEADERS
from whichtoken.web.limits import Limits, Refusal, is_loopback


@dataclass(frozen=True, eq=False)
class WaitingRoom:
    """The connections of a server that wait for a request, the one that has waited longest first."""

    limits: Limits
    waiting: "dict[Connection, None]" = field(default_factory=dict)

    def enter(self, connection: "Connection") -> None:
        self.waiting[connection] = None
        address, limits = connection.address, self.limits
        own = [] if is_loopback(address) else [other for other in self.waiting if other.address == address]
        if len(own) > limits.address_connections:
            own[0].give_up(_too_many(limits.address_connections))
        elif len(self.waiting) > limits.connections:
            next(iter(self.waiting)).give_up(_too_many(limits.connections))


class Connection(H11Protocol):
    """A connection, which waits for a request whenever it is not being served. uvicorn makes one for each caller."""

    def __init__(
        self,
        room: WaitingRoom,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.room = room
        self.until_request: asyncio.TimerHandle | None = None
        self.until_taken: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        return "" if self.client is None else self.client[0]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.note_state()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.note_state()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.stop_waiting()
        self.resume_writing()

    def note_state(self) -> None:
        """Start or stop to wait for a request. Bytes that do not complete its headers change nothing."""
        is_served = self.cycle is not None and not self.cycle.response_complete
        if is_served or self.transport.is_closing():
            self.stop_waiting()
        elif self.until_request is None:
            seconds = self.room.limits.header_seconds
            slow = Refusal(408, "TooSlow", f"the headers of the request took over {seconds:g} s to arrive")
            self.until_request = self.loop.call_later(seconds, self.give_up, slow)
            self.room.enter(self)

    def stop_waiting(self) -> None:
        self.room.waiting.pop(self, None)
        if self.until_request is not None:
            self.until_request.cancel()
            self.until_request = None

    def give_up(self, reason: Refusal) -> None:
        self.stop_waiting()
        if self.conn.trailing_data[0]:  # part of a request; an idle connection is closed without a word
            self.transport.write(_as_http(reason))
        self.transport.close()

    def pause_writing(self) -> None:
        """Wait until the caller takes what was sent, but no longer than for a job."""
        super().pause_writing()
        self.until_taken = self.loop.call_later(self.room.limits.job_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.until_taken is not None:
            self.until_taken.cancel()


def _too_many(most: int) -> Refusal:
    return Refusal(503, "TooManyConnections", f"over {most} connections wait for a request; send yours at once")


def _as_http(refusal: Refusal) -> bytes:
    """Return the whole reply, for a request that no application has seen."""
    body, status = to_bytes(describe_error(refusal)), HTTPStatus(refusal.status)
    headers = {**HEADERS, "content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
