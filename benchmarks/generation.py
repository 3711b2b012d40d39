"""Measure how faithful methods are for language models.

    python benchmarks/generation.py run NAME MODEL PROMPTS.jsonl [--prompts N] [--tokens 24] [--methods LIST]
    python benchmarks/generation.py report

`run` measures the first N prompts in benchmarks/runs/NAME, and resumes there; the more prompts, the longer. `report`
writes benchmarks/results/generation.md from the runs that it names.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import whichtoken as wt
from whichtoken.tables import BenchTable, Line

HERE = Path(__file__).parent
METHODS = (
    "attn-lrp,cp-lrp,gradient-x-input,integrated-gradients,gae,attcat,cat,raw-attention,rollout,alti,random,posterior,"
    "leave-one-out,lime,kernel-shap"
)
LEVELS = "sentence,word,sentence-but-last-word,word-but-last-word"
EXACT = 8  # sentences up to which all orders are compared; bounds of many words would take most of the time
METRICS = ("normalised-aopc", "above-random", "aopc", "top-drop", "lds", "additivity")
RUNS = {"generation-stories": "openings of stories", "generation-chats": "short chats"}  # in benchmarks/runs
TITLES = {
    "sentence": "By sentence",
    "word": "By word",
    "sentence-but-last-word": "By sentence; the last word of the prompt stays",
    "word-but-last-word": "By word; the last word of the prompt stays",
}
CURVES = {
    "normalised-aopc delete morf tenths": "normalised AOPC",
    "above-random delete morf tenths": "above random",
    "aopc delete morf tenths": "AOPC",
    **{f"top-drop@{k} delete morf top": f"drop, top {k}" for k in (1, 3, 5, 10)},
}
COSTS = {"seconds": "seconds", "evaluations": "evaluations", "additivity": "additivity"}
INTRODUCTION = (
    "Greedy answers of at most 24 tokens; the prompts are made by `python benchmarks/generation_prompts.py`. What is "
    "tracked is the log-probability of the answer, in nats, when parts of the prompt are deleted. `normalised AOPC`: 0 "
    "is the worst and 1 the best order of the sentences. `above random`: the share of the way from the order of "
    "`random` to the best one. `drop, top k`: without the k highest parts, over the prompts that have as many. `LDS`: "
    "Spearman's correlation, over random removals (of few sentences: all of them), of the summed scores of what is "
    "kept with the log-probability. Brackets: 95 % bootstrap interval over prompts. Bold: best of the column; • not "
    "significantly worse (sign-flip test on the same prompts, p ≥ 0.05 after Holm's correction). \\*: the method "
    "itself evaluates prompts with words deleted, which these metrics reward. `evaluations` include those that write "
    "the answer. Seconds were measured on a machine with other work, and compare only within a table."
)


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    how = wt.bench.protocol(
        level=args.levels.split(",")[0],
        further_levels=tuple(args.levels.split(",")[1:]),
        metrics=METRICS,
        orders=("morf",),
        generate=args.tokens,
        bounds_up_to=EXACT,
        sample=args.prompts,
    )
    subject = wt.load(args.model)
    table = wt.bench.run(subject, args.data, args.methods.split(","), protocol=how, out=HERE / "runs" / args.name)
    table.show()


def report() -> None:
    tables = {name: wt.bench.read_table(HERE / "runs" / name) for name in RUNS if (HERE / "runs" / name).exists()}
    lines = ["# Which words of the prompt? Methods for models that generate text", "", INTRODUCTION]
    for name, table in tables.items():
        facts = dict(table.facts)
        lines += ["", f"## {facts['model']}: {RUNS[name]}", "", f"`{command(name)}`", ""]
        lines += [f"{facts['prompts']}; {facts['lengths']}. {facts['evaluations']}.", "", f"**{table.verdict}**"]
        for level, title in TITLES.items():
            lines += section(table, level, title)
        lines += ["", "### Cost", "", *rows(table, COSTS)]
    (HERE / "results" / "generation.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def command(name: str) -> str:
    """Return how a run was made; the folder of the model differs from machine to machine."""
    levels = "" if name == "generation-stories" else " --levels sentence"
    data = name.removeprefix("generation-")
    return f"python benchmarks/generation.py run {name} MODEL benchmarks/data/{data}.jsonl --prompts N{levels}"


def section(table: BenchTable, level: str, title: str) -> list[str]:
    """Return the table of one level, if it was measured."""
    ending = f" {level}" if any(column.name == f"lds {level}" for column in table.columns) else None
    if ending is None:
        return []
    several = sum(column.metric == "lds" for column in table.columns) > 1
    names = {f"{key}{ending if several else ''}": name for key, name in CURVES.items()} | {f"lds{ending}": "LDS"}
    return ["", f"### {title}", "", *rows(table, names)]


def rows(table: BenchTable, names: Mapping[str, str]) -> list[str]:
    """Return a Markdown table of those of the columns that were measured, best first."""
    known = {name: title for name, title in names.items() if any(name in line.cells for line in table.lines)}
    first = next(iter(known))
    sign = 1 if first in COSTS else -1
    ordered = sorted(table.lines, key=lambda line: sign * line.cells[first].mean if first in line.cells else 1e9)
    made = [f"| method | {' | '.join(known.values())} |", "|---|" + "---:|" * len(known)]
    for line in ordered:
        mark = " \\*" if line.tuned_on_deletion else ""
        made.append(f"| `{line.method}`{mark} | {' | '.join(cell(line, name, ordered) for name in known)} |")
    return made


def cell(line: Line, name: str, lines: Sequence[Line]) -> str:
    if name not in line.cells:
        return ""
    own = line.cells[name]
    if name in ("seconds", "evaluations"):
        return f"{own.mean:.1f}"
    text = f"{own.mean:.2f} [{own.low:.2f}, {own.high:.2f}]"
    highest = max(other.cells[name].mean for other in lines if name in other.cells)
    if name != "additivity" and own.mean == highest:
        return f"**{text}**"
    return text + (" •" if own.p is not None and own.p >= 0.05 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    for name in ("name", "model", "data"):
        runs.add_argument(name)
    runs.add_argument("--prompts", type=int)
    runs.add_argument("--tokens", type=int, default=24)
    runs.add_argument("--levels", default=LEVELS)
    runs.add_argument("--methods", default=METHODS)
    commands.add_parser("report")
    args = parser.parse_args()
    if args.command == "run":
        run(args)
    else:
        report()


if __name__ == "__main__":
    main()
