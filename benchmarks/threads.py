"""Measure whether two threads explain one model in parallel, as ratios within one run on this machine.

    python benchmarks/threads.py [--texts N]

The default model explains the same texts, one per call, in one thread, in two threads, and in two threads while a third
one trains the model with a learning rate of 0. Torch uses one thread for each, so two cores can be busy with two
explanations. All runs must give the same scores. The report is printed and written to benchmarks/results/threads.md.
"""

import argparse
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import whichtoken as wt

METHODS = ["attcat", "contrast-cat"]
TEXTS = [
    "It is very slow.",
    "rare birds has more than enough charm to make it memorable.",
    "i really didn't like this movie. some of the actors were good, but overall the movie was boring.",
]
REPEATS = 3
RESULT = Path(__file__).parent / "results" / "threads.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    subject = wt.load()
    texts = [TEXTS[i % len(TEXTS)] for i in range(arguments.texts)]
    report = table(subject, [measure(subject, texts, name) for name in METHODS], len(texts))
    RESULT.write_text(report, encoding="utf-8")
    print(report)


def measure(subject: wt.Subject, texts: Sequence[str], name: str) -> tuple[str, list[float]]:
    """Return the seconds of each kind of run, the fastest of a few; kinds take turns, as the machine may be busy."""
    expected = run(subject, texts, name, 1)
    kinds: list[tuple[int, Callable[[], Any]]] = [
        (1, nullcontext),
        (2, nullcontext),
        (2, lambda: training(subject)),
    ]
    seconds = [float("inf")] * len(kinds)
    for _ in range(REPEATS):
        for i, (n_threads, company) in enumerate(kinds):
            with company():
                start = perf_counter()
                found = run(subject, texts, name, n_threads)
                seconds[i] = min(seconds[i], perf_counter() - start)
            if found != expected:
                raise SystemExit(f"{name} in {n_threads} threads gives other scores")
    return name, seconds


def run(subject: wt.Subject, texts: Sequence[str], name: str, n_threads: int) -> list[Any]:
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(lambda text: wt.explain(subject, [text], [name]), texts))


@contextmanager
def training(subject: wt.Subject) -> Iterator[None]:
    """A thread that trains the model until the block ends; with a rate of 0 the weights keep their values."""
    model, done = subject.model, threading.Event()
    batch = subject.tokenizer(TEXTS, padding=True, return_tensors="pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def train() -> None:
        while not done.is_set():
            optimizer.zero_grad()
            model(**batch, labels=torch.zeros(len(TEXTS), dtype=torch.long)).loss.backward()
            optimizer.step()
        optimizer.zero_grad()

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(train)
        try:
            yield
        finally:
            done.set()
        work.result()


def table(subject: wt.Subject, rows: Sequence[tuple[str, list[float]]], n_texts: int) -> str:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, torch {torch.__version__}, one thread each"
    lines = [
        "# Threads that explain one model",
        "",
        f"`python benchmarks/threads.py --texts {n_texts}`, {machine}. Model: {subject.title}; {n_texts} calls of "
        f"one text each, the fastest of {REPEATS} runs. All runs give the same scores.",
        "",
        "| method | one thread, ms per call | two threads are faster by | two threads, while a third one trains |",
        "|---|---|---|---|",
        *(
            f"| {name} | {1000 * one / n_texts:.0f} | {one / two:.2f} x | {one / trained:.2f} x |"
            for name, (one, two, trained) in rows
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
