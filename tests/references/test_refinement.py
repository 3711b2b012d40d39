"""Refinement on a glass-box probe: each word has a known effect, so every drop can be worked out by hand."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.probes import SilentProbe
from torch import Tensor

from whichtoken.core.trace import Trace
from whichtoken.methods.contrast_cat.racing import ROUNDS, fill_outputs, learn_outputs, propose_sets, start_race
from whichtoken.methods.contrast_cat.refinement import Maps, Refinement, combine

HOW = Refinement(steps="each", steps_of="content", threshold="mean+std", keep_last_token=False, fallback="all")


def trace_of(special: list[list[int]], lengths: list[int]) -> Trace:
    """[CLS] words [SEP], as many tokens as the longest; `special` marks further special tokens."""
    longest = max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    added = torch.tensor(special).bool() if special else torch.zeros_like(mask)
    zeros = torch.zeros(len(lengths), dtype=torch.long)
    blank = torch.zeros(len(lengths), longest, dtype=torch.float64)
    return Trace(zeros[:, None].expand(-1, longest), mask, added, blank, blank[:, :2], blank[:, 0], zeros, {}, {})


@dataclass
class Additive(SilentProbe):
    """p = 1 - the sum of what the deleted words are worth."""

    worth: Tensor
    special: Tensor

    def keep(self, patterns: Tensor) -> Tensor:
        gone = ~(patterns | self.special[:, None])
        self.asked = patterns
        return 1 - (gone * self.worth[:, None]).sum(-1)

    def distinct(self, patterns: Tensor) -> Tensor:
        return torch.tensor([len({tuple(p.tolist()) for p in row}) for row in patterns])


def run(maps: list[Any], worth: list[Any], how: Refinement | None = HOW, **options: Any) -> Any:
    values = torch.tensor(maps, dtype=torch.float64)[None]
    trace = trace_of(options.get("special", []), [len(worth)])
    probe = Additive(torch.tensor([worth], dtype=torch.float64), trace.special)
    real = torch.ones(values.shape[:2], dtype=torch.bool)
    found = combine(Maps(values, real, options.get("scaled", False)), trace, probe, how)
    return found.scores[0].tolist(), found.details[0], probe


def test_the_map_that_deletes_best_is_kept() -> None:
    worth = [0.6, 0.3, 0.1, 0.0]
    maps = [[4, 3, 2, 1], [1, 2, 3, 4], [2, 1, 4, 3], [1, 4, 2, 3]]
    scores, details, _ = run(maps, worth)
    expected = [(0.6 + 0.9 + 1 + 1) / 4, (0 + 0.1 + 0.4 + 1) / 4, (0.1 + 0.1 + 0.7 + 1) / 4, (0.3 + 0.3 + 0.4 + 1) / 4]
    assert details["drops"] == pytest.approx(expected)
    mean = sum(expected) / 4
    spread = (sum((e - mean) ** 2 for e in expected) / 4) ** 0.5
    assert details["threshold"] == pytest.approx(mean + spread)
    assert details["survivors"] == [0]
    assert scores == maps[0]
    assert not details["fallback"]


@pytest.mark.parametrize(("fallback", "expected"), [("all", 3.7), ("best", 4.0)])
def test_when_no_map_survives_all_or_the_best_are_averaged(fallback: Any, expected: float) -> None:
    """One bad map among ten: the others lie below mean + std."""
    maps = [[1.0, 4.0]] + [[4.0, 1.0]] * 9
    scores, details, _ = run(maps, [1.0, 0.0], Refinement("each", "content", "mean+std", False, fallback))
    assert details["fallback"]
    assert details["survivors"] == []
    assert scores[0] == pytest.approx(expected)


@pytest.mark.parametrize("scale", [1.0, 1e3])  # of a probability, and of predicted values
def test_two_groups_of_equal_size_do_not_depend_on_rounding(scale: float) -> None:
    """mean + std is then exactly the better group's drop, so that the last bit would decide."""
    for worth in (scale * k / 97 for k in range(1, 97)):
        scores, details, _ = run([[2.0, 1.0], [1.0, 2.0]] * 3, [worth, 0.0])
        assert details["survivors"] == [0, 2, 4]
        assert scores == [2.0, 1.0]


