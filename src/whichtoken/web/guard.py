"""The checks that every request passes first: who calls, from which page, how much; and the headers of every reply.

Names other than this server's own are refused (DNS rebinding), and so are posts from other pages. A body must be JSON,
which other pages cannot send without asking first.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from whichtoken.web.counters import Counters
from whichtoken.web.encoding import to_bytes
from whichtoken.web.failures import describe_error, note_unexpected
from whichtoken.web.limits import Access, Limits, Refusal, too_large
from whichtoken.web.replies import ErrorReply
from whichtoken.web.traffic import Traffic, Visit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Reports are pages of their own, whose policy allows their script by its hash; they can neither call this server nor be
# framed.
REPORT_POLICY = "sandbox allow-scripts; connect-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
READING = ("GET", "HEAD", "OPTIONS")
HEALTH = "/health"
PUBLIC = ("/", HEALTH, "/api/shades.css")  # without secrets, as are the files of the page
FILES = "/static/"


@dataclass(frozen=True)
class Guard:
    """The outermost layer of the server."""

    app: AsgiApp
    access: Access
    limits: Limits
    counters: Counters
    traffic: Traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, seen = monotonic(), dict[str, int]()
        try:
            await self._serve(scope, receive, _with_headers(send, seen))
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            raise
        except BaseException as error:  # not passed on: a server would log its message, which may quote a text
            if "status" not in seen:
                await send_error(_with_headers(send, seen), note_unexpected(error, self.counters))
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.counters.add("whichtoken_requests_total", route=route, status=str(seen.get("status", 499)))
            self.counters.add("whichtoken_request_seconds_total", monotonic() - started, route=route)

    async def _serve(self, scope: Scope, receive: Receive, sender: Send) -> None:
        with ExitStack() as stack:
            try:
                headers = read_headers(scope)
                check_host(headers, self.access)
                check_origin(scope["method"], headers)
                check_token(scope["path"], headers, self.access)
                visit = Visit((scope.get("client") or ("",))[0])
                if scope["path"] != HEALTH:  # which is told whatever else is going on
                    stack.enter_context(self.traffic.admit(visit))
                body = await self._body(scope, headers, receive, visit)
            except Refusal as refusal:
                await send_error(sender, describe_error(refusal))
                return
            if body is not None:
                await self.app(scope, _replay(body, receive), sender)

    async def _body(self, scope: Scope, headers: Mapping[str, str], receive: Receive, visit: Visit) -> bytes | None:
        """Read the body within the limits of size and time; None if the caller went away."""
        most = self.limits.body_bytes
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large("the request", int(length[:20]), most, "bytes")
        if scope["method"] in READING:
            return b""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large("the request", len(body), most, "bytes")
                    self.traffic.hold(visit, len(body))
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Refusal(408, "TooSlow", f"the request took over {self.limits.body_seconds:g} s to arrive") from None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and kind != "application/json":
            raise Refusal(415, "NotJson", f"the body is {kind[:60] or 'of no type'!r}; send application/json")
        return bytes(body)


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers; one that is repeated is refused, as the two ends could read different ones."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        if name in headers and name in ("host", "origin", "authorization", "content-type", "content-length"):
            raise Refusal(400, "RepeatedHeader", f"the header {name} is given twice; give it once")
        headers[name] = raw_value.decode("latin-1")
    return headers


def check_host(headers: Mapping[str, str], access: Access) -> None:
    host = headers.get("host", "")
    name = _host_name(host)
    if name is None or not access.knows(name):
        raise Refusal(
            403, "UnknownHost", f"this server is not called {host[:80]!r}; open {access.host}, or use --allow-host"
        )


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Refuse what changes or computes something, unless it comes from this server's own page or from no page."""
    if method in READING:
        return
    origin, host = headers.get("origin"), headers.get("host", "")
    own = origin is None or urlsplit(origin).netloc.lower() == host.lower() != ""
    if not own or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        shown = origin if origin is not None else headers.get("sec-fetch-site", "")
        raise Refusal(
            403, "ForeignPage", f"requests from the page {shown[:80]!r} are refused; use this server's own page"
        )


def check_token(path: str, headers: Mapping[str, str], access: Access) -> None:
    if access.token is None or path in PUBLIC or path.startswith(FILES):
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    right = secrets.compare_digest(given.strip().encode(), access.token.encode())
    if scheme.lower() != "bearer" or not right:
        raise Refusal(
            401, "TokenNeeded", "this server needs its token: open the address that it printed when it started"
        )


def _host_name(host: str) -> str | None:
    """Return the name of a Host header without its port; None if it is not one."""
    try:
        split = urlsplit(f"//{host}")
        _ = split.port
    except ValueError:
        return None
    if split.username is not None or split.path or split.query or split.fragment:
        return None
    return split.hostname


async def send_error(send: Send, reply: ErrorReply) -> None:
    body, status = to_bytes(reply), reply.error.status
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", b"Bearer")] * (status == 401) + [(b"connection", b"close")]
    headers += [(b"retry-after", b"1")] * (status in (429, 503))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send, seen: dict[str, int]) -> Send:
    """Add the headers to a reply, except those that it sets itself; note its status in `seen`."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            seen["status"] = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in present]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return send_with_headers


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body once, and afterwards what the connection says."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
