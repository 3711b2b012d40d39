"""Leave-one-out, LIME and Kernel SHAP against slow formulas, and against the packages lime and shap on a glass box."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import factorial
from typing import Any, NoReturn, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.tiny import class_goal, image_model_of, images, model_of, question_subject, token_subject, wordpiece
from torch import Tensor
from transformers import ViTImageProcessorPil

import whichtoken as wt
from whichtoken.core.trace import Method, Probe, Scores, Trace
from whichtoken.core.units import keep_patterns, n_units, spread, stack_removed
from whichtoken.errors import BadSetting, UnknownName, UnsupportedModel, UsageError
from whichtoken.methods.context_cite import fit_lasso
from whichtoken.methods.kernel_shap import choose_coalitions, fit_shapley
from whichtoken.models import ModelProbe

Array = NDArray[np.float64]
NAMES = ("leave-one-out", "lime", "kernel-shap")
each_name = pytest.mark.parametrize("name", NAMES)

# Five words, one of three tokens; one word; no word that can be removed. Then padding.
UNITS = torch.tensor([[-1, 0, 1, 1, 1, 2, 3, 4, -1], [-1, 0, 0, -1, -1, -1, -1, -1, -1], [-1] * 9])
LENGTHS = (9, 4, 2)
EFFECTS = np.array([0.25, -0.125, 0.0625, 0.03125, -0.05])
BASE = 0.3


@dataclass
class GlassBox:
    """A probe whose output is known: the effects of the words that are present, plus `together` for words 0 and 2."""

    parts: Tensor = field(default_factory=lambda: UNITS)
    effects: Array = field(default_factory=lambda: EFFECTS)
    together: float = 0.0
    present: list[list[tuple[int, ...]]] = field(default_factory=list)  # of each row, the words of each pattern
    asked: int = 0
    memory: dict[str, Any] = field(default_factory=dict)

    def units(self, level: str) -> Tensor:
        assert level in ("word", "sentence")
        return self.parts

    def value(self, present: tuple[int, ...]) -> float:
        both = self.together if {0, 2} <= set(present) else 0.0
        return BASE + sum(float(self.effects[unit]) for unit in present) + both

    def outputs(self, kept: Tensor, how: str | None) -> Tensor:
        self.asked += 1
        assert how is None
        for units, patterns in zip(self.parts, kept, strict=True):
            assert patterns[:, units < 0].all()  # these cannot be removed
            for unit in range(int(units.max()) + 1):  # words are removed whole
                assert (patterns[:, units == unit].all(1) == patterns[:, units == unit].any(1)).all()
            self.present.append([tuple(sorted(set(units[p & (units >= 0)].tolist()))) for p in patterns])
        return torch.tensor([[self.value(one) for one in of_row] for of_row in self.present], dtype=torch.float64)

    log_odds = outputs

    def refuse(self, *_: object) -> NoReturn:
        raise AssertionError("these methods ask for outputs only")

    keep = distinct = keep_in_place = heads = references = blank = trace = differentiate = spell = refuse


def run(name: str, box: GlassBox, **settings: Any) -> Scores:
    ids = torch.arange(box.parts.numel()).view(box.parts.shape)
    mask = torch.arange(ids.shape[1]) < torch.tensor(LENGTHS[: len(ids)])[:, None]
    zeros, one = torch.zeros(ids.shape, dtype=torch.float64), torch.zeros(len(ids), dtype=torch.float64)
    trace = Trace(ids, mask, box.parts < 0, zeros, zeros[:, :2], one, one.long(), {}, {})
    return wt.method(name, **settings)(trace, cast(Probe, box))


def of_words(scores: Tensor, units: Tensor = UNITS[0]) -> Array:
    """The sum over the tokens of each word; they share it evenly, and other tokens have nothing."""
    assert not scores[units < 0].any()
    for unit in range(int(units.max()) + 1):
        assert len(set(scores[units == unit].tolist())) == 1
    return np.array([float(scores[units == unit].sum()) for unit in range(int(units.max()) + 1)])


@pytest.mark.parametrize("scale", ["log-odds", "probability"])
def test_leave_one_out_finds_the_effects_of_an_additive_model(scale: str) -> None:
    box = GlassBox()
    found = run("leave-one-out", box, scale=scale).tokens
    np.testing.assert_allclose(of_words(found[0]), EFFECTS, atol=1e-12)
    np.testing.assert_allclose(of_words(found[1], UNITS[1]), EFFECTS[:1], atol=1e-12)
    assert not found[2].any()
    assert box.asked == 1


@pytest.mark.parametrize("budget", [12, 13, 20, 64])  # one size of subsets, one and some more, all
@pytest.mark.parametrize("scale", ["log-odds", "probability"])
def test_kernel_shap_finds_the_effects_of_an_additive_model(budget: int, scale: str) -> None:
    box = GlassBox()
    scores = run("kernel-shap", box, budget=budget, scale=scale)
    np.testing.assert_allclose(of_words(scores.tokens[0]), EFFECTS, atol=1e-12)
    np.testing.assert_allclose(of_words(scores.tokens[1], UNITS[1]), EFFECTS[:1], atol=1e-12)
    assert not scores.tokens[2].any()
    assert [detail["determined"] for detail in scores.details] == [True] * 3
    assert box.asked == 1
    assert max(len(set(of_row)) for of_row in box.present) == min(budget, 32)


@pytest.mark.parametrize("budget", [2, 3, 4, 7, 12, 20, 64])
def test_values_of_kernel_shap_sum_to_the_whole_effect(budget: int) -> None:
    """Also if the evaluations do not determine them."""
    scores = run("kernel-shap", GlassBox(together=0.3), budget=budget)
    assert float(scores.tokens[0].sum()) == pytest.approx(EFFECTS.sum() + 0.3, abs=1e-12)
    assert scores.details[0]["determined"] is (budget >= 12)  # a set and its complement say the same


def test_kernel_shap_divides_an_interaction_evenly() -> None:
    found = of_words(run("kernel-shap", GlassBox(together=0.3), budget=32).tokens[0])
    np.testing.assert_allclose(found, EFFECTS + 0.15 * np.array([1, 0, 1, 0, 0]), atol=1e-12)


def test_undetermined_values_of_kernel_shap_do_not_depend_on_the_order_of_words() -> None:
    present, weights = choose_coalitions(9, 6, np.random.default_rng(0))
    gains = np.random.default_rng(1).normal(size=len(present))
    order = np.random.default_rng(2).permutation(9)
    values, rank = fit_shapley(present, weights, gains, 1.5)
    assert rank < 8
    np.testing.assert_allclose(fit_shapley(present[:, order], weights, gains, 1.5)[0], values[order], atol=1e-12)


def slow_lime(box: GlassBox, present: list[tuple[int, ...]], n: int) -> Array:
    """Least squares with a row for each evaluation and one for each penalised weight."""
    rows, wanted = [], []
    for words in present:
        similarity = len(words) / ((len(words) * n) ** 0.5) if words else 0.0
        distance = 100 * (1 - similarity)
        root = (np.exp(-(distance**2) / 25**2) ** 0.5) ** 0.5
        rows.append([root, *(root * (unit in words) for unit in range(n))])
        wanted.append(root * box.value(words))
    for unit in range(n):
        rows.append([0.0, *(float(unit == other) for other in range(n))])
        wanted.append(0.0)
    solution: Array = np.linalg.lstsq(np.array(rows), np.array(wanted), rcond=None)[0]
    return solution[1:]


def test_lime_is_a_weighted_ridge_regression() -> None:
    box = GlassBox(together=0.3)
    found = run("lime", box, budget=20).tokens
    assert [len(of_row) for of_row in box.present] == [20] * 3
    for row, n in ((0, 5), (1, 1)):
        np.testing.assert_allclose(of_words(found[row], UNITS[row]), slow_lime(box, box.present[row], n), atol=1e-12)
    assert not found[2].any()
    assert box.asked == 1


def test_lime_removes_sets_of_every_size() -> None:
    box = GlassBox()
    run("lime", box, budget=1001)
    whole, *rest = box.present[0]
    assert whole == (0, 1, 2, 3, 4)
    sizes = [5 - len(words) for words in rest]
    for size in range(1, 6):
        assert 150 < sizes.count(size) < 250
    assert all(300 < sum(unit in words for words in rest) < 500 for unit in range(5))


def neighbourhood(box: GlassBox, present: list[tuple[int, ...]], n: int) -> tuple[Array, Array]:
    data = np.array([[float(unit in words) for unit in range(n)] for words in present])
    return data, np.array([box.value(words) for words in present])


def test_lime_agrees_with_its_package() -> None:
    from lime.lime_base import LimeBase  # here, because it takes seconds to import
    from sklearn.metrics import pairwise_distances

    box = GlassBox(together=0.3)
    found = of_words(run("lime", box, budget=40).tokens[0])
    data, outputs = neighbourhood(box, box.present[0], 5)
    distances = pairwise_distances(data, data[:1], metric="cosine").ravel() * 100
    base = LimeBase(lambda d: np.sqrt(np.exp(-(d**2) / 25**2)))
    explained = base.explain_instance_with_data(data, outputs[:, None], distances, 0, 5, feature_selection="none")
    np.testing.assert_allclose(found, [dict(explained[1])[unit] for unit in range(5)], atol=1e-9)


def shap_explainer(box: GlassBox, n: int) -> Any:
    from shap import KernelExplainer  # here, because it takes seconds to import

    def outputs(data: Array) -> Array:
        return np.array([box.value(tuple(int(i) for i in row.nonzero()[0])) for row in data])

    return KernelExplainer(outputs, np.zeros((1, n)))


def test_kernel_shap_agrees_with_its_package() -> None:
    box = GlassBox(together=0.3)
    found = of_words(run("kernel-shap", box, budget=32).tokens[0])
    theirs = shap_explainer(box, 5).shap_values(np.ones(5), nsamples=30, l1_reg=False, silent=True)
    np.testing.assert_allclose(found, theirs, atol=1e-9)


@pytest.mark.parametrize(("n", "budget"), [(8, 40), (9, 100), (12, 80), (7, 126)])
def test_subsets_weights_and_values_are_those_of_the_package_shap(n: int, budget: int) -> None:
    """Of the sizes that are enumerated; what is drawn differs. The same subsets give the same values."""
    box = GlassBox(effects=np.random.default_rng(3).normal(size=n), together=0.7)
    explainer = shap_explainer(box, n)
    np.random.seed(0)
    theirs = explainer.shap_values(np.ones(n), nsamples=budget, l1_reg=False, silent=True)
    present, weights = choose_coalitions(n, budget, np.random.default_rng(0))
    n_drawn = explainer.nsamplesAdded
    masks, kernel = explainer.maskMatrix[:n_drawn].astype(bool), explainer.kernelWeights[:n_drawn]
    assert len(present) == len(masks)
    mine, other = (
        {p.tobytes(): w for p, w in zip(*pair, strict=True)} for pair in ((present, weights), (masks, kernel))
    )
    assert len(mine) == len(present)
    total = sum(weights)
    left = budget
    for size in range(1, n // 2 + 1):
        sets = [np.isin(np.arange(n), c) for k in {size, n - size} for c in combinations(range(n), k)]
        if not all(one.tobytes() in other for one in sets):
            break
        left -= len(sets)
        for one in sets:
            assert mine[one.tobytes()] / total == pytest.approx(other[one.tobytes()] / kernel.sum(), rel=1e-9)
    assert left < budget
    gains = np.array([box.value(tuple(row.nonzero()[0].tolist())) for row in masks]) - box.value(())
    values, rank = fit_shapley(masks, kernel, gains, box.value(tuple(range(n))) - box.value(()))
    assert rank == n - 1
    np.testing.assert_allclose(values, theirs, atol=1e-6)


def test_subsets_are_drawn_with_their_complements_and_by_their_weight() -> None:
    present, weights = choose_coalitions(40, 400, np.random.default_rng(5))
    sizes = present.sum(1)
    keys = {one.tobytes() for one in present}
    assert len(keys) == len(present) == 400
    assert ((sizes > 0) & (sizes < 40)).all()
    drawn = (sizes > 1) & (sizes < 39) & (sizes != 20)
    assert sum((~one).tobytes() in keys for one in present[drawn]) >= drawn.sum() - 1
    kernel = {size: 1 / (size * (40 - size)) for size in range(1, 40)}
    for size in (1, 39):
        assert (sizes == size).sum() == 40  # all of them
    for band in (range(2, 5), range(5, 10)):
        expected = sum(kernel[size] for size in band) / sum(kernel.values())
        assert weights[np.isin(sizes, band)].sum() / weights.sum() == pytest.approx(expected, rel=0.25)


def test_sizes_are_drawn_so_that_pairs_have_the_weight_of_both() -> None:
    """Of four words: one or three, which are drawn together, have 2/3 of the kernel's weight, two have 1/4."""
    drawn = [choose_coalitions(4, 1, np.random.default_rng(seed))[0].sum() for seed in range(2000)]
    assert drawn.count(2) / 2000 == pytest.approx((1 / 4) / (1 / 4 + 1 / 3), abs=0.04)


