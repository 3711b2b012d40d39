"""How many tokens each step of a grid removes."""

import pytest

from whichtoken.core.removal_steps import GRIDS, Steps, find_grid
from whichtoken.errors import BadSetting
from whichtoken.reproduce.protocols import ninths  # which registers the papers' own grid


def steps_of(grid: str, total: int, order: str = "morf") -> Steps:
    """Where no token stays."""
    return find_grid(grid).steps(total, 0, order)


def test_the_grids_by_hand() -> None:
    assert steps_of("tenths", 20).counts == (0, 2, 4, 6, 8, 10, 12, 14, 16, 18)
    assert steps_of("tenths", 20).removed == tuple(k / 10 for k in range(10))
    assert steps_of("tenths-to-all", 20).counts == tuple(range(0, 21, 2))
    assert steps_of("tenths-to-all", 20).removed == tuple(k / 10 for k in range(11))
    assert steps_of("twentieths", 40).counts == tuple(range(0, 41, 2))
    assert steps_of("all", 4).counts == (0, 1, 2, 3, 4)
    assert steps_of("all", 4).removed == (0, 0.25, 0.5, 0.75, 1)
    # 17 tokens: 1.9, 3.8, 5.7, 7.6, 9.4, 11.3, 13.2, 15.1, 17
    assert steps_of("ninths", 17).counts == (0, 2, 4, 6, 8, 9, 11, 13, 15, 17)


def test_only_ninths_are_shares_of_all_tokens_also_of_those_that_stay() -> None:
    assert find_grid("ninths").steps(15, 2, "morf") == ninths(17) == steps_of("ninths", 17)
    for grid in GRIDS:
        assert (find_grid(grid).steps(15, 2, "morf") == steps_of(grid, 15)) == (grid != "ninths")


def test_ninths_leave_out_steps_that_remove_nothing_more() -> None:
    steps = steps_of("ninths", 4)
    assert steps.counts == (0, 1, 2, 3, 4)
    assert len(steps.removed) == len(steps.counts)
    assert steps.removed[1] == pytest.approx(2 / 9)


def test_eraser_removes_at_least_one_token_or_keeps_at_least_one() -> None:
    assert steps_of("eraser", 20).counts == (0, 1, 1, 2, 4, 10)
    assert steps_of("eraser", 20, "lerf").counts == (0, 10, 16, 18, 19, 19)
    assert steps_of("eraser", 20, "lerf").removed == pytest.approx((0, 0.5, 0.8, 0.9, 0.95, 0.99))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("total", [1, 2, 3, 7, 30, 512])
@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_steps_begin_with_the_whole_text_and_never_go_back(grid: str, total: int, order: str) -> None:
    steps = steps_of(grid, total, order)
    assert steps.counts[0] == steps.removed[0] == 0
    assert list(steps.counts) == sorted(steps.counts)
    assert list(steps.removed) == sorted(set(steps.removed))
    assert steps.counts[-1] <= total
    assert len(steps.counts) == len(steps.removed) > 1


def test_an_unknown_grid_is_refused() -> None:
    with pytest.raises(BadSetting, match="'elevenths' is not allowed; it must be one of tenths, twentieths"):
        find_grid("elevenths")
