"""references.build: which texts become references; probabilities and activations are those of the stock model."""

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.forked import forked
from tests.tiny import CORPUS, KINDS, MAIN_KINDS, MAX_TOKENS, WORDS, model_of, wordpiece

import whichtoken as wt
from whichtoken.core.registry import find as method_class
from whichtoken.errors import BadInput, BadSetting, NotFinite, UnknownName
from whichtoken.references._build import TEXTS_AT_ONCE
from whichtoken.references.recipe import PRESETS

SubjectOf = Callable[..., wt.Subject]
TEXTS = [f"{a} {b} {c}" for a in WORDS[:12] for b in WORDS[5:13] for c in ("film", "plot was slow")]


def logits_of(model: Any, texts: Sequence[str] = TEXTS) -> torch.Tensor:
    """Of the stock model."""
    with torch.no_grad():
        logits: torch.Tensor = model(**wordpiece()(list(texts), padding=True, return_tensors="pt")).logits
    return logits


@cache
def subject(labels: int = 2) -> wt.Subject:
    """A random model, its head shifted and scaled such that it predicts each of its classes, some of them firmly."""
    model = model_of("bert", labels=labels)
    logits = logits_of(model)
    with torch.no_grad():
        model.classifier.bias.sub_(logits.mean(0))
        for parameter in (model.classifier.weight, model.classifier.bias):
            parameter.mul_(4 / logits.std(0).mean())
    return wt.Subject(model, wordpiece(), name="tiny bert")


@cache
def probabilities(labels: int = 2) -> list[list[float]]:
    found: list[list[float]] = logits_of(subject(labels).model).softmax(-1).tolist()
    return found


def build(texts: Any = TEXTS, labels: Any = None, k: int = 2, **settings: Any) -> wt.references.ReferenceLibrary:
    return wt.references.build(subject(k), texts, labels, **{"min_tokens": 1, "keep_text": True, **settings})


def texts_of(library: wt.references.ReferenceLibrary, label: int) -> list[str]:
    return [r.text[0] for r in library.references[label] if r.text]


def predicted(k: int = 2) -> list[int]:
    return [max(range(k), key=p.__getitem__) for p in probabilities(k)]


def test_the_model_of_these_tests_has_an_opinion() -> None:
    for k in (2, 4):
        assert set(predicted(k)) == set(range(k))
        for label in range(k):
            assert sum(p[label] < 0.05 for p in probabilities(k)) > 5


@pytest.mark.parametrize("rule", ["lowest", "gamma"])
def test_the_lowest_probabilities_of_the_class_are_kept(rule: str) -> None:
    library = build(rule=rule, n=5, gamma=0.0, scan="all")
    for label in (0, 1):
        others = [i for i, source in enumerate(predicted()) if source != label]
        best = sorted(others, key=lambda i: probabilities()[i][label])[:5]
        assert texts_of(library, label) == [TEXTS[i] for i in best]
        found = library.references[label]
        assert [r.probability for r in found] == pytest.approx([probabilities()[i][label] for i in best], rel=1e-9)
        assert [r.n_tokens for r in found] == [len(wordpiece()(TEXTS[i])["input_ids"]) for i in best]
        assert {r.source for r in found} == {subject().labels[1 - label]}


def test_gamma_stops_when_every_class_is_full_and_the_rest_is_not_scanned() -> None:
    library = build(n=3, gamma=0.05)
    assert library.n_scanned < len(TEXTS)
    for label in (0, 1):
        assert [r.probability < 0.05 for r in library.references[label]] == [True] * 3
    everything = build(n=3, gamma=0.05, scan="all")
    assert everything.n_scanned == len(TEXTS)
    assert "filled" not in library.summary()


def test_too_few_under_gamma_are_filled_with_the_lowest_and_the_library_says_so() -> None:
    p = sorted(p[0] for p, source in zip(probabilities(), predicted(), strict=True) if source != 0)
    library = build(n=6, gamma=(p[1] + p[2]) / 2, scan="all")
    assert [r.probability for r in library.references[0]] == pytest.approx(p[:6])
    row = next(line for line in library.summary().splitlines() if line.startswith(subject().labels[0]))
    assert "2, filled with the lowest" in row


def test_the_order_is_drawn_from_the_seed_and_the_chunk_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(n=3, gamma=0.05)
    again = build(n=3, gamma=0.05)
    other = build(n=3, gamma=0.05, seed=1)
    assert first.digest == again.digest != other.digest
    assert first.references == again.references
    monkeypatch.setattr("whichtoken.references._build.TEXTS_AT_ONCE", 7)
    chunked = build(n=3, gamma=0.05)
    assert chunked.n_scanned == first.n_scanned
    assert [texts_of(chunked, c) for c in (0, 1)] == [texts_of(first, c) for c in (0, 1)]