def test_a_map_that_misses_the_threshold_by_the_rounding_of_float32_does_not_survive() -> None:
    """As in the authors' code, which compares with a plain >=."""
    worth, just_less = torch.tensor([0.5, 0.5 - 1e-6, 0.0], dtype=torch.float64), 0.5 - 0.5e-6
    maps = torch.tensor([[[3.0, 2.0, 1.0], [2.0, 3.0, 1.0]]], dtype=torch.float32)
    trace = trace_of([], [3])
    how = Refinement((1 / 3,), "content", just_less, False, "all")
    found = combine(Maps(maps, torch.ones(1, 2).bool(), False), trace, Additive(worth[None], trace.special), how)
    assert found.details[0]["survivors"] == [0]


def test_maps_that_delete_alike_all_survive() -> None:
    _, details, _ = run([[3.0, 2.0, 1.0], [30.0, 20.0, 10.0]], [0.1, 0.2, 0.3])
    assert details["survivors"] == [0, 1]
    assert details["evaluations"] == 4  # everything, and three steps that both share


@pytest.mark.parametrize(
    ("threshold", "survivors"), [("top-1", [0]), ("top-2", [0, 2]), ("top-9", [0, 1, 2]), (0.5, [0, 2])]
)
def test_other_thresholds(threshold: Any, survivors: list[int]) -> None:
    maps = [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 3.0, 1.0]]
    how = Refinement("each", "content", threshold, False, "all")
    assert run(maps, [0.4, 0.3, 0.1], how)[1]["survivors"] == survivors


def test_a_tie_at_the_last_place_of_top_k_takes_all() -> None:
    how = Refinement("each", "content", "top-1", False, "all")
    assert run([[2.0, 1.0], [4.0, 3.0], [1.0, 2.0]], [0.5, 0.0], how)[1]["survivors"] == [0, 1]


def deleted(steps: Any, of: Any, words: int, last: bool = False) -> list[list[int]]:
    """Positions deleted at each step, of [CLS] words [SEP] with falling scores."""
    n = words + 2
    special = [[1] + [0] * words + [1]]
    scores = [0.0] + [float(n - i) for i in range(words)] + [-1.0 if not last else 0.5]
    _, _, probe = run([scores], [0.0] * n, Refinement(steps, of, "mean+std", last, "all"), special=special)
    return [[i for i, kept in enumerate(pattern) if not kept] for pattern in probe.asked[0].tolist()[1:]]


def test_steps_one_by_one() -> None:
    assert deleted("each", "content", 3) == [[1], [1, 2], [1, 2, 3]]


def test_steps_are_shares_of_content_or_of_all_tokens() -> None:
    assert [len(step) for step in deleted(9, "content", 18)] == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert [len(step) for step in deleted(9, "all", 18)] == [2, 4, 7, 9, 11, 13, 16, 18, 18]
    assert [len(step) for step in deleted((0.5, 0.1), "content", 20)] == [2, 10]


def test_halves_round_to_even_as_numpy_does() -> None:
    assert [len(step) for step in deleted(2, "content", 5)] == [2, 5]
    assert [len(step) for step in deleted(2, "content", 7)] == [4, 7]


def test_a_text_shorter_than_the_steps_has_each_step_once() -> None:
    assert [len(step) for step in deleted(9, "content", 2)] == [0, 0, 1, 0, 0, 0, 2, 0, 0]
    _, details, _ = run([[2.0, 1.0]], [0.5, 0.25], Refinement(9, "content", "mean+std", False, "all"))
    assert details["drops"] == pytest.approx([(0.5 + 0.75) / 2])  # steps that delete nothing new do not count
    assert details["evaluations"] == 3


def test_the_token_ranked_last_is_never_deleted_if_asked_so() -> None:
    special = [[1, 0, 0, 0, 1]]
    how = Refinement("each", "content", "mean+std", True, "all")
    _, _, probe = run([[9.0, 3.0, 1.0, 2.0, 8.0]], [0.0] * 5, how, special=special)
    assert probe.asked[0, -1].tolist() == [True, False, True, False, True]  # the lowest word
    _, _, probe = run([[0.0, 3.0, 1.0, 2.0, 8.0]], [0.0] * 5, how, special=special)
    assert probe.asked[0, -1].tolist() == [True, False, False, False, True]  # a special token is the last


