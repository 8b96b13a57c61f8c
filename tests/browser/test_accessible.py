"""Contrast, names and structure of page and report, checked by axe-core in the browser."""

import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")
pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright: pip install playwright")

from playwright.sync_api import Browser

from helpers.page_checks import faults
from helpers.review_page import opened, phone, sign
from helpers.review_run import Server

STYLE = Path(__file__).parents[2] / "src" / "safeimpute" / "web" / "static" / "page.css"


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.full), "dark"])
def test_the_page_has_no_fault_on_a_wide_screen(browser: Browser, server: Server, scheme: str) -> None:
    with opened(browser, server, color_scheme=scheme) as page:
        page.wait_for_selector("#detail .value")
        assert faults(page) == []  # who is reviewing?
        sign(page, "Ada")
        page.click("#promise-box summary")
        assert faults(page) == []
        page.keyboard.press("Escape")
        page.click("#told-more summary")
        page.keyboard.press("?")
        assert faults(page) == []
        page.keyboard.press("Escape")
        page.keyboard.press("e")
        assert faults(page) == []


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_fault_on_a_phone(browser: Browser, server: Server, scheme: str) -> None:
    with phone(browser, server, color_scheme=scheme) as page:
        sign(page, "Ada")
        assert faults(page) == []
        page.locator("#patients button").first.tap()
        page.wait_for_selector("#detail .value")
        assert faults(page) == []


def test_the_report_has_no_fault(browser: Browser, run_folder: Path) -> None:
    page = browser.new_page()
    page.goto((run_folder / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert faults(page) == []
    page.close()


def test_axe_does_findfaults(browser: Browser) -> None:
    """The check itself: grey on grey and a nameless button must not pass."""
    page = browser.new_page()
    poor = "<h1 style='color:#999;background:#888'>grey on grey</h1><button></button>"
    page.set_content(f"<html lang=en><title>poor</title><main>{poor}</main>")
    found = {line.partition(":")[0] for line in faults(page)}
    assert {"color-contrast", "button-name"} <= found
    page.close()


def _light(colour: str) -> float:
    """Relative luminance, as WCAG defines it."""
    full = colour if len(colour) == 7 else "#" + "".join(2 * each for each in colour[1:])
    parts = [int(full[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("theme", "selector"), [("light", ":root {"), ("dark", ":root[data-theme=dark] {")])
def test_words_in_pictures_can_be_read(theme: str, selector: str) -> None:
    """axe does not look into SVG: every colour of words, and of marks, against what it is drawn on."""
    rules = STYLE.read_text(encoding="utf-8").partition(selector)[2].partition("}")[0]
    colours = dict(re.findall(r"--([\w-]+): (#\w+);", rules))
    paper = _light(colours["paper"])
    for name, least in {"ink": 4.5, "muted": 4.5, "limit": 4.5, "link": 4.5, "released": 3.0, "neutral": 3.0}.items():
        lighter, darker = sorted((_light(colours[name]), paper), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= least, (theme, name)
