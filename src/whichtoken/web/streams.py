"""Replies that arrive in pieces: the events of a job, as server-sent events. A job ends when its caller disconnects."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.responses import Response

from whichtoken.web.encoding import to_bytes
from whichtoken.web.guard import Receive, Scope, Send
from whichtoken.web.lanes import LAST, Lane, Report, Ticket

KEEP_ALIVE = 15.0  # seconds without an event until a comment is sent
Piece = tuple[bytes, bool]  # of the stream, and whether it is the last


class EventStream(Response):
    """The events of a job that is put into a lane."""

    media_type = "text/event-stream"

    def __init__(self, lane: Lane, kind: str, work: Callable[[Report], None]) -> None:
        super().__init__(None, 200)
        del self.headers["content-length"]
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._lane, self._ticket = lane, Ticket(kind, work, self._take)
        lane.submit(self._ticket)

    def _take(self, name: str, reply: Any) -> None:
        """Take an event from any thread."""
        piece = f"event: {name}\ndata: ".encode() + to_bytes(reply) + b"\n\n"
        with suppress(RuntimeError):  # the loop has ended: nobody listens
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, (piece, name in LAST))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listening = asyncio.create_task(self._listen(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while (piece := await self._next()) is not None:
                await send({"type": "http.response.body", "body": piece[0], "more_body": not piece[1]})
                if piece[1]:
                    return
        finally:
            listening.cancel()
            self._lane.cancel(self._ticket)

    async def _next(self) -> Piece | None:
        try:
            return await asyncio.wait_for(self._pieces.get(), KEEP_ALIVE)
        except TimeoutError:
            return b": still here\n\n", False

    async def _listen(self, receive: Receive) -> None:
        await wait_until_left(receive)
        self._pieces.put_nowait(None)


async def wait_until_left(receive: Receive) -> None:
    """Wait until the caller has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
