"""The evaluation protocols of three papers: their steps, their metrics, and presets of `bench`.

Han et al. (Contrast-CAT, UAI 2025), Qiang et al. (AttCAT, NeurIPS 2022) and Song et al. (Mask-LRP, 2023) share one
deletion loop. It removes 11, 22 .. 100 % (unlike the figures), counts special tokens in these shares although they
stay, and never removes the last-ranked token, whether word or special token. docs/evaluation.md compares this with the
recommended protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whichtoken.bench._protocol import PRESETS
from whichtoken.bench.metrics import UP, BetweenClasses, CurveMetric, OtherClasses, ScoredInput, register_metric
from whichtoken.core.removal_steps import Grid, Steps, register_grid, steps_at
from whichtoken.metrics.curves import per_step
from whichtoken.metrics.ranks import kendall, score_table
from whichtoken.records import Curve
from whichtoken.reproduce.pooled import PooledAuc


@dataclass(frozen=True)
class Ninths(Grid):
    """The steps of the authors' loop. Steps that remove no more than the previous one are skipped."""

    @property
    def words(self) -> str:
        return "all tokens, special ones included"

    @property
    def same_for_every_order(self) -> bool:
        return False

    def steps(self, n_units: int, n_fixed: int, order: str) -> Steps:
        return ninths(n_units + n_fixed)

    def n_spared(self, ranked: Sequence[float], fixed: Sequence[float]) -> int:
        return int(all(score > ranked[-1] for score in fixed))


def ninths(total: int) -> Steps:
    steps = steps_at(tuple(k / 9 for k in range(10)), total)
    pairs = list(zip(steps.removed, steps.counts, strict=True))
    fresh = [pair for i, pair in enumerate(pairs) if not i or pair[1] != pairs[i - 1][1]]
    return Steps(tuple(share for share, _ in fresh), tuple(count for _, count in fresh))


def absolute_aopc(curve: Curve) -> float:
    """Return the mean of |p0 - p|, as in AttCAT's code; an increase then counts as a drop."""
    changes = per_step(curve, "aopc")[1:]
    return sum(map(abs, changes)) / len(changes)


def positions_tau(a: Sequence[float], b: Sequence[float]) -> float:
    """Return tau of the two lists of token positions, highest score first, as in AttCAT's and Contrast-CAT's code.

    This is not a rank correlation: it compares how the positions rise and fall along the two lists. The reverse
    ranking has about 0 instead of -1, and a tau-b of 0.93 becomes 0.5 or less. Use it only to reproduce their tables.
    """
    return kendall(*np.argsort(-score_table([a, b]), axis=1, kind="stable").tolist())


@dataclass(frozen=True)
class PositionsBetweenClasses(BetweenClasses):
    """Kendall's tau of position lists between two classes, over all tokens including special tokens.

    The other class is the following one, as in Contrast-CAT's paper. For two classes that is AttCAT's choice, too; its
    code for MNLI, with three, takes the previous class, and 1 for 0.
    """

    title: str = "Kendall's tau of positions, next class"
    about: str = (
        "Kendall's tau of the arrays of positions, as in the papers, between the explanations of the explained class "
        "and the next one (after the last, the first)"
    )
    between_classes: OtherClasses = "next"

    def value(self, scored: ScoredInput) -> float | None:
        if scored.following is None or min(len(set(side.scores)) for side in (scored.own, scored.following)) < 2:
            return None
        return positions_tau(scored.own.scores, scored.following.scores)


register_grid("ninths", Ninths())
register_metric(
    "absolute-aopc",
    CurveMetric(
        "AOPC",
        "mean absolute change of the probability over the steps",
        UP,
        absolute_aopc,
        steps="aopc",
        absolute=True,
        about_values="mean absolute change of the predicted value over the steps",
    ),
)
register_metric("positions-kendall", PositionsBetweenClasses())
register_metric("pooled-auc", PooledAuc())

PRESETS.update(
    {
        "contrast-cat": {
            "grids": ("ninths",),
            "perturbations": ("delete",),
            "metrics": ("aopc", "log-odds", "positions-kendall", "pooled-auc"),
            "sample": 2000,
        },
        "attcat": {
            "grids": ("ninths",),
            "target": "gold",
            "perturbations": ("delete", "pad"),
            "orders": ("morf",),
            "metrics": ("absolute-aopc", "log-odds", "positions-kendall"),
        },
        "attcat-paper": {  # as its text and figures have it, where its code differs
            "grids": ("tenths-to-all",),
            "perturbations": ("delete", "pad"),
            "orders": ("morf",),
            "metrics": ("aopc", "log-odds", "kendall", "positions-kendall"),
        },
        "mask-lrp": {
            "grids": ("ninths",),
            "target": "gold",
            "perturbations": ("pad",),
            "orders": ("morf",),
            "metrics": ("aopc", "log-odds"),
            "min_tokens": 20,
        },
    }
)
