"""Sanity check: do the scores of each method change when the head, then more and more blocks are randomised?

    python benchmarks/sanity.py TEXTS.tsv [--texts N]

The report has Kendall's tau-b between the scores before and after, averaged over texts; a value near 1 means that the
method does not depend on what was randomised. It is printed and written to benchmarks/results/sanity.md.
"""

import argparse
from pathlib import Path

import whichtoken as wt
from scoring import sample_texts
from whichtoken.bench.selection import default_methods
from whichtoken.tasks import task_for

RESULT = Path(__file__).parent / "results" / "sanity.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=24)
    args = parser.parse_args()
    subject = wt.load()
    texts = [text for text in sample_texts(args.file, 10**9) if len(text.split()) >= 10][: args.texts]
    names = [name for name in default_methods(task_for(subject)) if not wt.method(name).tuned_on_deletion]
    depths = (0, 1, 2, subject.n_layers // 2, subject.n_layers, subject.n_layers + 1)
    checks = wt.metrics.sanity_check(subject, texts, names, depths=depths)
    tau = {(check.method, check.n_blocks): check.tau for check in checks}
    titles = ["head", *(f"+ {depth} blocks" for depth in depths[1:-1]), "everything"]
    rows = [[name, *(format_tau(tau[name, depth]) for depth in depths)] for name in names]
    rows.sort(key=lambda row: row[1], reverse=True)
    table = "\n".join(f"| {' | '.join(row)} |" for row in [["method", *titles], ["---"] * (len(depths) + 1), *rows])
    report = f"""# Do scores change when the model does?

`python benchmarks/sanity.py {args.file.parent.name}/{args.file.name} --texts {len(texts)}`, {subject.title}.
Mean Kendall's tau-b over texts between the scores on the model and on a copy whose weights were randomised from the
head downward (Adebayo et al., NeurIPS 2018). Near 1: the method does not depend on what was randomised.

{table}

`random` does not depend on the model. Methods that are tuned on deletion are left out.
"""
    RESULT.write_text(report, encoding="utf-8")
    print(report)


def format_tau(tau: float | None) -> str:
    return "-" if tau is None else f"{tau:+.2f}"


if __name__ == "__main__":
    main()
