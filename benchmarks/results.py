"""docs/results.md, and what `explain --method auto` chooses by, from the benchmarks in benchmarks/runs: `make results`.

Each folder there was made by the command that its spec.json holds, and the page shows it. Every number on the page is
read from a stored table; sentences that compare are computed, so that they stay true when a run is made again.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import whichtoken as wt
from whichtoken.bench.auto import SHIPPED
from whichtoken.bench.folder import table_json
from whichtoken.tables import BenchTable, Estimate, in_order

RUNS = Path(__file__).parent / "runs"
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "results.md"

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

# What the papers say. The areas are Contrast-CAT's Table 1; the means over the nine steps were read off its figure of
# curves. BERT-base models that are not ours, all of SST-2's validation set, 2,000 texts each of the others.
PAPER_AREAS = {"SST-2": (0.654, 0.157), "Yelp": (0.687, 0.131), "IMDB": (0.738, 0.101)}
PAPER_MEANS = {
    "SST-2": {"contrast-cat": (0.53, -2.20), "attcat": (0.39, -1.53)},
    "Yelp": {"contrast-cat": (0.63, -4.46), "attcat": (0.44, -3.08)},
    "IMDB": {"contrast-cat": (0.67, -4.61), "attcat": (0.58, -3.99)},
}


# What had to be made first.
BEFORE = {
    "sst2-12-layers": (
        "whichtoken references build data/sst2/train.tsv --model models/bert_12x384_sst2 --out refs12 -o scan=2000",
        "whichtoken heads build --conllu data/ud_ewt/en_ewt-ud-dev.conllu --model models/bert_12x384_sst2 "
        "--out heads12.json",
    ),
    "yelp": ("python benchmarks/yelp_tsv.py data/samples/yelp yelp.tsv",),
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
    if (every := table_of("sst2-every")) is not None:
        SHIPPED.write_text(table_json(replace(every, trends=(), agreement=None)), encoding="utf-8")
        print(f"written to {SHIPPED}, which explain --method auto chooses by")


def page() -> Iterator[str]:
    yield INTRODUCTION
    for name, heading in (
        ("sst2", "SST-2 dev, default model: every sentence of at least 10 tokens"),
        ("sst2-every", "SST-2 dev, default model, a sample: every method, also by mask, normalised, between classes"),
        ("sst2-12-layers", "SST-2 dev, a sample, the 12-layer model"),
        ("yelp", "Yelp reviews, a sample, default model (trained on films: another domain)"),
        (
            "imdb",
            "IMDB reviews up to 512 tokens, a small sample, default model (trained on single sentences about films)",
        ),
    ):
        yield from benchmark(name, heading)
    yield from papers()
    yield from search()
    yield from ablations()
    yield from questions()
    yield from images()
    yield from beside()


INTRODUCTION = """# Results

Written by `make results` from the benchmarks stored in `benchmarks/runs`; each was made by the command above its table,
with paths relative to a folder that holds the data and models. Mean over texts and 95 % bootstrap interval. A star
marks methods that were tuned on deletion curves, whose scores by deletion are flattered; a dot, scores that are not
significantly worse than the best of the column (sign-flip test on the same texts, Holm). How things are measured:
[evaluation.md](evaluation.md).

