"""What a server allows: limits of requests, who may call it, and the errors that refuse a request. No torch."""

import secrets
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address

from whichtoken.boundary import describe_failure
from whichtoken.errors import UsageError, WhichTokenError
from whichtoken.settings import check_settings

NEW = "new"  # the value of --token that asks for a new one
SHORTEST_TOKEN = 16  # characters
LEAST = {"least": 1}


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for."""

    text_characters: int = field(default=20_000, metadata=LEAST)  # of all texts of an input together
    image_bytes: int = field(default=8_000_000, metadata=LEAST)  # of the file
    image_pixels: int = field(default=20_000_000, metadata=LEAST)
    answer_tokens: int = field(default=128, metadata=LEAST)  # that a language model generates
    csv_rows: int = field(default=500, metadata=LEAST)
    csv_bytes: int = field(default=4_000_000, metadata=LEAST)
    methods: int = field(default=32, metadata=LEAST)
    records: int = field(default=500, metadata=LEAST)  # that are sent back, to be drawn or exported
    states: int = field(default=200, metadata=LEAST)  # of one input with parts switched off
    jobs: int = field(default=32, metadata=LEAST)  # running and waiting
    clicks: int = field(default=32, metadata=LEAST)  # running and waiting
    job_seconds: float = field(default=300.0, metadata=LEAST)
    body_bytes: int = field(default=24_000_000, metadata=LEAST)
    body_seconds: float = field(default=30.0, metadata=LEAST)  # until the body of a request has arrived
    bodies_bytes: int = field(default=128_000_000, metadata=LEAST)  # of all requests that are being served
    header_seconds: float = field(default=10.0, metadata=LEAST)  # until the headers of a request have arrived
    connections: int = field(default=256, metadata=LEAST)  # that are being served; and as many that wait for a request
    address_connections: int = field(default=64, metadata=LEAST)  # of these, of one other computer

    def __post_init__(self) -> None:
        check_settings(type(self), "limits", vars(self))


@dataclass(frozen=True)
class Access:
    """Who may call: the names that this server is called by, and the secret that callers from elsewhere need."""

    host: str = "127.0.0.1"  # that it listens on
    port: int = 8080
    token: str | None = None
    names: tuple[str, ...] = ()  # further names that browsers may call it by

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise UsageError(f"--token has {len(self.token)} characters; give at least {SHORTEST_TOKEN}, or {NEW!r}")
        if not is_loopback(self.host) and self.token is None:
            raise UsageError(
                f"--host {self.host} can be reached from other computers, so a token is needed: --token {NEW} makes one"
            )

    def knows(self, name: str) -> bool:
        """Return whether a request may call the server by this name. Others are a sign of DNS rebinding."""
        return is_loopback(name) or name in (self.host.lower(), *map(str.lower, self.names))

    @property
    def address(self) -> str:
        """What a person opens; the part after # never leaves the browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/{'' if self.token is None else f'#token={self.token}'}"


def choose_token(given: str | None) -> str | None:
    """Return the token as given, or a new one if that is asked for."""
    return secrets.token_urlsafe(24) if given == NEW else given


def open_port(access: Access) -> socket.socket:
    """Return a socket that listens; UsageError if the address is taken, or not this computer's."""
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    try:
        return socket.create_server((access.host, access.port), family=family)
    except OSError as error:
        place = f"{access.host}, port {access.port}"
        raise UsageError(
            f"{place} cannot be used: {describe_failure(error)}; choose another --port or --host"
        ) from error


def is_loopback(host: str) -> bool:
    """Return whether only this computer is meant."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Refusal(WhichTokenError):
    """A request that is not served, with its HTTP status and a name for the reason."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


def too_large(what: str, found: int, most: int, unit: str) -> Refusal:
    return Refusal(413, "TooLarge", f"{what} has {found:,} {unit}; this server accepts up to {most:,}")
