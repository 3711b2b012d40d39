"""Load on the server of the web page: 200 requests, 16 at once, and as ratios to a single caller: results/web_load.md.
With --minutes: mixed calls for so long, some of which are broken off: results/web_soak.md.

Usage: python benchmarks/web_load.py [--requests 200] [--callers 16]
       python benchmarks/web_load.py --minutes 120 [--callers 6]

It starts `whichtoken serve` on a free port of this computer, with the model that comes with whichtoken, and calls it by
plain HTTP: clicks, explanations by fast methods and by one slow method. Times are ratios to those of a single caller,
so that they depend less on the computer. The memory of the server is read from /proc.

With --minutes, callers also send tables to review, and leave in the middle of headers, bodies, clicks and jobs. Twice a
minute, an explanation and /health must still be answered, and the memory is noted. The exit code is 1 if a reply
is wrong, a job is left behind, or the memory grows by more than a tenth from the middle third to the last.
"""

import argparse
import http.client
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
MODEL = "whichtoken-default"
CALLERS = {"load": 16, "soak": 6}  # by default
GLANCE = 30.0  # seconds between two looks at the server
PATIENCE = 300.0  # seconds until a job is taken to be stuck
GROWTH = 1.1  # of the memory, from the middle third of the time to the last
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
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        if response.status != 200:
            error = f"status {response.status}: {content[:200]!r}"
        elif path in ("/api/explain", "/api/review") and b"event: done" not in content:
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


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path)
    response = connection.getresponse()
    found = response.status, response.read().decode()
    connection.close()
    return found