def test_scan_takes_a_number_of_texts() -> None:
    library = build(scan=40, seed=None, n=99, rule="lowest")
    assert library.n_scanned == 40
    assert sorted(texts_of(library, 0) + texts_of(library, 1)) == sorted(TEXTS[:40])


def test_an_endless_stream_is_read_only_as_far_as_needed() -> None:
    def endless() -> Iterator[str]:
        for _ in range(20):
            yield from TEXTS
        raise AssertionError("read on and on")

    library = build(endless(), seed=None, n=3, gamma=0.05)
    assert library.n_scanned < len(TEXTS)
    assert build(endless(), scan=2 * TEXTS_AT_ONCE, n=3, rule="lowest", seed=None).n_scanned == 2 * TEXTS_AT_ONCE


def test_wrongly_classified_texts_are_left_out_where_labels_are_known() -> None:
    gold = [1 - source if i % 3 == 0 else source for i, source in enumerate(predicted())]
    library = build(labels=gold, n=99, rule="lowest")
    assert library.n_wrong == len(TEXTS[::3])
    assert not set(TEXTS[::3]) & {*texts_of(library, 0), *texts_of(library, 1)}
    every = build(labels=gold, n=999, rule="lowest", correct_only=False)
    assert every.n_wrong == 0
    assert {*texts_of(every, 0), *texts_of(every, 1)} == set(TEXTS)


@pytest.mark.parametrize("form", [int, str, lambda i: subject().labels[i], lambda i: subject().labels[i].upper()])
def test_labels_may_be_indices_or_names(form: Any) -> None:
    gold = [form(source) for source in predicted()]
    assert build(labels=gold, rule="lowest").n_wrong == 0
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, gold, strict=True)]
    assert build(rows, rule="lowest").digest == build(labels=gold, rule="lowest").digest


def test_a_label_that_the_model_does_not_have_is_named() -> None:
    for label in (7, "maybe", 0.5, [0, 1]):
        with pytest.raises(
            BadInput,
            match=rf"^row \d: label {re.escape(repr(label))} of .* not a label of the model: 0 contradiction, 1 ent",
        ):
            build(TEXTS[:3], [label] * 3)
    with pytest.raises(BadInput, match=r"^row \d: label '9{39} of "):
        build(TEXTS[:3], ["9" * 5000] * 3)


@pytest.mark.parametrize("unknown", [-1, "-1", "", None])
def test_labels_that_are_not_known_filter_nothing(unknown: Any) -> None:
    library = build(labels=[unknown] * len(TEXTS), rule="lowest")
    assert (library.n_labelled, library.n_wrong) == (0, 0)
    assert "labels unknown" in library.summary()


@pytest.mark.parametrize("form", [float, bool, lambda i: f" {i} "])
def test_labels_may_be_numbers_of_any_kind(form: Any) -> None:
    library = build(labels=[form(source) for source in predicted()], rule="lowest")
    assert (library.n_labelled, library.n_wrong) == (len(TEXTS), 0)
    assert f"0 of {len(TEXTS)} misclassified" in library.summary()


def test_labels_in_another_order_than_the_models_are_noticed() -> None:
    turned = [1 - source for source in predicted()]
    with pytest.raises(
        BadInput, match=r"misclassifies 192 of 192 texts; are their labels in .* 0 contradiction, 1 ent"
    ):
        build(labels=turned)
    assert build(labels=turned, correct_only=False).n_labelled == 0


def test_a_single_logit_is_right_above_one_half() -> None:
    one = wt.Subject(model_of("bert", labels=1), wordpiece())
    p = logits_of(one.model).sigmoid().flatten().tolist()
    gold = [int(value >= 0.5) for value in p]
    gold[:7] = [1 - label for label in gold[:7]]
    library = wt.references.build(one, TEXTS, gold, rule="lowest", min_tokens=1)
    assert (library.n_labelled, library.n_wrong) == (len(TEXTS), 7)


def test_copies_of_a_text_are_one_reference() -> None:
    library = build([text for text in TEXTS[:20] for _ in range(3)], rule="lowest", n=99)
    for found in library.references:
        assert len({r.sha256 for r in found}) == len(found)
    assert sum(len(found) for found in library.references) == 20


def test_a_class_that_is_never_predicted_does_not_keep_the_scan_going() -> None:
    model = model_of("bert", labels=3)
    logits = logits_of(model)
    with torch.no_grad():
        model.classifier.bias.sub_(logits.mean(0) + torch.tensor([0, 0, 1e3]))
        for parameter in (model.classifier.weight, model.classifier.bias):
            parameter.mul_(4 / logits.std(0).mean())
    texts = [f"{text} {word}" for word in WORDS for text in TEXTS]
    made = wt.Subject(model, wordpiece())
    library = wt.references.build(made, texts, min_tokens=1, n=4, gamma=0.1)
    assert [len(found) for found in library.references] == [4, 4, 4]
    assert library.n_scanned < len(texts) / 4


