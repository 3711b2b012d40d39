"""How much of a text its references cover, and the note for readers when that is less than half. No torch."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

ENOUGH = 0.5  # from here on there is no note


def coverage(reference_lengths: Sequence[int], length: int) -> float:
    """Return the share of the text's positions that have a reference token, averaged over the references."""
    return sum(min(n, length) for n in reference_lengths) / (length * len(reference_lengths))


def stored_coverage(details: Mapping[str, Any]) -> float | None:
    """Return the coverage in the details of a result: the mean over windows, or over the two ends of an answer.

    None if the method has no references. Details may come from a file, with anything in them.
    """
    windows = details.get("windows")
    parts = [details, details.get("start"), details.get("end"), *(windows if isinstance(windows, list | tuple) else ())]
    shares = [part.get("coverage") for part in parts if isinstance(part, Mapping) and "library" in part]
    numbers = [share for share in shares if isinstance(share, float)]
    return fmean(numbers) if numbers else None


def coverage_note(share: float | None, of: str = "this text") -> str:
    """Return what a reader must know if most positions have no contrast; else an empty text."""
    if share is None or share >= ENOUGH:
        return ""
    return (
        f"Contrast-CAT's references cover {100 * share:.0f} % of {of}; beyond them, its scores are those of AttCAT: "
        "build a library from longer texts (whichtoken references build)"
    )
