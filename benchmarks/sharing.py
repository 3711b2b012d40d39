"""What sharing saves: one benchmark of all single-pass methods and Contrast-CAT, beside a naive loop on the same texts.

    python benchmarks/sharing.py TEXTS.tsv [--texts N]

Naive: each method explains each text alone, and every perturbed text is given to the model by itself, as often as it is
asked for. Both have the same methods, orders and steps, and their curves are compared. Single-threaded, so that the
ratio does not depend on how busy the machine is. Printed, and written to benchmarks/results/sharing.md.
"""

import argparse
import platform
from pathlib import Path
from time import perf_counter

import torch
from tqdm import tqdm

import whichtoken as wt
from scoring import sample_texts
from whichtoken.bench.measured import Part
from whichtoken.bench.measuring import Bench, Task, measure, plan_name
from whichtoken.bench.protocols import protocol
from whichtoken.evaluating import Plan, as_text
from whichtoken.evaluating.curves import kept_tokens
from whichtoken.models import Answers
from whichtoken.registry import chosen_methods
from whichtoken.trace import Ask

RESULT = Path(__file__).parent / "results" / "sharing.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=6)
    given = parser.parse_args()
    torch.set_num_threads(1)
    subject = wt.load()
    texts = [text for text in sample_texts(given.file, 10**9) if len(text.split()) >= 10][: given.texts]
    names = [name for name in wt.method_names() if single_pass(name) or name == "contrast-cat"]
    bench = Bench(subject, chosen_methods(names), protocol(metrics=("aopc", "log-odds"), perturbations=("delete",)))
    tasks = [Task(i, i, (text,), len(subject.encode([text])[0].ids)) for i, text in enumerate(texts)]
    measure(bench, tasks[:1])  # warms up
    start = perf_counter()
    part = measure(bench, tasks)
    shared = perf_counter() - start
    start = perf_counter()
    asked, difference = naive(bench, texts, part)
    alone = perf_counter() - start
    report = f"""# What sharing saves

`python benchmarks/sharing.py {given.file.parent.name}/{given.file.name} --texts {len(texts)}`, {len(names)} methods,
highest and lowest first, ten points each; {subject.title}, one thread, {platform.machine()}.

| | perturbed texts | seconds per text |
|---|---|---|
| naive loop | {asked:,} | {alone / len(texts):.2f} |
| one benchmark | {part.evaluated:,} | {shared / len(texts):.2f} |

{asked / part.evaluated:.1f} x fewer evaluations, {alone / shared:.1f} x less time.
Largest difference between the curves: {difference:.0e}.
"""
    RESULT.write_text(report, encoding="utf-8")
    print(report)


def single_pass(name: str) -> bool:
    return not wt.method(name).needs.asks - {Ask.HEADS, Ask.PASSES} and name not in ("integrated-gradients",)


def naive(bench: Bench, texts: list[str], part: Part) -> tuple[int, float]:
    """How many perturbed texts the model was given, and how far its answers are from those of the benchmark."""
    asked, difference = 0, 0.0
    for text, measured in zip(tqdm(texts, desc="naive"), part.texts, strict=True):
        for name, method in bench.methods.items():
            attribution = wt.explain(bench.subject, [text], [method])[0][method.label]
            asked += int(attribution.evaluations) if attribution.searched else 0
            for plan in bench.protocol.plans():
                curve = one_by_one(bench.subject, attribution, plan)
                asked += len(curve)
                pairs = zip(curve, measured.methods[name].curves[plan_name(plan)], strict=True)
                difference = max(difference, *(abs(a - b) for a, b in pairs))
    return asked, difference


def one_by_one(subject: wt.Subject, attribution: wt.Attribution, plan: Plan) -> list[float]:
    """The curve, each of its points asked by itself, and nothing remembered."""
    patterns = kept_tokens(as_text([attribution], Answers(subject)), attribution, plan)[1]
    asked = (as_text([attribution], Answers(subject)).keep(kept[None], plan.perturbation) for kept in patterns)
    return [probability for (probability,) in asked]


if __name__ == "__main__":
    main()
