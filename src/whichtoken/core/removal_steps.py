"""Removal steps: how much of an input is removed at each step of a curve, by the name of a grid. No torch.

`tenths`: 10, 20 .. 90 %. `tenths-to-all`: 10, 20 .. 100 %, as in AttCAT's paper. `twentieths`: 5, 10 .. 100 %, as in
TokenTM's paper. `all`: unit by unit. `eraser`: the highest 1, 5, 10, 20 and 50 %, at least one unit, removed (MoRF) or
kept (LeRF), as in ERASER. `top`: the highest 1, 3, 5 and 10 units, as far as there are enough. Other grids can be
registered; those of the papers' code are in `reproduce`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from whichtoken.errors import BadSetting

ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
TOP = (1, 3, 5, 10)
OF_METRICS = ("eraser", "top")  # grids that metrics of their own choose; a benchmark's settings cannot


@dataclass(frozen=True)
class Steps:
    """The steps of a curve; the first is the whole input."""

    removed: tuple[float, ...]  # fractions, as the grid defines them
    counts: tuple[int, ...]


class Grid(Protocol):
    """Removal steps for inputs with `n_units` removable units and `n_fixed` tokens that always stay."""

    @property
    def words(self) -> str:
        """Return which tokens the steps are fractions of."""
        return "the content tokens"

    @property
    def same_for_every_order(self) -> bool:
        """True if the steps do not depend on scores, so that the best and worst order can be searched for."""
        return True

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps: ...

    def n_spared(self, ranked: Sequence[float], fixed: Sequence[float]) -> int:
        """Return how many of the last units are never removed, given the scores of all units and the fixed tokens."""
        return 0

    def can_give(self, removed: Sequence[float], order: str) -> bool:
        """Return whether `steps` can return these fractions: if not, a stored curve was cut or changed."""
        return True


@dataclass(frozen=True)
class Shares(Grid):
    """The same fractions for every input."""

    shares: tuple[float, ...]

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        return steps_at(self.shares, n_units)

    def can_give(self, removed: Sequence[float], order: str) -> bool:
        return tuple(removed) == self.shares


@dataclass(frozen=True)
class Each(Grid):
    """Unit by unit."""

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        return Steps(tuple(k / n_units for k in range(n_units + 1)), tuple(range(n_units + 1)))

    def can_give(self, removed: Sequence[float], order: str) -> bool:
        return len(removed) > 1 and tuple(removed) == self.steps(len(removed) - 1, 0, order).removed


@dataclass(frozen=True)
class Eraser(Grid):
    """Remove the highest few units (MoRF), or keep only those (LeRF)."""

    @property
    def same_for_every_order(self) -> bool:
        return False

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        tops = [(share, math.ceil(share * n_units - 1e-9)) for share in ERASER]  # the product may be rounded up
        kept = [(1 - share, n_units - count) for share, count in reversed(tops)]
        pairs = kept if order == "lerf" else tops
        return Steps((0.0, *(share for share, _ in pairs)), (0, *(count for _, count in pairs)))

    def can_give(self, removed: Sequence[float], order: str) -> bool:
        return tuple(removed) == self.steps(1, 0, order).removed


@dataclass(frozen=True)
class Top(Grid):
    """The highest few units, by their number; an input of fewer units has fewer steps."""

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        counts = (0, *(count for count in TOP if count <= n_units))
        return Steps(tuple(count / n_units for count in counts), counts)

    def can_give(self, removed: Sequence[float], order: str) -> bool:
        return len(removed) > 1 and tuple(removed) == self.steps(round(1 / (removed[1] or 1)), 0, order).removed


GRIDS: dict[str, Grid] = {
    "tenths": Shares(tuple(k / 10 for k in range(10))),
    "twentieths": Shares(tuple(k / 20 for k in range(21))),
    "tenths-to-all": Shares(tuple(k / 10 for k in range(11))),
    "all": Each(),
    "eraser": Eraser(),
    "top": Top(),
}


def register_grid(name: str, grid: Grid) -> None:
    GRIDS[name] = grid


def find_grid(name: str) -> Grid:
    if name not in GRIDS:
        raise BadSetting("grid", name, f"one of {', '.join(GRIDS)}")
    return GRIDS[name]


def steps_at(shares: tuple[float, ...], total: int) -> Steps:
    return Steps(shares, tuple(round(share * total) for share in shares))
