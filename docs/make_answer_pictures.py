"""Draw the pictures of docs/generation.md: `python docs/make_answer_pictures.py FOLDER`.

FOLDER is SmolLM2-135M-Instruct, which is not part of this repository. The page needs chromium.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import whichtoken as wt

HERE = Path(__file__).parent / "pictures"
PROMPT = "Ada was born in Lyon and lives in Rome. Tom was born in Oslo and lives in Paris. Where was Tom born?"
CHOSEN = "Lyon"  # the token of the answer that is clicked


def main(folder: str) -> None:
    chat = [{"role": "user", "content": PROMPT}]
    results = wt.explain(wt.load(folder), prompt=chat, generate=16, rows="token", methods="attn-lrp")
    wt.plot.answer(results[0]["attn-lrp"], HERE / "answer-map.png")
    browser = shutil.which("chromium")
    if browser is not None:
        draw_page(results, browser)
    print(f"wrote answer-map.png{'' if browser is None else ' and answer.png'} to {HERE}")


def draw_page(results: wt.Results, browser: str) -> None:
    """Draw the page with one token chosen; its policy would stop the script that clicks, so it is removed here."""
    click = f"[...document.querySelectorAll('.parts > span')].find((e) => e.textContent === '{CHOSEN}').click()"
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", results.to_html())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "answer.html"
        path.write_text(page.replace("</body>", f"<script>{click}</script></body>"), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,460"]
        shot = f"--screenshot={HERE / 'answer.png'}"
        subprocess.run([browser, *options, shot, str(path)], check=True, capture_output=True)


if __name__ == "__main__":
    main(sys.argv[1])
