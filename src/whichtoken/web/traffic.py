"""What is being served: requests by address, and the bodies of all of them together. No torch."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from whichtoken.web.limits import Limits, Refusal, is_loopback

SMALL = 65_536  # bytes of a body that is always accepted, so that large ones do not keep usual requests out


@dataclass(eq=False)
class Visit:
    """A request that is being served."""

    address: str
    body_bytes: int = 0  # that it holds


@dataclass(eq=False)
class Traffic:
    """The requests that are being served. For the one thread that serves them."""

    limits: Limits
    requests: Counter[str] = field(default_factory=Counter)  # by address
    body_bytes: int = 0  # of all requests

    @contextmanager
    def admit(self, visit: Visit) -> Iterator[None]:
        """Count a request while it is served; raise a Refusal if there are too many already."""
        address, limits = visit.address, self.limits
        if self.requests.total() >= limits.connections:
            raise Refusal(503, "Busy", f"{limits.connections} requests are being served; try again in a moment")
        if self.requests[address] >= limits.address_connections and not is_loopback(address):
            most = limits.address_connections
            raise Refusal(429, "TooManyRequests", f"{most} requests of {address} are being served; wait for them")
        self.requests[address] += 1
        try:
            yield
        finally:
            self.body_bytes -= visit.body_bytes
            self.requests[address] -= 1
            if not self.requests[address]:
                del self.requests[address]

    def hold(self, visit: Visit, n_bytes: int) -> None:
        """Count the bytes of a body that have arrived; raise a Refusal if all bodies together are too large."""
        self.body_bytes += n_bytes - visit.body_bytes
        visit.body_bytes = n_bytes
        most = max(self.limits.bodies_bytes, self.limits.body_bytes)
        if n_bytes > SMALL and self.body_bytes > most:
            raise Refusal(
                503, "TooManyBytes", f"the requests that are being served have over {most:,} bytes; try again later"
            )
