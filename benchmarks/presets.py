"""Measure the deletion scores of presets and axes on real texts: do the settings of a method matter?

    python benchmarks/presets.py MODEL TEXTS.tsv [--texts N]

TEXTS.tsv has a header and the columns `label` and `text`. 10, 20 .. 90 % of the content tokens are deleted, most
relevant first (MoRF, higher is better) or least relevant first (LeRF, lower is better); the score is the mean drop of
the predicted class's probability, with a 95 % bootstrap interval over texts. The report is printed and written to
benchmarks/results/presets.md.
"""

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

import whichtoken as wt
from scoring import mean_drops, mean_with_interval, sample_texts
from whichtoken.core.trace import Method

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
    args = parser.parse_args()
    subject = wt.load(args.model)
    texts = sample_texts(args.data, args.texts)
    methods: list[str | Method] = [*FAMILIES, *AXES]
    results = wt.explain(subject, texts, methods)
    drops = np.array([mean_drops(subject, list(r.values())) for r in tqdm(results, desc="texts")])  # text method order
    rows = [
        (key, mean_with_interval(drops[:, i, 0]), mean_with_interval(drops[:, i, 1]))
        for i, key in enumerate(results[0])
    ]
    RESULT.write_text(table(Path(args.model).name, args.data.name, len(texts), rows))
    print(RESULT.read_text())


def table(model: str, data: str, count: int, rows: list[tuple[str, str, str]]) -> str:
    lines = [
        "# Settings and faithfulness",
        "",
        f"`python benchmarks/presets.py {model} {data} --texts {count}`: mean drop of the predicted probability "
        "when 10 to 90 % of the content tokens are deleted, with 95 % bootstrap intervals over texts.",
        "",
        "| method | most relevant first, higher is better | least relevant first, lower is better |",
        "|---|---|---|",
    ]
    lines += [f"| {key} | {most} | {least} |" for key, most, least in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