def break_off(port: int, kind: str, path: str, body: dict[str, Any], draw: random.Random) -> Call:
    """Start a request and leave: in its headers, in its body, before the reply, or after the first bytes of it."""
    where, start = draw.choice(("headers", "body", "waiting", "reply")), time.perf_counter()
    content = json.dumps(body).encode() + b" " * draw.choice((0, 0, 0, 2_000_000))
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n".encode()
    length = f"Content-Length: {len(content)}\r\n\r\n".encode()
    sent = {"headers": head, "body": head + length + content[: len(content) // 2]}.get(where, head + length + content)
    error = ""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as caller:
            caller.sendall(sent)
            if where == "reply":
                caller.recv(100)
            else:
                time.sleep(draw.random() / 2)
    except OSError as failure:
        error = repr(failure)
    return Call(f"left: {where}", time.perf_counter() - start, error)


def keep_calling(port: int, seed: int, until: float) -> list[Call]:
    """Call until that time, again and again, with a mix of requests; a quarter of them are broken off."""
    draw, made = random.Random(seed), list[Call]()
    while time.monotonic() < until:
        for request in requests_of(4, draw.randrange(10**9)):
            made.append(call(port, *request) if draw.random() < 0.75 else break_off(port, *request, draw))
        rows = "\n".join(" ".join(draw.choices(WORDS.split(), k=draw.randint(5, 40))) for _ in range(12))
        table = ("review", "/api/review", {"model": MODEL, "content": rows, "format": "txt"})
        made.append(call(port, *table) if draw.random() < 0.75 else break_off(port, *table, draw))
    return made


@dataclass(frozen=True)
class Soak:
    """A long load: its calls, the memory of the server at each look, and what went wrong."""

    minutes: float
    callers: int
    calls: Sequence[Call]
    memory: Sequence[float]  # megabytes
    looks: Sequence[Call]  # explanations that were asked for at each look
    problems: Sequence[str]

    @property
    def of_thirds(self) -> tuple[float, ...]:
        """The median of the memory in each third of the time, because every look sees other jobs and bodies."""
        third = -(-len(self.memory) // 3)
        return tuple(statistics.median(self.memory[first : first + third]) for first in (0, third, 2 * third))


def soak(port: int, process: int, minutes: float, callers: int) -> Soak:
    until = time.monotonic() + 60 * minutes
    memory, looks, problems = [resident_megabytes(process)], list[Call](), list[str]()
    with ThreadPoolExecutor(callers) as pool:
        working = [pool.submit(keep_calling, port, SEED + 10 + number, until) for number in range(callers)]
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(GLANCE, left))
            looks.append(look(port))
            memory.append(resident_megabytes(process))
            print(f"{left / 60:5.1f} minutes left, {memory[-1]:.0f} MB, {looks[-1].seconds:.1f} s {looks[-1].error}")
        calls = [made for one in working for made in one.result()]
    problems += [f"{one.kind}: {one.error}" for one in (*calls, *looks) if one.error]
    if (error := look(port).error) or (error := find_left(port)):
        problems.append(error)
    memory.append(resident_megabytes(process))
    found = Soak(minutes, callers, calls, memory, looks, problems)
    _, middle, last = found.of_thirds
    if last > GROWTH * middle:
        problems.append(f"the memory grew from {middle:.0f} to {last:.0f} MB")
    return found


def look(port: int) -> Call:
    """Ask for an explanation, which waits behind other jobs, and for the health of the server."""
    given = {"model": MODEL, "input": {"kind": "text", "text": "the plot was slow"}, "methods": ["attcat"]}
    made = call(port, "look", "/api/explain", given)
    status, said = get(port, "/health")
    return made if status == 200 else Call("look", made.seconds, f"/health says {said}")


def find_left(port: int) -> str:
    """Return what is wrong with the counts of a server that has nothing to do: jobs that were left, or errors."""
    _, text = get(port, "/metrics")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    left = [line for line in lines if line.startswith("whichtoken_jobs{") and not line.endswith(" 0")]
    return "; ".join([*left, *(line for line in lines if line.startswith("whichtoken_errors_total"))])


def report_soak(found: Soak, ended: int) -> str:
    first, middle, last = found.of_thirds
    kinds = sorted({call.kind for call in found.calls})
    counts = ", ".join(f"{sum(call.kind == kind for call in found.calls):,} {kind}" for kind in kinds)
    longest = max(one.seconds for one in found.looks)
    lines = [
        "# Long load on the server of the web page",
        "",
        f"`python benchmarks/web_load.py --minutes {found.minutes:g}`: {found.callers} callers on loopback for "
        f"{found.minutes:g} minutes made {len(found.calls):,} calls: {counts}.",
        "",
        f"- memory of the server: {found.memory[0]:.0f} MB at the start, {found.memory[-1]:.0f} at the end; median of "
        f"each third of the time {first:.0f}, {middle:.0f} and {last:.0f}; at most {max(found.memory):.0f}",
        f"- {len(found.looks)} looks at the server: an explanation that waited behind the others took up to "
        f"{longest / statistics.median(one.seconds for one in found.looks):.1f} times the median",
        f"- problems: {len(found.problems)}" + "".join(f"; {problem}" for problem in found.problems[:5]),
        f"- SIGTERM at the end: exit code {ended}",
        "",
    ]
    return "\n".join(lines)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--callers", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    what = "load" if options.minutes is None else "soak"
    callers = options.callers or CALLERS[what]
    process, port = start_server()
    try:
        put_load(port, 4, requests_of(40, SEED + 1))
        if what == "soak":
            found = soak(port, process.pid, options.minutes, callers)
        else:
            memory = {"warm": resident_megabytes(process.pid)}
            single = put_load(port, 1, requests_of(options.requests, SEED + 2))
            memory["after a single caller"] = resident_megabytes(process.pid)
            many = put_load(port, callers, requests_of(options.requests, SEED + 3))
            memory["after many"] = resident_megabytes(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        ended = process.wait(60)
    text = report_soak(found, ended) if what == "soak" else report(single, many, memory, ended)
    (options.out or RESULTS / f"web_{what}.md").write_text(text)
    print(text)
    sys.exit(int(what == "soak" and bool(found.problems)))


if __name__ == "__main__":
    main()
