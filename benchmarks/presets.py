"""Does it matter which settings a method has? Deletion scores of presets and axes on real texts.

    python benchmarks/presets.py MODEL TEXTS.tsv [--texts N]

TEXTS.tsv has a header and the columns `label` and `text`. The most relevant 10, 20 .. 90 % of the content tokens are
deleted (MoRF, higher is better) or the least relevant (LeRF, lower is better); the score is the mean drop of the
predicted class's probability, with a 95 % bootstrap interval over texts. Written to benchmarks/results/presets.md.
"""

import argparse
import csv
import random
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

import whichtoken as wt
from whichtoken.models import ModelProbe, window_row
from whichtoken.targets import Goal
from whichtoken.trace import Method

RESULT = Path(__file__).parent / "results" / "presets.md"
FAMILIES = ["attcat", "attcat@repo", "attcat@paper", "cat", "cat@repo", "cat@paper", "rollout", "rollout@repo"]
FAMILIES += ["raw-attention", "raw-attention@repo", "gae", "cam", "attention-grad-cam", "attention-grad-cam@repo"]
FAMILIES += ["gradient-x-input", "integrated-gradients", "random"]
AXES = [
    wt.method(n, axis=axis)
    for n in ("grad-sam", "att-grads", "att-x-att-grads")
    for axis in ("query", "key", "readout")
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=120)
    chosen = parser.parse_args()
    subject = wt.load(chosen.model)
    with chosen.data.open(encoding="utf-8", newline="") as lines:
        texts = [row["text"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    texts = random.Random(0).sample(texts, min(chosen.texts, len(texts)))
    methods: list[str | Method] = [*FAMILIES, *AXES]
    results = wt.explain(subject, texts, methods)
    drops = np.array([all_drops(subject, list(r.values())) for r in tqdm(results, desc="texts")])  # text method order
    rows = [(key, *interval(drops[:, i, 0]), *interval(drops[:, i, 1])) for i, key in enumerate(results[0])]
    RESULT.write_text(table(Path(chosen.model).name, chosen.data.name, len(texts), rows))
    print(RESULT.read_text())


def all_drops(subject: wt.Subject, attributions: list[wt.Attribution]) -> list[tuple[float, float]]:
    """For each method the mean drop over the nine steps, most and least relevant first; asked in one go."""
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
    label = subject.labels.index(attributions[0].label)
    p = ModelProbe(subject, batch, Goal(torch.tensor([label]))).keep(patterns)[0].tolist()
    steps = np.array(p[1:]).reshape(len(attributions), 2, 9).mean(-1)
    return [(p[0] - most, p[0] - least) for most, least in steps.tolist()]


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    source = np.random.default_rng(0)
    means = source.choice(values, (2000, len(values))).mean(1)
    return float(values.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def table(model: str, data: str, count: int, rows: list[tuple[str, float, float, float, float, float, float]]) -> str:
    lines = [
        "# Settings and faithfulness",
        "",
        f"`python benchmarks/presets.py {model} {data} --texts {count}`: mean drop of the predicted probability "
        "when 10 to 90 % of the content tokens are deleted, with 95 % bootstrap intervals over texts.",
        "",
        "| method | most relevant first, higher is better | least relevant first, lower is better |",
        "|---|---|---|",
    ]
    lines += [f"| {k} | {a:.3f} [{b:.3f}, {c:.3f}] | {d:.3f} [{e:.3f}, {f:.3f}] |" for k, a, b, c, d, e, f in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
