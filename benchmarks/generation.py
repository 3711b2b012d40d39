"""Measure how faithful methods are for language models.

    python benchmarks/generation.py run NAME MODEL PROMPTS.jsonl [--prompts N] [--level word] [--tokens 24]
    python benchmarks/generation.py report

`run` measures the first N prompts in benchmarks/runs/NAME, and resumes there; the more prompts, the longer. `report`
writes benchmarks/results/generation.md from the runs that it names.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

import whichtoken as wt
from whichtoken.bench._run import gather, measure_parts, prepare, run_sample, specification
from whichtoken.bench.folder import Folder
from whichtoken.core.trace import Method
from whichtoken.tables import BenchTable, Line

HERE = Path(__file__).parent
SINGLE = "attn-lrp,cp-lrp,gradient-x-input,gae,attcat,cat,raw-attention,rollout,alti,att-x-att-grads,random"
ENOUGH = 30  # prompts for a recommendation
STEPS = 16  # of integrated gradients
EXACT = 8  # sentences up to which all orders are compared; bounds of many words would take most of the time
METRICS = ("normalised-aopc", "above-random", "aopc", "top-drop", "lds", "additivity")
STORIES, CHATS = "benchmarks/data/stories.jsonl", "benchmarks/data/chats.jsonl"
RUNS = {  # in benchmarks/runs: what was measured, and how; MODEL is the folder of the model
    "generation-stories": ("openings of stories, by sentence", f"MODEL {STORIES}"),
    "generation-stories-words": ("openings of stories, by word", f"MODEL {STORIES} --level word"),
    "generation-chats": ("short chats, by sentence", f"MODEL {CHATS}"),
}
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
SHORT = {"normalised-aopc": "normalised AOPC", "aopc": "AOPC", "lds": "LDS"}
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
    "the answer. Seconds were measured on a machine with other work. They hardly compare methods: all share the answer "
    "and the forward pass, and of those that remove sentences, the first (`posterior`) also pays for what the others "
    "reuse."
)
LIMITS = (
    "How far this can be trusted: methods marked \\* removed some or all of the very sets of sentences by which they "
    "are then judged, because a short prompt has no others, so their lead over the other methods is partly built in. "
    f"Integrated gradients has {STEPS} steps instead of 50. Thirty prompts are few: most differences "
    "between neighbours are not significant. Runs can be continued with a larger `--prompts` in the same folder."
)


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    how = wt.bench.protocol(
        level=args.level,
        further_levels=(f"{args.level}-but-last-word",),
        metrics=METRICS,
        orders=("morf",),
        generate=args.tokens,
        bounds_up_to=EXACT,
        sample=args.prompts,
    )
    subject = replace(wt.load(args.model), name=Path(args.model).name)
    bench = prepare(subject, methods(args.level), how)
    sample, folder = gather(bench, bench.task.examples(args.data, None, None)), Folder(HERE / "runs" / args.name)
    folder.claim(specification(bench, sample, {}), {"sample": args.prompts})
    for n in range(args.step, len(sample.items), args.step):  # what was measured is saved after each step
        list(measure_parts(bench, sample.items[:n], folder))
    print(run_sample(bench, sample, folder, {}).verdict)


def methods(units: str) -> list[Method]:
    """Return all methods; those that remove units, with these."""
    removing = ("posterior", "leave-one-out", "lime", "kernel-shap", "context-cite")
    return [
        *(wt.method(name) for name in SINGLE.split(",")),
        wt.method("integrated-gradients", steps=STEPS),
        *(wt.method(name, units=units) for name in removing),
    ]


def report() -> None:
    tables = {name: wt.bench.read_table(HERE / "runs" / name) for name in RUNS if (HERE / "runs" / name).exists()}
    lines = ["# Which words of the prompt? Methods for models that generate text", "", INTRODUCTION, "", LIMITS, ""]
    lines += ["## Which method to use", "", *(f"- {advice(table, RUNS[name][0])}" for name, table in tables.items())]
    for name, table in tables.items():
        facts, (title, words) = dict(table.facts), RUNS[name]
        n = table.lines[0].cells["seconds"].n
        lines += ["", f"## {facts['model']}: {title}", ""]
        lines += [f"`python benchmarks/generation.py run {name} {words} --prompts {n}`", ""]
        lines += [f"{facts['prompts']}; {facts['lengths']}. {facts['evaluations']}.", "", f"Verdict: {table.verdict}"]
        for level, heading in TITLES.items():
            lines += section(table, level, heading)
        lines += ["", "### Cost and additivity", "", *rows(table, COSTS)]
    (HERE / "results" / "generation.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def advice(table: BenchTable, title: str) -> str:
    """Return which method to use: of all, and of those that remove nothing; and which are no better than chance."""
    first, lds = table.columns[0], next(column for column in table.columns if column.metric == "lds")
    chance = next(line for line in table.lines if line.method == "random")
    n = chance.cells["seconds"].n
    few = f" (fewer than {ENOUGH}: an indication only)" if n < ENOUGH else ""
    said = [f"{dict(table.facts)['model']}, {title}, {n} prompts{few}."]
    for column in (first, lds):
        ranked = sorted(table.lines, key=lambda line: -line.cells[column.name].mean)
        untuned = [line for line in ranked if not line.tuned_on_deletion and not line.control]
        told = [f"`{line.method}` {line.cells[column.name].mean:.2f}" for line in (ranked[0], *untuned[:3], chance)]
        said.append(f"Highest {SHORT[column.metric]}: {told[0]};")
        said.append(f"of methods that remove nothing, {told[1]}, then {told[2]} and {told[3]}; {told[4]}.")
    worse = [line for line in table.lines if line.cells[first.name].mean < chance.cells[first.name].mean]
    names = ", ".join(f"`{line.method}`" for line in worse)
    said.append(f"Below `random` by {SHORT[first.metric]}: {names or 'none'}.")
    return " ".join(said)


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
    runs.add_argument("--level", choices=("sentence", "word"), default="sentence")
    runs.add_argument("--step", type=int, default=4)
    commands.add_parser("report")
    args = parser.parse_args()
    if args.command == "run":
        run(args)
    else:
        report()


if __name__ == "__main__":
    main()
