"""Compare the default methods with human rationales: the word labels of the Stanford Sentiment Treebank.

    python benchmarks/plausibility.py TREES.txt [--texts N]

The sentences are those whose predicted class equals the human label, with at least one word labelled for that class.
This does not measure faithfulness: a faithful explanation of a model that reasons oddly is not plausible. The report is
printed and written to benchmarks/results/plausibility.md.
"""

import argparse
from pathlib import Path
from random import Random

import numpy as np
from tqdm import tqdm

import whichtoken as wt
from scoring import mean_with_interval
from whichtoken.bench.selection import default_methods
from whichtoken.reproduce.sst_trees import read_sst_trees, sst_rationale
from whichtoken.tasks import task_for

RESULT = Path(__file__).parent / "results" / "plausibility.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=200)
    args = parser.parse_args()
    subject = wt.load()
    trees = [tree for tree in read_sst_trees(args.file) if tree.label is not None]
    Random(0).shuffle(trees)
    names = default_methods(task_for(subject))
    chosen: list[wt.metrics.Rationale] = []
    results = []
    for tree in tqdm(trees, desc="explaining"):
        if len(chosen) == args.texts:
            break
        predicted = wt.explain(subject, [tree.text], ["random"])[0]["random"].label
        if predicted.casefold() == str(tree.label).casefold() and sst_rationale(tree, predicted).spans:
            chosen.append(sst_rationale(tree, predicted))
            results.append(wt.explain(subject, [tree.text], names)[0])
    scores = {name: wt.metrics.plausibility([result[name] for result in results], chosen) for name in names}
    kept = {name: [score for score in of_method if score is not None] for name, of_method in scores.items()}
    ranked = sorted(names, key=lambda name: -float(np.mean([score.auprc for score in kept[name]])))
    rows = [
        f"| {name} | "
        + " | ".join(
            mean_with_interval(np.array([getattr(score, metric) for score in kept[name]]))
            for metric in ("auprc", "token_f1", "iou_f1")
        )
        + " |"
        for name in ranked
    ]
    report = f"""# Do explanations agree with human rationales?

`python benchmarks/plausibility.py {args.file.parent.name}/{args.file.name} --texts {len(chosen)}`, {subject.title}.
Sentences whose predicted class equals the human label; a rationale consists of the words that people, seeing them
alone, labelled with the sentiment of the class. Mean and 95 % bootstrap interval over texts. Plausibility is not
faithfulness: see docs/evaluation.md.

| method | AUPRC | token F1 | IoU F1 |
|---|---|---|---|
{chr(10).join(rows)}
"""
    RESULT.write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
