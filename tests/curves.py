"""Curves and scores to measure: one by hand, and strategies for any."""

from dataclasses import replace

from hypothesis import strategies as st

from whichtoken.records import Curve
from whichtoken.targets import Class

CURVE = Curve("k", "morf", "delete", (0.0, 0.5, 1.0), (0.8, 0.4, 0.2), "a", Class(0), "m", {}, "model", "r", 0)
PROBABILITY = st.floats(0, 1)
FEW = st.integers(-3, 3).map(float)  # of few values, so that there are ties
PAIRS = st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.lists(FEW, min_size=n, max_size=n)] * 2))


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    removed = sorted(draw(st.sets(st.integers(1, 100), min_size=1, max_size=10)))
    probability = draw(st.lists(PROBABILITY, min_size=len(removed) + 1, max_size=len(removed) + 1))
    return replace(CURVE, removed=(0.0, *(share / 100 for share in removed)), probability=tuple(probability))


def of(*probability: float, key: str = "k") -> Curve:
    """A curve in equal steps."""
    n = len(probability)
    return replace(CURVE, key=key, removed=tuple(i / n for i in range(n)), probability=probability)
