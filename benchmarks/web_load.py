"""Load on the server of the web page: 200 requests, 16 at once, and as ratios to a single caller: results/web_load.md.

Usage: python benchmarks/web_load.py [--requests 200] [--callers 16]

It starts `whichtoken serve` on a free port of this computer, with the model that comes with whichtoken, and calls it by
plain HTTP: clicks, explanations by fast methods and by one slow method, exports. Times are ratios to those of a single
caller, so that they depend less on the computer. The memory of the server is read from /proc.
"""

import argparse
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "web_load.md"
MODEL = "whichtoken-default"
WORDS = "the plot was slow but music saves it rare charming actors boring end of a film never great"
SEED = 0


@dataclass(frozen=True)
class Call:
    """A request and how it went."""

    kind: str
    seconds: float
    error: str


@dataclass(frozen=True)
class Load:
    """The calls of some callers, and how long all of them took."""

    callers: int
    seconds: float
    calls: Sequence[Call]

    @property
    def per_second(self) -> float:
        return len(self.calls) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(call.seconds for call in self.calls)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def requests_of(count: int, seed: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the requests, mixed: kind, path and body. Texts differ, so that nothing is known already."""
    draw, made = random.Random(seed), list[tuple[str, str, dict[str, Any]]]()
    for number in range(count):
        text = " ".join(draw.choices(WORDS.split(), k=draw.randint(5, 40)))
        given = {"model": MODEL, "input": {"kind": "text", "text": text}}
        kinds = (
            ("click", "/api/predict", {**given, "off": [1, 2]}),
            ("click", "/api/predict", {**given, "states": [[i] for i in range(1, 5)]}),
            (
                "fast methods",
                "/api/explain",
                {**given, "methods": ["attcat", "gae", "att-x-att-grads"], "layers": True},
            ),
            ("posterior", "/api/explain", {**given, "methods": ["posterior"]}),
        )
        made.append(kinds[number % len(kinds)])
    draw.shuffle(made)
    return made


def call(port: int, kind: str, path: str, body: dict[str, Any]) -> Call:
    start, error = time.perf_counter(), ""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        if response.status != 200:
            error = f"status {response.status}: {content[:200]!r}"
        elif path == "/api/explain" and b"event: done" not in content:
            error = f"no end: {content[-200:]!r}"
        connection.close()
    except OSError as failure:
        error = repr(failure)
    return Call(kind, time.perf_counter() - start, error)


def put_load(port: int, callers: int, asked: Sequence[tuple[str, str, dict[str, Any]]]) -> Load:
    start = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        calls = list(pool.map(lambda one: call(port, *one), asked))
    return Load(callers, time.perf_counter() - start, calls)


def resident_megabytes(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def start_server() -> tuple["subprocess.Popen[bytes]", int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "whichtoken", "serve", "--port", str(port)])
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return process, port
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server does not answer")


def report(single: Load, many: Load, memory: dict[str, float], ended: int) -> str:
    errors = [call.error for load in (single, many) for call in load.calls if call.error]
    kinds = sorted({call.kind for call in many.calls})
    mix = ", ".join(f"{sum(call.kind == kind for call in many.calls)} {kind}" for kind in kinds)
    lines = [
        "# Load on the server of the web page",
        "",
        f"`python benchmarks/web_load.py`: {len(many.calls)} requests ({mix}), {many.callers} at once, on loopback, "
        f"against {len(single.calls)} such requests by a single caller.",
        "",
        "| | single caller | many callers | ratio |",
        "|---|---:|---:|---:|",
        f"| requests per second | 1 | {many.per_second / single.per_second:.2f} | "
        f"{many.per_second / single.per_second:.2f} |",
    ]
    for name, share in (("median", 0.5), ("p95", 0.95)):
        base, found = single.percentile(share), many.percentile(share)
        lines.append(f"| {name} of a request's time | 1 | {found / base:.1f} | {found / base:.1f} |")
    lines += [
        "",
        f"- errors: {len(errors)}" + "".join(f"; {error}" for error in errors[:3]),
        "- memory of the server, as a ratio to its memory after warming up: "
        + ", ".join(f"{name} {value / memory['warm']:.2f}" for name, value in memory.items()),
        f"- SIGTERM at the end: exit code {ended}",
        "",
        f"With {many.callers} callers, a request waits for those before it: a model has one worker for jobs and one "
        "for clicks, so the time of a request grows with the number of callers, and the number of requests per second "
        "does not.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    process, port = start_server()
    try:
        put_load(port, 4, requests_of(40, SEED + 1))
        memory = {"warm": resident_megabytes(process.pid)}
        single = put_load(port, 1, requests_of(options.requests, SEED + 2))
        memory["after a single caller"] = resident_megabytes(process.pid)
        many = put_load(port, options.callers, requests_of(options.requests, SEED + 3))
        memory["after many"] = resident_megabytes(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        ended = process.wait(60)
    text = report(single, many, memory, ended)
    options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
