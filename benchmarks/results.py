"""Write docs/results.md and the benchmark behind `explain --method auto` from benchmarks/runs: `make results`.

The page shows the command that produced each run, taken from its spec.json. Every number is read from a stored table,
and comparing sentences are computed, so they stay true when a run is repeated.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import whichtoken as wt
from posterior_results import posterior
from whichtoken.bench.auto import SHIPPED
from whichtoken.bench.folder import table_json
from whichtoken.bench.stats import interval
from whichtoken.models.loading import DEFAULT, DEFAULT_NAME, revision_of
from whichtoken.tables import BenchTable, Estimate, order_lines

RUNS = Path(__file__).parent / "runs"
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "results.md"

GENERATION = (
    "## Which words of the prompt? Models that generate text\n\n"
    "Faithfulness by sentence and by word, LDS and cost of the methods for two language models: "
    "[benchmarks/results/generation.md](../benchmarks/results/generation.md)."
)
D, M = "delete morf tenths", "mask morf tenths"
DELETION = {
    "AOPC, highest first ↑": f"aopc {D}",
    "AOPC, lowest first ↓": "aopc delete lerf tenths",
    "log-odds, highest first ↓": f"log-odds {D}",
    "log-odds, lowest first ↑": "log-odds delete lerf tenths",
}
MASK = {"AOPC by mask, highest first ↑": f"aopc {M}", "AOPC by mask, lowest first ↓": "aopc mask lerf tenths"}
NORMALISED = {"normalised AOPC ↑": f"normalised-aopc {D}", "Kendall between classes ↓": "kendall"}
COST = {"seconds": "seconds", "evaluations": "evaluations"}

# Means over the nine steps, read off Contrast-CAT's figure of curves. Its models are BERT-base, on all of SST-2's
# validation set and 2,000 texts of each other data set.
PAPER_MEANS = {
    "SST-2": {"contrast-cat": (0.53, -2.20), "attcat": (0.39, -1.53)},
    "Yelp": {"contrast-cat": (0.63, -4.46), "attcat": (0.44, -3.08)},
    "IMDB": {"contrast-cat": (0.67, -4.61), "attcat": (0.58, -3.99)},
}
RUN_OF = {"SST-2": "sst2", "Yelp": "yelp", "IMDB": "imdb"}

# Commands to run before each benchmark.
BEFORE = {
    "sst2-12-layers": (
        "whichtoken references build data/sst2/train.tsv --model models/bert_12x384_sst2 --out refs12 -o scan=2000",
        "whichtoken heads build --conllu data/ud_ewt/en_ewt-ud-dev.conllu --model models/bert_12x384_sst2 "
        "--out heads12.json",
    ),
    "yelp": (
        "python benchmarks/yelp_tsv.py data/samples/yelp yelp.tsv yelp-train.tsv",
        "whichtoken references build yelp-train.tsv --out refs-yelp",
    ),
    "imdb": ("whichtoken references build data/imdb/train.tsv --out refs-imdb -o scan=600",),
    "squad": (
        "python training/qa_model.py --train data/squad/squad_v1_train_part.json --dev "
        "data/squad/squad_v1_dev_part.json --out qa",
        "whichtoken heads build --conllu data/ud_ewt/en_ewt-ud-dev.conllu --model qa --out heads_qa.json",
    ),
    "squad-contrast": (
        "python benchmarks/squad_rows.py data/squad/squad_v1_train_part.json questions.jsonl",
        "whichtoken references build questions.jsonl --model qa --out refs_qa",
    ),
}


def main() -> None:
    PAGE.write_text("\n".join(page()) + "\n", encoding="utf-8")
    print(f"written to {PAGE}")
    every = table_of("sst2-every")
    if every is not None and dict(every.facts)["revision"] == default_revision():
        SHIPPED.write_text(table_json(replace(every, trends=(), agreement=None)), encoding="utf-8")
        print(f"written to {SHIPPED}, the benchmark behind explain --method auto")


def page() -> Iterator[str]:
    yield INTRODUCTION
    for name, heading in (
        ("sst2", "SST-2 dev, default model"),
        (
            "sst2-every",
            "SST-2 dev, default model, a sample: every method, with mask, normalised AOPC and Kendall's tau",
        ),
        ("sst2-12-layers", "SST-2 dev, 12-layer model, a sample"),
        ("yelp", "Yelp reviews, default model (trained on film reviews: another domain), a sample"),
        ("imdb", "IMDB reviews, default model (trained on single sentences), a sample"),
    ):
        yield from benchmark(name, heading)
    yield from posterior()
    yield from presets()
    yield from papers()
    yield from search()
    yield from ablations()
    yield from questions()
    yield from images()
    yield from other_reports()


INTRODUCTION = """# Results

