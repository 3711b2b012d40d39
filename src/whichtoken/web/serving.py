"""Run the server until it is told to end: Ctrl-C and SIGTERM end jobs first, and then the server."""

import asyncio

import uvicorn

from whichtoken.web.app import make_app
from whichtoken.web.limits import Access
from whichtoken.web.service import Service

MOST_CONNECTIONS = 256
GRACE = 5  # seconds until open connections are closed
GLANCE = 0.1  # seconds between two looks at whether it is to end


def serve(service: Service, access: Access) -> None:
    """Listen until a signal ends it."""
    config = uvicorn.Config(
        make_app(service, access),
        host=access.host,
        port=access.port,
        access_log=False,  # addresses and texts stay private
        log_level="warning",
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE,
        ws="none",
    )
    asyncio.run(_serve(uvicorn.Server(config), service))


async def _serve(server: uvicorn.Server, service: Service) -> None:
    ending = asyncio.create_task(_stop_jobs(server, service))
    try:
        await server.serve()
    finally:
        server.should_exit = True
        await ending


async def _stop_jobs(server: uvicorn.Server, service: Service) -> None:
    """End all jobs as soon as the server is to end, because it waits for their streams."""
    while not server.should_exit:
        await asyncio.sleep(GLANCE)
    await asyncio.to_thread(service.stop)
