"""The README's pictures, made from the demo's folder: two figures, the top of the report, the review page.

python bench/pictures.py out/demo docs/images
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

FIGURES = ("released_by_value.png", "risk_alignment.png")
FLAGS = ["--no-sandbox", "--disable-background-networking"]
SIZE: ViewportSize = {"width": 1280, "height": 860}


@contextmanager
def review_page(run: Path) -> Iterator[str]:
    """The address of the run's review page while the block lasts."""
    command = [sys.executable, "-m", "safeimpute", "serve", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield line.split()[-1]
        finally:
            process.terminate()


def picture_of_report(page: Page, run: Path, out: Path) -> None:
    page.goto((run / "report.html").resolve().as_uri())
    page.screenshot(path=out / "report.png")


def picture_of_review(page: Page, address: str, out: Path) -> None:
    """A patient with released and withheld values whose chosen value says what carried it."""
    page.goto(address)
    page.wait_for_selector("#detail .value")
    for _ in range(120):
        marks = [page.locator(f"g.mark.{kind}").count() for kind in ("released", "withheld")]
        told = (
            page.locator("#detail .state.released").count() and page.locator("#detail caption").count() == 2
        )
        if min(marks) >= 2 and told:
            break
        page.keyboard.press("j")
        page.wait_for_timeout(120)
    page.screenshot(path=out / "review.png")
    page.keyboard.press("e")
    page.locator("#level").fill("9")
    page.screenshot(path=out / "other_levels.png")


def main(run: Path, out: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("pictures need Chromium on the path: apt install chromium")
    out.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        shutil.copy(run / "figures" / name, out / name)
    with review_page(run) as address, sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SIZE)
        picture_of_report(page, run, out)
        picture_of_review(page, address, out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