@pytest.mark.parametrize("name", ["lime", "kernel-shap"])
def test_the_seed_matters_and_the_company_does_not(name: str, subject_of: Callable[..., wt.Subject]) -> None:
    subject, text = subject_of("bert"), "The actors were won, but the plot was a slow film."
    methods = [wt.method(name, budget=20), wt.method(name, budget=20, seed=1)]
    first, other = wt.explain(subject, [text], methods)[0].values()
    again = wt.explain(subject, ["It is very slow.", text, "The music is touching."], methods[:1])[1][methods[0].label]
    np.testing.assert_allclose(first.scores, again.scores, rtol=0, atol=1e-12)
    assert not np.allclose(first.scores, other.scores)


# Sentences of few words, one of several tokens, in the stock model.

TEXT = "the film was wonderful"
LABEL = 1


@dataclass(frozen=True)
class Stock:
    """The stock model on what remains of a text."""

    ids: list[int]
    words: list[int | None]
    model: Any = field(default_factory=lambda: model_of("bert"))

    def probability(self, present: set[int], filler: int | None = None) -> float:
        gone = [word is not None and word not in present for word in self.words]
        if filler is None:
            ids = [token for token, removed in zip(self.ids, gone, strict=True) if not removed]
        else:
            ids = [filler if removed else token for token, removed in zip(self.ids, gone, strict=True)]
        with torch.no_grad():
            return float(self.model(torch.tensor([ids])).logits.softmax(-1)[0, LABEL])

    def log_odds(self, present: set[int], filler: int | None = None) -> float:
        p = self.probability(present, filler)
        return float(np.log(p) - np.log1p(-p))

    def shares(self, effects: list[float]) -> list[float]:
        """The effects of words, divided among their tokens."""
        return [0.0 if word is None else effects[word] / self.words.count(word) for word in self.words]


