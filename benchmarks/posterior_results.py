"""The part of docs/results.md about `posterior`, from the runs and reports that benchmarks/posterior.py stored."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import whichtoken as wt
from whichtoken.bench.stats import holm, interval, paired_p

RUNS, RESULTS = Path(__file__).parent / "runs", Path(__file__).parent / "results"
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
OURS = "posterior"
HEADINGS = {
    "sst2": "SST-2 dev, default model",
    "sst2-500": "SST-2 dev, default model, a sample: with TIS, and 500 evaluations for LIME and Kernel SHAP",
    "12-layers": "SST-2 dev, 12-layer model, a sample",
    "roberta": "SST-2 dev, RoBERTa, a sample",
    "imdb": "IMDB reviews, default model, a sample",
}
COMMANDS = {
    "sst2": "compare data/sst2/dev.tsv --texts {n} --name {name}",
    "sst2-500": "compare data/sst2/dev.tsv --texts {n} --name {name} --many",
    "12-layers": "compare data/sst2/dev.tsv --texts {n} --name {name} --model models/bert_12x384_sst2 "
    "--references refs12",
    "roberta": "compare data/sst2/dev.tsv --texts {n} --name {name} --model roberta_sst2 --references refs-roberta",
    "imdb": "compare data/imdb/test.tsv --set reviews --name {name} --max-tokens 256",
    "normalised": "normalise data/sst2/dev.tsv --texts {n}",
}
ONLY = {
    "sst2": "posterior",
    "sst2-500": "posterior",
    "12-layers": "posterior",
    "roberta": "posterior",
    "imdb": "default",
}
PREPARE = {  # the commands that make the model and the references of a run
    "roberta": (
        "python training/default_model.py --data data/sst2 --body models/roberta_6x384 --epochs 1 --out roberta_sst2",
        "whichtoken references build data/sst2/train.tsv --model roberta_sst2 --out refs-roberta -o scan=3000",
    ),
    "12-layers": (
        "whichtoken references build data/sst2/train.tsv --model models/bert_12x384_sst2 --out refs12 -o scan=2000",
    ),
}
REPORTS = {  # by their files, if these exist
    "posterior_signs": "Is the sign right? Sentences with negation, contrast or irony",
    "posterior_calibrate": "Can scores and intervals be trusted? Against all removals of short texts",
    "prediction_sst2": "How much of what the model says does it predict? SST-2 dev",
    "prediction_12-layers": "The same, 12-layer model",
    "prediction_roberta": "The same, RoBERTa",
    "prediction_imdb": "The same, IMDB reviews",
    "prediction_prompts": "The same, prompts with documents",
    "posterior_seeds": "Do two seeds agree?",
    "choices_range": "Which removals is a score averaged over?",
    "choices_questions": "Which questions?",
    "choices_prior": "Which maps?",
    "choices_settings": "Other settings",
    "choices_many": "How many questions should follow draws?",
    "choices_long_imdb": "Which maps and questions for long texts?",
    "posterior_overhead": "What does the search cost?",
}
REMARKS = {  # what a reader must know about a run
    "sst2": "That questions remove up to 90 % of the words was chosen on training sentences, but after results with "
    "60 % had been seen on up to 240 of these.",
}
COLUMNS: dict[str, tuple[str, str]] = {
    "SRG, delete ↑": ("delete", "srg"),
    "SRG, mask ↑": ("mask", "srg"),
    "AOPC, delete ↑": ("delete", "morf"),
    "AOPC, mask ↑": ("mask", "morf"),
    "LeRF, delete ↓": ("delete", "lerf"),
    "LeRF, mask ↓": ("mask", "lerf"),
}
AGAINST = ("attn-lrp", "attcat", "alti", "integrated-gradients(steps=8)")  # the best single-pass map, and the own maps
SEARCHING = {  # methods whose evaluations are their cost, by the label of a line in the picture
    "posterior": ("posterior(budget=16)", "posterior(budget=32)", "posterior", "posterior(budget=128)"),
    "lime": ("lime(budget=16)", "lime(budget=32)", "lime", "lime(budget=128)", "lime(budget=500)"),
    "kernel-shap": (
        "kernel-shap(budget=16)",
        "kernel-shap(budget=32)",
        "kernel-shap",
        "kernel-shap(budget=128)",
        "kernel-shap(budget=500)",
    ),
}
CROWDED = ("contrast-cat", "leave-one-out")  # labelled on the left of their mark in the picture
Scores = dict[str, dict[tuple[str, str], NDArray[np.float64]]]  # AOPC of each text, by method and column


def posterior() -> Iterator[str]:
    """Yield the section; nothing if nothing was measured."""
    measured = [name for name in HEADINGS if f"posterior-{name}" in runs_of(name)]
    if not measured:
        return
    yield "## Our own method: posterior\n"
    yield (
        "AOPC: the mean drop of the probability over 10, 20 .. 90 % of the tokens removed, highest scores first; LeRF: "
        "the same, lowest first; SRG: AOPC minus LeRF. `posterior` asks by deletion, so the columns by mask are the "
        "fairer test. Evaluations are passes: with a gradient, a pass takes as long as about three, so integrated "
        "gradients take as long as about 150. "
        "Gain: of the SRG of `posterior` (64 evaluations) over that of the method of the line, text by "
        "text, with its 95 % bootstrap interval; bold if p < 0.05 (sign-flip test, Holm over the lines). "
        "How it works: [posterior.md](posterior.md).\n"
    )
    for name in measured:
        yield from _comparison(name)
    yield from _normalised()
    yield _picture("sst2-500" if "sst2-500" in measured else measured[0])
    for report, heading in REPORTS.items():
        if (RESULTS / f"{report}.md").exists():
            yield f"### {heading}\n"
            yield (RESULTS / f"{report}.md").read_text(encoding="utf-8").replace("\n## ", "\n#### ")


def _comparison(name: str) -> Iterator[str]:
    tables = [wt.bench.read_table(RUNS / run) for run in runs_of(name)]
    facts, (scores, evaluations) = dict(tables[0].facts), read(*runs_of(name))
    starred = {line.method for table in tables for line in table.lines if line.tuned_on_deletion}
    yield f"### {HEADINGS[name]}\n"
    yield from (f"`{prepare}`\n" for prepare in PREPARE.get(name, ()))
    for run in runs_of(name):
        yield command(name, scores, run)
    yield f"{facts['texts']}; {facts['lengths']}. {facts['evaluations']}. {REMARKS.get(name, '')}".rstrip() + "\n"
    order = sorted(scores, key=lambda method: -scores[method]["delete", "srg"].mean())
    others = [method for method in order if method != OURS]
    gains = {how: _gains(scores, others, (how, "srg")) for how in ("delete", "mask")}
    yield f"| method | {' | '.join(COLUMNS)} | evaluations | gain, delete | gain, mask |\n" + "|---" * 10 + "|"
    for method in order:
        cells = [_cell(scores[method][column]) for column in COLUMNS.values()]
        more = ["", ""] if method == OURS else [gains["delete"][method], gains["mask"][method]]
        star = " *" if method in starred else ""
        yield f"| {method}{star} | {' | '.join(cells)} | {evaluations[method]:.0f} | {' | '.join(more)} |"
    yield ""
    yield from _paired(scores, [method for method in AGAINST if method in scores])


def _paired(scores: Scores, others: list[str]) -> Iterator[str]:
    """Compare `posterior` with the maps that it could have stopped at, in every column; more is always better."""
    yield f"| posterior is better by, against | {' | '.join(COLUMNS)} |\n" + "|---" * 7 + "|"
    for other in others:
        cells = []
        for column in COLUMNS.values():
            gain = (scores[OURS][column] - scores[other][column]) * (-1 if column[1] == "lerf" else 1)
            low, high = interval(gain)
            cells.append(f"{gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]")
        yield f"| {other} | {' | '.join(cells)} |"
    yield ""


def _normalised() -> Iterator[str]:
    """Show how much of the distance between the worst and the best order each method covers."""
    if not (RUNS / "posterior-normalised" / "table.json").exists():
        return
    table = wt.bench.read_table(RUNS / "posterior-normalised")
    columns = [column for column in table.columns if column.metric == "normalised-aopc"]
    yield "### Of what is possible: normalised AOPC\n"
    yield command("normalised", read("posterior-normalised")[0])
    yield (
        "Measured with the version of `posterior` before this one, a linear regression. "
        "AOPC between the lowest and the highest that a search finds for the text: 0 to 1. "
        "A method can exceed 1 where the search misses the best order.\n"
    )
    yield f"| method | {' | '.join(column.title for column in columns)} |\n" + "|---" * (1 + len(columns)) + "|"
    for line in sorted(table.lines, key=lambda line: -line.cells[columns[0].name].mean):
        cells = [line.cells[column.name] for column in columns]
        shown = [f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]" for cell in cells]
        yield f"| {line.method} | {' | '.join(shown)} |"
    yield ""


def _gains(scores: Scores, others: list[str], column: tuple[str, str]) -> dict[str, str]:
    ours = scores[OURS][column]
    ps = holm([paired_p(ours.tolist(), scores[other][column].tolist()) for other in others])
    shown = {}
    for other, p in zip(others, ps, strict=True):
        gain = ours - scores[other][column]
        low, high = interval(gain)
        mean = f"**{gain.mean():+.3f}**" if p < 0.05 else f"{gain.mean():+.3f}"
        shown[other] = f"{mean} [{low:+.3f}, {high:+.3f}]"
    return shown


def _cell(values: NDArray[np.float64]) -> str:
    low, high = interval(values)
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def runs_of(name: str) -> list[str]:
    """Return the runs of the same texts: of `posterior`, and of other methods, which may have been measured before."""
    runs = [f"posterior-{name}{part}" for part in ("", "-rivals", "-maps", "-priors")]
    return [run for run in runs if (RUNS / run / "table.json").exists()]


def read(*runs: str) -> tuple[Scores, dict[str, float]]:
    """Return the AOPC of each text, and each method's mean number of evaluations, from the first run that has it."""
    scores: dict[str, dict[tuple[str, str], list[float]]] = {}
    evaluations: dict[str, list[float]] = {}
    run_of: dict[str, str] = {}
    rows = [(run, row) for run in runs for row in pq.read_table(RUNS / run / "results.parquet").to_pylist()]
    for run, row in rows:
        if run_of.setdefault(row["method"], run) != run:
            continue
        p = np.array(row["probability"])
        by_column = scores.setdefault(row["method"], {})
        by_column.setdefault((row["perturbation"], row["order"]), []).append(float((p[0] - p[1:]).mean()))
        evaluations.setdefault(row["method"], []).append(row["evaluations"])
    arrays = {m: {column: np.array(values) for column, values in by.items()} for m, by in scores.items()}
    for of_method in arrays.values():
        for how in {how for how, _ in of_method}:
            of_method[how, "srg"] = of_method[how, "morf"] - of_method[how, "lerf"]
    return arrays, {method: float(np.mean(values)) for method, values in evaluations.items()}


