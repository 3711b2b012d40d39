"""Posterior: the regression by hand and slowly, and what the search must do on models whose effects are known."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import t as student_t
from tests.probes import SilentProbe
from tests.tiny import KINDS, model_of, question_subject
from torch import Tensor

import whichtoken as wt
from whichtoken.core.additive import BASE, FLOOR, LEANS, NOISES, Answers, fit_effects
from whichtoken.core.estimates import _student_quantile, share_among_tokens
from whichtoken.core.questions import Search, SearchPlan, _candidates, learn, start_search
from whichtoken.core.trace import Scores, Trace
from whichtoken.errors import BadSetting
from whichtoken.methods.posterior import Posterior
from whichtoken.render.trust import describe_trust

WORDS = [11, 12, 13, 14, 15, 16, 17, 18]  # token ids
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


def test_closed_form_of_three_words_by_hand() -> None:
    """Each word was removed once, alone; y = (2, -1, 0). Without a map, D = C = I.

    So w = y / (1 + l), the squared scale is t² l / (1 + l), t² = (FLOOR² + 5 / (1 + l)) / 4, and the weight of a noise
    level, (1 + l)^-1 (1 + l)^(-3/2) (FLOOR² + 5 / (1 + l))^-2, is proportional to (1 + l)^(-1/2).
    """
    drops = np.array([2.0, -1.0, 0.0])
    found = fit_effects(Answers(np.eye(3, dtype=bool), drops), np.zeros(3))
    weights = (1 + NOISES) ** -0.5 / ((1 + NOISES) ** -0.5).sum()
    assert found.mean == pytest.approx(drops * (weights / (1 + NOISES)).sum(), rel=1e-6)
    assert found.mean[0] > 1.6  # without other evidence, answers are mostly believed
    scales = (FLOOR**2 + 5 / (1 + NOISES)) / 4
    means = drops[:, None] / (1 + NOISES)
    variance = weights @ (scales * NOISES / (1 + NOISES) + (means - found.mean[:, None]) ** 2).T
    assert found.spread == pytest.approx(np.sqrt(variance), rel=1e-6)
    assert found.freedom == 4
    assert found.additivity is None  # no answer says anything about another word


@pytest.mark.parametrize("n_questions", [3, 5, 12])
def test_regression_written_slowly(n_questions: int) -> None:
    generator = np.random.default_rng(n_questions)
    removed = generator.random((n_questions, 5)) < 0.5
    prior, drops = np.array([1.0, -0.5, 0.2, 0.0, 0.1]), generator.standard_normal(n_questions) + removed @ WORTH[:5]
    design = removed.astype(float)
    total, mean, second, residuals = 0.0, np.zeros(5), np.zeros(5), np.zeros(n_questions)
    for shape, lean, noise in product((np.ones(5), BASE + np.abs(prior)), LEANS, NOISES):
        before = np.diag(shape**2) + lean**2 * np.outer(prior, prior)
        gram = design @ before @ design.T + noise * np.eye(n_questions)
        inverse = np.linalg.inv(gram)
        if lean and design @ prior @ inverse @ drops < 0:
            continue  # the answers contradict the map
        misfit = FLOOR**2 + drops @ inverse @ drops
        weight = np.exp(-0.5 * np.linalg.slogdet(gram)[1]) * misfit ** (-(n_questions + 1) / 2) / (1 + noise)
        effects = before @ design.T @ inverse @ drops
        after = before - before @ design.T @ inverse @ design @ before
        total += weight
        mean += weight * effects
        second += weight * (misfit / (n_questions + 1) * np.diag(after) + effects**2)
        for left_out in range(n_questions):
            others = np.arange(n_questions) != left_out
            weights = np.linalg.solve(gram[np.ix_(others, others)], drops[others])
            residuals[left_out] += weight * (drops[left_out] - gram[left_out, others] @ weights)
    found = fit_effects(Answers(removed, drops), prior)
    assert found.mean == pytest.approx(mean / total, abs=1e-5)
    assert found.spread == pytest.approx(np.sqrt(second / total - (mean / total) ** 2), abs=1e-5)
    known = [row for row in range(n_questions) if all(removed[:, i].sum() > 1 for i in np.flatnonzero(removed[row]))]
    left = np.mean((residuals[known] / total) ** 2) / np.var(drops[known]) if len(known) > 3 else None
    assert found.additivity == (None if left is None else pytest.approx(max(0, 1 - left), abs=1e-5))


def test_draws_have_the_mean_and_spread_of_the_posterior() -> None:
    generator = np.random.default_rng(0)
    removed = generator.random((9, 4)) < 0.5
    found = fit_effects(
        Answers(removed, removed @ WORTH[:4] + generator.standard_normal(9)), np.array([1, 0.5, 0, 0.2])
    )
    draws = found.draw(generator.standard_normal((40_000, 4)), generator.standard_normal((40_000, 11)))
    assert draws.mean(0) == pytest.approx(found.mean, abs=0.02)
    assert draws.std(0) == pytest.approx(found.spread, rel=0.03)


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
    """They also allow for words that interact, so they are wider than such a model needs."""
    covered = []
    for seed in range(30):
        worth = np.random.default_rng([seed, 1]).standard_normal(8)
        ids = (100 * seed + np.arange(3, 11)).tolist()  # other words, so that the noise differs
        (confidence,) = explain(glass_box(worth.tolist(), ids, noise=0.5), seed=seed).confidence
        assert confidence is not None
        inside = (np.array(confidence.low[1:-1]) <= worth) & (worth <= np.array(confidence.high[1:-1]))
        covered.append(inside.mean())
    assert np.mean(covered) > 0.9


def test_no_question_is_asked_twice() -> None:
    box = glass_box(noise=1.0)
    explain(box, budget=100)
    asked = box.asked[:-1]  # the last one is the check
    assert len(asked) == len(set(asked))
    assert len(asked) > 90


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
    with pytest.raises(BadSetting, match="does not remove words itself"):
        wt.method("posterior", prior=prior)


def test_budget_0_gives_the_priors_scores() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")
    results = wt.explain(subject, ["the film was slow"], methods=[wt.method("posterior", budget=0), "att-x-att-grads"])
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
    assert _student_quantile(freedom) == pytest.approx(student_t.ppf(0.95, freedom), rel=error)


PLAN = SearchPlan(budget=300, per_round=8, proposal="thompson", explore=0.0, seed=0)


def known_search(units: list[int], scores: list[float], worth: list[float]) -> Search:
    """A search that has seen every second subset of the units, without noise."""
    search = start_search(np.array(units), np.array(scores), np.arange(7, 7 + len(units)), PLAN)
    removed = (np.arange(1, 2 ** len(worth), 2)[:, None] >> np.arange(len(worth))) % 2 == 1
    return learn(search, removed, removed @ np.array(worth))


def test_tokens_of_a_word_differ_as_in_the_map_and_sum_to_the_word() -> None:
    units = [-1, 0, 0, 1, -1]
    search = known_search(units, [0.0, 3.0, 1.0, 1.0, 0.0], [2.0, 0.5])
    assert search.effects is not None
    tokens = share_among_tokens(search.effects.mean, search, np.array(units))
    assert tokens[1] + tokens[2] == pytest.approx(search.effects.mean[0])
    assert tokens[1] - tokens[2] == pytest.approx(search.effects.multiple * (3 - 1) / 4)  # the largest word has 4
    assert search.effects.multiple > 0
    assert tokens[[0, 4]].tolist() == [0, 0]


def test_words_are_removed_in_the_order_of_their_effect_per_token() -> None:
    """The first word has the largest effect, but four tokens; the second has the largest effect per token."""
    search = known_search([0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], [0.0] * 12, [4.0, 3.0, *[0.1] * 7])
    drawn = np.concatenate([_candidates(replace(search, n_rounds=n), PLAN, 0) for n in range(4)])
    alone = [removed for removed in drawn if removed.sum() == 1]
    assert alone
    assert all(removed[1] for removed in alone)