To reproduce a table, run the command above it (paths are relative to a folder with the data and models), then
`make results`, which writes this page from the benchmarks stored in `benchmarks/runs`.

How to read the tables: each cell is a mean over texts with its 95 % bootstrap interval. Bold marks the best of a
column; a dot, scores that are not significantly worse than the best (sign-flip test on the same texts, Holm). A star
marks methods that were tuned on deletion curves, which flatters their deletion scores. The metrics are explained in
[evaluation.md](evaluation.md).

These are results of small models on one machine, and some samples are small, as the intervals show. A larger
`--sample` in the same folder adds texts to a run. Seconds were measured on a busy machine.
"""


def table_of(name: str) -> BenchTable | None:
    return wt.bench.read_table(RUNS / name) if (RUNS / name / "table.json").exists() else None


def benchmark(name: str, heading: str) -> Iterator[str]:
    table = table_of(name)
    if table is None:
        return
    yield f"## {heading}{truncation(name)}\n"
    yield from (f"`{step}`\n" for step in BEFORE.get(name, ()))
    yield command(name)
    yield facts(table)
    if "--methods" not in command(name) and any("@" in line.method for line in table.lines):
        yield (
            "**Measured with the earlier default settings** of the methods marked `@paper`. Their settings of today "
            "are compared [below](#which-settings-should-a-name-alone-stand-for).\n"
        )
    if (covered := coverage(name)) is not None:
        yield (
            f"Contrast-CAT's references cover {covered.mean():.0%} of a text on average, and less than half of "
            f"{np.sum(covered < 0.5)} of the {len(covered)} texts.\n"
        )
    yield rows(table, DELETION)
    if name == "sst2":
        wt.plot.curves(table, PAGE.parent / "pictures" / "curves-sst2.png")
        yield "![Mean curves of every method, highest scores first and lowest scores first](pictures/curves-sst2.png)\n"
    if f"aopc {M}" in {column.name for column in table.columns}:
        yield rows(table, {**MASK, **NORMALISED})
    yield rows(table, COST, interval=False)
    yield "\n".join(f"- {note}" for note in table.notes if note.startswith("Normalised")) + "\n"


def truncation(name: str) -> str:
    limit = json.loads((RUNS / name / "spec.json").read_text(encoding="utf-8"))["protocol"]["max_tokens"]
    return "" if limit is None else f", cut at {limit} tokens"


def coverage(name: str) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Return for each text the share of its positions that have a reference token, or None if that was not stored."""
    table = pq.read_table(RUNS / name / "results.parquet")
    if "coverage" not in table.column_names:
        return None
    shares = {row["number"]: row["coverage"] for row in table.to_pylist() if row["coverage"] is not None}
    return np.array(list(shares.values())) if shares else None


def command(name: str) -> str:
    """Return the command line that produced a run."""
    call = json.loads((RUNS / name / "spec.json").read_text(encoding="utf-8"))
    options, words = call["call"], ["whichtoken", "bench"]
    for option in ("task", "data", "label", "model", "references", "heads", "methods", "ablation", "train"):
        if options.get(option, "texts") not in (None, "texts"):
            words += [f"--{option}", options[option]]
    for option, values in (("--column", options["column"]), ("-o", options["settings"])):
        words += [word for value in values for word in (option, value)]
    if not options["controls"]:
        words.append("--no-controls")
    if options["protocol"] != "recommended":
        words += ["--protocol", options["protocol"]]
    elif "normalised-aopc" in call["protocol"]["metrics"] and "metrics" not in options["changes"]:
        words.append("--full")  # stored when that was the default
    for setting, values in options["changes"].items():
        option = {"perturbations": "perturbation", "orders": "order", "grids": "grid"}.get(setting, setting)
        words += [f"--{option.replace('_', '-')}", ",".join(values) if isinstance(values, list) else str(values)]
    if call.get("sample"):
        words += ["--sample", str(call["sample"])]
    return f"`{shlex.join([*words, '--out', f'benchmarks/runs/{name}'])}`\n"


def facts(table: BenchTable) -> str:
    values = dict(table.facts)
    earlier = values["model"] == DEFAULT_NAME and values["revision"] != default_revision()
    note = " **Measured with the earlier default model** (SST-2 dev 0.886), not with the one that is shipped."
    return f"{values['texts']}; {values['lengths']}. {values['evaluations']}.{note * earlier}\n"


