"""Run the server until it is told to end: Ctrl-C and SIGTERM end jobs first, and then the server."""

import asyncio
from collections.abc import Callable
from functools import partial
from socket import socket
from typing import cast

import uvicorn

from whichtoken.web.app import make_app
from whichtoken.web.connections import Connection, WaitingRoom
from whichtoken.web.limits import Access, open_port
from whichtoken.web.service import Service

GRACE = 5  # seconds until open connections are closed
GLANCE = 0.1  # seconds between two looks at whether it is to end


def serve(
    service: Service, access: Access, port: socket | None = None, ready: Callable[[], None] = lambda: None
) -> None:
    """Listen until a signal ends it. `port`: as `open_port` returns it. `ready`: called when requests are served."""
    config = uvicorn.Config(
        make_app(service, access),
        access_log=False,  # addresses and texts stay private
        log_level="warning",
        server_header=False,
        # uvicorn's own limit refuses everybody once so many are connected, whether or not they have sent a request.
        http=cast("type[asyncio.Protocol]", partial(Connection, WaitingRoom(service.limits))),
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE,
        ws="none",
    )
    asyncio.run(_serve(uvicorn.Server(config), service, port or open_port(access), ready))


async def _serve(server: uvicorn.Server, service: Service, port: socket, ready: Callable[[], None]) -> None:
    watching = asyncio.create_task(_watch(server, service, ready))
    try:
        await server.serve([port])
    finally:
        server.should_exit = True
        await watching


async def _watch(server: uvicorn.Server, service: Service, ready: Callable[[], None]) -> None:
    """Say when the server is ready; end all jobs as soon as it is to end, because it waits for their streams."""
    while not server.started and not server.should_exit:
        await asyncio.sleep(GLANCE)
    if server.started:
        ready()
    while not server.should_exit:
        await asyncio.sleep(GLANCE)
    await asyncio.to_thread(service.stop)