def stock(text: str = TEXT) -> Stock:
    encoded = wordpiece()(text)
    return Stock(encoded["input_ids"], encoded.word_ids())


def scores_of(method: Method) -> Array:
    subject = wt.Subject(model_of("bert"), wordpiece())
    results = wt.explain(subject, ["it is a rare, slow film", TEXT], [method], target=LABEL)
    return np.array(results[1][method.label].scores)


@pytest.mark.parametrize("perturbation", [None, "delete", "mask", "pad"])
@pytest.mark.parametrize("scale", ["log-odds", "probability"])
def test_leave_one_out(perturbation: str | None, scale: str) -> None:
    x = stock()
    fillers = {"mask": wordpiece().mask_token_id, "pad": wordpiece().pad_token_id}
    filler = fillers.get(perturbation or "delete")
    measure = x.log_odds if scale == "log-odds" else x.probability
    words = {word for word in x.words if word is not None}
    drops = [measure(words, filler) - measure(words - {word}, filler) for word in sorted(words)]
    assert len(drops) == 4 < len(x.ids) - 2
    found = scores_of(wt.method("leave-one-out", perturbation=perturbation, scale=scale))
    np.testing.assert_allclose(found, x.shares(drops), atol=1e-10)


def test_leave_one_out_of_tokens() -> None:
    x = stock()
    tokens = Stock(x.ids, [None, *range(len(x.ids) - 2), None])
    every = set(range(len(x.ids) - 2))
    drops = [tokens.log_odds(every) - tokens.log_odds(every - {token}) for token in sorted(every)]
    np.testing.assert_allclose(scores_of(wt.method("leave-one-out", units="token")), tokens.shares(drops), atol=1e-10)


