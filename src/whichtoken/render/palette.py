"""Colours of signed scores: orange supports, blue opposes, near white (on dark pages, near black) is neutral. No torch.

The two extremes are from the palette of Okabe and Ito, which is safe for colour-blind readers.
"""

from functools import cache
from typing import Literal

Colour = tuple[int, int, int]  # red, green, blue: 0 to 255

FOR: Colour = (213, 94, 0)
AGAINST: Colour = (0, 114, 178)
NEUTRAL: Colour = (247, 247, 247)
DARK_NEUTRAL: Colour = (35, 38, 44)
BLACK: Colour = (0, 0, 0)
WHITE: Colour = (255, 255, 255)
Theme = Literal["light", "dark"]
STEPS = 20  # shades on each side; a page needs a CSS rule for each


def step_of(share: float) -> int:
    """Return -STEPS to STEPS for a share of -1 to 1; shares outside are clipped."""
    return round(max(-1.0, min(1.0, share)) * STEPS)


@cache
def shade(step: int, theme: Theme = "light") -> Colour:
    near, far = (NEUTRAL if theme == "light" else DARK_NEUTRAL), (FOR if step > 0 else AGAINST)
    strength = abs(step) / STEPS
    red, green, blue = (round(start + (end - start) * strength) for start, end in zip(near, far, strict=True))
    return red, green, blue


@cache
def ink(step: int, theme: Theme = "light") -> Colour:
    """Return black or white, whichever has the higher contrast with the shade."""
    return ink_on(shade(step, theme))


def ink_on(ground: Colour) -> Colour:
    return max((BLACK, WHITE), key=lambda colour: contrast(colour, ground))


def contrast(colour: Colour, other: Colour) -> float:
    """Return the contrast ratio of WCAG 2, 1 to 21; text should have at least 4.5."""
    light, dark = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Colour) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
