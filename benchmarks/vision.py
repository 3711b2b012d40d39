"""Measure the faithfulness and localisation of heat maps, for every method that supports images, on Fashion-MNIST.

    python benchmarks/vision.py --model DIR --data DIR --sample N [--slow-sample M] [--fill black|mean] [--out FILE]

`--data` is the folder with the four files of Fashion-MNIST. All methods use the same seeded sample of N test images (a
larger N extends a smaller sample); methods that evaluate hundreds of images per image use the first M. The predicted
class is explained, a prediction is correct if it equals the label, and the ground truth for segmentation is the
garment: the pixels that are not black. The report is printed and written to benchmarks/results/vision.md, with all
numbers and curves in a JSON file next to it.
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
from whichtoken.core.registry import resolve_methods
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
TINY = 1e-9  # avoids division by zero: the IoU of an empty union is 0
AT_ONCE = 16  # images per batch; only their maps are kept

# In addition to the defaults: settings of the papers about images, and open choices of TokenTM.
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
FAITHFULNESS = {
    "AUC positive, 0-90 % ↓": "auc positive tenths",
    "AUC positive, 0-100 % ↓": "auc positive twentieths",
    "AUC negative, 0-90 % ↑": "auc negative tenths",
    "AUC negative, 0-100 % ↑": "auc negative twentieths",
    "AOPC ↑": "aopc",
    "log-odds ↓": "log-odds",
}
LOCALISATION = {"pixel accuracy ↑": "pixel accuracy", "mIoU ↑": "mIoU", "mAP ↑": "mAP"}

Floats: TypeAlias = NDArray[np.float64]
Maps: TypeAlias = Mapping[str, Sequence[Floats]]


@dataclass(frozen=True)
class Sample:
    pixels: Tensor  # input of the model: image channel row column
    truths: Sequence[NDArray[Any]]  # True where the garment is
    labels: Sequence[int]

    def first(self, n: int) -> "Sample":
        return Sample(self.pixels[:n], self.truths[:n], self.labels[:n])


@dataclass(frozen=True)
class Row:
    """The results of one method."""

    n: int
    cells: Mapping[str, Estimate]
    curves: Sequence[PixelCurves]


def main() -> None:
    options = parse_arguments()
    subject = wt.load(options.model)
    sample = draw_sample(subject, options.data, options.sample, options.seed)
    rows: dict[str, Row] = {}
    for methods, n in ((quick_methods(subject), options.sample), (slow_methods(subject), options.slow_sample)):
        if methods and n:
            rows |= measure(subject, sample.first(n), methods, options.fill)
    report = format_report(subject, options, rows)
    options.out.write_text(report, encoding="utf-8")
    values = {
        "command": command(options),
        "model": subject.title,
        **vars(subject.identity()),
        "rows": to_data(rows),
    }
    options.out.with_suffix(".json").write_text(json.dumps(values) + "\n", encoding="utf-8")
    print(report)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of an image classifier")
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of Fashion-MNIST")
    parser.add_argument("--sample", type=int, default=200, help="test images (default 200)")
    parser.add_argument("--slow-sample", type=int, default=20, help="of these, for slow methods (default 20; 0: skip)")
    parser.add_argument("--fill", choices=("black", "mean"), default="black", help="value of removed pixels")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default 0)")
    parser.add_argument("--out", type=Path, default=RESULT, help="Markdown file to write, with a .json file next to it")
    options = parser.parse_args()
    if options.sample < 1 or not 0 <= options.slow_sample <= options.sample:
        parser.error(f"--sample {options.sample} --slow-sample {options.slow_sample}: give N >= 1 and M from 0 to N")
    return options


def draw_sample(subject: wt.Subject, folder: Path, n: int, seed: int) -> Sample:
    images, labels = (read_idx(folder / f"t10k-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1"))
    chosen = np.random.default_rng(seed).permutation(len(images))[:n]
    pixels = torch.stack([image.pixels for image in prepare(subject, [images[i] for i in chosen])])
    height, width = pixels.shape[2:]
    truths = [resized(images[i] > 0, height, width, "patch") > 0 for i in chosen]
    return Sample(pixels, truths, [int(labels[i]) for i in chosen])


def quick_methods(subject: wt.Subject) -> list[str | Method]:
    return [item for item in able_methods(subject) if not is_slow(item)]


def slow_methods(subject: wt.Subject) -> list[str | Method]:
    return [item for item in able_methods(subject) if is_slow(item)]


def able_methods(subject: wt.Subject) -> Iterator[str | Method]:
    for item in (*wt.method_names(), *VARIANTS):
        (built,) = resolve_methods([item]).values()
        if task_for(subject).can_run(built) is None:
            yield item


def is_slow(item: str | Method) -> bool:
    """Return whether the method evaluates hundreds of masked images per image."""
    (built,) = resolve_methods([item]).values()
    return Ask.REMOVALS in built.needs.asks


def measure(subject: wt.Subject, sample: Sample, methods: Sequence[str | Method], fill: Any) -> dict[str, Row]:
    maps = explain_images(subject, sample.pixels, methods)
    plans = [PixelPlan(order, grid, fill) for order in ORDERS for grid in GRIDS]  # type: ignore[arg-type]
    curves = degrade_images(subject, sample.pixels, maps, plans, sample.labels)
    rows = {}
    for method, heats in maps.items():
        own = [curve for curve in curves if curve.method == method]
        overlaps = [overlap(heat, truth) for heat, truth in zip(heats, sample.truths, strict=True)]
        rows[method] = Row(len(heats), {**faithfulness(own), **localisation(overlaps)}, own)
    return rows


def explain_images(subject: wt.Subject, pixels: Tensor, methods: Sequence[str | Method]) -> Maps:
    height, width = pixels.shape[2:]
    maps: dict[str, list[Floats]] = {}
    groups = range(0, len(pixels), AT_ONCE)
    for first in tqdm(groups, desc="explaining", unit=f" x {AT_ONCE} images", disable=None):
        for result in wt.explain(subject, images=list(pixels[first : first + AT_ONCE]), methods=methods):
            for method, attribution in result.items():
                maps.setdefault(method, []).append(pixel_map(attribution, height, width))
    return maps


def faithfulness(curves: Iterable[PixelCurves]) -> dict[str, Estimate]:
    cells = {}
    for curve in curves:
        cells[f"auc {curve.order} {curve.grid}"] = cell(accuracy_auc(curve))
        if (curve.order, curve.grid) == (TOKEN_TM.order, TOKEN_TM.grid):
            cells |= {"aopc": cell(aopc(curve)), "log-odds": cell(log_odds(curve))}
    return cells


def localisation(images: Sequence[Overlap]) -> dict[str, Estimate]:
    """Bootstrap over images; ratios of sums are recomputed for each resample."""
    counts = np.array([(i.correct, i.labelled, *i.intersection, *i.union) for i in images], dtype=np.float64)

    def of_set(value: float, ratio: Callable[[Floats], Floats]) -> Estimate:
        return Estimate(value, *interval(counts, ratio), len(images))

    return {
        "pixel accuracy": of_set(pixel_accuracy(images), lambda means: means[:, 0] / means[:, 1]),
        "mIoU": of_set(mean_iou(images), lambda means: (means[:, 2:4] / np.maximum(means[:, 4:6], TINY)).mean(1)),
        "mAP": cell([image.average_precision for image in images]),
    }


def command(options: argparse.Namespace) -> str:
    words = ["--model", Path(options.model).name, "--data", options.data.name, "--sample", options.sample]
    words += ["--slow-sample", options.slow_sample, *(["--fill", options.fill] if options.fill != "black" else [])]
    words += ["--seed", options.seed] if options.seed else []
    return shlex.join(["python", "benchmarks/vision.py", *map(str, words)])


def to_data(rows: Mapping[str, Row]) -> dict[str, Any]:
    return {
        method: {
            "n": row.n,
            "cells": {name: asdict(estimate) for name, estimate in row.cells.items()},
            "curves": [
                {
                    "order": curve.order,
                    "grid": curve.grid,
                    "fill": curve.fill,
                    "of": curve.of,
                    "right": curve.right,
                    "removed": curve.removed,
                    "accuracy": curve.accuracy,
                    "probability": curve.mean_probability,
                    "log-odds": curve.mean_log_odds,
                }
                for curve in row.curves
            ],
        }
        for method, row in rows.items()
    }


def format_report(subject: wt.Subject, options: argparse.Namespace, rows: Mapping[str, Row]) -> str:
    accuracy = max(rows.values(), key=lambda row: row.n).curves[0].accuracy[0]
    by_aopc = sorted(rows, key=lambda method: -rows[method].cells["aopc"].mean)
    by_map = sorted(rows, key=lambda method: -rows[method].cells["mAP"].mean)
    filled = "black" if options.fill == "black" else "the mean of their channel in their image"
    return f"""# Heat maps of images: faithfulness and localisation