def test_a_short_scan_does_not_read_far_ahead() -> None:
    read: list[str] = []

    def stream() -> Iterator[str]:
        for _ in range(100):
            for text in TEXTS:
                read.append(text)
                yield text

    assert build(stream(), scan=20, rule="lowest").n_scanned == 20
    assert len(read) <= 20 * 11 + 1


def test_short_texts_are_counted_and_left_out() -> None:
    texts = ["slow", "", "   ", "\u200b\u00ad", *TEXTS]
    lengths = [len(wordpiece()(text)["input_ids"]) for text in TEXTS]
    limit = sorted(set(lengths))[1]
    library = build(texts, min_tokens=limit, rule="lowest", n=999)
    assert library.n_short == 4 + sum(length < limit for length in lengths)
    assert min(r.n_tokens for found in library.references for r in found) == limit


def test_long_texts_are_cut_as_the_model_would() -> None:
    library = build(["slow film " * 50, *TEXTS], rule="random", n=999)
    assert max(r.n_tokens for r in library.references[0]) == MAX_TOKENS
    assert library.read(0, slice(0, 3), None, 99, torch.zeros(1)).shape == (1 + len(TEXTS), 3, 99, 24)


def test_random_takes_any_and_same_class_takes_what_activates_the_class_most() -> None:
    anything = build(rule="random", n=8)
    assert anything.n_scanned == 8
    assert texts_of(anything, 0) == texts_of(anything, 1)
    assert build(rule="random", n=8, seed=None).references[0][0].sha256 != anything.references[0][0].sha256
    same = build(rule="same-class", n=4, scan="all")
    for label in (0, 1):
        mine = [i for i, source in enumerate(predicted()) if source == label]
        best = sorted(mine, key=lambda i: -probabilities()[i][label])[:4]
        assert texts_of(same, label) == [TEXTS[i] for i in best]


def test_several_classes_are_balanced_over_the_classes_that_references_come_from() -> None:
    k = 4
    sources = {label: [i for i, s in enumerate(predicted(k)) if s == label] for label in range(k)}
    label = next(c for c in range(k) if sum(bool(sources[s]) for s in range(k) if s != c) >= 2)
    library = build(k=k, rule="lowest", n=6, scan="all")
    found = library.references[label]
    counts = {s: sum(r.source == subject(k).labels[s] for r in found) for s in range(k) if s != label}
    there = {s: len(sources[s]) for s in counts if sources[s]}
    share = 6 // len(there)
    assert all(counts[s] >= min(share, size) for s, size in there.items())
    assert sum(counts.values()) == 6
    for s in there:  # of each source the lowest
        lowest = sorted(sources[s], key=lambda i: probabilities(k)[i][label])
        mine = [r.text[0] for r in found if r.text and r.source == subject(k).labels[s]]
        assert mine == [TEXTS[i] for i in lowest[: len(mine)]]
    two = library.subset(2)
    assert len({r.source for r in two.references[label]}) == 2  # the sources take turns, so a part is balanced too


def test_pairs_and_a_single_logit() -> None:
    pairs = [(a, b) for a in TEXTS[:6] for b in TEXTS[6:9]]
    library = build(pairs, rule="random", n=99)
    assert {r.text for r in library.references[0]} == set(pairs)
    one = wt.Subject(model_of("bert", labels=1), wordpiece())
    lowest = wt.references.build(one, TEXTS, rule="lowest", n=3, min_tokens=1, keep_text=True).references[0]
    p = logits_of(one.model).sigmoid().flatten().tolist()
    assert [r.probability for r in lowest] == pytest.approx(sorted(p)[:3])


