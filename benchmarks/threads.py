"""Measure whether two threads explain one model in parallel, as ratios within one run on this machine.

    python benchmarks/threads.py [--calls N]

The default model explains one text per call: in one thread, in two threads, and in two threads while a third one trains
the model with a learning rate of 0. Torch uses one thread for each, so two explanations can keep two cores busy, if the
machine is idle and as far as Python allows, which runs one thread at a time between the operations of torch. The first
row shows how far that is, by calls of the model itself. All runs must give the same scores. The report is printed and
written to benchmarks/results/threads.md.
"""

import argparse
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import whichtoken as wt

SHORT = "rare birds has more than enough charm to make it memorable."
LONG = "i really didn't like this movie. some of the actors were good, but overall the movie was boring. " * 12
REPEATS = 5
RESULT = Path(__file__).parent / "results" / "threads.md"
Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    subject = wt.load()
    calls: dict[str, Call] = {
        "the model itself, 278 tokens": partial(forward, subject, LONG),
        "attcat, 278 tokens": partial(wt.explain, subject, [LONG], ["attcat"]),
        "attcat, 14 tokens": partial(wt.explain, subject, [SHORT], ["attcat"]),
        "contrast-cat, 14 tokens": partial(wt.explain, subject, [SHORT], ["contrast-cat"]),
    }
    rows = {name: measure(subject, call, arguments.calls) for name, call in calls.items()}
    report = table(subject, rows, arguments.calls)
    RESULT.write_text(report, encoding="utf-8")
    print(report)


def forward(subject: wt.Subject, text: str) -> Any:
    with torch.no_grad():
        return subject.model(**subject.tokenizer(text, return_tensors="pt")).logits.tolist()


def measure(subject: wt.Subject, call: Call, n_calls: int) -> list[float]:
    """Return the seconds of each kind of run, the fastest of a few; kinds take turns, as the machine may be busy."""
    expected = [call()] * n_calls
    kinds: list[tuple[int, Callable[[], Any]]] = [(1, nullcontext), (2, nullcontext), (2, partial(training, subject))]
    seconds = [float("inf")] * len(kinds)
    for _ in range(REPEATS):
        for i, (n_threads, company) in enumerate(kinds):
            with company(), ThreadPoolExecutor(n_threads) as pool:
                start = perf_counter()
                found = list(pool.map(lambda _: call(), range(n_calls)))
                seconds[i] = min(seconds[i], perf_counter() - start)
            if found != expected:
                raise SystemExit(f"a call in {n_threads} threads gives other scores")
    return seconds


@contextmanager
def training(subject: wt.Subject) -> Iterator[None]:
    """A thread that trains the model until the block ends; with a rate of 0 the weights keep their values."""
    model, done = subject.model, threading.Event()
    batch, label = subject.tokenizer(SHORT, return_tensors="pt"), torch.zeros(1, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def train() -> None:
        while not done.is_set():
            optimizer.zero_grad()
            model(**batch, labels=label).loss.backward()
            optimizer.step()
        optimizer.zero_grad()

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(train)
        try:
            yield
        finally:
            done.set()
        work.result()


def table(subject: wt.Subject, rows: Mapping[str, Sequence[float]], n_calls: int) -> str:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, torch {torch.__version__}, one thread each"
    lines = [
        "# Threads that explain one model",
        "",
        f"`python benchmarks/threads.py --calls {n_calls}`, {machine}. Model: {subject.title}; {n_calls} calls, the "
        f"fastest of {REPEATS} runs. All runs give the same scores.",
        "",
        "| call | one thread, ms per call | speed of two threads | of two threads, while a third one trains |",
        "|---|---|---|---|",
        *(
            f"| {name} | {1000 * one / n_calls:.0f} | {one / two:.2f} x | {one / trained:.2f} x |"
            for name, (one, two, trained) in rows.items()
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
