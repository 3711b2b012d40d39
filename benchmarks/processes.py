"""How much of several cores separate processes can use, for benchmarks/speed.py: the most that threads could."""

from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache
from multiprocessing import get_context
from time import perf_counter

import torch

import whichtoken as wt

CALLS = 3


def share_of_cores(texts: list[str], repeat: int, n_cores: int) -> float:
    """Return the time of a process alone, divided by that of several at the same time, each with one thread."""
    with ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))) for _ in range(n_cores)]
        _run(pools, texts)  # loads the model
        alone, together = list[float](), list[float]()
        for _ in range(repeat):
            alone.append(_run(pools[:1], texts))
            together.append(_run(pools, texts))
    return min(alone) / min(together)


def _run(pools: list[ProcessPoolExecutor], texts: list[str]) -> float:
    return max(future.result() for future in [pool.submit(_explain, texts) for pool in pools])


def _explain(texts: list[str]) -> float:
    """Return the seconds that some calls take."""
    torch.set_num_threads(1)
    subject = _load()
    start = perf_counter()
    for _ in range(CALLS):
        wt.explain(subject, texts, "attcat")
    return perf_counter() - start


@cache
def _load() -> wt.Subject:
    return wt.load()
