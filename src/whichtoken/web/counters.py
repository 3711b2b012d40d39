"""What a server counts about itself, as Prometheus reads it, without any content of requests. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Counters:
    """Numbers that only grow, by name and labels; threads may add to them."""

    values: dict[str, dict[Labels, float]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self.lock:
            of_name = self.values.setdefault(name, {})
            of_name[key] = of_name.get(key, 0) + amount

    def snapshot(self) -> dict[str, dict[Labels, float]]:
        with self.lock:
            return {name: dict(of_name) for name, of_name in self.values.items()}


HELP = {
    "whichtoken_requests_total": "Requests by route and status.",
    "whichtoken_request_seconds_total": "Seconds from request to reply, by route; streams until their end.",
    "whichtoken_jobs_total": "Finished jobs by kind and how they ended.",
    "whichtoken_job_seconds_total": "Seconds that jobs ran, by kind.",
    "whichtoken_passes_total": "Passes of a model that jobs made.",
    "whichtoken_errors_total": "Unexpected errors by type.",
}


def prometheus_text(counters: Counters, gauges: Mapping[str, tuple[str, Mapping[Labels, float]]]) -> str:
    """Return the text. `gauges`: by name, what they mean and their current values."""
    counted = {name: ("counter", HELP[name], values) for name, values in counters.snapshot().items()}
    measured = {name: ("gauge", about, values) for name, (about, values) in gauges.items()}
    return "".join(line + "\n" for name, of in (counted | measured).items() for line in _lines(name, *of))


def _lines(name: str, kind: str, about: str, values: Mapping[Labels, float]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in sorted(values.items()):
        named = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
        yield f"{name}{f'{{{named}}}' if named else ''} {value:g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
