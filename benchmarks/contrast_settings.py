"""Which settings should Contrast-CAT have, and how much of its gain is contrast? Deletion scores on real texts.

    python benchmarks/contrast_settings.py MODEL TRAIN.tsv TEXTS.tsv [--texts N] [--max-tokens N] ..

References are taken from TRAIN.tsv, explained are texts of TEXTS.tsv (both with a header and the columns `label` and
`text`). Scored is the mean drop of the predicted class's probability when 10, 20 .. 90 % of the content tokens are
taken away: deleted, which is what refinement searches on, or replaced by the mask token, which it does not. 95 %
bootstrap intervals over texts. Written to benchmarks/results/contrast_settings_NAME.md, NAME being the folder that
TEXTS.tsv is in.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import whichtoken as wt
from scoring import mean_drops, sample_texts, shown
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
    parser.add_argument("--scan", type=int, default=20_000, help="texts of TRAIN.tsv to look at")
    parser.add_argument("--only", help=f"groups of variants: {', '.join(GROUPS)}")
    parser.add_argument("--skip", default="", help="names of variants, separated by semicolons")
    chosen = parser.parse_args()
    loaded = wt.load(chosen.model)
    subject = wt.Subject(loaded.model, loaded.tokenizer, Path(chosen.model).name, loaded.revision, chosen.max_tokens)
    options: dict[str, Any] = {"layers": "all", "dtype": "float32", "scan": chosen.scan}
    library = wt.references.build(subject, chosen.train, n=60, **options)
    print(library.summary())
    subject = subject.with_references(library)
    names = chosen.only.split(",") if chosen.only else list(GROUPS)
    groups = {name: GROUPS[name](subject, chosen.train, options) for name in names}
    groups = {name: {k: m for k, m in g.items() if k not in chosen.skip.split(";")} for name, g in groups.items()}
    methods = {key: method for group in groups.values() for key, method in group.items()}
    texts = sample_texts(chosen.data, chosen.texts)
    drops, details = score(subject, texts, methods)
    lines = [
        f"# Contrast-CAT's settings on {chosen.data.parent.name}",
        "",
        f"`python benchmarks/contrast_settings.py {Path(chosen.model).name} {chosen.train.name} {chosen.data.name} "
        f"--texts {len(texts)} --scan {chosen.scan}"
        + (f" --max-tokens {chosen.max_tokens}" if chosen.max_tokens else "")
        + (f" --only {chosen.only}" if chosen.only else "")
        + (f' --skip "{chosen.skip}"' if chosen.skip else "")
        + "`: mean drop of the predicted probability when 10 to 90 % of the content tokens are taken away, with 95 % "
        "bootstrap intervals over texts. Refined methods were tuned on deletion, not on masking. `gain`: how much "
        "more, text by text, than `base`: Contrast-CAT on the unchanged network with threshold mean+std in nine steps.",
        "",
        "```",
        library.summary(),
        "```",
    ]
    for name, group in groups.items():
        lines += ["", f"## {name}", "", *table(list(group), list(methods), drops, details)]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"contrast_settings_{chosen.data.parent.name}.md"
    path.write_text("\n".join(lines) + "\n")
    print(path.read_text())


def score(
    subject: wt.Subject, texts: list[str], methods: Variants
) -> tuple[NDArray[np.float64], dict[str, list[dict[str, Any]]]]:
    """Drops by text, method, perturbation, order; and each method's details."""
    drops: list[list[Any]] = []
    details: dict[str, list[dict[str, Any]]] = {key: [] for key in methods}
    for text in tqdm(texts, desc="texts"):
        result = wt.explain(subject, [text], methods.values())[0]
        found = [result[method.label] for method in methods.values()]
        drops.append([mean_drops(subject, found, taken) for taken in ("delete", "mask")])
        for key, attribution in zip(methods, found, strict=True):
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
        mine, about = drops[:, methods.index(key)], details[key]
        asked = [a["evaluations"] for a in about if "evaluations" in a]
        gain = mine - base
        cells = [shown(mine[:, 0, 0]), shown(gain[:, 0, 0]), shown(mine[:, 0, 1])]
        cells += [shown(mine[:, 1, 0]), shown(gain[:, 1, 0])]
        cells += [f"{np.mean(asked):.0f}", f"{np.mean([a['fallback'] for a in about]):.0%}"] if asked else ["0", "-"]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return lines


# What variants are compared with; written out, so that the tables stay true when defaults change.
BASE: dict[str, Any] = {"threshold": "mean+std", "fallback": "all", "steps": 9, "steps_of": "content", "n": 30}


def variant(**settings: Any) -> Method:
    return wt.method("contrast-cat", **{**({} if "preset" in settings else BASE), **settings})


def presets(subject: wt.Subject, train: Path, options: dict[str, Any]) -> Variants:
    return {
        "base": variant(),
        "contrast-cat@repo": variant(preset="repo"),
        "contrast-cat@paper": variant(preset="paper"),
        "attcat": wt.method("attcat"),
        "attcat@repo": wt.method("attcat", "repo"),
    }


def search(subject: wt.Subject, train: Path, options: dict[str, Any]) -> Variants:
    """Contrast without search, search without contrast."""
    found = {"refine=False": variant(refine=False), "refine=False, scale_maps": variant(refine=False, scale_maps=True)}
    for noise in (0.3, 1.0, 3.0):
        found[f"refined-noise, noise={noise:g}"] = wt.method(
            "refined-noise", noise=noise, threshold="mean+std", fallback="all"
        )
    return found


def settings(subject: wt.Subject, train: Path, options: dict[str, Any]) -> Variants:
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


def rules(subject: wt.Subject, train: Path, options: dict[str, Any]) -> Variants:
    """Table 2 of the paper: does it matter that references are of another class?"""
    found = {}
    for rule in ("random", "same-class"):
        library = wt.references.build(subject, train, rule=rule, **options)
        print(library.summary())
        found[f"rule {rule}"] = variant(references=library)
        found[f"rule {rule}, refine=False"] = variant(references=library, refine=False)
    return found


def size(subject: wt.Subject, train: Path, options: dict[str, Any]) -> Variants:
    """Libraries in less space: 30 references of each class, the block inputs that the method reads."""
    assert subject.references is not None
    whole = wt.references.build(subject, train, **{**options, "layers": "inputs"})
    half = {**options, "layers": "inputs", "dtype": "float16"}
    libraries = {"float32": whole, "float16": wt.references.build(subject, train, **half)}
    libraries["int8"] = wt.references.build(subject, train, **half, compress="int8")
    found = {}
    for name, library in libraries.items():
        title = f"{name}, {library.n_bytes / 1e6:.2f} MB"
        found[title] = variant(references=library)
        found[f"{title}, refine=False"] = variant(references=library, refine=False)
    return found


GROUPS: dict[str, Callable[[wt.Subject, Path, dict[str, Any]], Variants]] = {
    "presets": presets,
    "search": search,
    "settings": settings,
    "rules": rules,
    "size": size,
}

if __name__ == "__main__":
    main()