@pytest.mark.parametrize("scale", ["log-odds", "probability"])
def test_kernel_shap_of_all_subsets_is_the_mean_over_all_orders(scale: str) -> None:
    x = stock()
    measure = x.log_odds if scale == "log-odds" else x.probability
    gains = [0.0] * 4
    for order in permutations(range(4)):
        for place, word in enumerate(order):
            gains[word] += (measure({*order[: place + 1]}) - measure({*order[:place]})) / factorial(4)
    found = scores_of(wt.method("kernel-shap", budget=16, scale=scale))
    np.testing.assert_allclose(found, x.shares(gains), atol=1e-10)


def test_lime_reads_the_probability_of_the_stock_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Tensor] = []
    original = ModelProbe.outputs

    def spy(self: ModelProbe, kept: Tensor, how: str | None) -> Tensor:
        asked.append(kept)
        return original(self, kept, how)

    monkeypatch.setattr(ModelProbe, "outputs", spy)
    found = scores_of(wt.method("lime", budget=14))
    x, (both,), box = stock(), asked, GlassBox()  # one call for the batch
    (kept,) = (patterns for patterns in both if not patterns[:, len(x.ids) - 2].all())  # the longer text
    present = [{word for word, k in zip(x.words, pattern, strict=True) if k and word is not None} for pattern in kept]
    sets = [tuple(sorted(words)) for words in present]
    monkeypatch.setattr(box, "value", lambda words: x.probability(set(words)))
    np.testing.assert_allclose(found, x.shares(slow_lime(box, sets, 4).tolist()), atol=1e-10)


