"""Run the server until it is told to end: Ctrl-C and SIGTERM end jobs first, and then the server."""

import uvicorn

from whichtoken.web.app import make_app
from whichtoken.web.limits import Access
from whichtoken.web.service import Service

MOST_CONNECTIONS = 256
GRACE = 5  # seconds until open connections are closed


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
    uvicorn.Server(config).run()
