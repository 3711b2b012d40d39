"""Outputs of models as short texts: percentages and values. No torch."""

from whichtoken.records import Attribution


def format_value(value: float) -> str:
    """Return a number with four significant digits; large ones keep all digits before the point."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def format_remaining(record: Attribution, output: float) -> str:
    """Return a probability in per cent, with a decimal only below 1 and above 99; or a value."""
    if record.value is not None:
        return format_value(output)
    return f"{100 * output:.{0 if 0.01 <= output <= 0.99 else 1}f} %"


def format_share(share: float) -> str:
    """Return a share in whole per cent; one that is not quite 0 or 1 is not rounded to it."""
    return "under 1 %" if 0 < share < 0.005 else "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"
