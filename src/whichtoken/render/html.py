"""Results as HTML: a fragment for notebooks, or one self-contained page that loads nothing and runs nothing.

Texts, labels and tokens are escaped by jinja2; the page's policy allows its own style sheet, by hash, no script, and of
pictures only those that are part of it.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.render.palette import STEPS, ink, shade, step_of
from whichtoken.render.pictures import overlay_png, plain_png
from whichtoken.render.rows import Level, Look, Results, panels, visible

TEMPLATES = Path(__file__).parent / "templates"


def to_html(
    results: Results,
    path: str | Path | None = None,
    *,
    level: Level = "word",
    differences: bool = False,
    numbers: bool = False,
) -> str:
    """A page of results, also written to `path` if there is one.

    `results`: what `explain` returns, or some of it. `level`: "word" or "token". `differences`: also the first method
    minus each other one. `numbers`: beside the words; without them, hovering shows a word's score.
    """
    made = page(results, Look(level, differences, numbers))
    if path is not None:
        write_whole(path, made)
    return made


def page(results: Results, look: Look) -> str:
    return _rendered("page.html", results, look)


def fragment(results: Results) -> str:
    """For a notebook's cell."""
    return _rendered("fragment.html", results, Look())


def _rendered(template: str, results: Results, look: Look) -> str:
    found = environment().get_template(template).render(panels=panels(results, look), look=look, style=style_sheet())
    return str(found)


def class_of(share: float) -> str:
    step = step_of(share)
    return f"{'f' if step > 0 else 'a'}{abs(step)}" if step else ""


@cache
def style_sheet() -> str:
    return own("style.css") + shade_rules()


def own(name: str) -> str:
    """The text of a file of whichtoken's own."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def shade_rules() -> str:
    """For the classes of `class_of`."""
    rules = [
        f".whichtoken .{side}{step}{{background:{_rgb(shade(sign * step))};color:{_rgb(ink(sign * step))}}}"
        for side, sign in (("f", 1), ("a", -1))
        for step in range(1, STEPS + 1)
    ]
    return "\n".join(rules) + "\n"


@cache
def environment() -> Any:
    """Of all pages: everything is escaped but whichtoken's own style sheets and scripts."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["shade"] = class_of
    made.filters["own_style"] = Markup  # for whichtoken's own style sheet, and nothing else
    made.filters["own_script"] = Markup  # likewise
    made.filters["visible"] = visible
    made.filters["hash"] = _hash
    made.filters["overlay"] = overlay_png
    made.filters["plain"] = plain_png
    return made


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _rgb(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
