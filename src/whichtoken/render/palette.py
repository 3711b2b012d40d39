"""Colours for signed scores: orange for, blue against, near white for nothing; told apart by colour-blind people too.

The ends are two of Okabe and Ito's colours. No torch.
"""

from functools import cache

Colour = tuple[int, int, int]  # red, green, blue: 0 to 255

FOR: Colour = (213, 94, 0)
AGAINST: Colour = (0, 114, 178)
NEUTRAL: Colour = (247, 247, 247)
BLACK: Colour = (0, 0, 0)
WHITE: Colour = (255, 255, 255)
STEPS = 20  # shades on each side: more are not told apart, and a page needs a rule for each


def step_of(share: float) -> int:
    """-STEPS to STEPS, for a share of -1 to 1; what is beyond is as strong as it gets."""
    return round(max(-1.0, min(1.0, share)) * STEPS)


@cache
def shade(step: int) -> Colour:
    end, strength = (FOR if step > 0 else AGAINST), abs(step) / STEPS
    red, green, blue = (round(near + (far - near) * strength) for near, far in zip(NEUTRAL, end, strict=True))
    return red, green, blue


@cache
def ink(step: int) -> Colour:
    """Black or white, whichever is read more easily on the shade."""
    return ink_on(shade(step))


def ink_on(ground: Colour) -> Colour:
    return max((BLACK, WHITE), key=lambda colour: contrast(colour, ground))


def contrast(one: Colour, other: Colour) -> float:
    """The contrast ratio of WCAG 2, 1 to 21; text should have 4.5."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Colour) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
