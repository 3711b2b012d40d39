"""What a benchmark's table says beside its numbers: what was run, and how to read it. No torch."""

from collections.abc import Iterator, Sequence

from whichtoken.bench.protocol import Protocol
from whichtoken.bench.results import Measured, Part
from whichtoken.bench.table import found_by_methods
from whichtoken.tables import BenchTable


def facts(how: Protocol, measured: Sequence[Measured], parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    asked, evaluated = sum(part.asked for part in parts), sum(part.evaluated for part in parts)
    tokens = [text.n_tokens for text in measured]
    cut = sum(text.n_cut > 0 for text in measured)
    yield "class", "the predicted one" if how.target == "predicted" else "the true one"
    yield "perturbation", f"{', '.join(how.perturbations)}, {how.level} by {how.level}"
    of = "the content tokens" if how.shares_of == "content" else "all tokens, special ones included"
    yield "steps", f"{', '.join(how.grids)} of {of}"
    yield "lengths", f"{min(tokens)} to {max(tokens)} tokens, mean {sum(tokens) / len(tokens):.0f}; {cut} texts cut"
    yield (
        "evaluations",
        f"{asked:,} perturbed texts asked for, {evaluated:,} evaluated: {1 - evaluated / max(asked, 1):.0%} shared",
    )


def notes(table: BenchTable, measured: Sequence[Measured]) -> Iterator[str]:
    yield (
        "Mean over texts and 95 % bootstrap interval. p: sign-flip test against the best of the column on the same "
        "texts, corrected for the number of methods (Holm)."
    )
    if any(line.searched for line in table.lines):
        yield (
            "* searched: the method looked at deletion curves (nine steps of its own) while it made its scores, so "
            "measures by deletion flatter it; measures by mask it did not look at. refined-noise is the control: the "
            "same search, on noise."
        )
    bounded = [text for text in measured if text.bounds]
    if bounded:
        exact = sum(all(bounds[2] for bounds in text.bounds.values()) for text in bounded)
        over = sum(_beaten(text) for text in bounded)
        yield (
            f"Normalised AOPC: bounds for {len(bounded)} of {len(measured)} texts, {exact} of them exact, the others "
            f"by beam search; in {over} texts a method found a better or worse order than the search, and is the bound."
        )
    if any(line.control for line in table.lines):
        yield "random and refined-noise are controls, not explanations."


def _beaten(text: Measured) -> bool:
    """Whether a method's order lies outside of the bounds that the search found."""
    for plan in text.bounds:
        low, high, _ = text.bounds[plan]
        slack = 1e-6 * (high - low)
        if any(not low - slack <= value <= high + slack for value in found_by_methods(text, plan)):
            return True
    return False
