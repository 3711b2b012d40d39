"""Results as HTML: a fragment for notebooks, or one self-contained page without external resources.

Texts, labels and tokens are escaped by jinja2; the content security policy allows the page's own style sheet, by hash,
embedded images, and no scripts; on pages of answers that were explained by their parts, one script, by hash.
"""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.render.groups import Results
from whichtoken.render.numbers import format_share, format_value
from whichtoken.render.palette import STEPS, step_of
from whichtoken.render.pictures import overlay_png, plain_png
from whichtoken.render.rows import Level, Look, Panel, ScoreRow, effects_of, panels, uncertain_legend, visible
from whichtoken.render.theme import page_colours, shade_rules
from whichtoken.render.titles import about_of, title_of

TEMPLATES = Path(__file__).parent / "templates"


def to_html(
    results: Results,
    path: str | Path | None = None,
    *,
    level: Level = "word",
    differences: bool = False,
    numbers: bool = False,
) -> str:
    """Return a page of results, and write it to `path` if given.

    `results`: what `explain` returns, or some of it. `level`: "word" or "token". `differences`: also the first method
    minus each other method. `numbers`: print shares next to the words; hovering always shows the score.
    """
    source = page(results, Look(level, differences, numbers))
    if path is not None:
        write_whole(path, source)
    return source


def page(results: Results, look: Look) -> str:
    return _render("page.html", results, look, style_sheet() + read_template("page.css"))


def fragment(results: Results, row: str | None = None) -> str:
    """Return HTML for a notebook cell. `row`: of answers, the part to show."""
    return _render("fragment.html", results, Look(row=row), style_sheet())


def _render(template: str, results: Results, look: Look, style: str) -> str:
    chosen = environment().get_template(template)
    shown = panels(results, look)
    effects = effects_of({panel.reading for panel in shown})
    # Patches of images have no marks.
    marked = (cell for panel in shown if panel.picture is None for row in panel.rows for cell in row.cells)
    uncertain = uncertain_legend(marked)
    script = read_template("answer.js") if template == "page.html" and any(panel.parts for panel in shown) else ""
    about = {"title": title_of(shown), "effects": effects, "uncertain": uncertain}
    return str(chosen.render(panels=shown, **about, look=look, style=style, script=script))


def part_maps(panel: Panel) -> dict[str, object]:
    """Return what the script of a page needs to colour the prompt by each part of an answer.

    Shares are thousandths of the strongest score of a map.
    """
    return {
        "steps": STEPS,
        "methods": len(panel.rows),
        "names": [cell.hint for cell in panel.rows[0].cells],
        "parts": [
            {"text": part.text, "chance": part.chance, "rows": [_part_map(row) for row in part.rows]}
            for part in panel.parts
        ],
    }


def _part_map(row: ScoreRow) -> dict[str, object]:
    best = ", ".join(f"{cell.called} {cell.share:+.2f}" for cell in row.strongest())
    return {
        "shares": [round(1000 * cell.share) for cell in row.cells],
        "strongest": max((abs(cell.score) for cell in row.cells), default=0.0),
        "uncertain": [place for place, cell in enumerate(row.cells) if cell.uncertain],
        "top": best or row.nothing,
        "reach": row.reach,
        "trust": row.trust,
    }


def class_of(share: float) -> str:
    step = step_of(share)
    return f"{'f' if step > 0 else 'a'}{abs(step)}" if step else ""


@cache
def style_sheet() -> str:
    return page_colours() + read_template("style.css") + shade_rules()


def read_template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def environment() -> Any:
    """Return the jinja2 environment; it escapes everything except whichtoken's own style sheets and scripts."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters["shade"] = class_of
    jinja.filters["own_style"] = Markup  # only for whichtoken's own style sheets
    jinja.filters["own_script"] = Markup  # only for whichtoken's own scripts
    jinja.filters["visible"] = visible
    jinja.filters["value"] = format_value
    jinja.filters["percent"] = format_share
    jinja.filters["part_maps"] = part_maps
    jinja.filters["hash"] = _hash
    jinja.filters["json_data"] = lambda value: Markup(json_data(value))
    jinja.filters["overlay"] = overlay_png
    jinja.filters["plain"] = plain_png
    jinja.filters["about"] = about_of
    return jinja


def json_data(value: object) -> str:
    """Return JSON for a script element: nothing in it can end the element, begin a comment, or break a line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
