"""The model that comes with whichtoken: it loads without the network, knows its trade, and is what its card says."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import whichtoken as wt
from whichtoken.models.loading import DEFAULT, load_default

DECISIVE = {
    "It is very slow.": ("negative", {"slow"}),
    "rare birds has more than enough charm to make it memorable.": ("positive", {"charm", "enough", "memorable"}),
    "i really didn't like this movie. some of the actors were good, but overall the movie was boring.": (
        "negative",
        {"boring"},
    ),
}


@pytest.fixture(scope="module")
def subject() -> wt.Subject:
    return wt.load()


def test_it_is_a_stock_classifier_in_float32_with_its_references(subject: wt.Subject) -> None:
    assert subject.title == "whichtoken-default"
    assert subject.labels == ("negative", "positive")
    assert (subject.n_layers, subject.limit) == (6, 512)
    assert subject.model.dtype is torch.float32
    assert wt.load(dtype=torch.float64).model.dtype is torch.float64
    assert subject.tokenizer.backend_tokenizer.truncation is None


@pytest.mark.parametrize("text", DECISIVE)
def test_a_word_that_decides_is_on_top(text: str, subject: wt.Subject) -> None:
    label, words = DECISIVE[text]
    found = wt.explain(subject, [text], ["contrast-cat"])[0]["contrast-cat"]
    assert found.label == label
    assert max(found.words(), key=lambda w: w.score).text in words


def test_the_references_satisfy_the_papers_rule_and_hold_no_texts(subject: wt.Subject) -> None:
    library = subject.references
    assert library is not None
    for label in range(2):
        assert sum(r.probability < 1e-3 for r in library.of(label)) >= 30
        assert all(r.text is None for r in library.of(label))
    for name in ("contrast-cat@paper", "contrast-cat@repo"):  # it holds the layers that either reads
        assert wt.explain(subject, ["It is very slow."], [name])


def test_its_heads_are_those_that_the_card_names(subject: wt.Subject) -> None:
    mask = subject.heads
    assert mask is not None
    assert mask.statistics is not None
    assert (mask.n_layers, mask.n_heads, mask.origin) == (6, 12, "measured")
    assert (mask.n_syntactic, mask.n_positional) == (3, 2)
    card = (DEFAULT / "README.md").read_text(encoding="utf-8")
    assert f"{mask.n_syntactic} syntactic and {mask.n_positional} positional of 72 heads" in card
    assert "CC BY-SA 4.0" in card
    assert {(reason.layer, reason.head, reason.what) for reason in mask.reasons()} == {
        (0, 2, "position -1"),
        (1, 4, "nsubj"),
        (1, 8, "position +1"),
        (2, 0, "obj"),
        (2, 8, "nsubj"),
    }
    assert wt.load(heads=wt.heads.random_mask(mask)).heads == wt.heads.random_mask(mask)


def test_it_fits_its_library_wherever_it_is_installed(tmp_path: Path, subject: wt.Subject) -> None:
    shutil.copytree(DEFAULT, tmp_path / "elsewhere")
    assert load_default(tmp_path / "elsewhere").fingerprint() == subject.fingerprint()
    for name in ("config.json", "tokenizer_config.json", "training.json", "references/references.json", "heads.json"):
        assert not re.search(r'"(/|[A-Z]:)\w', (DEFAULT / name).read_text(encoding="utf-8")), f"{name} holds a path"


def test_the_card_says_what_was_measured() -> None:
    card = (DEFAULT / "README.md").read_text(encoding="utf-8")
    measured = json.loads((DEFAULT / "training.json").read_text(encoding="utf-8"))["stored in float16"]
    assert min(measured["dev"]["accuracy"], measured["test"]["accuracy"]) > 0.9
    for part in ("dev", "test", "train"):
        assert f"| {part} | {measured[part]['texts']:,} | {measured[part]['accuracy']:.3f} |" in card
    assert (DEFAULT / "model.safetensors").stat().st_size < 50e6


@pytest.mark.parametrize("name", ["transatt", "partial-lrp", "full-lrp", "full-lrp@repo", "mask-lrp", "mask-lrp@repo"])
def test_rounding_is_not_amplified_where_relevance_is_divided_by_sums(name: str, subject: wt.Subject) -> None:
    """In float32, a batch rounds differently from the same text alone."""
    together = wt.explain(subject, list(DECISIVE), [name])
    for text, found in zip(DECISIVE, together, strict=True):
        alone = torch.tensor(wt.explain(subject, [text], [name])[0][name].scores)
        assert float((torch.tensor(found[name].scores) - alone).abs().max()) < 5e-6 * float(alone.abs().max())
