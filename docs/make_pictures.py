"""Draw the pictures of the README from real output of the default model: `make pictures`.

The review page needs chromium; without it, its picture stays as it is.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

import whichtoken as wt
from whichtoken.cli.compare import compare_methods
from whichtoken.cli.explain import Request
from whichtoken.cli.inputs import gather
from whichtoken.render.rows import Look
from whichtoken.render.terminal import print_each

HERE = Path(__file__).parent / "pictures"
TEXTS = [
    "The acting is not great, but the music saves it.",
    "rare birds has more than enough charm to make it memorable.",
    "i really didn't like this movie. some of the actors were good, but overall the movie was boring.",
]
METHODS = ["posterior", "contrast-cat", "attcat"]

# As rich draws it, without the web fonts that its own format loads.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#cccccc" />
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> None:
    HERE.mkdir(exist_ok=True)
    subject = wt.load()
    results = list(wt.explain(subject, TEXTS, METHODS))
    draw("explain.svg", "whichtoken explain ... --method posterior,contrast-cat,attcat", results, Look())
    compared_methods = [wt.method(name) for name in ("contrast-cat", "attcat", "gae", "rollout", "random")]
    request = Request(compared_methods, None, "truncate", False)
    comparison = compare_methods(subject, gather([TEXTS[2]], None, None, []), request)
    draw("compare.svg", "whichtoken compare ...", [comparison.result], Look(remarks=comparison.remarks()))
    browser = shutil.which("chromium")
    if browser is not None:
        draw_review(subject, browser)
    print(f"wrote explain.svg, compare.svg{'' if browser is None else ' and review.png'} to {HERE}")


def draw_review(subject: wt.Subject, browser: str) -> None:
    """Draw `explain --file docs/examples/reviews.csv --label gold --keep stars --targets all --method attcat`."""
    examples = wt.data.read_examples(HERE.parent / "examples" / "reviews.csv", "gold", keep=["stars"])
    results = wt.explain(subject, list(examples), "attcat", targets="all", remove_top=3)
    with TemporaryDirectory() as folder:
        page = Path(folder) / "review.html"
        results.to_html(page)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,900"]
        shot = f"--screenshot={HERE / 'review.png'}"
        subprocess.run([browser, *options, shot, str(page)], check=True, capture_output=True)


def draw(name: str, command: str, results: Sequence[Mapping[str, wt.Attribution]], look: Look) -> None:
    console = Console(record=True, width=118, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {command}", style="dim"))
    print_each(console, results, look)
    svg = console.export_svg(title="", theme=DEFAULT_TERMINAL_THEME, code_format=SVG, unique_id="whichtoken")
    (HERE / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