These are the numbers of small models on one machine, and some samples are small: the intervals say how small. A larger
`--sample` in the same folder adds texts to a run.
"""


def table_of(name: str) -> BenchTable | None:
    return wt.bench.read_table(RUNS / name) if (RUNS / name / "table.json").exists() else None


def benchmark(name: str, heading: str) -> Iterator[str]:
    table = table_of(name)
    if table is None:
        return
    yield f"## {heading}\n"
    yield from (f"`{made}`\n" for made in BEFORE.get(name, ()))
    yield command(name)
    yield facts(table)
    yield rows(table, DELETION)
    if name == "sst2":
        wt.plot.curves(table, PAGE.parent / "pictures" / "curves-sst2.png")
        yield "![Mean curves of every method, highest and lowest scores first](pictures/curves-sst2.png)\n"
    if f"aopc {M}" in {column.name for column in table.columns}:
        yield rows(table, {**MASK, **NORMALISED})
    yield rows(table, COST, interval=False)
    yield "\n".join(f"- {note}" for note in table.notes if note.startswith("Normalised")) + "\n"


def command(name: str) -> str:
    """As it was typed."""
    call = json.loads((RUNS / name / "spec.json").read_text(encoding="utf-8"))
    asked, words = call["call"], ["whichtoken", "bench"]
    for option in ("task", "data", "label", "model", "references", "heads", "methods", "ablation", "train"):
        if asked.get(option, "texts") not in (None, "texts"):
            words += [f"--{option}", asked[option]]
    for option, values in (("--column", asked["column"]), ("-o", asked["settings"])):
        words += [word for value in values for word in (option, value)]
    if not asked["controls"]:
        words.append("--no-controls")
    if asked["protocol"] != "recommended":
        words += ["--protocol", asked["protocol"]]
    for setting, values in asked["changes"].items():
        option = {"perturbations": "perturbation", "orders": "order", "grids": "grid"}.get(setting, setting)
        words += [f"--{option.replace('_', '-')}", ",".join(values) if isinstance(values, list) else str(values)]
    if call.get("sample"):
        words += ["--sample", str(call["sample"])]
    return f"`{shlex.join([*words, '--out', f'benchmarks/runs/{name}'])}`\n"


def facts(table: BenchTable) -> str:
    wanted = dict(table.facts)
    return f"{wanted['texts']}; {wanted['lengths']}. {wanted['evaluations']}.\n"


def rows(table: BenchTable, columns: dict[str, str], interval: bool = True) -> str:
    there = {title: name for title, name in columns.items() if any(name in line.cells for line in table.lines)}
    lines = [f"| method | {' | '.join(there)} |", "|---" * (len(there) + 1) + "|"]
    for line in table.lines:
        cells = [
            shown(line.cells.get(name), interval, best=interval and is_best(table, name, line.method))
            for name in there.values()
        ]
        lines.append(f"| {line.method}{' *' if line.tuned_on_deletion else ''} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def is_best(table: BenchTable, column: str, method: str) -> bool:
    """No p where others have one: the others were tested against it."""
    cells = {line.method: line.cells[column] for line in table.lines if column in line.cells}
    return method in cells and cells[method].p is None and any(cell.p is not None for cell in cells.values())


def shown(cell: Estimate | None, interval: bool, best: bool) -> str:
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
    found = {"SST-2": table_of("sst2"), "Yelp": table_of("yelp"), "IMDB": table_of("imdb")}
    there = {name: table for name, table in found.items() if table is not None}
    if not there:
        return
    yield "## Beside the papers\n"
    yield (
        "Mean over the steps, highest first, by deletion. The paper's numbers were read off its figure; its models are "
        "BERT-base, its steps are ninths of all tokens, ours tenths of the content tokens, so only "
        "ratios can be compared.\n"
    )
    yield (
        "| data | Contrast-CAT, paper | AttCAT, paper | ratio | Contrast-CAT, ours | AttCAT, ours | ratio |\n"
        + "|---" * 7
        + "|"
    )
    ratios = {}
    for name, table in there.items():
        for place, metric in enumerate(("aopc", "log-odds")):
            theirs = [PAPER_MEANS[name][method][place] for method in ("contrast-cat", "attcat")]
            ours = [mean(table, method, f"{metric} {D}") for method in ("contrast-cat", "attcat")]
            ratios[name, metric] = (theirs[0] / theirs[1], ours[0] / ours[1])
            cells = [f"{v:.2f}" for v in (*theirs, theirs[0] / theirs[1])] + [
                f"{v:.2f}" for v in (*ours, ours[0] / ours[1])
            ]
            yield f"| {name}, {metric} | {' | '.join(cells)} |"
    yield ""
    agreeing = [f"{n} {m}" for (n, m), (_, ours) in ratios.items() if ours > 1]
    yield (
        f"**Agrees:** Contrast-CAT is ahead of AttCAT in {len(agreeing)} of {len(ratios)} ({', '.join(agreeing)}). "
        f"**Does not:** {verdict(there)}\n"
    )
    yield from protocol_of_the_paper()


def verdict(there: dict[str, BenchTable]) -> str:
    """Who stands above Contrast-CAT by its own measure."""
    said = []
    for name, table in there.items():
        ours = mean(table, "contrast-cat", f"aopc {D}")
        above = [line.method for line in table.lines if line.cells[f"aopc {D}"].mean > ours]
        said.append(f"{', '.join(above) or 'nothing'} on {name}")
    return (
        f"by deletion, ahead of Contrast-CAT stand {'; '.join(said)}. The paper does not compare with AttnLRP, CP-LRP, "
        "integrated gradients or a control that searches."
    )


def protocol_of_the_paper() -> Iterator[str]:
    table = table_of("protocol-contrast-cat")
    if table is None:
        return
    columns = {
        "AOPC area, highest first ↑": "pooled-auc delete morf ninths aopc",
        "log-odds area, highest first ↓": "pooled-auc delete morf ninths log-odds",
        "AOPC ↑": "aopc delete morf ninths",
        "log-odds ↓": "log-odds delete morf ninths",
        "Kendall of positions": "kendall",
    }
    yield "### As Contrast-CAT's authors measure\n"
    yield command("protocol-contrast-cat")
    yield facts(table)
    yield rows(table, columns)
    line = next(line for line in table.lines if line.method == "contrast-cat@repo")
    areas = [line.cells[name].mean for name in list(columns.values())[:2]]
    theirs = PAPER_AREAS["SST-2"]
    yield (
        f"The paper's Table 1 has areas of {theirs[0]:.3f} (AOPC) and {theirs[1]:.3f} (log-odds) for Contrast-CAT on "
        f"SST-2; here {areas[0]:.3f} and {areas[1]:.3f}. Areas depend on which methods are scaled together, so "
        "they are no measure of a model. Its Table 3 reports Kendall's tau below 0.05 between classes: of positions, "
        "which says little (see [evaluation.md](evaluation.md)).\n"
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
            f"- {title}, AOPC above AttCAT: contrast alone {contrast:+.3f}, search alone (noise) {noise:+.3f}, both "
            f"{gain:+.3f}."
        )
    yield ""


ABLATIONS = {
    "reference-rule": "Which references? (Table 2 of Contrast-CAT)",
    "gamma": "How low must a reference's probability be?",
    "n-references": "How many references?",
    "depth": "How many layers?",
    "head-mask": "Which heads should Mask-LRP propagate through?",
    "head-corruption": "How many of Mask-LRP's heads can be wrong?",
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
        ordered = in_order(table, list(spec["methods"]))
        yield rows(ordered, {"AOPC ↑": f"aopc {D}", "log-odds ↓": f"log-odds {D}"})
        picture = PAGE.parent / "pictures" / f"ablation-{name}.png"
        wt.plot.variants(ordered, f"aopc {D}", picture)
        yield f"![{heading}](pictures/{picture.name})\n"


def questions() -> Iterator[str]:
    table = table_of("squad")
    if table is None:
        return
    made = stored("qa_model")
    last = made["after each epoch"][-1]
    yield "## Questions: how much of the answer is among the 20 highest tokens?\n"
    yield (
        f"The body of the default model, trained on {made['training questions']:,} questions of SQuAD v1.1 for "
        f"{made['settings']['epochs']} epochs: exact match {last['exact match']}, F1 {last['f1']} on "
        f"{last['questions']:,} questions of the development set, after the last epoch. "
        "A weak model: it is there to exercise the methods.\n"
    )
    for name in ("squad", "squad-contrast"):
        if (found := table_of(name)) is None:
            continue
        yield from (f"`{before}`\n" for before in BEFORE[name])
        yield command(name)
        about = dict(found.facts)
        yield f"{about['questions']}; {about['lengths']}. {about['answers']}. Right: {about['right']}.\n"
        yield rows(
            found, {"precision@20 (count) ↑": "precision@20", "share@20 ↑": "share@20", "evaluations": "evaluations"}
        )
    yield "Seconds are left out: the machine was busy with other things, and the first run was paused once.\n"


def images() -> Iterator[str]:
    path = RESULTS / "vision.md"
    if not path.exists():
        return
    made = stored("vit_model")
    report = re.sub(r"^#", "##", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    yield report.partition("\n\n")[0] + "\n"
    yield (
        f"A ViT of {made['settings']['layers']} x {made['settings']['width']}, {made['parameters']:,} parameters, "
        "trained on Fashion-MNIST by `python training/vit_model.py --data fashion-mnist --out vit`: "
        f"{made['test accuracy']:.1%} of {made['test images']:,} test images right; {made['minutes']} minutes on "
        f"{made['torch threads']} thread of a busy machine.\n"
    )
    yield where_token_tm_lands("vision")
    yield report.partition("\n\n")[2]
    if (RESULTS / "vision_mean.json").exists():
        grey = stored("vision_mean")
        yield "### The same with the mean of the image in the place of black\n"
        yield f"`{grey['command']}`, [the whole table](../benchmarks/results/vision_mean.md).\n"
        yield where_token_tm_lands("vision_mean")


def where_token_tm_lands(name: str) -> str:
    """Computed, so that it stays true when the run is made again."""
    everything = stored(name)["rows"]
    whole = max(row["n"] for row in everything.values())
    found = {method: row["cells"] for method, row in everything.items() if row["n"] == whole}
    said = []
    for column, title, sign in (
        ("auc positive twentieths", "AUC of the most relevant pixels first, lower is better", 1),
        ("auc negative twentieths", "AUC of the least relevant first, higher is better", -1),
        ("mAP", "mAP of the garment", -1),
    ):
        ranked = sorted(found, key=lambda method, column=column, sign=sign: sign * found[method][column]["mean"])  # type: ignore[misc]
        own, gae, best = (found[method][column]["mean"] for method in ("token-tm", "gae", ranked[0]))
        variants = [method for method in ranked if method.startswith("token-tm")]
        digits = 3 if column == "mAP" else 1
        said.append(
            f"- {title}: `token-tm` is number {ranked.index('token-tm') + 1} of {len(ranked)} with {own:.{digits}f}; "
            f"`gae`, which it refines, has {gae:.{digits}f}; the best, `{ranked[0]}`, {best:.{digits}f}; the best of "
            f"its readings is `{variants[0]}`, number {ranked.index(variants[0]) + 1}."
        )
    return (
        "**Where TokenTM lands.** On this small model, of the methods measured on all images:\n\n"
        + "\n".join(said)
        + "\n"
    )


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def beside() -> Iterator[str]:
    """Other reports, each made by the command that it names."""
    for name in ("sharing", "sanity", "plausibility"):
        path = RESULTS / f"{name}.md"
        if path.exists():
            yield re.sub(r"^# ", "## ", path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
