"""Take the pictures of the web page for the README: `python docs/make_page_pictures.py`, with Chromium and Playwright.

A server of the default model is started for it, and ended afterwards.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from select import select
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent / "pictures"
PORT = 8089
ADDRESS = f"http://127.0.0.1:{PORT}"
VIEW = {
    "kind": "text",
    "text": "Some of the actors were good, but overall the movie was boring.",
    "methods": "posterior,contrast-cat,attcat,gae",
}


def main() -> None:
    command = [sys.executable, "-m", "whichtoken", "serve", "--port", str(PORT)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(server)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            take(browser, "page.png", (1280, 1090), "light")
            take(browser, "page-phone.png", (390, 844), "dark", below=True)
    finally:
        server.terminate()
        server.communicate()
    print(f"wrote page.png and page-phone.png to {HERE}")


def wait_for(server: "subprocess.Popen[str]") -> None:
    assert server.stderr is not None
    while server.poll() is None:
        try:
            urlopen(f"{ADDRESS}/health").close()
            return
        except URLError:
            select([server.stderr], [], [], 0.2)
    sys.exit(server.communicate()[1])


def take(browser: Browser, name: str, size: tuple[int, int], colours: str, *, below: bool = False) -> None:
    """Explain a text, remove the three strongest words one by one, and take a picture. `below`: without the form."""
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
    page.goto(f"{ADDRESS}/#explain?{urlencode(VIEW)}")
    page.wait_for_selector(".compared-row:nth-child(4) .words")
    page.wait_for_selector("#progress:empty", state="attached", timeout=120_000)
    page.wait_for_selector("#tried .line", state="attached")
    for word in ("boring", "good"):
        with page.expect_response("**/api/predict"):
            page.click(f"#words [role=switch]:has-text('{word}')")
    page.hover("#words [role=switch]:has-text('but')")
    top = "document.querySelector('.reading').getBoundingClientRect().top + scrollY - 72" if below else "0"
    page.evaluate(f"scrollTo({{top: {top}, behavior: 'instant'}})")
    page.wait_for_timeout(500)  # transitions
    page.screenshot(path=HERE / name)
    page.close()


if __name__ == "__main__":
    main()
