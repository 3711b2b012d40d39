"""Titles of pages and figures: what was explained. No torch."""

from collections.abc import Sequence

from whichtoken.render.rows import Panel

BETWEEN = " · "
LONGEST_TEXT = 60  # characters of an input in a title
LONGEST_LABEL = 100  # an answer of a language model may be long
NAMED_METHODS = 4


def title_of(panels: Sequence[Panel]) -> str:
    """Name one input by label, output, text and model; count several."""
    if not panels:
        return "nothing was explained"
    return name_of(panels[0]) if len(panels) == 1 else count_of(panels)


def name_of(panel: Panel) -> str:
    return BETWEEN.join((f"{shorten(panel.label, LONGEST_LABEL)} {panel.output}", about_of(panel)))


def about_of(panel: Panel) -> str:
    """Return the second part of a title: the text or the file of the image, shortened, and the model."""
    text = shorten(panel.text, LONGEST_TEXT)
    return BETWEEN.join((text if panel.picture is not None else f"“{text}”", panel.model))


def count_of(panels: Sequence[Panel]) -> str:
    images = sum(panel.picture is not None for panel in panels)
    unit = "images" if images == len(panels) else "inputs" if images else "texts"
    methods = list(dict.fromkeys(row.name for panel in panels for row in panel.rows))
    named, rest = methods[:NAMED_METHODS], len(methods) - NAMED_METHODS
    listed = ", ".join(named) + (f" and {rest} more" if rest > 0 else "")
    models = {panel.model for panel in panels}
    return (
        f"{len(panels)} {unit} explained by {listed} ({models.pop() if len(models) == 1 else f'{len(models)} models'})"
    )


def shorten(text: str, longest: int) -> str:
    """Cut a text at a space, if there is one in its second half, and end it with an ellipsis."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    whole = kept.rpartition(" ")[0]
    return f"{whole if 2 * len(whole) >= longest and text[longest - 1] != ' ' else kept}…"