`{command(options)}`, {Path(subject.title).name}, {subject.n_layers} layers. Test images: {options.sample}, of which the
model classifies {100 * accuracy:.1f} % correctly. `n`: the number of images a method was measured on; rows with a
smaller n use only the first images, so they are hard to compare. Value and 95 % bootstrap interval over images; bold
marks the best of a column among the methods measured on all images.

## Faithfulness

The predicted class is explained. Pixels are removed in the order of the map, most relevant first (positive) or least
relevant first (negative), and become {filled}. AUC: area under the accuracy (against the label) by the trapezoidal
rule, x 100, starting at the whole image: 10, 20 .. 90 % removed (Chefer et al. 2021, at most 90), or 5, 10 .. 100 %
(TokenTM, at most 100). AOPC and log-odds: mean of p - p_k and of ln(p_k / p) of the predicted class over
0, 5 .. 100 %, positive.

{table(rows, by_aopc, FAITHFULNESS)}

## Localisation

The ground truth is the garment: pixels that are not black. A pixel is foreground if its score is above the mean of its
map. Pixel accuracy and mIoU are ratios of sums over all images, mAP is a mean over images. This does not measure
faithfulness: a model may use only a part of the garment, or the background.

{table(rows, by_map, LOCALISATION)}

## Remarks

