"""What is wrong with a page: faults axe-core finds in it, and what paper would cut off."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parents[1] / "browser" / "axe" / "axe.min.js"
CHECKED = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
A4_INSIDE = 695  # CSS pixels between the page's margins
OVER = """width => [...document.querySelectorAll('body *')]
  .filter((each) => each.getClientRects().length
    && (each.getBoundingClientRect().right > width + 1 || (each.scrollWidth > each.clientWidth + 1
      && getComputedStyle(each).overflowX !== 'visible')))
  .map((each) => `${each.tagName}.${each.className}: ${each.textContent.trim().slice(0, 40)}`)"""
PAGES = re.compile(rb"/Type\s*/Page(?!s)")


def faults(page: "Page") -> list[str]:
    """What axe finds wrong, one line each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))  # as a debugger would: the page's policy stays in force
    found: dict[str, Any] = page.evaluate("tags => axe.run(document, { runOnly: tags })", CHECKED)
    return [
        f"{fault['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
        for fault in found["violations"]
        for node in fault["nodes"]
    ]


def pages_on_paper(browser: "Browser", report: Path) -> int:
    """How many pages a report prints on."""
    page = browser.new_page()
    page.goto(report.as_uri())
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    return len(PAGES.findall(printed))


def cut_on_paper(browser: "Browser", report: Path) -> list[str]:
    """What reaches over the margin of a printed page, or would have to be scrolled; folded parts unfolded."""
    page = browser.new_page(viewport={"width": A4_INSIDE, "height": 1000})
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    folded = [f"folded: {each.inner_text()[:40]}" for each in page.locator("details:not([open])").all()]
    over: list[str] = page.evaluate(OVER, A4_INSIDE)
    page.close()
    return folded + over
