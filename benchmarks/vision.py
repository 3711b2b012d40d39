"""How faithful are heat maps of images, and do they find the object? Every method that reads images, on Fashion-MNIST.

    python benchmarks/vision.py --model DIR --data DIR --sample N [--slow-sample M] [--fill black|mean] [--out FILE]

`--data`: the folder of Fashion-MNIST's four files. A seeded sample of its test images, the same for all methods, of
which a larger N keeps the smaller; methods that ask the model hundreds of times an image get the first M of it.
Explained is the predicted class; an answer is right if it is the label; the truth of segmentation is the garment, the
pixels that are not black. Printed, and written to benchmarks/results/vision.md, with all numbers and curves in a JSON
file beside it.
"""

import argparse
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

import whichtoken as wt
from whichtoken.bench.stats import cell, interval
from whichtoken.core.registry import chosen_methods
from whichtoken.core.trace import Ask, Method
from whichtoken.models.images import prepare
from whichtoken.reproduce.idx import read_idx
from whichtoken.reproduce.pixels import PixelPlan, degrade_images
from whichtoken.tables import Estimate
from whichtoken.tasks import task_for
from whichtoken.vision import (
    Overlap,
    PixelCurves,
    accuracy_auc,
    aopc,
    log_odds,
    mean_iou,
    overlap,
    pixel_accuracy,
    pixel_map,
    resized,
)

RESULT = Path(__file__).parent / "results" / "vision.md"
TINY = 1e-9  # for unions that are empty, of which IoU is 0
AT_ONCE = 16  # explained together; only their maps are kept

# Beside the defaults: what the papers about images use, and what is open in TokenTM.
VARIANTS: list[str | Method] = [
    wt.method("rollout", start_layer=1),
    "transatt@vit-repo",
    "full-lrp@repo",
    "partial-lrp@repo",
    wt.method("integrated-gradients", baseline="zero"),
    wt.method("token-tm", reading="stream"),
    wt.method("token-tm", necc_norm="sum"),
    wt.method("token-tm", heads="apart"),
    "token-tm@third-party",
]
ORDERS, GRIDS = ("positive", "negative"), ("tenths", "twentieths")
TOKEN_TM = PixelPlan("positive", "twentieths")
FAITHFUL = {
    "AUC positive, 0-90 % ↓": "auc positive tenths",
    "AUC positive, 0-100 % ↓": "auc positive twentieths",
    "AUC negative, 0-90 % ↑": "auc negative tenths",
    "AUC negative, 0-100 % ↑": "auc negative twentieths",
    "AOPC ↑": "aopc",
    "log-odds ↓": "log-odds",
}
FINDING = {"pixel accuracy ↑": "pixel accuracy", "mIoU ↑": "mIoU", "mAP ↑": "mAP"}

Floats: TypeAlias = NDArray[np.float64]
Maps: TypeAlias = Mapping[str, Sequence[Floats]]


@dataclass(frozen=True)
class Sample:
    pixels: Tensor  # as the model reads them: image channel row column
    truths: Sequence[NDArray[Any]]  # True where the garment is
    labels: Sequence[int]

    def first(self, n: int) -> "Sample":
        return Sample(self.pixels[:n], self.truths[:n], self.labels[:n])


@dataclass(frozen=True)
class Row:
    """Of one method."""

    n: int
    cells: Mapping[str, Estimate]
    curves: Sequence[PixelCurves]


def main() -> None:
    given = arguments()
    subject = wt.load(given.model)
    sample = drawn(subject, given.data, given.sample, given.seed)
    rows: dict[str, Row] = {}
    for methods, n in ((quick_methods(subject), given.sample), (slow_methods(subject), given.slow_sample)):
        if methods and n:
            rows |= measured(subject, sample.first(n), methods, given.fill)
    report = text_of(subject, given, rows)
    given.out.write_text(report, encoding="utf-8")
    found = {
        "command": command(given),
        "model": subject.title,
        "revision": subject.fingerprint(),
        "rows": as_data(rows),
    }
    given.out.with_suffix(".json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(report)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of an image classifier")
    parser.add_argument("--data", type=Path, required=True, help="folder of Fashion-MNIST's files")
    parser.add_argument("--sample", type=int, default=200, help="test images (default 200)")
    parser.add_argument("--slow-sample", type=int, default=20, help="of these, for slow methods (default 20; 0: none)")
    parser.add_argument("--fill", choices=("black", "mean"), default="black", help="what removed pixels become")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--out", type=Path, default=RESULT, help="markdown file to write; a .json goes beside it")
    given = parser.parse_args()
    if given.sample < 1 or not 0 <= given.slow_sample <= given.sample:
        parser.error(f"--sample {given.sample} --slow-sample {given.slow_sample}: give N >= 1 and M from 0 to N")
    return given


