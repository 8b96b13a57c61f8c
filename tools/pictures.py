"""The pictures of README and docs, made from the demo's folder: figures, report, review page, the report on paper.

python tools/pictures.py out/demo docs/images [--labs RUN_OF_SEVERAL_LABS]

The review page is taken as a clinician meets it: 1280x800 and 390x844, light and dark, the first value it opens.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

FIGURES = ("released_by_value.png",)
FLAGS = ["--no-sandbox", "--disable-background-networking"]
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
ACROSS = 3  # pages of the printed report side by side


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


@contextmanager
def opened(browser: Browser, address: str, size: ViewportSize, scheme: Any) -> Iterator[Page]:
    """The page as it opens; a name is asked at the first decision only."""
    phone = size["width"] < 700
    made = browser.new_context(viewport=size, color_scheme=scheme, has_touch=phone, is_mobile=phone)
    page = made.new_page()
    page.goto(address)
    page.wait_for_selector("#patients button")
    page.wait_for_timeout(400)
    yield page
    made.close()


def pictures_of_review(browser: Browser, run: Path, out: Path) -> None:
    """Wide and narrow, light and dark; on a phone the list and the first patient."""
    with review_page(run) as address:
        for scheme in ("light", "dark"):
            with opened(browser, address, WIDE, scheme) as page:
                page.screenshot(path=out / f"review_1280_{scheme}.png")
                page.keyboard.press("e")
                page.locator("#level").fill("9")
                if scheme == "light":
                    page.screenshot(path=out / "other_levels.png")
            with opened(browser, address, PHONE, scheme) as page:
                page.screenshot(path=out / f"review_390_{scheme}_list.png")
                page.locator("#patients button").first.tap()
                page.wait_for_selector("#detail .value")
                page.wait_for_timeout(300)
                page.screenshot(path=out / f"review_390_{scheme}.png")


def pictures_of_labs(browser: Browser, run: Path, out: Path) -> None:
    """The same page over a run of several labs."""
    with review_page(run) as address, opened(browser, address, WIDE, "light") as page:
        page.screenshot(path=out / "review_labs.png")


def pictures_of_report(browser: Browser, run: Path, out: Path) -> None:
    """The top of the report, and all its pages as they are printed."""
    from PIL import Image

    page = browser.new_page(viewport=WIDE)
    page.goto((run / "report.html").resolve().as_uri())
    page.screenshot(path=out / "report.png")
    if shutil.which("pdftoppm") is None:
        print("the printed report needs pdftoppm: apt install poppler-utils", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as place:
        page.pdf(path=f"{place}/report.pdf", prefer_css_page_size=True)
        subprocess.run(["pdftoppm", "-r", "60", "-png", f"{place}/report.pdf", f"{place}/page"], check=True)
        pages = [Image.open(each) for each in sorted(Path(place).glob("page*.png"))]
        width, height = pages[0].size
        sheet = Image.new("RGB", (ACROSS * (width + 8) + 8, -(-len(pages) // ACROSS) * (height + 8) + 8), "#55606E")
        for place_of, each in enumerate(pages):
            row, column = divmod(place_of, ACROSS)
            sheet.paste(each, (8 + column * (width + 8), 8 + row * (height + 8)))
        sheet.quantize(64).save(out / "report_printed.png", optimize=True)
    page.close()


def main() -> None:
    """Make every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--labs", type=Path, help="folder of a run of several labs")
    told = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("pictures need Chromium on the path: apt install chromium")
    told.out.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        shutil.copy(told.run / "figures" / name, told.out / name)
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=FLAGS)
        pictures_of_report(browser, told.run, told.out)
        pictures_of_review(browser, told.run, told.out)
        if told.labs:
            pictures_of_labs(browser, told.labs, told.out)
        browser.close()


if __name__ == "__main__":
    main()