def test_ties_go_first_come_first_also_when_only_rounding_tells_them_apart() -> None:
    for noise in (0.0, 1e-17, -1e-17):
        _, _, probe = run([[1.0, noise, 0.0, 2.0]], [0.0] * 4)
        assert probe.asked[0, 1:].int().tolist() == [[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]


def test_a_map_without_contrast_is_no_obstacle() -> None:
    scores, details, _ = run([[0.0, 0.0], [0.0, 0.0]], [0.5, 0.5], scaled=True)
    assert scores == [0.0, 0.0]
    assert details["survivors"] == [0, 1]


def test_scaling_before_and_after() -> None:
    scores, _, _ = run([[2.0, 0.0, 1.0], [10.0, 30.0, 20.0]], [0.0] * 3, None, scaled=True)
    assert scores == [0.0, 0.0, 0.0]  # 1 0 1/2 and 0 1 1/2 have the mean 1/2 1/2 1/2
    scores, _, _ = run([[2.0, 0.0, 1.0], [10.0, 30.0, 10.0]], [0.0] * 3, None, scaled=True)
    assert scores == [1.0, 1.0, 0.0]
    assert run([[2.0, 0.0], [4.0, 0.0]], [0.0] * 2, None)[0] == [3.0, 0.0]


@given(st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=4), min_size=1, max_size=6), st.integers(0, 3))
def test_texts_with_fewer_maps_are_not_touched_by_the_padding(maps: list[list[int]], more: int) -> None:
    worth = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)
    values = torch.tensor([maps], dtype=torch.float64)
    trace = trace_of([], [4])
    probe = Additive(worth, trace.special)
    padded = torch.cat([values, torch.full((1, more, 4), 7.0, dtype=torch.float64)], 1)
    real = torch.arange(len(maps) + more)[None] < len(maps)
    alone = combine(Maps(values, real[:, : len(maps)], False), trace, probe, HOW)
    together = combine(Maps(padded, real, False), trace, probe, HOW)
    torch.testing.assert_close(alone.scores, together.scores)
    for key, value in alone.details[0].items():
        assert together.details[0][key] == pytest.approx(value)


@dataclass
class Counting(Additive):
    """Words interact: a pair of neighbours counts only if both are deleted. Counts what is evaluated of each text."""

    evaluated: dict[int, set[tuple[bool, ...]]] = field(default_factory=dict)
    calls: int = 0

    def keep(self, patterns: Tensor) -> Tensor:
        gone = ~(patterns | self.special[:, None])
        self.calls += 1
        for number, row in enumerate(patterns.tolist()):
            self.evaluated.setdefault(number, set()).update(map(tuple, row))
        pairs = (gone[:, :, 1:] & gone[:, :, :-1]) * self.worth[:, None, 1:]
        return torch.sigmoid(2 - 3 * (gone * self.worth[:, None]).sum(-1) - 4 * pairs.sum(-1))


def race(budget: int | None, lengths: list[int], seed: int = 0, steps: Any = 9) -> tuple[Any, Counting]:
    """Maps of texts of these lengths, padded to the longest; a text has the same maps in every batch."""
    source = [torch.Generator().manual_seed(seed + 1000 * length) for length in lengths]
    longest, worth = max(lengths), torch.zeros(len(lengths), max(lengths), dtype=torch.float64)
    values = torch.zeros(len(lengths), 30, longest, dtype=torch.float64)
    for row, (length, generator) in enumerate(zip(lengths, source, strict=True)):
        worth[row, :length] = torch.rand(length, generator=generator, dtype=torch.float64) / 3
        noise = torch.randn(30, length, generator=generator, dtype=torch.float64)
        values[row, :, :length] = worth[row, :length] + 0.1 * noise
    trace = trace_of([], lengths)
    probe = Counting(worth, trace.special)
    how = Refinement(steps, "content", "mean+std", False, "best", budget)
    return combine(Maps(values, torch.ones(values.shape[:2]).bool(), False), trace, probe, how), probe


@pytest.mark.parametrize("budget", [2, 3, 10, 40])
def test_no_text_takes_more_evaluations_than_the_budget(budget: int) -> None:
    found, probe = race(budget, [6, 14, 20])
    for row in range(3):
        assert len(probe.evaluated[row]) == found.details[row]["evaluations"] <= budget
    assert max(map(len, probe.evaluated.values())) == budget
    assert probe.calls <= 4  # the texts of a batch are evaluated together


