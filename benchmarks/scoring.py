"""Deletion scores on real texts, as the benchmarks beside this file report them."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import whichtoken as wt
from whichtoken.models import ModelProbe, window_row
from whichtoken.perturb import Delete, Perturbation
from whichtoken.targets import Goal


def sample_texts(path: Path, count: int) -> list[str]:
    """From a tsv with a header and a column `text`."""
    with path.open(encoding="utf-8", newline="") as lines:
        texts = [row["text"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    return random.Random(0).sample(texts, min(count, len(texts)))


def mean_drops(
    subject: wt.Subject, attributions: Sequence[wt.Attribution], perturbation: Perturbation | None = None
) -> list[tuple[float, float]]:
    """For each method the mean drop when 10, 20 .. 90 % of one text's content tokens are taken away.

    The most relevant first, and the least relevant first. Asked in one go, so that no sequence is evaluated twice.
    """
    document = subject.encode([attributions[0].texts])[0]
    batch = subject.batch([window_row(document, document.windows[0])])
    content = [i for i, sequence in enumerate(attributions[0].sequences) if sequence is not None]
    patterns = torch.ones(1, 1 + 18 * len(attributions), batch.ids.shape[1], dtype=torch.bool)
    for number, attribution in enumerate(attributions):
        ranked = [content[i] for i in np.argsort([-attribution.scores[i] for i in content], kind="stable")]
        for step in range(1, 10):
            n = round(step * len(content) / 10)
            patterns[0, 18 * number + step, ranked[:n]] = False
            patterns[0, 18 * number + 9 + step, ranked[::-1][:n]] = False
    goal = Goal(torch.tensor([subject.labels.index(attributions[0].label)]))
    p = ModelProbe(subject, batch, goal, perturbation or Delete()).keep(patterns)[0].tolist()
    steps = np.array(p[1:]).reshape(len(attributions), 2, 9).mean(-1)
    return [(p[0] - most, p[0] - least) for most, least in steps.tolist()]


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean and 95 % bootstrap interval over texts."""
    source = np.random.default_rng(0)
    means = source.choice(values, (2000, len(values))).mean(1)
    return float(values.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def shown(values: NDArray[np.float64]) -> str:
    mean, low, high = interval(values)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
