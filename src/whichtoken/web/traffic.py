"""What is being served: requests, by address. No torch."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from whichtoken.web.limits import Limits, Refusal, is_loopback


@dataclass(eq=False)
class Visit:
    """A request that is being served."""

    address: str


@dataclass(eq=False)
class Traffic:
    """The requests that are being served. For the one thread that serves them."""

    limits: Limits
    requests: Counter[str] = field(default_factory=Counter)  # by address

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
            self.requests[address] -= 1
            if not self.requests[address]:
                del self.requests[address]