# Units


def test_patterns_and_shares_by_loops() -> None:
    removed = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.5
    effects = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    kept, shares = keep_patterns(UNITS, removed), spread(effects, UNITS)
    for row in range(3):
        for token, unit in enumerate(UNITS[row].tolist()):
            for n in range(4):
                assert bool(kept[row, n, token]) is (unit < 0 or not bool(removed[row, n, unit]))
            size = UNITS[row].tolist().count(unit)
            assert float(shares[row, token]) == (0.0 if unit < 0 else float(effects[row, unit]) / size)
    assert n_units(UNITS).tolist() == [5, 1, 0]


def test_rows_of_patterns_are_filled_up_with_nothing_removed() -> None:
    stacked = stack_removed([np.ones((2, 3), dtype=bool), np.ones((1, 1), dtype=bool), np.ones((3, 0), dtype=bool)])
    assert stacked.shape == (3, 3, 3)
    assert stacked.sum((1, 2)).tolist() == [6, 1, 0]
    assert stacked[1, 0, 0]


def test_inputs_without_units() -> None:
    nothing = torch.full((2, 3), -1)
    assert keep_patterns(nothing, torch.zeros(2, 4, 0, dtype=torch.bool)).all()
    assert not spread(torch.zeros(2, 0, dtype=torch.float64), nothing).any()
    for name in NAMES:
        assert not run(name, GlassBox(parts=nothing)).tokens.any()


# Tasks


@each_name
def test_a_contrast_is_the_opposite_of_its_reverse(name: str, subject_of: Callable[..., wt.Subject]) -> None:
    first, reverse = (
        wt.explain(subject_of("bert"), [TEXT], [name], target=wt.Contrast(*pair))[0][name].scores
        for pair in ((0, 2), (2, 0))
    )
    assert any(first)
    np.testing.assert_allclose(first, [-score for score in reverse], atol=1e-10)


def test_effects_on_a_predicted_value_are_its_drops() -> None:
    model = model_of("bert", labels=1, id2label={0: "LABEL_0"}, problem_type="regression")
    x = stock()

    def value(ids: list[int]) -> float:
        with torch.no_grad():
            return float(model(torch.tensor([ids])).logits[0, 0])

    drops = [value(x.ids) - value([i for i, w in zip(x.ids, x.words, strict=True) if w != word]) for word in range(4)]
    for scale in ("log-odds", "probability"):
        method = wt.method("leave-one-out", scale=scale)
        found = wt.explain(wt.Subject(model, wordpiece()), [TEXT], [method])[0][method.label].scores
        np.testing.assert_allclose(found, x.shares(drops), atol=1e-10)


