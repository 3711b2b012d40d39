"""Check the values of artifacts after decoding: shares, counts, order and lengths. No torch."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from itertools import pairwise

from whichtoken.errors import BadArtifact

ROUNDING = 1e-6  # of single-precision probabilities


def require(holds: bool, what: str) -> None:
    """Raise BadArtifact unless a condition holds. `what`: what is wrong otherwise."""
    if not holds:
        raise BadArtifact(what)


def check_shares(name: str, values: Iterable[float | None], least: float = 0.0) -> None:
    """Require numbers from `least` to 1, but for rounding; None is skipped."""
    for value in values:
        inside = value is None or least - ROUNDING <= value <= 1 + ROUNDING
        require(inside, f"{name} is {value}; expected {least:g} to 1")


def check_probabilities(name: str, values: Iterable[float | None]) -> None:
    """Require probabilities; None is skipped."""
    check_shares(name, values)


def check_counts(name: str, values: Iterable[float | None], least: int = 0) -> None:
    """Require numbers of at least `least`; None is skipped."""
    for value in values:
        require(value is None or value >= least, f"{name} is {value}; expected at least {least}")


def check_count_fields(name: str, counts: Mapping[str, float | None]) -> None:
    """Require that none of the named numbers is negative."""
    for field, value in counts.items():
        check_counts(f"{name}: {field}", [value])


def check_lengths(name: str, lists: Mapping[str, Sized]) -> None:
    """Require that parallel lists are equally long."""
    lengths = {field: len(values) for field, values in lists.items()}
    counts = ", ".join(f"{n} {field}" for field, n in lengths.items())
    require(len(set(lengths.values())) <= 1, f"{name}: {counts}; there must be the same number of each")


def check_removed(name: str, removed: Sequence[float]) -> None:
    """Require shares that ascend from 0, where nothing is removed."""
    check_shares(f"{name}: removed", removed)
    ascends = len(removed) > 0 and removed[0] == 0 and all(a <= b for a, b in pairwise(removed))
    require(ascends, f"{name}: removed is {removed!r:.60}; expected shares that ascend from 0")


def check_square(name: str, table: Sequence[Sequence[float]], size: int) -> None:
    """Require correlations, one for each pair."""
    square = len(table) == size and all(len(row) == size for row in table)
    require(square, f"{name}: expected {size} rows of {size}, one value for each pair of methods")
    for row in table:
        check_shares(name, row, least=-1)
