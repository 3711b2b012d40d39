"""Removal steps: how much of an input is gone at each step of a curve, by the name of a grid. No torch.

`tenths`: 10, 20 .. 90 %. `twentieths`: 5, 10 .. 100 %, as TokenTM's paper. `all`: unit by unit. `eraser`: the highest
1, 5, 10, 20 and 50 %, at least one, removed or (least first) kept, as ERASER does. Others can be registered; those of
the papers' code are in `reproduce`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from whichtoken.errors import BadSetting

ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class Steps:
    """The whole input first, with nothing removed."""

    removed: tuple[float, ...]  # fractions, as the grid names them
    counts: tuple[int, ...]


class Grid(Protocol):
    """Steps of `n_units` that can go, beside `n_fixed` tokens that always stay."""

    @property
    def words(self) -> str:
        """Of which tokens the steps are shares."""
        return "the content tokens"

    @property
    def same_for_every_order(self) -> bool:
        """The steps do not depend on scores, so that the best and the worst order can be searched for."""
        return True

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps: ...

    def n_spared(self, ranked: Sequence[float], fixed: Sequence[float]) -> int:
        """How many of the units that are ranked last never go, by the scores of all units and of fixed tokens."""
        return 0


@dataclass(frozen=True)
class Shares(Grid):
    """The same fractions for every input."""

    shares: tuple[float, ...]

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        return steps_at(self.shares, n_units)


@dataclass(frozen=True)
class Each(Grid):
    """Unit by unit."""

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        return Steps(tuple(k / n_units for k in range(n_units + 1)), tuple(range(n_units + 1)))


@dataclass(frozen=True)
class Eraser(Grid):
    """The highest few removed; where the least relevant go first, the highest few kept."""

    @property
    def same_for_every_order(self) -> bool:
        return False

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        tops = [(share, math.ceil(share * n_units - 1e-9)) for share in ERASER]  # 0.05 * 20 is a little over 1
        kept = [(1 - share, n_units - count) for share, count in reversed(tops)]
        pairs = kept if order == "lerf" else tops
        return Steps((0.0, *(share for share, _ in pairs)), (0, *(count for _, count in pairs)))


GRIDS: dict[str, Grid] = {
    "tenths": Shares(tuple(k / 10 for k in range(10))),
    "twentieths": Shares(tuple(k / 20 for k in range(21))),
    "all": Each(),
    "eraser": Eraser(),
}


def register_grid(name: str, grid: Grid) -> None:
    GRIDS[name] = grid


def grid_of(name: str) -> Grid:
    if name not in GRIDS:
        raise BadSetting("grid", name, f"one of {', '.join(GRIDS)}")
    return GRIDS[name]


def steps_at(shares: tuple[float, ...], total: int) -> Steps:
    return Steps(shares, tuple(round(share * total) for share in shares))
