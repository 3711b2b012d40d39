"""Deletion scores on real texts, shared by the benchmarks in this folder."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import whichtoken as wt
from whichtoken.bench.stats import interval
from whichtoken.evaluate import degrade
from whichtoken.metrics.curves import aopc

ORDERS: tuple[Literal["morf"], Literal["lerf"]] = ("morf", "lerf")


def sample_texts(path: Path, count: int) -> list[str]:
    """Draw texts with seed 0 from a tsv file with a header and a column `text`."""
    with path.open(encoding="utf-8", newline="") as lines:
        texts = [row["text"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    return random.Random(0).sample(texts, min(count, len(texts)))


def mean_drops(
    subject: wt.Subject, attributions: Sequence[wt.Attribution], perturbation: str = "delete"
) -> list[tuple[float, float]]:
    """Return for each method the mean drop when 10, 20 .. 90 % of one text's content tokens are removed.

    The first value is for MoRF (most relevant first), the second for LeRF.
    """
    curves = [degrade(subject, attributions, perturbation, order) for order in ORDERS]
    return [(aopc(most), aopc(least)) for most, least in zip(*curves, strict=True)]


def mean_with_interval(values: NDArray[np.float64]) -> str:
    """Format the mean and its 95 % bootstrap interval over texts."""
    low, high = interval(values)
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"