@cache
def default_revision() -> str:
    return revision_of(DEFAULT)


def rows(table: BenchTable, columns: dict[str, str], interval: bool = True) -> str:
    measured = {title: name for title, name in columns.items() if any(name in line.cells for line in table.lines)}
    lines = [f"| method | {' | '.join(measured)} |", "|---" * (len(measured) + 1) + "|"]
    for line in table.lines:
        cells = [
            format_cell(line.cells.get(name), interval, best=interval and is_best(table, name, line.method))
            for name in measured.values()
        ]
        lines.append(f"| {line.method}{' *' if line.tuned_on_deletion else ''} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def is_best(table: BenchTable, column: str, method: str) -> bool:
    """Return whether the other methods were tested against this one: it has no p, and others have."""
    cells = {line.method: line.cells[column] for line in table.lines if column in line.cells}
    return method in cells and cells[method].p is None and any(cell.p is not None for cell in cells.values())


def format_cell(cell: Estimate | None, interval: bool, best: bool) -> str:
    if cell is None:
        return "-"
    mean = f"{cell.mean:.3f}" if abs(cell.mean) < 100 else f"{cell.mean:.0f}"
    text = f"**{mean}**" if best else mean
    if not interval:
        return text
    return f"{text} [{cell.low:.3f}, {cell.high:.3f}]" + (" •" if cell.p is not None and cell.p >= 0.05 else "")


def mean(table: BenchTable, method: str, column: str) -> float:
    return next(line.cells[column].mean for line in table.lines if line.method == method)


def papers() -> Iterator[str]:
    stored_tables = {name: table_of(run) for name, run in RUN_OF.items()}
    tables = {name: table for name, table in stored_tables.items() if table is not None}
    if not tables:
        return
    yield "## Compared with the papers\n"
    yield (
        "Mean over the steps, highest scores first, by deletion. The paper's numbers were read off its figure. Its "
        "models are BERT-base and its steps are ninths of all tokens; ours are tenths of the content tokens. So only "
        "the ratios can be compared. The references of each data set come from its own training texts; `covered` is "
        "the share of a text's positions that have a reference token. The model is always the default model, "
        "trained on the sentences of SST-2 and 8,000 unlabelled ones from IMDB's training reviews. The gain is "
        "computed text by text, with its 95 % bootstrap interval. The control runs Contrast-CAT's search on noise "
        "instead of references.\n"
    )
    yield (
        "| data | texts | covered | Contrast-CAT, paper | AttCAT, paper | ratio | Contrast-CAT, ours | AttCAT, ours | "
        "ratio | gain over AttCAT, ours | gain of the control `refined-noise` |\n" + "|---" * 11 + "|"
    )
    ahead: list[str] = []
    undecided: list[str] = []
    ratios: list[tuple[float, float]] = []
    for name, table in tables.items():
        for place, metric in enumerate(("aopc", "log-odds")):
            paper = [PAPER_MEANS[name][method][place] for method in ("contrast-cat", "attcat")]
            ours = [mean(table, method, f"{metric} {D}") for method in ("contrast-cat", "attcat")]
            gains = [gain_over_attcat(name, metric, method) for method in ("contrast-cat", "refined-noise")]
            (ahead if gains[0].low > 0 else undecided).append(f"{name} {metric}")
            ratios.append((paper[0] / paper[1], ours[0] / ours[1]))
            cells = [f"{v:.2f}" for v in (*paper, ratios[-1][0], *ours, ratios[-1][1])]
            covered = coverage(RUN_OF[name])
            cells = [str(gains[0].n), "-" if covered is None else f"{covered.mean():.0%}", *cells]
            cells += [f"{gain.mean:.3f} [{gain.low:.3f}, {gain.high:.3f}]" for gain in gains]
            yield f"| {name}{truncation(RUN_OF[name])}, {metric} | {' | '.join(cells)} |"
    yield ""
    total = len(ahead) + len(undecided)
    sides = zip(zip(*ratios, strict=True), ("in the paper", "here"), strict=True)
    yield (
        f"**Agreement:** Contrast-CAT is ahead of AttCAT, with an interval above 0, in {len(ahead)} of {total}"
        f" ({', '.join(ahead) or 'none'}); not so: {', '.join(undecided) or 'none'}. The ratios are "
        f"{' and '.join(f'{min(part):.2f} to {max(part):.2f} {where}' for part, where in sides)}. "
        f"**Disagreement:** {verdict(tables)}\n"
    )


def gain_over_attcat(name: str, metric: str, method: str) -> Estimate:
    """Return the mean gain of a method over AttCAT, text by text; positive means better in either metric."""
    by_text: dict[int, dict[str, float]] = {}
    for row in pq.read_table(RUNS / RUN_OF[name] / "results.parquet").to_pylist():
        if (row["perturbation"], row["order"], row["grid"]) == ("delete", "morf", "tenths"):
            p = np.array(row["probability"])
            lost = p[0] - p[1:] if metric == "aopc" else np.log(p[0] / p[1:])
            by_text.setdefault(row["number"], {})[row["method"]] = float(lost.mean())
    gains = np.array([values[method] - values["attcat"] for values in by_text.values()])
    low, high = interval(gains)
    return Estimate(float(gains.mean()), low, high, len(gains))


def verdict(tables: dict[str, BenchTable]) -> str:
    """List the methods that score higher than Contrast-CAT by deletion."""
    ahead = []
    for name, table in tables.items():
        ours = mean(table, "contrast-cat", f"aopc {D}")
        above = [line.method for line in table.lines if line.cells[f"aopc {D}"].mean > ours]
        ahead.append(f"{', '.join(above) or 'no method'} on {name}")
    return (
        f"of the methods measured here, these have a higher mean AOPC than Contrast-CAT: {'; '.join(ahead)}. The paper "
        "does not compare with AttnLRP, CP-LRP, integrated gradients or a control that only searches."
    )


def search() -> Iterator[str]:
    table = table_of("ablation-search")
    if table is None:
        return
    yield "## How much of Contrast-CAT's gain is contrast, and how much is search?\n"
    yield command("ablation-search")
    yield facts(table)
    columns = {
        "AOPC, deletion, tenths ↑": f"aopc {D}",
        "AOPC, deletion, ninths (tuned on) ↑": "aopc delete morf ninths",
        "AOPC, mask, tenths ↑": f"aopc {M}",
        "AOPC, deletion, lowest first ↓": "aopc delete lerf tenths",
    }
    yield rows(table, columns)
    for title, column in (("By deletion", f"aopc {D}"), ("By mask", f"aopc {M}")):
        base = mean(table, "attcat", column)
        gain = mean(table, "contrast-cat", column) - base
        contrast = mean(table, "contrast-cat, refine=False", column) - base
        noise = mean(table, "refined-noise", column) - base
        yield (
            f"- {title}, gain in AOPC over AttCAT: contrast alone {contrast:+.3f}, search alone (noise) {noise:+.3f}, "
            f"both {gain:+.3f}."
        )
    yield ""


def presets() -> Iterator[str]:
    """Show the settings that were compared to choose the defaults; written by benchmarks/presets.py."""
    tables = {name: table_of(f"presets-{name}") for name in ("default", "bert_12x384_sst2")}
    if None in tables.values():
        return
    yield "## Which settings should a name alone stand for?\n"
    model = "--model models/bert_12x384_sst2"
    yield f"`whichtoken heads build --conllu data/ud_ewt/en_ewt-ud-dev.conllu {model} --out heads12.json`\n"
    yield "`python benchmarks/presets.py data/sst2/train.tsv`\n"
    yield f"`python benchmarks/presets.py data/sst2/train.tsv {model} --heads heads12.json`\n"
    yield (
        "Training sentences, because the chosen settings are measured on the development set above. A name alone "
        "stands for the recommended settings; `@paper` and `@repo` for those of the paper and of the authors' code.\n"
    )
    for name, table in tables.items():
        assert table is not None
        yield f"### {'Default model' if name == 'default' else name}\n"
        yield facts(table)
        yield rows(
            table,
            {
                "AOPC, highest first ↑": f"aopc {D}",
                "AOPC, lowest first ↓": "aopc delete lerf tenths",
                "AOPC by mask, highest first ↑": f"aopc {M}",
                "AOPC by mask, lowest first ↓": "aopc mask lerf tenths",
            },
        )


ABLATIONS = {
    "reference-rule": "Which references? (Table 2 of Contrast-CAT)",
    "gamma": "How low must a reference's probability be?",
    "n-references": "How many references?",
    "depth": "How many layers?",
    "head-mask": "Which heads should Mask-LRP propagate through?",
    "head-corruption": "How many wrong heads does Mask-LRP tolerate?",
}


def ablations() -> Iterator[str]:
    for name, heading in ABLATIONS.items():
        table = table_of(f"ablation-{name}")
        if table is None:
            continue
        yield f"## {heading}\n"
        yield command(f"ablation-{name}")
        yield facts(table)
        spec = json.loads((RUNS / f"ablation-{name}" / "spec.json").read_text(encoding="utf-8"))
        ordered = order_lines(table, list(spec["methods"]))
        yield rows(ordered, {"AOPC ↑": f"aopc {D}", "log-odds ↓": f"log-odds {D}"})
        picture = PAGE.parent / "pictures" / f"ablation-{name}.png"
        wt.plot.variants(ordered, f"aopc {D}", picture)
        yield f"![{heading}](pictures/{picture.name})\n"


def questions() -> Iterator[str]:
    table = table_of("squad")
    if table is None:
        return
    training = stored("qa_model")
    last = training["after each epoch"][-1]
    yield "## Questions: how many tokens of the answer are among the 20 highest?\n"
    yield (
        "The model is the pretrained body of the default model (all-MiniLM-L6-v2), trained on "
        f"{training['training questions']:,} questions of SQuAD "
        f"v1.1 for {training['settings']['epochs']} epochs: exact match {last['exact match']}, F1 {last['f1']} on "
        f"{last['questions']:,} questions of the development set, after the last epoch. "
        "It is weak, and meant to exercise the methods.\n"
    )
    for name in ("squad", "squad-contrast"):
        if (results := table_of(name)) is None:
            continue
        yield from (f"`{before}`\n" for before in BEFORE[name])
        yield command(name)
        about = dict(results.facts)
        yield f"{about['questions']}; {about['lengths']}. {about['answers']}. Correct: {about['right']}.\n"
        yield rows(
            results, {"precision@20 (count) ↑": "precision@20", "share@20 ↑": "share@20", "evaluations": "evaluations"}
        )
    yield "Seconds are omitted, because the machine was busy and the first run was paused once.\n"


def images() -> Iterator[str]:
    path = RESULTS / "vision.md"
    if not path.exists():
        return
    training = stored("vit_model")
    report = re.sub(r"^#", "##", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    yield report.partition("\n\n")[0] + "\n"
    yield (
        f"The model is a ViT of {training['settings']['layers']} x {training['settings']['width']} with "
        f"{training['parameters']:,} parameters, trained on Fashion-MNIST by `python training/vit_model.py --data "
        f"fashion-mnist --out vit`: {training['test accuracy']:.1%} accuracy on {training['test images']:,} test "
        f"images; {training['minutes']} minutes on {training['torch threads']} thread of a busy machine.\n"
    )
    yield rank_of_token_tm("vision")
    yield report.partition("\n\n")[2]
    if (RESULTS / "vision_mean.json").exists():
        grey = stored("vision_mean")
        yield "### The same with the image mean instead of black\n"
        yield f"`{grey['command']}`, [full table](../benchmarks/results/vision_mean.md).\n"
        yield rank_of_token_tm("vision_mean")


def rank_of_token_tm(name: str) -> str:
    """Describe the rank of TokenTM among the methods that were measured on all images."""
    everything = stored(name)["rows"]
    whole = max(row["n"] for row in everything.values())
    cells = {method: row["cells"] for method, row in everything.items() if row["n"] == whole}
    lines = []
    for column, title, sign in (
        ("auc positive twentieths", "AUC, most relevant pixels first, lower is better", 1),
        ("auc negative twentieths", "AUC, least relevant pixels first, higher is better", -1),
        ("mAP", "mAP of the garment, higher is better", -1),
    ):
        ranked = sorted(cells, key=lambda method, column=column, sign=sign: sign * cells[method][column]["mean"])  # type: ignore[misc]
        own, gae, best = (cells[method][column]["mean"] for method in ("token-tm", "gae", ranked[0]))
        variants = [method for method in ranked if method.startswith("token-tm")]
        digits = 3 if column == "mAP" else 1
        lines.append(
            f"- {title}: `token-tm` ranks {ranked.index('token-tm') + 1} of {len(ranked)} with {own:.{digits}f}; "
            f"`gae`, which it refines, has {gae:.{digits}f}; the best method, `{ranked[0]}`, has {best:.{digits}f}; "
            f"the best variant of TokenTM is `{variants[0]}`, rank {ranked.index(variants[0]) + 1}."
        )
    return (
        "**How TokenTM compares.** On this small model, among the methods measured on all images:\n\n"
        + "\n".join(lines)
        + "\n"
    )


def stored(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return values


def other_reports() -> Iterator[str]:
    """Yield the reports of other benchmarks; each names the command that produced it."""
    for name in ("sharing", "sanity", "plausibility"):
        path = RESULTS / f"{name}.md"
        if path.exists():
            yield re.sub(r"^# ", "## ", path.read_text(encoding="utf-8"))
    yield GENERATION


if __name__ == "__main__":
    main()
