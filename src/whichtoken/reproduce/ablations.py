"""Ablations: variants of a method that a table compares to show which of its parts matter.

They are those of Contrast-CAT (Han et al., UAI 2025) and Mask-LRP (Song et al. 2023), and "search", which is ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from whichtoken.core.registry import method
from whichtoken.core.trace import Method
from whichtoken.data.examples import BUFFER, TextExample, read_examples, shuffle
from whichtoken.errors import BadSetting, NoHeads, NoReferences, UnknownName, UsageError
from whichtoken.heads.mask import HeadMask, all_heads, corrupt_mask, random_mask
from whichtoken.metrics.randomisation import default_depths
from whichtoken.models import AnySubject, Subject, as_subject
from whichtoken.references._build import build as build_references
from whichtoken.references.library import ReferenceLibrary

GAMMAS = (0.1, 0.01, 0.001)
NUMBERS = (0, 1, 2, 5, 10, 20, 30)
RATES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
RANDOM_MASKS = 3

Variants = dict[str, Method]


def ablation(name: str, subject: AnySubject, train: Any = None, seed: int = 0, scan: int | str = 2000) -> Variants:
    """Return the variants of one ablation (`ABLATIONS`) by readable names, in the order of its table.

    `train`: texts with labels, as `references.build` accepts them, for the ablations that build libraries; the others
    use the subject's own library or head mask. `scan`: how many of these texts to scan, sampled with `seed`, or "all".
    "n-references" has no row for more references than the smallest class has.
    """
    if not isinstance(name, str) or name not in _KINDS:
        raise UnknownName("ablation", name, _KINDS)
    subject = as_subject(subject)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadSetting("seed", seed, "a whole number, at least 0")
    if scan != "all" and (isinstance(scan, bool) or not isinstance(scan, int) or scan < 1):
        raise BadSetting("scan", scan, "a number of texts, at least 1, or 'all'")
    kind = _KINDS[name]
    if not kind.needs_train:
        return kind.variants(subject, _Given((), seed))
    if train is None:
        raise UsageError(
            f"the ablation {name!r} builds reference libraries; give it texts like those that {subject.title} was "
            f"trained on, with labels: ablation({name!r}, subject, train='train.tsv')"
        )
    sample = islice(shuffle(read_examples(train), seed, BUFFER), None if scan == "all" else int(scan))
    return kind.variants(subject, _Given(tuple(sample), seed))


@dataclass(frozen=True)
class _Given:
    examples: Sequence[TextExample]
    seed: int


@dataclass(frozen=True)
class _Kind:
    about: str
    needs_train: bool
    variants: Callable[[Subject, _Given], Variants]


def _reference_rule(subject: Subject, data: _Given) -> Variants:
    variants: Variants = {}
    for rule in ("random", "same-class", "gamma"):
        library = _library(subject, data, rule=rule)
        variants[f"rule={rule}"] = method("contrast-cat", references=library)
        variants[f"rule={rule}, refine=False"] = method("contrast-cat", references=library, refine=False)
    return variants


def _gamma(subject: Subject, data: _Given) -> Variants:
    libraries = {gamma: _library(subject, data, gamma=gamma) for gamma in GAMMAS}
    return {f"gamma={gamma:g}": method("contrast-cat", references=libraries[gamma]) for gamma in GAMMAS}


def _n_references(subject: Subject, data: _Given) -> Variants:
    library = _own_library(subject)
    available = min(len(references) for references in library.references if references)
    return {f"n={n}": method("contrast-cat", n=n) for n in NUMBERS if n <= available}


def _depth(subject: Subject, data: _Given) -> Variants:
    _own_library(subject)
    return {f"depth={depth}": method("contrast-cat", depth=depth) for depth in default_depths(subject.n_layers)}


def _head_mask(subject: Subject, data: _Given) -> Variants:
    mask = _own_heads(subject)
    no_counts, no_flags = ((0,) * mask.n_heads,) * mask.n_layers, ((False,) * mask.n_heads,) * mask.n_layers
    masks = {
        "heads=measured": mask,
        "heads=syntactic": replace(mask, positional=no_counts, added=no_flags, origin="syntactic only"),
        "heads=positional": replace(mask, syntactic=no_counts, added=no_flags, origin="positional only"),
    }
    for seed in range(data.seed, data.seed + RANDOM_MASKS):
        masks[f"heads=random, seed={seed}"] = random_mask(mask, seed)
    every = all_heads(mask.n_layers, mask.n_heads, mask.model, mask.fingerprint)
    masks["heads=all"] = replace(every, processor=mask.processor)
    return _both_formulas(masks)


def _head_corruption(subject: Subject, data: _Given) -> Variants:
    mask = _own_heads(subject)
    return _both_formulas({f"corruption={rate:g}": corrupt_mask(mask, rate, data.seed) for rate in RATES})


def _both_formulas(masks: Mapping[str, HeadMask]) -> Variants:
    """Return Mask-LRP with each mask, with the recommended settings and with the paper's formula."""
    variants: Variants = {key: method("mask-lrp", heads=mask) for key, mask in masks.items()}
    return variants | {f"{key}, paper": method("mask-lrp", preset="paper", heads=mask) for key, mask in masks.items()}


def _search(subject: Subject, data: _Given) -> Variants:
    _own_library(subject)
    return {
        "attcat": method("attcat"),
        "contrast-cat, refine=False": method("contrast-cat", refine=False),
        "refined-noise": method("refined-noise", seed=data.seed),
        "contrast-cat": method("contrast-cat"),
    }


def _library(subject: Subject, data: _Given, **recipe: Any) -> ReferenceLibrary:
    texts, labels = [example.texts for example in data.examples], [example.label for example in data.examples]
    # Not scan="all", which finds the texts with the lowest probability: the same ones for any gamma.
    return build_references(subject, texts, labels, scan="full", seed=None, **recipe)


def _own_library(subject: Subject) -> ReferenceLibrary:
    if subject.references is None:
        raise NoReferences(subject.title)
    return subject.references


def _own_heads(subject: Subject) -> HeadMask:
    if subject.heads is None:
        raise NoHeads(subject.title)
    if subject.heads.origin != "measured":
        raise UsageError(
            f"this ablation starts from measured heads, as wt.heads.build returns them, not {subject.heads}"
        )
    return subject.heads


_KINDS: Mapping[str, _Kind] = {
    "reference-rule": _Kind("contrast-cat: random, same-class or contrasting references", True, _reference_rule),
    "gamma": _Kind("contrast-cat: the highest class probability that references may have", True, _gamma),
    "n-references": _Kind("contrast-cat: how many references", False, _n_references),
    "depth": _Kind("contrast-cat: how many layers, counted from the end", False, _depth),
    "head-mask": _Kind("mask-lrp: measured, syntactic, positional, random or all heads", False, _head_mask),
    "head-corruption": _Kind("mask-lrp: a share of the unselected heads is added", False, _head_corruption),
    "search": _Kind("contrast-cat: how much is contrast, how much is search", False, _search),
}

# A description of each ablation, and whether it needs `train`.
ABLATIONS: Mapping[str, tuple[str, bool]] = {name: (kind.about, kind.needs_train) for name, kind in _KINDS.items()}