def drawn(subject: wt.Subject, folder: Path, n: int, seed: int) -> Sample:
    images, labels = (read_idx(folder / f"t10k-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1"))
    chosen = np.random.default_rng(seed).permutation(len(images))[:n]
    pixels = torch.stack([one.pixels for one in prepare(subject, [images[i] for i in chosen])])
    height, width = pixels.shape[2:]
    truths = [resized(images[i] > 0, height, width, "patch") > 0 for i in chosen]
    return Sample(pixels, truths, [int(labels[i]) for i in chosen])


def quick_methods(subject: wt.Subject) -> list[str | Method]:
    return [item for item in able_methods(subject) if not is_slow(item)]


def slow_methods(subject: wt.Subject) -> list[str | Method]:
    return [item for item in able_methods(subject) if is_slow(item)]


def able_methods(subject: wt.Subject) -> Iterator[str | Method]:
    for item in (*wt.method_names(), *VARIANTS):
        (built,) = chosen_methods([item]).values()
        if task_for(subject).can_run(built) is None:
            yield item


def is_slow(item: str | Method) -> bool:
    """It asks about hundreds of masked images for each."""
    (built,) = chosen_methods([item]).values()
    return Ask.REMOVALS in built.needs.asks


def measured(subject: wt.Subject, sample: Sample, methods: Sequence[str | Method], fill: Any) -> dict[str, Row]:
    maps = explained(subject, sample.pixels, methods)
    plans = [PixelPlan(order, grid, fill) for order in ORDERS for grid in GRIDS]  # type: ignore[arg-type]
    curves = degrade_images(subject, sample.pixels, maps, plans, sample.labels)
    rows = {}
    for method, heats in maps.items():
        mine = [one for one in curves if one.method == method]
        found = [overlap(heat, truth) for heat, truth in zip(heats, sample.truths, strict=True)]
        rows[method] = Row(len(heats), {**faithful(mine), **finding(found)}, mine)
    return rows


def explained(subject: wt.Subject, pixels: Tensor, methods: Sequence[str | Method]) -> Maps:
    height, width = pixels.shape[2:]
    maps: dict[str, list[Floats]] = {}
    groups = range(0, len(pixels), AT_ONCE)
    for first in tqdm(groups, desc="explaining", unit=f" x {AT_ONCE} images", disable=None):
        for result in wt.explain(subject, images=list(pixels[first : first + AT_ONCE]), methods=methods):
            for method, one in result.items():
                maps.setdefault(method, []).append(pixel_map(one, height, width))
    return maps


def faithful(curves: Iterable[PixelCurves]) -> dict[str, Estimate]:
    found = {}
    for one in curves:
        found[f"auc {one.order} {one.grid}"] = cell(accuracy_auc(one))
        if (one.order, one.grid) == (TOKEN_TM.order, TOKEN_TM.grid):
            found |= {"aopc": cell(aopc(one)), "log-odds": cell(log_odds(one))}
    return found


def finding(images: Sequence[Overlap]) -> dict[str, Estimate]:
    """Images are drawn anew, and sums over the set with them."""
    counts = np.array([(i.correct, i.labelled, *i.intersection, *i.union) for i in images], dtype=np.float64)

    def of_set(value: float, ratio: Callable[[Floats], Floats]) -> Estimate:
        return Estimate(value, *interval(counts, ratio), len(images))

    return {
        "pixel accuracy": of_set(pixel_accuracy(images), lambda means: means[:, 0] / means[:, 1]),
        "mIoU": of_set(mean_iou(images), lambda means: (means[:, 2:4] / np.maximum(means[:, 4:6], TINY)).mean(1)),
        "mAP": cell([image.average_precision for image in images]),
    }