def test_patches_are_filled_with_black_or_their_mean() -> None:
    size = {"height": 12, "width": 12}
    subject = wt.Subject(image_model_of("vit"), ViTImageProcessorPil(size=size), name="image")
    image = np.random.default_rng(1).integers(0, 256, (12, 12, 3), np.uint8)
    pixels = torch.tensor(image).permute(2, 0, 1).double() / 255 * 2 - 1
    for how, fill in ((None, pixels.new_full((3, 1, 1), -1.0)), ("mean", pixels.mean((1, 2), keepdim=True))):
        method = wt.method("leave-one-out", perturbation=how, scale="probability")
        found = wt.explain(subject, images=[image], methods=[method], target=1)[0][method.label].scores
        for patch in range(9):
            filled = pixels.clone()
            row, column = patch // 3 * 4, patch % 3 * 4
            filled[:, row : row + 4, column : column + 4] = fill
            with torch.no_grad():
                whole, without = subject.model(torch.stack([pixels, filled])).logits.softmax(-1)[:, 1].tolist()
            assert found[1 + patch] == pytest.approx(whole - without, abs=1e-6)
        assert found[0] == 0


@each_name
def test_answers_and_labelled_words_stay(name: str) -> None:
    asked = wt.explain(question_subject(), [("Is it slow?", "The film was slow.")], [name])[0][name]
    labelled = wt.explain(token_subject(), ["the film was wonderful"], [name], token="wonderful")[0][name]
    assert any(asked.scores)
    fixed = ("[CLS]", "won", "[SEP]")  # the label is read from the first token of the word
    assert [score == 0 for score in labelled.scores] == [token in fixed for token in labelled.tokens]
    alone = wt.explain(token_subject(), ["slow"], [name], token="slow")[0][name]
    assert not any(alone.scores)


# Errors


@each_name
def test_an_unknown_perturbation_is_refused(name: str, subject_of: Callable[..., wt.Subject]) -> None:
    with pytest.raises(UnknownName, match="unknown perturbation 'maks'; did you mean 'mask'"):
        wt.explain(subject_of("bert"), [TEXT], [wt.method(name, perturbation="maks")])
    with pytest.raises(UnsupportedModel, match="no mask token to replace words with; use the perturbation 'delete'"):
        wt.explain(subject_of("gpt2"), [TEXT], [wt.method(name, perturbation="mask")])


def test_patches_are_not_deleted() -> None:
    subject = wt.Subject(image_model_of("vit"), None)
    batch = subject.batch([subject.image_row(pixels) for pixels in images(1)])
    probe = ModelProbe(subject, batch, class_goal(subject, torch.tensor([1])))
    with pytest.raises(UsageError, match="patches of an image cannot be deleted"):
        probe.outputs(torch.ones(1, 1, 10, dtype=torch.bool), None)


@pytest.mark.parametrize("name", ["lime", "kernel-shap"])
def test_a_budget_has_room_for_something(name: str) -> None:
    with pytest.raises(BadSetting, match="at least 2"):
        wt.method(name, budget=1)


def test_context_cite_is_a_lasso_on_standardised_columns() -> None:
    """By the conditions that its minimum meets: gradients are alpha at weights that are not 0, and less at others."""
    generator, alpha = np.random.default_rng(5), 0.3
    kept = generator.random((40, 6)) < 0.5
    kept[:, 5] = True
    answers = kept @ np.array([2.0, -1.0, 0.05, 0.0, 0.7, 3.0]) + 0.1 * generator.standard_normal(40)
    weights = fit_lasso(kept, answers, alpha)
    assert weights[5] == 0
    spreads = kept[:, :5].std(0)
    columns = (kept[:, :5] - kept[:, :5].mean(0)) / spreads
    found = weights[:5] * spreads
    residual = answers - answers.mean() - columns @ found
    gradient = columns.T @ residual / 40
    assert (found == 0).any()
    np.testing.assert_allclose(gradient[found != 0], alpha * np.sign(found[found != 0]), atol=1e-9)
    assert (np.abs(gradient[found == 0]) <= alpha + 1e-9).all()


def test_context_cite_finds_effects_that_add_up() -> None:
    found = run("context-cite", GlassBox(), ablations=200, alpha=0.0).tokens
    np.testing.assert_allclose(of_words(found[0], UNITS[0]), EFFECTS, atol=1e-7)
    assert not found[2].any()