def command(name: str, scores: Scores, run: str = "") -> str:
    n, part = len(scores[OURS]["delete", "morf"]), run.removeprefix(f"posterior-{name}").removeprefix("-")
    words = COMMANDS[name].format(n=n, name=f"{name}-{part}" if part else name)
    only = part or ONLY.get(name, "")
    return f"`python benchmarks/posterior.py {words}{only and f' --only {only}'}`\n"


def _picture(run: str) -> str:
    """Draw faithfulness against evaluations, all methods on one axis."""
    scores, evaluations = read(*runs_of(run))
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharex=True)
    for axis, (how, title) in zip(axes, (("delete", "words deleted"), ("mask", "words masked")), strict=True):
        _draw(axis, {method: by[how, "morf"].mean() for method, by in scores.items()}, evaluations)
        axis.set_xscale("log")
        axis.set_xlim(0.7, 1000)
        axis.margins(y=0.12)
        axis.set_xlabel("evaluations of the model for one text")
        axis.set_ylabel(f"AOPC, {title}")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(PICTURES / "budget.png", dpi=110)
    plt.close(figure)
    n = len(scores[OURS]["delete", "morf"])
    return f"![AOPC against evaluations of the model, {n} sentences of SST-2 dev](pictures/budget.png)\n"


def _draw(axis: plt.Axes, means: dict[str, float], evaluations: dict[str, float]) -> None:
    lines = {method for members in SEARCHING.values() for method in members}
    for label, members in SEARCHING.items():
        known = [method for method in members if method in means]
        axis.plot([evaluations[m] for m in known], [means[m] for m in known], marker="o")
        axis.annotate(
            label, (evaluations[known[-1]], means[known[-1]]), textcoords="offset points", xytext=(-8, 6), fontsize=9
        )
    for method, mean in means.items():
        if method not in lines and "units" not in method and method != "random":  # far below the others
            place = (evaluations[method], mean)
            axis.plot(*place, marker="x", color="0.4")
            side, offset = ("right", (-5, 4)) if method in CROWDED else ("left", (4, -9))
            axis.annotate(method, place, textcoords="offset points", xytext=offset, ha=side, fontsize=7, color="0.3")