def command(given: argparse.Namespace) -> str:
    words = ["--model", Path(given.model).name, "--data", given.data.name, "--sample", given.sample]
    words += ["--slow-sample", given.slow_sample, *(["--fill", given.fill] if given.fill != "black" else [])]
    words += ["--seed", given.seed] if given.seed else []
    return shlex.join(["python", "benchmarks/vision.py", *map(str, words)])


def as_data(rows: Mapping[str, Row]) -> dict[str, Any]:
    return {
        method: {
            "n": row.n,
            "cells": {name: asdict(one) for name, one in row.cells.items()},
            "curves": [
                {
                    "order": one.order,
                    "grid": one.grid,
                    "fill": one.fill,
                    "of": one.of,
                    "right": one.right,
                    "removed": one.removed,
                    "accuracy": one.accuracy,
                    "probability": one.mean_probability,
                    "log-odds": one.mean_log_odds,
                }
                for one in row.curves
            ],
        }
        for method, row in rows.items()
    }


def text_of(subject: wt.Subject, given: argparse.Namespace, rows: Mapping[str, Row]) -> str:
    accuracy = max(rows.values(), key=lambda row: row.n).curves[0].accuracy[0]
    by_aopc = sorted(rows, key=lambda method: -rows[method].cells["aopc"].mean)
    by_map = sorted(rows, key=lambda method: -rows[method].cells["mAP"].mean)
    filled = "black" if given.fill == "black" else "the mean of their channel in their image"
    return f"""# Heat maps of images: faithfulness, and finding the object

`{command(given)}`, {Path(subject.title).name}, {subject.n_layers} layers. Test images: {given.sample}, of which the
model classifies {100 * accuracy:.1f} % rightly. `n`: how many of them a method was measured on; rows with a smaller n
are of the first of them only, and cannot be compared closely. Value and 95 % bootstrap interval over images; the best
of a column, of those on all images, is bold.

## Faithfulness

The predicted class is explained. Pixels are removed in the order of the map, the most relevant first (positive) or the
least (negative), and become {filled}. AUC: area under the accuracy (against the label) by trapezoids, x 100, from the
whole image on: 10, 20 .. 90 % removed (Chefer et al. 2021, at most 90), or 5, 10 .. 100 % (TokenTM, at most 100). AOPC
and log-odds: mean of p - p_k and of ln(p_k / p) of the predicted class over 0, 5 .. 100 %, positive.

{table(rows, by_aopc, FAITHFUL)}

## Finding the object

The truth is the garment: pixels that are not black. A pixel is foreground if its score is above the mean of its map.
Pixel accuracy and mIoU are ratios of sums over all images, no means over images; mAP is one. This is no faithfulness: a
model may look at a part of the garment, or at where there is none.

{table(rows, by_map, FINDING)}

## Remarks

- Scores of patches are enlarged bilinearly; `full-lrp` gives scores of pixels, and these are used.
- The background of these images is black: with black as what pixels become, removing it changes nothing. So a map is
  judged there by how it orders the garment, and by how many removals it spends beside it. `--fill mean` differs.
- Images with pixels removed are unlike any that the model was trained on; `random` shows what that alone does.
- A map that is constant says nothing: its pixels go row by row, and none of them is foreground.
"""


def table(rows: Mapping[str, Row], order: Sequence[str], columns: Mapping[str, str]) -> str:
    """Only rows of the whole sample can be the best of a column."""
    most = max(row.n for row in rows.values())
    best = {
        name: (min if title.endswith("↓") else max)(row.cells[name].mean for row in rows.values() if row.n == most)
        for title, name in columns.items()
    }
    lines = [f"| method | n | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for method in order:
        row = rows[method]
        cells = [
            shown(name, row.cells[name], row.n == most and row.cells[name].mean == best[name])
            for name in columns.values()
        ]
        lines.append(f"| {method} | {row.n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(name: str, found: Estimate, best: bool) -> str:
    places = 1 if name.startswith("auc") else 3  # areas are percentages
    value, low, high = (f"{number:.{places}f}" for number in (found.mean, found.low, found.high))
    return f"{f'**{value}**' if best else value} [{low}, {high}]"


if __name__ == "__main__":
    main()
