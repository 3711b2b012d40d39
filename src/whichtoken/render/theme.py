"""Colours of pages as CSS: light or dark, as the reader's system or notebook says. No torch."""

from collections.abc import Mapping, Sequence
from functools import cache

from whichtoken.render.palette import STEPS, Colour, Theme, ink, shade

PAGE_COLOURS: Mapping[Theme, Mapping[str, Colour]] = {
    "light": {"ground": (255, 255, 255), "ink": (17, 17, 17), "quiet": (89, 89, 89), "line": (204, 204, 204)},
    "dark": {"ground": (21, 23, 27), "ink": (232, 234, 237), "quiet": (166, 171, 179), "line": (71, 76, 86)},
}
# JupyterLab, VS Code and Colab have themes of their own, whatever the system says.
NOTEBOOKS: Mapping[Theme, str] = {
    "light": ":is([data-jp-theme-light=true],.vscode-light,html[theme=light])",
    "dark": ":is([data-jp-theme-light=false],.vscode-dark,html[theme=dark])",
}
SIDES = (("f", 1), ("a", -1))  # classes of scores above and below 0


@cache
def page_colours() -> str:
    """Return the rules that set the colour scheme and the variables --ground, --ink, --quiet and --line."""
    colours = {theme: [(f"--{name}", c) for name, c in of.items()] for theme, of in PAGE_COLOURS.items()}
    return _by_theme({theme: [("color-scheme", theme), *of] for theme, of in colours.items()})


@cache
def shade_rules() -> str:
    """Return the rules of the classes of scores, a20 to f20, and the variables --n and --ni of a score of 0."""
    variables = _by_theme({theme: _shade_variables(theme) for theme in PAGE_COLOURS})
    names = [f"{side}{step}" for side, _ in SIDES for step in range(1, STEPS + 1)]
    rules = [f".whichtoken .{name}{{background:var(--{name});color:var(--{name}i)}}" for name in names]
    return variables + "\n".join(rules) + "\n"


def _shade_variables(theme: Theme) -> list[tuple[str, Colour]]:
    steps = [("n", 0), *((f"{side}{step}", sign * step) for side, sign in SIDES for step in range(1, STEPS + 1))]
    return [
        pair for name, step in steps for pair in ((f"--{name}", shade(step, theme)), (f"--{name}i", ink(step, theme)))
    ]


def _by_theme(variables: Mapping[Theme, Sequence[tuple[str, Colour | str]]]) -> str:
    """Return rules that set variables as the system says, or as the theme of the notebook says."""
    sets = {theme: ";".join(f"{name}:{_value(value)}" for name, value in of) for theme, of in variables.items()}
    return (
        f".whichtoken{{{sets['light']}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{.whichtoken{{{sets['dark']}}}}}\n"
        f"{NOTEBOOKS['light']} .whichtoken{{{sets['light']}}}\n"
        f"{NOTEBOOKS['dark']} .whichtoken{{{sets['dark']}}}\n"
    )


def _value(value: Colour | str) -> str:
    return value if isinstance(value, str) else hex_of(value)


def hex_of(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
