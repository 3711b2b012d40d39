"""Contrast-CAT and its control: against the formula written slowly on the stock model, and at the edges."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.tiny import CORPUS, KINDS, MAX_TOKENS, model_of, with_references
from torch import Tensor

import whichtoken as wt
from whichtoken.core.ops import attended_gradient
from whichtoken.errors import BadSetting, LibraryMismatch, UsageError
from whichtoken.references import ReferenceLibrary
from whichtoken.references.packing import Packed

Array = NDArray[np.float64]
TEXT = "The actors were wonderful, but the plot was dull."
PAIR = ("A man sleeps.", "Nobody is awake, and the film was slow.")
CLASS = 1


@cache
def subject_for(kind: str = "bert", labels: int = 3) -> wt.Subject:
    return with_references(wt.Subject(model_of(kind, labels=labels), KINDS[kind].tokenizer()))


def explained(subject: wt.Subject, text: Any, *methods: Any, target: int = CLASS) -> list[wt.Attribution]:
    """One by one: libraries that a test has changed by hand have the same name, and so have their results."""
    built = [wt.method(m) if isinstance(m, str) else m for m in methods]
    return [wt.explain(subject, [text], [m], target=target)[0][m.label] for m in built]


@dataclass(frozen=True)
class Stock:
    """The stock model, asked by hand."""

    kind: str
    labels: int

    @cached_property
    def model(self) -> Any:
        return model_of(self.kind, "eager", self.labels)

    def encoded(self, text: Any) -> Any:
        texts = text if isinstance(text, tuple) else (text,)
        cut = {"truncation": True, "max_length": MAX_TOKENS}
        return KINDS[self.kind].tokenizer()(*texts, return_tensors="pt", return_special_tokens_mask=True, **cut)

    def run(self, ids: Tensor, types: Tensor | None, mask: Tensor | None = None) -> Any:
        extra = {} if types is None or self.kind not in ("bert",) else {"token_type_ids": types}
        return self.model(ids, attention_mask=mask, output_attentions=True, output_hidden_states=True, **extra)


def slow_contrast_cat(
    stock: Stock, text: Any, references: Sequence[Any], method: Any
) -> tuple[list[float], list[float]]:
    """Scores, and the drop of each map, in loops."""
    encoded = stock.encoded(text)
    ids, types = encoded["input_ids"], encoded.get("token_type_ids")
    special = [bool(s) for s in encoded["special_tokens_mask"][0]]
    n = len(special)
    mask = torch.tensor([[0 if s and method.mask_special else 1 for s in special]])
    out = stock.run(ids, types, mask)
    for tensor in out.hidden_states:
        tensor.retain_grad()
    out.logits[0, CLASS].backward()
    shift = 0 if method.layers == "inputs" else 1
    attentions = [a[0].detach().numpy() for a in out.attentions]
    features = [h[0].detach().numpy() for h in out.hidden_states]
    grads = [h.grad[0].numpy() for h in out.hidden_states]
    maps = []
    for reference in references[: method.n] or [None]:
        states: list[Array] = [np.zeros((0, 0))] * len(features)  # no reference: nothing at any position
        if reference is not None:
            other = stock.encoded(reference)
            reference_pass = stock.run(other["input_ids"], other.get("token_type_ids"))
            states = [h[0].detach().numpy() for h in reference_pass.hidden_states]
        scores = []
        for j in range(n):
            total = 0.0
            for layer, attention in enumerate(attentions):
                if method.depth is not None and layer < len(attentions) - method.depth:
                    continue
                heads = len(attention)
                alpha = sum(attention[h, i, j] for h in range(heads) for i in range(n)) / (heads * n)
                feature, grad, their = (x[layer + shift] for x in (features, grads, states))
                for d in range(feature.shape[-1]):
                    contrast = feature[j, d] - (their[j, d] if j < len(their) else 0.0)
                    total += alpha * grad[j, d] * contrast
            scores.append(total)
        maps.append(scaled(scores) if method.scale_maps else scores)
    if not method.refine:
        return finished([sum(m[j] for m in maps) / len(maps) for j in range(n)], special, method), []
    drops = [slow_drop(stock, (ids, types), special, scores, method) for scores in maps]
    mean = sum(drops) / len(drops)
    threshold = mean + math.sqrt(sum((drop - mean) ** 2 for drop in drops) / len(drops))
    kept = [m for m, drop in zip(maps, drops, strict=True) if drop >= threshold - 1e-12]
    if not kept and method.fallback == "best":
        kept = [m for m, drop in zip(maps, drops, strict=True) if drop >= max(drops) - 1e-12]
    kept = kept or maps
    return finished([sum(m[j] for m in kept) / len(kept) for j in range(n)], special, method), drops


def slow_drop(stock: Stock, inputs: Any, special: list[bool], scores: list[float], method: Any) -> float:
    ids, types = inputs
    n = len(special)
    largest = max(abs(score) for score in scores)
    order = sorted(range(n), key=lambda j: -round(scores[j] / largest, 12))  # what differs by rounding alone is a tie
    if method.keep_last_token:
        order = order[:-1]
    total = n if method.steps_of == "all" else n - sum(special)
    counts = list(range(1, n - sum(special) + 1))
    if method.steps != "each":
        counts = sorted({int(np.round(k * total / method.steps)) for k in range(1, method.steps + 1)} - {0})
    lost = []
    for count in counts:
        gone = [j for j in order if not special[j]][:count]
        left = [j for j in range(n) if j not in gone]
        lost.append(slow_probability(stock, ids[0], types, range(n)) - slow_probability(stock, ids[0], types, left))
    return sum(lost) / len(lost)


def slow_probability(stock: Stock, ids: Tensor, types: Tensor | None, left: Sequence[int]) -> float:
    kept = list(left)
    chosen = ids[kept][None] if kept else torch.tensor([[KINDS[stock.kind].tokenizer().eos_token_id]])
    kinds = None if types is None else types[:, kept]
    with torch.no_grad():
        return float(stock.run(chosen, kinds).logits.softmax(-1)[0, CLASS])


def scaled(scores: list[float]) -> list[float]:
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) for score in scores]


def finished(scores: list[float], special: list[bool], method: Any) -> list[float]:
    done = scaled(scores) if method.scale_maps else scores
    return [0.0 if s and method.zero_special else score for score, s in zip(done, special, strict=True)]


@pytest.mark.parametrize(
    ("kind", "labels", "text", "settings"),
    [
        ("bert", 3, TEXT, {}),
        ("bert", 3, TEXT, {"preset": "repo"}),
        ("bert", 3, TEXT, {"preset": "paper"}),
        ("bert", 3, TEXT, {"refine": False}),
        ("bert", 3, "dull", {}),  # fewer tokens than steps
        ("bert", 3, TEXT, {"steps_of": "all", "steps": 4, "keep_last_token": True}),
        ("bert", 4, TEXT, {}),
        ("bert", 4, PAIR, {"preset": "repo"}),
        ("bert", 3, PAIR, {}),
        ("roberta", 3, "The plot was dull.", {"preset": "repo"}),
        ("distilbert", 3, TEXT, {}),
        ("gpt2", 3, "The plot was dull.", {}),  # no special tokens, causal, the last token is read
        ("gpt2", 3, "The plot was dull.", {"preset": "repo"}),
        ("bert", 3, TEXT, {"n": 2}),
        ("bert", 3, TEXT, {"n": 0}),
        ("bert", 3, PAIR, {"n": 0, "preset": "repo"}),
        ("bert", 3, TEXT, {"n": 0, "depth": 2, "preset": "paper"}),
        ("bert", 3, TEXT, {"depth": 1}),
        ("bert", 3, TEXT, {"depth": 2, "refine": False}),
        ("bert", 3, PAIR, {"depth": 2, "preset": "paper"}),
        ("gpt2", 3, "The plot was dull.", {"depth": 1, "preset": "repo"}),
    ],
    ids=str,
)
def test_the_formula_written_slowly(kind: str, labels: int, text: Any, settings: dict[str, Any]) -> None:
    subject = subject_for(kind, labels)
    method: Any = wt.method("contrast-cat", **settings)
    assert subject.references is not None
    texts = [r.text for r in subject.references.references[CLASS]]
    references = [t if len(t) == 2 else t[0] for t in texts if t is not None]
    assert sorted(references) == sorted(CORPUS)
    slow, drops = slow_contrast_cat(Stock(kind, labels), text, references, method)
    other = PAIR if text != PAIR else TEXT
    mine = wt.explain(subject, [other, text, "dull film"], [method], target=CLASS)[1][method.label]
    np.testing.assert_allclose(mine.scores, slow, rtol=0, atol=1e-9 * np.abs(slow).max())
    assert mine.tuned_on_deletion == (method.refine and method.n > 0)
    if mine.tuned_on_deletion:
        assert mine.details["drops"] == pytest.approx(drops, abs=1e-9)
        reached = [i for i, drop in enumerate(drops) if drop >= mine.details["threshold"] - 1e-12]
        assert mine.details["survivors"] == reached
        assert mine.details["fallback"] == (not reached)


def test_shorter_and_longer_references_are_padded_with_zeros_and_cut() -> None:
    subject = subject_for()
    lengths = [r.n_tokens for r in subject.references.references[CLASS]] if subject.references else []
    n = len(subject.tokenizer(TEXT)["input_ids"])
    assert min(lengths) < n < max(lengths)  # so the test above has seen both
    details = explained(subject, TEXT, "contrast-cat")[0].details
    assert details["coverage"] == pytest.approx(sum(min(length, n) for length in lengths) / (n * len(lengths)))


def changed(library: ReferenceLibrary, change: Any) -> ReferenceLibrary:
    """Other activations, and as many references."""
    packed = [Packed({"values": change(p.tensors["values"])}) for p in library.packed if p is not None]
    again = [
        tuple(found[i % len(found)] for i in range(p.shape[0]))
        for found, p in zip(library.references, packed, strict=True)
    ]
    return replace(library, packed=tuple(packed), references=tuple(again))


def library_of(subject: wt.Subject) -> ReferenceLibrary:
    assert subject.references is not None
    return subject.references


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_no_reference_is_attcat_and_needs_no_library(preset: str, refine: bool) -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    method = wt.method("contrast-cat", preset, n=0, refine=refine)
    mine, attcat = explained(subject, TEXT, method, wt.method("attcat", preset))
    assert mine.scores == pytest.approx(attcat.scores, rel=1e-12)
    assert not method.needs.asks
    assert not mine.tuned_on_deletion
    assert mine.details == {}


@pytest.mark.parametrize("settings", [{}, {"n": 0}, {"preset": "paper"}], ids=str)
def test_layers_beyond_the_depth_add_nothing(settings: dict[str, Any]) -> None:
    subject = subject_for()
    least = 2 if "preset" in settings else 1  # of outputs the last alone is refused
    # Every map reaches the threshold, so depth does not change which are averaged.
    depths = (None, *range(least, 4))
    whole, *less = (wt.method("contrast-cat", threshold=-1.0, depth=depth, **settings) for depth in depths)
    rows = explained_layers(subject, whole)
    assert len(rows) == subject.n_layers
    for depth, method in enumerate(less, least):
        left_out = subject.n_layers - depth
        np.testing.assert_allclose(explained_layers(subject, method)[left_out:], rows[left_out:], atol=1e-12)
        assert not explained_layers(subject, method)[:left_out].any()
        scores = explained(subject, TEXT, method)[0].scores
        np.testing.assert_allclose(scores, rows[left_out:].sum(0), atol=1e-12)


def explained_layers(subject: wt.Subject, method: Any) -> Array:
    found = wt.explain(subject, [TEXT], [method], target=CLASS, layers=True)[0][method.label]
    return np.array(found.layers)


def test_a_depth_beyond_the_model_names_what_there_is() -> None:
    with pytest.raises(BadSetting, match=r"depth=4 is not allowed; it must be at most 3: the model has 3 blocks"):
        explained(subject_for(), TEXT, wt.method("contrast-cat", depth=4))


def test_a_depth_reads_only_the_hidden_states_that_it_uses() -> None:
    """A library of outputs holds the inputs of all blocks but the first."""
    subject = with_references(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), layers="outputs")
    one = wt.method("contrast-cat", depth=2)
    mine, same = explained(subject, TEXT, one)[0], explained(subject_for(), TEXT, one)[0]
    assert mine.scores == pytest.approx(same.scores, rel=1e-12)
    with pytest.raises(LibraryMismatch, match="reads 0 to 2"):
        explained(subject, TEXT, wt.method("contrast-cat", depth=3))


@pytest.mark.parametrize("refine", [True, False])
def test_a_zero_reference_gives_attcat(refine: bool) -> None:
    subject = subject_for()
    zero = changed(library_of(subject), lambda values: torch.zeros_like(values[:1]))
    mine, attcat = explained(subject, TEXT, wt.method("contrast-cat", references=zero, refine=refine), "attcat")
    assert mine.scores == pytest.approx(attcat.scores, rel=1e-12)


def test_what_is_taken_away_is_linear_in_the_references() -> None:
    subject = subject_for()
    whole = library_of(subject)
    attcat, one, two = explained(
        subject,
        TEXT,
        "attcat",
        wt.method("contrast-cat", refine=False, references=whole),
        wt.method("contrast-cat", refine=False, references=changed(whole, lambda values: 2 * values)),
    )
    a, b, c = (np.array(x.scores) for x in (attcat, one, two))
    np.testing.assert_allclose(a - c, 2 * (a - b), atol=1e-12)


def test_duplicating_every_reference_changes_nothing_without_refinement() -> None:
    subject = subject_for()
    twice = changed(library_of(subject), lambda values: values.repeat(2, 1, 1, 1))
    one, two = explained(
        subject,
        TEXT,
        wt.method("contrast-cat", refine=False),
        wt.method("contrast-cat", refine=False, references=twice),
    )
    assert len(two.details["references"]) == 2 * len(one.details["references"])
    assert two.scores == pytest.approx(one.scores, rel=1e-12)


@pytest.mark.parametrize("settings", [{}, {"refine": False}, {"threshold": "top-2"}, {"preset": "repo"}], ids=str)
def test_the_order_of_references_does_not_matter(settings: dict[str, Any]) -> None:
    subject = subject_for()
    n = len(library_of(subject).of(CLASS))
    turned = changed(library_of(subject), lambda values: values.flip(0))
    one, two = explained(
        subject,
        TEXT,
        wt.method("contrast-cat", **settings),
        wt.method("contrast-cat", references=turned, **settings),
    )
    np.testing.assert_allclose(one.scores, two.scores, rtol=0, atol=1e-12 * max(map(abs, one.scores)))
    if one.tuned_on_deletion:
        assert sorted(n - 1 - i for i in two.details["survivors"]) == one.details["survivors"]


def test_one_reference_is_its_own_average() -> None:
    subject = subject_for()
    alone = library_of(subject).subset(1)
    refined, plain = explained(
        subject,
        TEXT,
        wt.method("contrast-cat", references=alone),
        wt.method("contrast-cat", references=alone, refine=False),
    )
    assert refined.scores == pytest.approx(plain.scores, rel=1e-12)
    assert refined.details["survivors"] == [0]


def test_n_takes_the_first_and_length_matched_the_nearest() -> None:
    subject = subject_for()
    lengths = [r.n_tokens for r in library_of(subject).references[CLASS]]
    first, nearest = explained(
        subject, TEXT, wt.method("contrast-cat", n=2), wt.method("contrast-cat", n=2, align="length-matched")
    )
    assert first.details["references"] == [0, 1]
    n = len(first.tokens)
    best = sorted(sorted(range(len(lengths)), key=lambda i: abs(lengths[i] - n))[:2])
    assert best != [0, 1]
    assert nearest.details["references"] == best
    only = replace(
        library_of(subject),
        references=tuple(tuple(found[i] for i in best) for found in library_of(subject).references),
        packed=tuple(Packed({"values": p.tensors["values"][best]}) for p in library_of(subject).packed if p),
    )
    assert nearest.scores == pytest.approx(
        explained(subject, TEXT, wt.method("contrast-cat", references=only))[0].scores
    )


def test_texts_of_different_classes_share_a_batch_and_may_have_different_numbers_of_references() -> None:
    subject = subject_for()
    whole = library_of(subject)
    uneven = replace(
        whole,
        references=tuple(found[: 6 - 2 * c] for c, found in enumerate(whole.references)),
        packed=tuple(
            Packed({"values": p.tensors["values"][: 6 - 2 * c]}) for c, p in enumerate(whole.packed) if p is not None
        ),
    )
    method = wt.method("contrast-cat", references=uneven)
    texts = [TEXT, "It is slow.", "rare music", "A man was very touching, but nobody did it.", "The end.", "dull"]
    together = [r[method.label] for r in wt.explain(subject, texts, [method])]
    assert len({r.label for r in together}) > 1
    for text, found in zip(texts, together, strict=True):
        alone = wt.explain(subject, [text], [method])[0][method.label]
        assert alone.label == found.label
        assert len(alone.details["drops"]) == 6 - 2 * subject.labels.index(alone.label)
        assert found.scores == pytest.approx(alone.scores, rel=1e-9, abs=1e-12)
        assert found.details["survivors"] == alone.details["survivors"]
        assert found.details["evaluations"] == alone.details["evaluations"]


def test_references_may_be_a_handful_of_texts() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    scans: list[int] = []
    method = wt.method("contrast-cat", references=CORPUS)
    predicted = {r["random"].label for r in wt.explain(subject, CORPUS, ["random"])}
    target = next(label for label in subject.labels if label not in predicted)
    with subject.model.register_forward_hook(lambda *_: scans.append(1)):
        found = wt.explain(subject, [TEXT], [method], target=target)[0]
        once = len(scans)
        wt.explain(subject, [TEXT], [method], target=target)
    assert len(scans) - once < once  # the second time the references are remembered
    assert list(found) == [method.label]
    assert method.label.startswith("contrast-cat(references=6 texts ")
    result = found[method.label]
    assert result.settings["references"] == method.label[24:-1]
    assert wt.Attribution.from_json(result.to_json()) == result
    library = wt.references.build(subject, CORPUS, dtype="float64", layers="all", scan="all", min_tokens=1)
    same = wt.method("contrast-cat", references=library)
    assert wt.explain(subject, [TEXT], [same], target=target)[0][same.label].scores == result.scores


def test_a_handful_of_texts_is_used_whole_however_short() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    texts = [
        f"{a} {b}"
        for a in ("slow", "rare", "music", "plot", "end", "man")
        for b in ("film", "was", "is", "it", "did", "a", "the")
    ]
    method = wt.method("contrast-cat", references=texts, n=40, refine=False)
    predicted = [r["random"].label for r in wt.explain(subject, texts, ["random"])]
    target = min(subject.labels, key=predicted.count)
    found = wt.explain(subject, [TEXT], [method], target=target)[0][method.label]
    assert len(found.details["references"]) == min(40, sum(label != target for label in predicted)) > 30


def test_two_lists_of_texts_have_two_names_and_what_has_one_name_is_refused() -> None:
    subject = subject_for()
    one, two = (wt.method("contrast-cat", references=texts) for texts in (CORPUS[:5], CORPUS[1:]))
    assert one.label != two.label
    found = wt.explain(subject, [TEXT], [one, two], target=CLASS)[0]
    assert found[one.label].details["library"] != found[two.label].details["library"]
    three, four = (
        wt.method("contrast-cat", references=changed(library_of(subject), lambda values, f=factor: f * values))
        for factor in (1, 2)
    )
    with pytest.raises(UsageError, match="two different methods are called 'contrast-cat"):
        wt.explain(subject, [TEXT], [three, four], target=CLASS)
    assert wt.explain(subject, [TEXT], [three, three], target=CLASS)


def test_half_precision_ranks_as_double_does() -> None:
    """Small scores must not all be ties."""
    texts = [TEXT, "It is a rare film, very slow, but the music was touching."]
    found = []
    for dtype in (torch.float64, torch.float16):
        model = model_of("bert")
        with torch.no_grad():
            model.classifier.weight.mul_(1e-3)
        subject = with_references(wt.Subject(model.to(dtype), KINDS["bert"].tokenizer()), dtype="float32")
        found.append(wt.explain(subject, texts, [wt.method("contrast-cat", threshold=-1.0)], target=CLASS))
    for exact, half in zip(*found, strict=True):
        a, b = (next(iter(result.values())) for result in (exact, half))
        assert np.corrcoef(a.scores, b.scores)[0, 1] > 0.99
        assert max(map(abs, a.scores)) < 1e-3
        sizes = [max(map(abs, x.details["drops"])) for x in (a, b)]
        assert sizes[1] == pytest.approx(sizes[0], rel=0.2)


def test_small_products_do_not_vanish_in_half_precision() -> None:
    attention = torch.full((1, 1, 2, 2), 1e-3, dtype=torch.float16)
    grad = torch.full((1, 2, 3), 1e-5, dtype=torch.float16)
    found = attended_gradient([attention], [grad], torch.tensor([2]))
    assert found.flatten().tolist() == pytest.approx([1e-8] * 6, rel=0.02)  # half precision ends at 6e-8


def test_a_grid_survives_the_way_through_json() -> None:
    found = explained(subject_for(), TEXT, wt.method("contrast-cat", steps=(0.5, 1.0)))[0]
    assert wt.Attribution.from_json(found.to_json()) == found


def test_a_subject_without_references_says_how_to_make_them() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    with pytest.raises(UsageError, match=r"subject\.with_references\(wt\.references\.build\(subject, texts\)\)"):
        wt.explain(subject, [TEXT], ["contrast-cat"])


def test_a_class_without_references_is_named() -> None:
    subject = subject_for()
    whole = library_of(subject)
    empty = replace(whole, references=((), *whole.references[1:]), packed=(None, *whole.packed[1:]))
    method = wt.method("contrast-cat", references=empty)
    with pytest.raises(UsageError, match=r"no reference for class 'contradiction'.*scan='all'.*correct_only=False"):
        wt.explain(subject, [TEXT], [method], target="contradiction")
    assert wt.explain(subject, [TEXT], [method], target="neutral")


def test_layers_that_were_not_stored_are_named_with_the_command_that_stores_them(tmp_path: Path) -> None:
    made = with_references(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), layers="inputs")
    wt.references.save(library_of(made), tmp_path / "library")
    subject = made.with_references(wt.references.load(tmp_path / "library"))
    assert wt.explain(subject, [TEXT], ["contrast-cat", "contrast-cat@repo"], target=CLASS)
    said = (
        "this reference library has hidden states 0 to 2 (layers='inputs'), but the method reads 1 to 3; build it "
        "again with all of them: whichtoken references build TEXTS.csv --model MODEL --out FOLDER; or set the method's "
        "layers to 'inputs'"
    )
    with pytest.raises(LibraryMismatch, match=f"^{re.escape(said)}$"):
        wt.explain(subject, [TEXT], ["contrast-cat@paper"], target=CLASS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": "median"}, r"threshold='median' .* of type float, or 'mean\+std', 'top-k'"),
        ({"threshold": "top-0"}, "'top-k'"),
        ({"steps": 0}, "at least 1"),
        ({"steps": "all"}, "of type int, or 'each', or"),
        ({"steps": (0.5, 2.0)}, "above 0 and at most 1"),
        ({"steps": ()}, "above 0 and at most 1"),
        ({"references": "a folder"}, "ReferenceLibrary"),
        ({"n": -1}, "at least 0"),
        ({"depth": 0}, "at least 1"),
        ({"depth": 1.5}, "of type int, or None"),
        ({"threshold": math.inf}, "finite"),
        ({"threshold": math.nan}, "finite"),
        ({"budget": 1}, "at least 2"),
        ({"budget": "all"}, "of type int, or None"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        wt.method("contrast-cat", **settings)


def test_a_grid_of_shares_may_be_a_list() -> None:
    assert wt.method("contrast-cat", steps=[0.1, 0.5]).settings["steps"] == (0.1, 0.5)


def test_refined_noise_adds_seeded_noise_to_attcat() -> None:
    subject = subject_for()
    attcat, none, one, same, other = explained(
        subject,
        TEXT,
        "attcat",
        wt.method("refined-noise", noise=0.0),
        wt.method("refined-noise", threshold=-1.0),  # every map reaches it
        wt.method("refined-noise", threshold=-1.0),
        wt.method("refined-noise", threshold=-1.0, seed=1),
    )
    assert none.scores == pytest.approx(attcat.scores, rel=1e-12)
    assert one.scores == same.scores != other.scores
    assert one.tuned_on_deletion
    assert one.details["survivors"] == list(range(30))
    content = np.array(attcat.scores[1:-1])
    ids = subject.tokenizer(TEXT)["input_ids"]
    drawn = np.random.default_rng([0, *ids]).standard_normal((30, len(ids)))[:, 1:-1]
    np.testing.assert_allclose(one.scores[1:-1], content + content.std() * drawn.mean(0), rtol=1e-9)


def test_a_contrast_of_two_classes_takes_the_references_of_the_first() -> None:
    subject = subject_for()
    whole = library_of(subject)
    only = replace(whole, references=((), whole.references[1], ()), packed=(None, whole.packed[1], None))
    method = wt.method("contrast-cat", references=only)
    found = wt.explain(subject, [TEXT], [method], target=wt.Contrast(1, 2))[0][method.label]
    assert found.label == "entailment rather than neutral"
    with pytest.raises(UsageError, match="no reference for class 'neutral'"):
        wt.explain(subject, [TEXT], [method], target=wt.Contrast(2, 1))


def test_long_texts_in_windows_keep_the_details_of_each() -> None:
    subject = subject_for()
    long = " ".join([TEXT] * 5)
    found = wt.explain(subject, [long], ["contrast-cat"], long="window")[0]["contrast-cat"]
    assert found.n_windows == len(found.details["windows"]) > 1
    assert all(len(window["drops"]) == len(CORPUS) for window in found.details["windows"])


def test_the_last_output_alone_says_nothing_but_of_the_token_read() -> None:
    with pytest.raises(BadSetting, match="2 or more with layers='outputs'"):
        wt.method("contrast-cat", layers="outputs", depth=1)


@pytest.mark.parametrize("name", ["contrast-cat", "refined-noise"])
def test_a_budget_limits_evaluations_and_a_large_one_changes_nothing(name: str) -> None:
    subject, texts = subject_for(), [TEXT, "It is slow.", "A man was very touching, but nobody did it."]
    exact, large, small = wt.method(name), wt.method(name, budget=10**4), wt.method(name, budget=12)
    for result in wt.explain(subject, texts, [exact, large, small]):
        assert result[exact.label].scores == result[large.label].scores
        assert result[exact.label].details == result[large.label].details
        assert result[small.label].details["evaluations"] <= 12 <= result[exact.label].details["evaluations"]
    for preset in ("repo", "paper"):
        assert wt.method(name, preset).settings["budget"] is None


def test_a_race_does_not_depend_on_the_batch() -> None:
    subject, method = subject_for(), wt.method("contrast-cat", budget=12)
    texts = [TEXT, "It is slow.", "A man was very touching, but nobody did it."]
    for text, together in zip(texts, wt.explain(subject, texts, [method]), strict=True):
        alone = wt.explain(subject, [text], [method])[0][method.label]
        assert alone.details["survivors"] == together[method.label].details["survivors"]
        assert alone.details["evaluations"] == together[method.label].details["evaluations"]
        assert alone.scores == pytest.approx(together[method.label].scores, rel=1e-9, abs=1e-12)