@pytest.mark.parametrize(("kind", "mask_special"), [*((kind, False) for kind in MAIN_KINDS), ("bert", True)])
def test_the_activations_are_those_of_the_stock_model(kind: str, mask_special: bool, subject_of: SubjectOf) -> None:
    made = subject_of(kind)
    settings: dict[str, Any] = {
        "rule": "random",
        "min_tokens": 1,
        "dtype": "float64",
        "keep_text": True,
        "mask_special": mask_special,
    }
    library = wt.references.build(made, CORPUS, **settings)
    model, tokenizer = model_of(kind, "eager"), KINDS[kind].tokenizer()
    for place, reference in enumerate(library.references[0]):
        assert reference.text is not None
        inputs = tokenizer(
            reference.text[0],
            return_tensors="pt",
            truncation=True,
            max_length=MAX_TOKENS,
            return_special_tokens_mask=True,
        )
        special = inputs["special_tokens_mask"]
        mask = 1 - special if mask_special else torch.ones_like(special)
        with torch.no_grad():
            states = model(inputs["input_ids"], attention_mask=mask, output_hidden_states=True).hidden_states
        for layer in range(3):
            held = library.read(0, slice(layer, layer + 1), None, special.shape[1], states[0])[place, 0]
            # Stock eager attention of some decoders takes its softmax in float32.
            torch.testing.assert_close(held, states[layer][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("recipe", [None, *PRESETS])
def test_a_library_serves_every_preset_of_the_method_unless_told_otherwise(recipe: str | None) -> None:
    made = subject().with_references(build(preset=recipe))
    presets = [f"contrast-cat@{preset}" for preset in method_class("contrast-cat").presets]
    assert "contrast-cat@paper" in presets
    (found,) = wt.explain(made, ["the plot was slow"], ["contrast-cat", *presets])
    assert list(found) == ["contrast-cat", *presets]


def test_nothing_usable_is_said_with_the_reason() -> None:
    with pytest.raises(BadInput, match="192 texts, 192 shorter than min_tokens=30, 0 misclassified"):
        build(min_tokens=30)
    with pytest.raises(BadInput, match="0 texts"):
        build([])


def test_a_class_may_stay_empty_until_it_is_asked_for() -> None:
    only = [text for text, source in zip(TEXTS, predicted(), strict=True) if source == 0]
    with pytest.warns(UserWarning, match="no references for contradiction"):
        library = build(only, n=3, rule="lowest")
    assert [len(found) for found in library.references] == [0, 3]
    assert library.packed[0] is None
    assert f"\n{subject().labels[0]}  0 " in library.summary()


def test_activations_too_large_for_half_precision_are_refused_not_stored_as_infinity() -> None:
    model = model_of("gpt2")
    with torch.no_grad():
        model.transformer.wpe.weight.mul_(1e6)
    made = wt.Subject(model, KINDS["gpt2"].tokenizer())
    with pytest.raises(BadSetting, match=r"dtype='float16' .* wider, such as float32: this model's activations"):
        wt.references.build(made, CORPUS, rule="random", min_tokens=1)
    assert wt.references.build(made, CORPUS, rule="random", min_tokens=1, dtype="float32")
    assert wt.references.build(made, CORPUS, rule="random", min_tokens=1, compress="int8")  # stores no half precision
    passes: list[int] = []
    with made.model.register_forward_hook(lambda *_: passes.append(1)), pytest.raises(BadSetting, match="wider"):
        wt.references.build(made, CORPUS * 1000, rule="lowest", min_tokens=1)
    assert len(passes) < 20  # said at the start, not after the scan


def test_nan_is_not_passed_on() -> None:
    model = model_of("bert")
    with torch.no_grad():
        model.classifier.bias.fill_(torch.nan)
    with pytest.raises(NotFinite, match="NaN or infinite logits"):
        wt.references.build(wt.Subject(model, wordpiece()), CORPUS, min_tokens=1)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"rul": "gamma"}, UnknownName, "setting of references.build 'rul'; did you mean 'rule'"),
        ({"rule": "best"}, BadSetting, "one of 'gamma', 'lowest', 'random', 'same-class'"),
        ({"preset": "rep"}, UnknownName, "preset of references.build 'rep'; did you mean 'repo'"),
        ({"scan": "some"}, BadSetting, "one of 'full', 'all', 'first-full', or of type int"),
        ({"scan": 0}, BadSetting, "at least 1"),
        ({"compress": "zip"}, BadSetting, "one of 'none', 'int8'"),
        ({"n": True}, BadSetting, "of type int"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wt.references.build(subject(), TEXTS, **settings)


def test_something_that_is_not_a_subject_is_refused() -> None:
    with pytest.raises(BadSetting, match="subject='BertForSequenceClassification'"):
        wt.references.build(model_of("bert"), TEXTS)


def test_a_long_scan_shows_its_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    build(rule="lowest")
    shown = capsys.readouterr()
    assert "scanning for references: 100%" in shown.err
    assert "192/192" in shown.err
    assert not shown.out


@pytest.mark.parametrize("there_before", [False, True])
def test_killed_while_scanning_leaves_the_old_library_or_none(there_before: bool, tmp_path: Path) -> None:
    target = tmp_path / "library"
    if there_before:
        build(rule="random", out=target)

    def corpus() -> Iterator[str]:
        for number, text in enumerate(cycle(CORPUS)):
            if number == 600:
                os.kill(os.getpid(), signal.SIGKILL)
            yield text

    assert forked(lambda: build(corpus(), rule="lowest", out=target, seed=None)) == -signal.SIGKILL
    assert os.listdir(tmp_path) == (["library"] if there_before else [])
    if there_before:
        assert wt.references.load(target, subject()).digest == build(rule="random").digest
