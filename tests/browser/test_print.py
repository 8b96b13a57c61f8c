"""The report on paper: few pages, nothing cut, nothing that scrolls."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright: pip install playwright")

from playwright.sync_api import Browser

A4_INSIDE = 695  # CSS pixels between the page's margins
OVER = """width => [...document.querySelectorAll('main *, header *')]
  .filter((each) => each.getClientRects().length
    && (each.getBoundingClientRect().right > width + 1 || (each.scrollWidth > each.clientWidth + 1
      && getComputedStyle(each).overflowX !== 'visible')))
  .map((each) => `${each.tagName}.${each.className}: ${each.textContent.trim().slice(0, 40)}`)"""
PAGES = re.compile(rb"/Type\s*/Page(?!s)")


def test_the_report_fits_six_pages(browser: Browser, run_folder: Path) -> None:
    page = browser.new_page()
    page.goto((run_folder / "report.html").as_uri())
    assert len(PAGES.findall(page.pdf(prefer_css_page_size=True))) <= 6
    page.close()


def test_nothing_is_cut_on_paper(browser: Browser, run_folder: Path) -> None:
    page = browser.new_page(viewport={"width": A4_INSIDE, "height": 1000})
    page.goto((run_folder / "report.html").as_uri())
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate(OVER, A4_INSIDE) == []
    page.close()