- Patch scores are enlarged bilinearly; for `full-lrp`, its pixel scores are used.
- The background of these images is black, so filling it with black changes nothing. A map is then judged by how it
  orders the garment, and by how many removals it spends on the background. `--fill mean` differs.
- Images with pixels removed are unlike the training images; `random` shows the effect of that alone.
- A constant map ranks nothing: its pixels are removed row by row, and none of them is foreground.
"""


def table(rows: Mapping[str, Row], order: Sequence[str], columns: Mapping[str, str]) -> str:
    """Format a table; only rows of the whole sample can be the best of a column."""
    most = max(row.n for row in rows.values())
    best = {
        name: (min if title.endswith("↓") else max)(row.cells[name].mean for row in rows.values() if row.n == most)
        for title, name in columns.items()
    }
    lines = [f"| method | n | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for method in order:
        row = rows[method]
        cells = [
            format_cell(name, row.cells[name], row.n == most and row.cells[name].mean == best[name])
            for name in columns.values()
        ]
        lines.append(f"| {method} | {row.n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_cell(name: str, estimate: Estimate, best: bool) -> str:
    places = 1 if name.startswith("auc") else 3  # areas are percentages
    value, low, high = (f"{number:.{places}f}" for number in (estimate.mean, estimate.low, estimate.high))
    return f"{f'**{value}**' if best else value} [{low}, {high}]"


if __name__ == "__main__":
    main()