@pytest.mark.parametrize("steps", [9, "each", (0.1, 0.5)])
def test_with_a_budget_for_everything_a_race_is_exact(steps: Any) -> None:
    exact, race_all = race(None, [5, 12], steps=steps)[0], race(10**4, [5, 12], steps=steps)[0]
    assert exact.scores.tolist() == race_all.scores.tolist()
    assert exact.shares.tolist() == race_all.shares.tolist()
    assert exact.details == race_all.details


@pytest.mark.parametrize("steps", [9, "each"])
def test_a_race_depends_neither_on_the_batch_nor_on_padding(steps: Any) -> None:
    together = race(25, [5, 20, 13], steps=steps)[0]
    for row, length in enumerate([5, 20, 13]):
        alone = race(25, [length], steps=steps)[0]
        for name in ("survivors", "fallback", "evaluations"):
            assert alone.details[0][name] == together.details[row][name]
        assert alone.details[0]["drops"] == pytest.approx(together.details[row]["drops"], rel=1e-12)
        assert alone.scores[0].tolist() == together.scores[row, :length].tolist()


def test_a_race_finds_maps_almost_as_good_as_the_best_with_a_third_of_the_evaluations() -> None:
    lost, worst, used, needed = 0.0, 0.0, 0, 0
    for seed in range(6):
        exact, raced = race(None, [20], seed)[0], race(65, [20], seed)[0]
        drops = torch.tensor(exact.details[0]["drops"], dtype=torch.float64)
        lost += float(drops @ exact.shares[0] - drops @ raced.shares[0]) / 6
        worst += float(drops @ exact.shares[0] - drops.mean()) / 6
        used += raced.details[0]["evaluations"]
        needed += exact.details[0]["evaluations"]
        off = torch.tensor(raced.details[0]["drops"], dtype=torch.float64) - drops
        assert off.abs().mean() < 0.8 * drops.std()
    assert used < needed / 3
    assert lost < 0.2 * worst  # of what the refinement gains over all maps


def test_a_race_evaluates_most_of_the_maps_that_delete_best() -> None:
    worth = np.random.default_rng(0).random(20)
    maps = worth + 0.3 * np.random.default_rng(1).normal(size=(30, 20))
    ranks = np.argsort(np.argsort(-maps, axis=1), axis=1)
    deleted = ranks[:, None] < np.arange(2, 20, 2)[:, None]
    running = start_race(deleted, maps, 0.0, 60)
    for turn in range(len(ROUNDS)):
        chosen = propose_sets(running, turn)
        running = learn_outputs(running, chosen, -(running.sets[chosen] @ worth))
    share = running.known[running.places].mean(1)
    best = np.argsort(-(deleted @ worth).mean(1))
    assert running.known.sum() == 60
    assert share[best[:6]].mean() > 0.8
    assert share[best[-6:]].mean() < 0.4
    assert np.abs(fill_outputs(running) + deleted @ worth).max() < 0.2 * worth.sum()


def test_maps_that_are_padding_take_no_part_in_a_race() -> None:
    worth = torch.rand(1, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 3
    values = worth[:, None] + 0.1 * torch.randn(1, 10, 12, generator=torch.Generator().manual_seed(1)).double()
    trace, how = trace_of([], [12]), Refinement(9, "content", "mean+std", False, "best", 20)
    padded = torch.cat([values, torch.full((1, 3, 12), 99.0, dtype=torch.float64)], 1)
    one, two = (
        combine(Maps(maps, torch.arange(maps.shape[1])[None] < 10, False), trace, Counting(worth, trace.special), how)
        for maps in (values, padded)
    )
    assert one.details == two.details
    assert one.scores.tolist() == two.scores.tolist()
    assert two.shares[0, 10:].tolist() == [0, 0, 0]


def test_predicted_values_can_race() -> None:
    """They have no log-odds."""

    class Values(Counting):
        def keep(self, patterns: Tensor) -> Tensor:
            return 100 * super().keep(patterns) - 300

    worth = torch.rand(1, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 3
    values = worth[:, None] + 0.1 * torch.randn(1, 30, 12, generator=torch.Generator().manual_seed(1)).double()
    trace = trace_of([], [12])
    drops = []
    for budget in (None, 60):
        how = Refinement(9, "content", "mean+std", False, "best", budget)
        maps = Maps(values, torch.ones(1, 30).bool(), False)
        drops.append(torch.tensor(combine(maps, trace, Values(worth, trace.special), how).details[0]["drops"]))
    assert torch.corrcoef(torch.stack(drops))[0, 1] > 0.6
