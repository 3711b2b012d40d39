"""Ablations: which variants each has, that they differ in what they say, and what is said to be missing."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import CORPUS, KINDS, WORDS, model_of, with_heads, with_references

import whichtoken as wt
from whichtoken.errors import BadSetting, NoHeads, NoReferences, UnknownName, UsageError
from whichtoken.heads import random_mask
from whichtoken.metrics.randomisation import default_depths
from whichtoken.reproduce.ablations import ABLATIONS, ablation

TEXT = "The actors were wonderful, but the plot was dull."
LONG = [" ".join(np.random.default_rng(i).choice(WORDS, 12)) + "." for i in range(240)]


@cache
def bare() -> wt.Subject:
    """Sure of itself, and of two opinions: so there are references for any gamma."""
    model = model_of("bert", labels=2)
    subject = wt.Subject(model, KINDS["bert"].tokenizer())
    odds = [math.log(1 / result["random"].output - 1) for result in wt.explain(subject, LONG, ["random"], target=1)]
    with torch.no_grad():
        model.classifier.weight.mul_(40)
        model.classifier.bias.mul_(40)
        model.classifier.bias[1] += 40 * float(np.median(odds))
    return subject


@cache
def equipped() -> wt.Subject:
    return with_heads(with_references(bare(), LONG))


@cache
def labelled() -> tuple[dict[str, Any], ...]:
    """With the labels that the model gives, a few of them wrong."""
    said = [result["random"].label for result in wt.explain(bare(), LONG, ["random"])]
    assert min(said.count(label) for label in bare().labels) > 90
    wrong = bare().labels[0]
    return tuple({"text": text, "label": said[i] if i % 20 else wrong} for i, text in enumerate(LONG))


@cache
def variants_of(name: str) -> dict[str, Any]:
    return dict(ablation(name, equipped(), labelled()))


def probabilities(library: Any, label: int) -> list[float]:
    return [reference.probability for reference in library.references[label]]


def test_names_and_variants_in_the_order_of_the_tables() -> None:
    keys = {name: list(variants_of(name)) for name in ABLATIONS}
    assert keys == {
        "reference-rule": [
            f"rule={rule}{how}" for rule in ("random", "same-class", "gamma") for how in ("", ", refine=False")
        ],
        "gamma": ["gamma=0.1", "gamma=0.01", "gamma=0.001"],
        "n-references": ["n=0", "n=1", "n=2", "n=5", "n=10", "n=20", "n=30"],
        "depth": ["depth=1", "depth=2", "depth=3"],
        "head-mask": [
            f"heads={heads}{formula}"
            for formula in ("", ", paper")
            for heads in (
                "measured",
                "syntactic",
                "positional",
                "random, seed=0",
                "random, seed=1",
                "random, seed=2",
                "all",
            )
        ],
        "head-corruption": [
            f"corruption={rate}{formula}"
            for formula in ("", ", paper")
            for rate in ("0", "0.1", "0.2", "0.4", "0.6", "0.8", "1")
        ],
        "search": ["attcat", "contrast-cat, refine=False", "refined-noise", "contrast-cat"],
    }
    assert [name for name, (_, needs_train) in ABLATIONS.items() if needs_train] == ["reference-rule", "gamma"]


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_all_variants_can_be_explained_in_one_call(name: str) -> None:
    variants = variants_of(name)
    found = wt.explain(equipped(), [TEXT], variants.values())[0]
    assert len(found) == len({method.label for method in variants.values()}) == len(variants)


def test_rules_choose_what_they_are_named_after() -> None:
    variants = variants_of("reference-rule")
    for key, variant in variants.items():
        assert variant.name == "contrast-cat"
        assert variant.refine == ("refine=False" not in key)
        assert variant.references.recipe.rule == key.removeprefix("rule=").partition(",")[0]
        assert variant.references.recipe.min_tokens == 10
        assert variant.references.n_labelled > 0
    for label in range(2):
        mean = {key: np.mean(probabilities(v.references, label)) for key, v in variants.items()}
        assert mean["rule=gamma"] < mean["rule=random"] < mean["rule=same-class"]
    assert variants["rule=gamma"].references.n_wrong > 0
    assert variants["rule=random"].references is variants["rule=random, refine=False"].references


def test_a_larger_gamma_takes_what_it_allows_and_looks_no_further() -> None:
    variants: dict[str, Any] = ablation("gamma", bare(), labelled(), scan="all")
    libraries = {key: variant.references for key, variant in variants.items()}
    assert [library.recipe.gamma for library in libraries.values()] == [0.1, 0.01, 0.001]
    for library in libraries.values():
        for label in range(2):
            assert len(probabilities(library, label)) == 30
            assert max(probabilities(library, label)) < library.recipe.gamma
    scanned = [library.n_scanned for library in libraries.values()]
    assert scanned[0] < scanned[1] < scanned[2] < len(LONG)
    assert max(probabilities(libraries["gamma=0.1"], 0) + probabilities(libraries["gamma=0.1"], 1)) > 0.001


def test_train_is_read_once_and_only_as_far_as_asked(tmp_path: Path) -> None:
    rows = iter(labelled())
    once: dict[str, Any] = ablation("gamma", bare(), rows, scan=60, seed=3)
    assert next(rows, None) is None
    assert all(variant.references.n_scanned <= 60 for variant in once.values())
    path = tmp_path / "train.tsv"
    path.write_text("label\ttext\n" + "".join(f"{row['label']}\t{row['text']}\n" for row in labelled()))
    again: dict[str, Any] = ablation("gamma", bare(), path, scan=60, seed=3)
    assert [v.references.digest for v in again.values()] == [v.references.digest for v in once.values()]
    other: dict[str, Any] = ablation("gamma", bare(), path, scan=60, seed=4)
    assert all(a.references.digest != b.references.digest for a, b in zip(again.values(), other.values(), strict=True))


def test_no_row_promises_more_references_than_there_are() -> None:
    few = with_references(bare(), CORPUS)
    assert list(ablation("n-references", few)) == ["n=0", "n=1", "n=2", "n=5"]


def test_numbers_of_references_are_used() -> None:
    for key, method in variants_of("n-references").items():
        found = wt.explain(equipped(), [TEXT], [method])[0][method.label]
        assert f"n={len(found.details.get('references', ()))}" == key


def test_masks_are_of_the_kinds_that_they_are_named_after() -> None:
    measured = equipped().heads
    assert measured is not None
    variants: dict[str, Any] = ablation("head-mask", equipped(), seed=5)
    masks = {key.removeprefix("heads="): variant.heads for key, variant in variants.items()}
    assert masks["measured"] == measured
    assert masks["syntactic"].syntactic == measured.syntactic
    assert masks["syntactic"].n_positional == 0
    assert masks["syntactic"].n_selected == measured.n_syntactic
    assert masks["positional"].positional == measured.positional
    assert masks["positional"].n_selected == measured.n_positional
    for seed in (5, 6, 7):
        assert masks[f"random, seed={seed}"] == random_mask(measured, seed)
    assert masks["all"].n_selected == 9
    for key, variant in variants.items():
        assert variant.variant == ("paper" if key.endswith(", paper") else wt.method("mask-lrp").variant)  # type: ignore[attr-defined]
        assert variant.heads == variants[key.removesuffix(", paper")].heads


def test_corruption_adds_its_share_of_the_heads_left_out() -> None:
    measured = equipped().heads
    assert measured is not None
    there, left_out = measured.n_selected, 9 - measured.n_selected
    variants = variants_of("head-corruption")
    counts = [variant.heads.n_selected for variant in variants.values()]
    assert counts == 2 * [there + math.floor(rate * left_out) for rate in (0, 0.1, 0.2, 0.4, 0.6, 0.8, 1)]
    plain, none = wt.method("mask-lrp"), variants["corruption=0"]
    found = wt.explain(equipped(), [TEXT], [plain, none])[0]
    assert found[plain.label].scores == found[none.label].scores


def test_of_many_layers_every_second_depth() -> None:
    assert default_depths(8) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert default_depths(9) == (1, 2, 4, 6, 8, 9)
    assert default_depths(12) == (1, 2, 4, 6, 8, 10, 12)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(UsageError, match=r"'gamma' builds reference libraries.*train='train.tsv'"):
        ablation("gamma", equipped())
    for name in ("n-references", "depth", "search"):
        with pytest.raises(NoReferences, match="with_references"):
            ablation(name, bare())
    for name in ("head-mask", "head-corruption"):
        with pytest.raises(NoHeads, match="with_heads"):
            ablation(name, bare())
    measured = equipped().heads
    assert measured is not None
    with pytest.raises(UsageError, match=r"starts from measured heads.*random\(seed=0\)"):
        ablation("head-mask", bare().with_heads(random_mask(measured)))
    with pytest.raises(UnknownName, match="did you mean 'depth'"):
        ablation("dept", equipped())


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"scan": 0}, "scan=0"), ({"scan": "full"}, "or 'all'"), ({"seed": -1}, "seed=-1"), ({"seed": True}, "seed=True")],
    ids=str,
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        ablation("gamma", bare(), labelled(), **settings)
    with pytest.raises(BadSetting, match=r"wt\.load"):
        ablation("depth", bare().model)
