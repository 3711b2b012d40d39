"""Measure settings of Contrast-CAT on real texts: which are best, and how much of its gain comes from contrast.

    python benchmarks/contrast_settings.py MODEL TRAIN.tsv TEXTS.tsv [--texts N] [--max-tokens N] ..

References come from TRAIN.tsv, the explained texts from TEXTS.tsv (both with a header and the columns `label` and
`text`). The score is the mean drop of the predicted class's probability when 10, 20 .. 90 % of the content tokens are
deleted, on which refinement is tuned, or replaced by the mask token, on which it is not, with 95 % bootstrap intervals
over texts. The report is printed and written to benchmarks/results/contrast_settings_NAME.md, where NAME is the folder
of TEXTS.tsv.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import whichtoken as wt
from scoring import mean_drops, mean_with_interval, sample_texts
from whichtoken.core.trace import Method

RESULTS = Path(__file__).parent / "results"
Variants = dict[str, Method]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("train", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--scan", type=int, default=20_000, help="number of texts of TRAIN.tsv to scan")
    parser.add_argument("--only", help=f"groups of variants, separated by commas: {', '.join(GROUPS)}")
    parser.add_argument("--skip", default="", help="names of variants to skip, separated by semicolons")
    args = parser.parse_args()
    loaded = wt.load(args.model)
    subject = wt.Subject(loaded.model, loaded.tokenizer, Path(args.model).name, loaded.revision, args.max_tokens)
    recipe: dict[str, Any] = {"layers": "all", "dtype": "float32", "scan": args.scan}
    library = wt.references.build(subject, args.train, n=60, **recipe)
    print(library.summary())
    subject = subject.with_references(library)
    names = args.only.split(",") if args.only else list(GROUPS)
    groups = {name: GROUPS[name](subject, args.train, recipe) for name in names}
    groups = {name: {k: m for k, m in g.items() if k not in args.skip.split(";")} for name, g in groups.items()}
    methods = {key: method for group in groups.values() for key, method in group.items()}
    texts = sample_texts(args.data, args.texts)
    drops, details = score(subject, texts, methods)
    lines = [
        f"# Contrast-CAT's settings on {args.data.parent.name}",
        "",
        f"`python benchmarks/contrast_settings.py {Path(args.model).name} {args.train.name} {args.data.name} "
        f"--texts {len(texts)} --scan {args.scan}"
        + (f" --max-tokens {args.max_tokens}" if args.max_tokens else "")
        + (f" --only {args.only}" if args.only else "")
        + (f' --skip "{args.skip}"' if args.skip else "")
        + "`: mean drop of the predicted probability when 10 to 90 % of the content tokens are removed, with 95 % "
        "bootstrap intervals over texts. Refined methods were tuned on deletion, not on masking. `gain`: the "
        "difference, text by text, from `base`, which is Contrast-CAT on the unchanged network with threshold mean+std "
        "in nine steps.",
        "",
        "```",
        library.summary(),
        "```",
    ]
    for name, group in groups.items():
        lines += ["", f"## {name}", "", *table(list(group), list(methods), drops, details)]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"contrast_settings_{args.data.parent.name}.md"
    path.write_text("\n".join(lines) + "\n")
    print(path.read_text())


def score(
    subject: wt.Subject, texts: list[str], methods: Variants
) -> tuple[NDArray[np.float64], dict[str, list[dict[str, Any]]]]:
    """Return drops, indexed by text, method, perturbation and order, and each method's details."""
    drops: list[list[Any]] = []
    details: dict[str, list[dict[str, Any]]] = {key: [] for key in methods}
    for text in tqdm(texts, desc="texts"):
        result = wt.explain(subject, [text], methods.values())[0]
        attributions = [result[method.label] for method in methods.values()]
        drops.append([mean_drops(subject, attributions, how) for how in ("delete", "mask")])
        for key, attribution in zip(methods, attributions, strict=True):
            details[key].append(dict(attribution.details))
    return np.array(drops).transpose(0, 2, 1, 3), details


