"""Service: everything that a running server holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from whichtoken.web.counters import Counters
from whichtoken.web.facts import info_reply
from whichtoken.web.limits import Limits
from whichtoken.web.replies import InfoReply
from whichtoken.web.served import Served


@dataclass(frozen=True, eq=False)
class Service:
    """The models, the limits and what was counted."""

    models: Mapping[str, Served]
    limits: Limits = field(default_factory=Limits)
    counters: Counters = field(default_factory=Counters)
    drawing: Lock = field(default_factory=Lock)  # matplotlib draws one figure at a time

    def info(self) -> InfoReply:
        return info_reply(self.models.values(), self.limits, benchmark=False, corpus=False)
