"""Do explanations agree with people? Every usual method against the word labels of the Stanford Sentiment Treebank.

    python benchmarks/plausibility.py TREES.txt [--texts N]

Sentences that the model classifies as people do, with at least one word that people marked for that class. This is not
faithfulness: a faithful explanation of a model that reasons oddly is not plausible. Printed, and written to
benchmarks/results/plausibility.md.
"""

import argparse
from pathlib import Path
from random import Random

import numpy as np
from tqdm import tqdm

import whichtoken as wt
from scoring import shown
from whichtoken.bench.selection import default_methods
from whichtoken.reproduce.sst_trees import read_sst_trees, sst_rationale
from whichtoken.tasks import task_for

RESULT = Path(__file__).parent / "results" / "plausibility.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=200)
    given = parser.parse_args()
    subject = wt.load()
    trees = [tree for tree in read_sst_trees(given.file) if tree.label is not None]
    Random(0).shuffle(trees)
    names = default_methods(task_for(subject))
    chosen: list[wt.metrics.Rationale] = []
    results = []
    for tree in tqdm(trees, desc="explaining"):
        if len(chosen) == given.texts:
            break
        predicted = wt.explain(subject, [tree.text], ["random"])[0]["random"].label
        if predicted.casefold() == str(tree.label).casefold() and sst_rationale(tree, predicted).spans:
            chosen.append(sst_rationale(tree, predicted))
            results.append(wt.explain(subject, [tree.text], names)[0])
    found = {name: wt.metrics.plausibility([result[name] for result in results], chosen) for name in names}
    kept = {name: [one for one in of_method if one is not None] for name, of_method in found.items()}
    ranked = sorted(names, key=lambda name: -float(np.mean([one.auprc for one in kept[name]])))
    rows = [
        f"| {name} | "
        + " | ".join(
            shown(np.array([getattr(one, metric) for one in kept[name]])) for metric in ("auprc", "token_f1", "iou_f1")
        )
        + " |"
        for name in ranked
    ]
    report = f"""# Do explanations agree with people?

`python benchmarks/plausibility.py {given.file.parent.name}/{given.file.name} --texts {len(chosen)}`, {subject.title}.
Sentences that the model classifies as people do; a rationale is the words that people gave the class's sentiment by
themselves. Mean and 95 % bootstrap interval over texts. Plausible is not faithful: see docs/evaluation.md.

| method | AUPRC | token F1 | IoU F1 |
|---|---|---|---|
{chr(10).join(rows)}
"""
    RESULT.write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