def table(
    keys: list[str], methods: list[str], drops: NDArray[np.float64], details: dict[str, list[dict[str, Any]]]
) -> list[str]:
    lines = [
        "| | delete, most relevant first | gain | delete, least first | mask, most relevant first | gain | evaluations "
        "| fallback |",
        "|---|---|---|---|---|---|---|---|",
    ]
    base = drops[:, methods.index("base")]
    for key in keys:
        own, about = drops[:, methods.index(key)], details[key]
        counts = [a["evaluations"] for a in about if "evaluations" in a]
        gain = own - base
        cells = [mean_with_interval(own[:, 0, 0]), mean_with_interval(gain[:, 0, 0]), mean_with_interval(own[:, 0, 1])]
        cells += [mean_with_interval(own[:, 1, 0]), mean_with_interval(gain[:, 1, 0])]
        cells += [f"{np.mean(counts):.0f}", f"{np.mean([a['fallback'] for a in about]):.0%}"] if counts else ["0", "-"]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return lines


# The settings that variants are compared with, spelled out so that the tables stay true when defaults change.
BASE: dict[str, Any] = {"threshold": "mean+std", "fallback": "all", "steps": 9, "steps_of": "content", "n": 30}


def variant(**settings: Any) -> Method:
    return wt.method("contrast-cat", **{**({} if "preset" in settings else BASE), **settings})


def presets(subject: wt.Subject, train: Path, recipe: dict[str, Any]) -> Variants:
    return {
        "base": variant(),
        "contrast-cat@repo": variant(preset="repo"),
        "contrast-cat@paper": variant(preset="paper"),
        "attcat": wt.method("attcat"),
        "attcat@repo": wt.method("attcat", "repo"),
    }


def search(subject: wt.Subject, train: Path, recipe: dict[str, Any]) -> Variants:
    """Return contrast without search, and search without contrast."""
    by_title = {
        "refine=False": variant(refine=False),
        "refine=False, scale_maps": variant(refine=False, scale_maps=True),
    }
    for noise in (0.3, 1.0, 3.0):
        by_title[f"refined-noise, noise={noise:g}"] = wt.method(
            "refined-noise", noise=noise, threshold="mean+std", fallback="all"
        )
    return by_title


def settings(subject: wt.Subject, train: Path, recipe: dict[str, Any]) -> Variants:
    return {
        "scale_maps": variant(scale_maps=True, zero_special=False),
        "mask_special": variant(mask_special=True),
        "layers=outputs": variant(layers="outputs"),
        "align=length-matched": variant(align="length-matched"),
        "steps_of=all, keep_last_token": variant(steps_of="all", keep_last_token=True),
        "steps=each": variant(steps="each"),
        "steps=5": variant(steps=5),
        "n=10": variant(n=10),
        "n=60": variant(n=60),
        "threshold=top-1": variant(threshold="top-1"),
        "threshold=top-5": variant(threshold="top-5"),
        "threshold=top-10": variant(threshold="top-10"),
        "fallback=best": variant(fallback="best"),
    }


def rules(subject: wt.Subject, train: Path, recipe: dict[str, Any]) -> Variants:
    """Return the variants of the paper's Table 2: does it matter that references are of another class?"""
    by_title = {}
    for rule in ("random", "same-class"):
        library = wt.references.build(subject, train, rule=rule, **recipe)
        print(library.summary())
        by_title[f"rule {rule}"] = variant(references=library)
        by_title[f"rule {rule}, refine=False"] = variant(references=library, refine=False)
    return by_title


def size(subject: wt.Subject, train: Path, recipe: dict[str, Any]) -> Variants:
    """Return libraries of different size: 30 references per class, for the block inputs that the method reads."""
    assert subject.references is not None
    whole = wt.references.build(subject, train, **{**recipe, "layers": "inputs"})
    half = {**recipe, "layers": "inputs", "dtype": "float16"}
    libraries = {"float32": whole, "float16": wt.references.build(subject, train, **half)}
    libraries["int8"] = wt.references.build(subject, train, **half, compress="int8")
    by_title = {}
    for name, library in libraries.items():
        title = f"{name}, {library.n_bytes / 1e6:.2f} MB"
        by_title[title] = variant(references=library)
        by_title[f"{title}, refine=False"] = variant(references=library, refine=False)
    return by_title


GROUPS: dict[str, Callable[[wt.Subject, Path, dict[str, Any]], Variants]] = {
    "presets": presets,
    "search": search,
    "settings": settings,
    "rules": rules,
    "size": size,
}

if __name__ == "__main__":
    main()
