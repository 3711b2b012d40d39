"""Posterior: the regression by hand and slowly, and what the search must do on models whose effects are known."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import t as student_t
from tests.probes import SilentProbe
from tests.tiny import KINDS, model_of, question_subject
from torch import Tensor

import whichtoken as wt
from whichtoken.core.trace import Scores, Trace
from whichtoken.errors import BadSetting
from whichtoken.methods.integrated_gradients import IntegratedGradients
from whichtoken.methods.posterior import Posterior, process
from whichtoken.methods.posterior.certainty import share_among_tokens, student_quantile
from whichtoken.methods.posterior.process import (
    BASE,
    COARSE,
    FLOOR,
    HIGHEST,
    LEANS,
    NOISES,
    Answers,
    Kernels,
    fit_once,
)
from whichtoken.methods.posterior.questions import Search, SearchPlan, _candidates, learn, start_search
from whichtoken.render.trust import describe_trust

WORDS = [11, 12, 13, 14, 15, 16, 17, 18]  # token ids
MARKS = (98, 99)  # ids of punctuation
WORTH = [2.0, -1.0, 0.5, 0.0, 0.3, 0.1, -0.2, 1.0]


def trace_of(ids: list[int]) -> Trace:
    """A text between two special tokens."""
    row = torch.tensor([[1, *ids, 2]])
    mask = torch.ones_like(row, dtype=torch.bool)
    special = mask.clone()
    special[:, 1:-1] = False
    blank = torch.zeros(row.shape, dtype=torch.float64)
    return Trace(row, mask, special, blank, blank[:, :2], blank[:, 0], torch.zeros(1, dtype=torch.long), {}, {})


@dataclass
class GlassBox(SilentProbe):
    """A probe whose log-odds are a function of the words that remain, one token each."""

    seen: Trace
    log_odds_of: Callable[[NDArray[np.bool_]], float]  # of which words are removed
    asked: list[tuple[bool, ...]] = field(default_factory=list)

    def units(self, level: str) -> Tensor:
        units = torch.full_like(self.seen.ids, -1)
        units[:, 1:-1] = 0 if level == "sentence" else torch.arange(self.seen.ids.shape[1] - 2)
        return units

    def log_odds(self, kept: Tensor, how: str | None) -> Tensor:
        removed = ~kept[:, :, 1:-1].numpy()
        self.asked += [tuple(row.tolist()) for row in removed[0] if row.any()]
        return torch.tensor([[self.log_odds_of(row) for row in of_text] for of_text in removed], dtype=torch.float64)

    def outputs(self, kept: Tensor, how: str | None) -> Tensor:
        return torch.sigmoid(self.log_odds(kept, how))

    def spell(self, row: int, tokens: Any) -> str:
        return "".join("," if self.seen.ids[row, token] in MARKS else "word" for token in tokens)


def glass_box(worth: list[float] = WORTH, ids: list[int] = WORDS, noise: float = 0.0) -> GlassBox:
    """Effects add up, except for noise that depends on the removed words alone."""

    def log_odds(removed: NDArray[np.bool_]) -> float:
        key = sorted(word for word, gone in zip(ids, removed, strict=True) if gone)
        wobble = noise * np.random.default_rng([7, *key]).standard_normal() if key else 0.0
        return 3.0 - float(removed @ np.array(worth)) + wobble

    return GlassBox(trace_of(ids), log_odds)


def explain(box: GlassBox, **settings: Any) -> Scores:
    return Posterior(**{"prior": "none", **settings})(box.seen, box)


def scores_of(box: GlassBox, **settings: Any) -> list[float]:
    found: list[float] = explain(box, **settings).tokens[0, 1:-1].tolist()
    return found


# The kernel, over all removals of four units.

LENGTHS, LEAN = np.array([0.5, 0.2, 0.05, 0.9]), np.array([0.3, -0.2, 0.0, 0.1])
ALL = np.array(list(product((False, True), repeat=4)))  # the first removes nothing


def kernel_of_all() -> Any:
    """The covariance of the drops under all removals, one pair at a time."""
    signs = np.where(ALL, -1, 1)
    g = np.array([[np.prod(1 + LENGTHS * one * other) for other in signs] for one in signs])
    scale = np.mean([g[i, i] - 2 * g[i, 0] + g[0, 0] for i in range(len(ALL))])
    return (g - g[:, :1] - g[:1] + g[0, 0]) / scale + np.outer(ALL @ LEAN, ALL @ LEAN)


def mean_over_removals(removed: NDArray[np.bool_], units: tuple[Any, ...]) -> Any:
    """The probability that exactly these of the other units are removed, averaged over the share of removed ones."""
    others = [gone for unit, gone in enumerate(removed) if unit not in units]
    return quad(lambda p: np.prod([p if gone else 1 - p for gone in others]), 0, HIGHEST)[0] / HIGHEST


def effect_weights(*units: Any) -> NDArray[np.float64]:
    """What the effect of one unit, or the interaction of two, is a weighted sum of drops with."""
    signs = [np.prod([1 if removed[unit] else -1 for unit in units]) for removed in ALL]
    return np.array([sign * mean_over_removals(removed, units) for sign, removed in zip(signs, ALL, strict=True)])


def test_covariances_are_those_of_sums_over_all_removals() -> None:
    kernels = Kernels(LENGTHS[None], LEAN[None])
    whole = kernel_of_all()
    asked = ALL[[3, 5, 9, 14]]
    assert kernels.between(ALL, asked)[0] == pytest.approx(whole[:, [3, 5, 9, 14]])
    effects = np.array([effect_weights(unit) for unit in range(4)])
    assert kernels.with_effects(asked)[0] == pytest.approx((effects @ whole)[:, [3, 5, 9, 14]])
    among = effects @ whole @ effects.T
    assert kernels.effect_covariances(np.arange(4))[0] == pytest.approx(among)
    assert kernels.effect_covariances(np.array([2, 0]))[0] == pytest.approx(among[[2, 0]][:, [2, 0]])
    assert kernels.effect_variances()[0] == pytest.approx(np.diag(among))


def test_covariances_of_interactions_are_those_of_sums_over_all_removals() -> None:
    kernels, whole, asked = Kernels(LENGTHS[None], LEAN[None]), kernel_of_all(), ALL[[3, 5, 9, 14]]
    first, second = np.triu_indices(4, 1)
    pairs = np.array([effect_weights(i, j) for i, j in zip(first, second, strict=True)])
    cross = (pairs @ whole)[:, [3, 5, 9, 14]]
    assert kernels.with_pairs(first, second, asked)[0] == pytest.approx(cross)
    assert kernels.pair_variances(first, second)[0] == pytest.approx(np.diag(pairs @ whole @ pairs.T))
    weights = np.array([0.5, -1.0, 2.0, 0.25])
    sums = kernels.pair_sums(asked, weights[None])
    assert sums[first, second] == pytest.approx(cross @ weights)
    assert sums == pytest.approx(sums.T)
    assert not sums.diagonal().any()


def test_lengths_of_a_thousand_units_do_not_overflow() -> None:
    kernels = Kernels(np.full((1, 1200), 0.95), np.zeros((1, 1200)))
    removed = np.random.default_rng(0).random((3, 1200)) < 0.5
    assert np.isfinite(kernels.between(removed, removed)).all()
    assert kernels.between(removed, removed)[0].diagonal() == pytest.approx([1, 1, 1])
    assert np.isfinite(kernels.effect_variances()).all()


@dataclass
class Slow:
    """The posterior written slowly: every prior of the grid by itself, with inverted matrices."""

    answers: Answers
    priors: list[tuple[float, Kernels, NDArray[np.float64], float]]  # weight, kernels, covariance of answers, t²

    def mean(self, weigh: Callable[[Kernels], NDArray[np.float64]]) -> Any:
        return sum(
            w * (weigh(kernels) @ np.linalg.inv(gram) @ self.answers.drops) for w, kernels, gram, _ in self.priors
        )


def fit_slowly(answers: Answers, of_units: NDArray[np.float64], n_units: int) -> Slow:
    shapes = [np.ones(n_units), BASE + np.abs(of_units) / np.abs(of_units).max()]
    size = np.sqrt(np.mean([(np.array(r) @ of_units) ** 2 for r in product((0, 1), repeat=n_units)]))
    priors, n = [], len(answers.drops)
    for shape, level, noise, k in product(shapes, COARSE, NOISES, (0.0, *LEANS)):
        lengths = np.minimum(level * shape / shape.mean(), 0.95)
        lean = k * of_units / size
        kernels = Kernels(lengths[None], lean[None])
        gram = kernels.between(answers.removed, answers.removed)[0] + noise * np.eye(n)
        inverse = np.linalg.inv(gram)
        if k and (answers.removed @ of_units) @ np.linalg.inv(gram) @ answers.drops < 0:
            continue
        misfit = FLOOR**2 + answers.drops @ inverse @ answers.drops
        log = -0.5 * np.linalg.slogdet(gram)[1] - (n + 1) / 2 * np.log(misfit) - 0.5 * np.log1p(noise)
        priors.append((log, kernels, gram, misfit / (n + 1)))
    highest = max(log for log, *_ in priors)
    total = sum(np.exp(log - highest) for log, *_ in priors)
    return Slow(answers, [(np.exp(log - highest) / total, *rest) for log, *rest in priors])


def some_answers(n_questions: int, n_units: int = 5) -> Answers:
    generator = np.random.default_rng(n_questions)
    removed = generator.random((n_questions, n_units)) < 0.5
    noise = 0.2 * generator.standard_normal(n_questions)
    return Answers(removed, removed @ WORTH[:n_units] - 2.0 * (removed[:, 0] & removed[:, 1]) + noise)


@pytest.mark.parametrize("n_questions", [3, 12])
def test_posterior_written_slowly(n_questions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "NEGLIGIBLE", 0.0)
    monkeypatch.setattr(process, "MOST_PRIORS", 1000)
    answers, of_units = some_answers(n_questions), np.array([1.0, -0.5, 0.2, 0.0, 0.1])
    slow, fast = fit_slowly(answers, of_units, 5), fit_once(answers, [of_units])
    others = np.random.default_rng(5).random((6, 5)) < 0.5
    predicted = slow.mean(lambda kernels: kernels.between(others, answers.removed)[0])
    assert fast.predict(others) == pytest.approx(predicted, abs=1e-6)
    effects = slow.mean(lambda kernels: kernels.with_effects(answers.removed)[0])
    assert fast.effects == pytest.approx(effects, abs=1e-6)
    first, second = np.triu_indices(5, 1)
    pairs = slow.mean(lambda kernels: kernels.with_pairs(first, second, answers.removed)[0])
    assert fast.interactions()[first, second] == pytest.approx(pairs, abs=1e-6)
    variance, pair_variance = np.zeros(5), np.zeros(10)
    for weight, kernels, gram, scale in slow.priors:

        def moment(cross: Any, before: Any, mean: Any, gram: Any = gram, scale: float = scale) -> Any:
            own = cross @ np.linalg.inv(gram) @ answers.drops
            return scale * (before - np.diag(cross @ np.linalg.inv(gram) @ cross.T)) + (own - mean) ** 2

        of_units, of_pairs = kernels.effect_variances()[0], kernels.pair_variances(first, second)[0]
        variance += weight * moment(kernels.with_effects(answers.removed)[0], of_units, effects)
        pair_variance += weight * moment(kernels.with_pairs(first, second, answers.removed)[0], of_pairs, pairs)
    assert fast.spreads[0] == pytest.approx(np.sqrt(variance), abs=1e-6)
    assert fast.interaction_spreads(first, second) == pytest.approx(np.sqrt(pair_variance), abs=1e-6)
    assert np.sqrt(fast.effect_covariance(np.array([3, 1])).diagonal()) == pytest.approx(fast.spreads[0][[3, 1]])


def test_leaving_out_an_answer_is_a_fit_without_it() -> None:
    """With the priors and their weights as they are."""
    answers, fitted = some_answers(12), fit_once(some_answers(12), [np.array([1.0, -0.5, 0.2, 0.0, 0.1])])
    first, second = np.array([0, 2]), np.array([1, 4])
    single, sums, pairs = [], [], []
    for question in range(12):
        others = np.arange(12) != question
        removed, drops = answers.removed[others], answers.drops[others]
        own = answers.removed[question]
        mean, of_units, of_pairs = 0.0, np.zeros(5), np.zeros(2)
        for prior, weight in enumerate(fitted.weights):
            kernels = Kernels(fitted.kernels.lengths[prior][None], fitted.kernels.leans[prior][None])
            gram = np.linalg.inv(fitted.inverses[prior])
            dual = np.linalg.solve(gram[np.ix_(others, others)], drops)
            mean += weight * float(kernels.between(own[None], removed)[0, 0] @ dual)
            of_units += weight * (kernels.with_effects(removed)[0] @ dual)
            of_pairs += weight * (kernels.with_pairs(first, second, removed)[0] @ dual)
        single.append(mean)
        sums.append(float(own @ of_units))
        both = own[first] & own[second]
        pairs.append(of_pairs * (both - HIGHEST / 2 * (own[first].astype(int) + own[second])))
    assert fitted.leave_one_out == pytest.approx(single)
    assert fitted.leave_one_out_sums == pytest.approx(sums)
    assert fitted.leave_one_out_interactions(first, second) == pytest.approx(np.array(pairs).T)


@pytest.mark.parametrize("n_questions", [1, 2])
def test_scores_are_known_also_where_many_priors_explain_answers_equally_well(n_questions: int) -> None:
    answers = some_answers(n_questions, n_units=8)
    maps = [np.random.default_rng(number).normal(size=8) for number in range(4)]
    fitted = fit_once(answers, maps, levels=process.LEVELS)
    assert len(fitted.weights) == process.MOST_PRIORS  # each has less than 1 % of all weight
    assert fitted.weights.sum() == pytest.approx(1)
    assert fitted.effects.any()


def test_slopes_are_the_multiple_of_the_map_in_an_additive_model() -> None:
    of_units = np.array([1.0, -0.5, 0.2, 0.0, 0.1])
    removed = np.random.default_rng(0).random((20, 5)) < 0.5
    fitted = fit_once(Answers(removed, 3.0 * removed @ of_units), [of_units])
    assert fitted.slopes == pytest.approx([3.0], rel=0.05)


def test_an_additive_model_is_recovered_exactly() -> None:
    found = explain(glass_box())
    assert found.tokens[0].tolist() == pytest.approx([0, *WORTH, 0], abs=1e-4)
    (confidence,) = found.confidence
    assert confidence is not None
    assert confidence.additivity is not None
    assert confidence.additivity > 0.99  # a word that one question alone removed cannot be predicted
    assert confidence.first == 1
    assert confidence.n_unresolved == 0
    assert max(high - low for low, high in zip(confidence.low, confidence.high, strict=True)) < 0.02


def test_words_that_interact_are_said_to() -> None:
    def either(removed: NDArray[np.bool_]) -> float:
        return 3.0 if not removed[0] or not removed[1] else -3.0  # one of the two words is enough

    (confidence,) = explain(GlassBox(trace_of(WORDS), either)).confidence
    assert confidence is not None
    assert confidence.additivity is not None
    assert confidence.additivity < 0.9


def test_an_output_that_nothing_changes_has_no_effects() -> None:
    found = explain(GlassBox(trace_of(WORDS), lambda removed: 1.5))
    assert found.tokens[0].tolist() == pytest.approx([0.0] * 10, abs=1e-3)
    assert found.confidence[0] is not None
    assert found.confidence[0].additivity is None


def test_permuting_words_permutes_scores() -> None:
    order = [3, 0, 7, 1, 6, 5, 2, 4]
    ids, worth = [WORDS[i] for i in order], [WORTH[i] for i in order]
    scores = scores_of(glass_box(noise=0.5))
    assert scores_of(glass_box(worth, ids, noise=0.5)) == pytest.approx([scores[i] for i in order], abs=1e-9)


def test_more_questions_lower_the_error() -> None:
    """On an additive model with noise; the mean over 20 seeds, each twice the questions of the one before."""
    errors = [
        np.mean([np.square(np.subtract(scores_of(glass_box(noise=1.0), budget=n, seed=s), WORTH)) for s in range(20)])
        for n in (8, 16, 32, 64)
    ]
    assert errors == sorted(errors, reverse=True)


def test_intervals_cover_the_effects_of_an_additive_model_with_noise() -> None:
    covered = []
    for seed in range(30):
        worth = np.random.default_rng([seed, 1]).standard_normal(8)
        ids = (100 * seed + np.arange(3, 11)).tolist()  # other words, so that the noise differs
        (confidence,) = explain(glass_box(worth.tolist(), ids, noise=0.5), seed=seed).confidence
        assert confidence is not None
        inside = (np.array(confidence.low[1:-1]) <= worth) & (worth <= np.array(confidence.high[1:-1]))
        covered.append(inside.mean())
    assert 0.85 < np.mean(covered) < 0.97


def test_no_question_is_asked_twice() -> None:
    box = glass_box(noise=1.0)
    explain(box, budget=100)
    asked = box.asked[:-1]  # the last one is the check
    assert len(asked) == len(set(asked))
    assert len(asked) > 90


def test_a_repeated_word_is_removed_at_some_of_its_places_and_not_at_others() -> None:
    box = glass_box([*WORTH, *WORTH], WORDS[:1] * 16)
    explain(box, budget=64, proposal="uniform")
    for place, other in permutations(range(16), 2):
        assert any(question[place] and not question[other] for question in box.asked), (place, other)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_of_short_texts_every_subset_is_asked_about(n: int) -> None:
    box = glass_box(WORTH[:n], WORDS[:n])
    scores = scores_of(box)
    assert scores == pytest.approx(WORTH[:n], rel=0.2 if n == 1 else 0.02, abs=1e-3)
    removed = set(box.asked)
    assert len(removed) == 2**n - 1


@pytest.mark.parametrize("per_round", [1, 2, 3, 8])
def test_a_quarter_of_the_questions_is_random_whatever_the_size_of_a_round(per_round: int) -> None:
    """Random questions remove the word that opposes most, which the others never do."""
    worth, n_removed = [*np.linspace(3, 0, 19).tolist(), -20.0], {}
    for explore in (0.0, 0.25):
        box = glass_box(worth, list(range(20, 40)), noise=1.0)
        explain(box, per_round=per_round, explore=explore)
        n_removed[explore] = sum(question[-1] for question in box.asked[24:64])
    assert n_removed[0.0] <= 1
    assert n_removed[0.25] >= 2


def test_all_but_the_first_questions_are_random_if_there_are_many() -> None:
    """Random questions remove the word that opposes most about half of the time, the others never do."""
    worth = [*np.linspace(3, 0, 19).tolist(), -20.0]
    shares = []
    for budget in (64, 256):
        box = glass_box(worth, list(range(20, 40)), noise=1.0)
        explain(box, budget=budget)
        shares.append(np.mean([question[-1] for question in box.asked[16:budget]]))
    few, many = shares
    assert few < 0.2
    assert many > 0.3


@dataclass
class NotingBox(GlassBox):
    """Also notes how many questions were asked by which removal."""

    by_removal: Counter[str | None] = field(default_factory=Counter)

    def log_odds(self, kept: Tensor, how: str | None) -> Tensor:
        self.by_removal[how] += int((~kept[:, :, 1:-1]).any(-1).sum())
        return super().log_odds(kept, how)


@pytest.mark.parametrize("per_round", [1, 3, 8])
def test_mixed_questions_alternate_whatever_the_size_of_a_round(per_round: int) -> None:
    plain = glass_box(noise=1.0)
    box = NotingBox(plain.seen, plain.log_odds_of)
    explain(box, perturbation="mixed", per_round=per_round, budget=24)
    assert box.by_removal == {"delete": 13, "mask": 12}  # the check is by deletion


def test_stopping_when_the_first_word_is_settled() -> None:
    asked = {}
    for stop in (1, None):
        for worth, noise in (((9.0, *WORTH[1:]), 0.5), ((1.0,) * 8, 1.0)):
            box = glass_box(list(worth), noise=noise)
            explain(box, stop=stop)
            asked[stop, noise] = len(box.asked)
    assert asked[1, 0.5] < 0.7 * asked[None, 0.5]
    assert asked[1, 1.0] == asked[None, 1.0]


def test_the_check_removes_the_highest_words() -> None:
    box = glass_box()
    (confidence,) = explain(box).confidence
    assert confidence is not None
    assert confidence.check is not None
    assert confidence.check.tokens == (1, 3, 8)
    assert confidence.check.output == pytest.approx(1 / (1 + np.exp(-(3 - 2 - 0.5 - 1))))


def test_one_word_and_none() -> None:
    assert scores_of(glass_box([2.0], [5]))[0] > 0
    assert explain(GlassBox(trace_of([]), lambda removed: 0.0)).tokens.tolist() == [[0, 0]]


@pytest.mark.parametrize("prior", ["contrast-cat", "posterior", "refined-noise", "tis"])
def test_a_prior_that_removes_words_itself_is_refused(prior: str) -> None:
    with pytest.raises(BadSetting, match="do not remove words themselves"):
        wt.method("posterior", prior=prior)


def test_budget_0_gives_the_priors_scores() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")
    results = wt.explain(subject, ["the film was slow"], methods=[wt.method("posterior", budget=0), "attcat"])
    (first, second) = results[0].values()
    assert first.scores == second.scores
    assert not first.tuned_on_deletion
    assert first.confidence is None


def test_sentences_are_removed_whole_and_named_in_the_statement() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")
    text = "A man sleeps. The film was slow! Nobody is awake."
    (result,) = wt.explain(subject, text, wt.method("posterior", units="sentence"))
    (record,) = result.values()
    assert record.confidence is not None
    assert record.confidence.n_units == 3
    bounds = zip(record.spans, record.confidence.low, record.confidence.high, strict=True)
    last = [high - low for span, low, high in bounds if span is not None and span[0] > 32]
    assert last == pytest.approx([last[0]] * len(last))  # the tokens of a sentence share its interval
    assert "when sentences are removed" in describe_trust(record) or "by removing sentences" in describe_trust(record)
    if record.confidence.check is not None:
        assert re.search(r"without “(A man sleeps\.|The film was slow!|Nobody is awake\.)”", describe_trust(record))


def test_both_ends_of_an_answer_are_about_the_same_words() -> None:
    question, context = "Is it slow?", "The film was slow, but the music was touching."
    results = wt.explain(question_subject("bert"), question=question, context=context, methods="posterior")
    record = results[0]["posterior"]
    assert record.confidence is not None
    assert record.confidence.n_units <= len(record.words())
    assert record.confidence.n_unresolved <= record.confidence.n_units
    assert record.confidence.n_answers > 64  # of two searches


def test_words_that_are_not_resolved_without_a_prior_are_close_to_0() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")
    text = " ".join(["The film was slow."] * 9)
    (record,) = wt.explain(subject, text, wt.method("posterior", prior="none", budget=4))[0].values()
    assert record.confidence is not None
    assert record.confidence.n_unresolved > 0
    assert describe_trust(record).endswith("words were not resolved: their scores are close to 0")


@pytest.mark.parametrize(("freedom", "error"), [(2, 0.06), (4, 0.01), (65, 1e-4)])
def test_few_answers_make_wide_intervals(freedom: int, error: float) -> None:
    assert student_quantile(freedom) == pytest.approx(student_t.ppf(0.95, freedom), rel=error)


PLAN = SearchPlan(budget=300, per_round=8, proposal="thompson", explore=0.0, seed=0)


def known_search(units: list[int], scores: list[float], worth: list[float]) -> Search:
    """A search that has seen every second subset of the units, without noise."""
    search = start_search(np.array(units), np.array([scores]), np.arange(7, 7 + len(units)), PLAN)
    removed = (np.arange(1, 2 ** len(worth), 2)[:, None] >> np.arange(len(worth))) % 2 == 1
    return learn(search, removed, removed @ np.array(worth))


def test_tokens_of_a_word_differ_as_in_the_map_and_sum_to_the_word() -> None:
    units, scores = [-1, 0, 0, 1, 2, 3, 4, -1], [0.0, 3.0, 1.0, 1.0, -2.0, 0.5, -1.0, 0.0]
    search = known_search(units, scores, [2.0, 0.5, -1.0, 0.25, -0.5])  # half of the map
    tokens = share_among_tokens(search.process.effects, search, np.array(units))
    assert tokens[1] + tokens[2] == pytest.approx(search.process.effects[0])
    (slope,) = search.process.slopes
    assert tokens[1] - tokens[2] == pytest.approx(slope * (3 - 1) / 4)  # the largest word has 4
    assert slope == pytest.approx(2, rel=0.1)
    assert tokens[[0, 7]].tolist() == [0, 0]


def test_words_are_removed_in_the_order_of_their_effect_per_token() -> None:
    """The first word has the largest effect, but four tokens; the second has the largest effect per token."""
    search = known_search([0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], [0.0] * 12, [4.0, 3.0, *[0.1] * 7])
    drawn = np.concatenate([_candidates(replace(search, n_drawn=32 * n), 0) for n in range(4)])
    alone = [removed for removed in drawn if removed.sum() == 1]
    assert alone
    assert all(removed[1] for removed in alone)


# Words that act together.


def negated(removed: NDArray[np.bool_]) -> float:
    """Like "not bad": without either of the first two words the label flips, without both it does not."""
    first, second = bool(removed[0]), bool(removed[1])
    return {(False, False): 3.0, (True, False): -4.0, (False, True): -1.0, (True, True): 3.0}[first, second] - float(
        removed[2]
    )


def test_words_that_act_together_are_found_and_measured() -> None:
    found = explain(GlassBox(trace_of(WORDS), negated))
    (confidence,) = found.confidence
    assert confidence is not None
    (interaction,) = confidence.interactions
    assert interaction.units == ((1,), (2,))
    assert interaction.effect == pytest.approx(-11, abs=0.1)  # 0 together, 7 and 4 alone
    assert interaction.low <= interaction.effect <= interaction.high < 0
    assert [one.tokens for one in interaction.measured] == [(1,), (2,), (1, 2)]
    outputs = [one.output for one in interaction.measured]
    assert outputs == pytest.approx([1 / (1 + np.exp(-x)) for x in (-4, -1, 3)])
    assert confidence.additivity is not None
    assert confidence.predicted is not None
    assert confidence.additivity < 0.5
    assert confidence.predicted > 0.95
    # The mean over the removals of the other, of which 35 % are removed: 7 - 0.35 * 11 and 4 - 0.35 * 11.
    assert found.tokens[0, 1:4].tolist() == pytest.approx([3.15, 0.15, 1.0], abs=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_words_that_add_up_do_not_act_together(noise: float) -> None:
    (confidence,) = explain(glass_box(noise=noise)).confidence
    assert confidence is not None
    assert confidence.interactions == ()


def test_only_the_interactions_that_help_to_predict_are_kept() -> None:
    """The second one is as certain, but a hundredth as strong."""
    (confidence,) = explain(
        GlassBox(trace_of(WORDS), lambda gone: negated(gone) + 0.1 * float(gone[4] and gone[5]))
    ).confidence
    assert confidence is not None
    assert [interaction.units for interaction in confidence.interactions] == [((1,), (2,))]


def test_the_check_leaves_out_punctuation_and_words_that_are_uncertain() -> None:
    worth, ids = [5.0, 3.0, 0.1, 0.1, 0.1, -2.0, 0.1, 4.0], [98, 12, 13, 14, 15, 16, 17, 18]
    found = explain(glass_box(worth, ids, noise=1.0))
    (confidence,) = found.confidence
    assert confidence is not None
    assert confidence.check is not None
    positive = [place for place in range(1, 9) if found.tokens[0, place] > 0]
    certain = [place for place in positive if confidence.low[place] > 0]
    assert len(certain) < len(positive)
    assert confidence.check.tokens == tuple(place for place in certain if place != 1) == (2, 8)


def test_passes_with_a_gradient_count_as_three_evaluations() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")
    text = "the film was slow and the music was rare but touching"
    found = {prior: wt.explain(subject, text, wt.method("posterior", prior=prior)) for prior in ("none", "attcat")}
    answers = {prior: next(iter(of_prior[0].values())).confidence for prior, of_prior in found.items()}
    assert {prior: trust.n_answers for prior, trust in answers.items() if trust} == {"none": 64, "attcat": 61}
    three = wt.method("posterior", prior="attcat+attn-lrp+integrated-gradients", budget=170)
    (record,) = wt.explain(subject, text, three)[0].values()
    assert record.confidence is not None
    assert record.confidence.n_answers == 170 - 3 * (1 + 1 + 51)  # the pass that is shared, and their own


def test_long_texts_start_from_integrated_gradients() -> None:
    """Alone and in a batch with short texts, whose scores do not change."""
    subject, method = wt.load(), wt.method("posterior")
    tiny, short = "the film was slow", "the film was slow and the music was rare but touching"
    long = " ".join(["the film was slow and rare"] * 11)
    together = [result[method.label] for result in wt.explain(subject, [tiny, short, long], method)]
    (alone,) = wt.explain(subject, [short], method)
    assert together[1].scores == pytest.approx(alone[method.label].scores, abs=1e-3)
    answers = [record.confidence.n_answers for record in together if record.confidence]
    assert answers == [15, 64 - 3, 64 - 3 * 9]  # all subsets; maps of one pass; one for each step and the baseline


def test_integrated_gradients_leave_half_of_the_budget_for_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, long = wt.load(), " ".join(["the film was slow and rare"] * 11)
    (record,) = wt.explain(subject, long, wt.method("posterior", budget=54))[0].values()
    assert record.confidence is not None
    assert record.confidence.n_answers == 54 - 3 * 9
    monkeypatch.setattr(IntegratedGradients, "__call__", lambda *_: pytest.fail("needs integrated gradients"))
    (record,) = wt.explain(subject, long, wt.method("posterior", budget=53))[0].values()
    assert record.confidence is not None
    assert record.confidence.n_answers == 53 - 3  # maps of one pass
