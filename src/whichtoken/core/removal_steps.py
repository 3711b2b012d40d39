"""Grids: how many tokens are removed at each step of a curve. No torch.

`tenths`: 10, 20 .. 90 %. `twentieths`: 5, 10 .. 100 %, as TokenTM's paper. `ninths`: 11, 22 .. 100 %, which is what the
code of Contrast-CAT, AttCAT and Mask-LRP does, whatever their figures say. `all`: token by token. `eraser`: the highest
1, 5, 10, 20 and 50 %, at least one token, removed or (least first) kept, as ERASER does.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from whichtoken.errors import BadSetting

Grid = Literal["tenths", "ninths", "twentieths", "all", "eraser"]
GRIDS: tuple[str, ...] = get_args(Grid)
ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class Steps:
    """The whole text first, with nothing removed."""

    removed: tuple[float, ...]  # fractions, as the grid names them
    counts: tuple[int, ...]


def steps_of(grid: str, total: int, keeps_top: bool = False) -> Steps:
    """`total`: of how many tokens the steps are shares. `keeps_top`: the least relevant go first (for `eraser`)."""
    if grid == "tenths":
        return _shares(tuple(k / 10 for k in range(10)), total)
    if grid == "twentieths":
        return _shares(tuple(k / 20 for k in range(21)), total)
    if grid == "ninths":
        steps = _shares(tuple(k / 9 for k in range(10)), total)
        pairs = list(zip(steps.removed, steps.counts, strict=True))
        fresh = [pair for i, pair in enumerate(pairs) if not i or pair[1] != pairs[i - 1][1]]
        return Steps(tuple(share for share, _ in fresh), tuple(count for _, count in fresh))
    if grid == "all":
        return Steps(tuple(k / total for k in range(total + 1)), tuple(range(total + 1)))
    if grid == "eraser":
        tops = [(share, math.ceil(share * total - 1e-9)) for share in ERASER]  # 0.05 * 20 is a little over 1
        pairs = [(1 - share, total - count) for share, count in reversed(tops)] if keeps_top else tops
        return Steps((0.0, *(share for share, _ in pairs)), (0, *(count for _, count in pairs)))
    raise BadSetting("grid", grid, f"one of {', '.join(GRIDS)}")


def _shares(shares: tuple[float, ...], total: int) -> Steps:
    return Steps(shares, tuple(round(share * total) for share in shares))
