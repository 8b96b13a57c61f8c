"""A browser's page over the review server: opened under a name, and watched for complaints and foreign requests."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from helpers.review_run import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


@contextmanager
def opened(browser: "Browser", server: Server, **context: Any) -> "Iterator[Page]":
    """The page as it greets a newcomer; whatever it complains of, or asks elsewhere, fails the test."""
    settings: dict[str, Any] = {"viewport": WIDE, "accept_downloads": True} | context
    made = browser.new_context(**settings)
    page = made.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: _note_foreign(request.url, server.base, wrong))
    page.goto(server.address)
    page.wait_for_selector("#patients button")
    page.wait_for_selector("body:not([aria-busy])")  # the first patient is open: a key means something
    try:
        yield page
    finally:
        made.close()
    assert wrong == []


def phone(browser: "Browser", server: Server, **context: Any) -> "AbstractContextManager[Page]":
    """The same on a phone: touch, a narrow screen."""
    return opened(browser, server, viewport=PHONE, has_touch=True, is_mobile=True, **context)


def sign(page: "Page", name: str) -> None:
    """Say who is reviewing, before the first decision asks for it."""
    if not page.locator("#who").is_visible():
        page.click("#reviewer")
    page.fill("#name", name)
    page.click("#who button[value=start]")
    page.wait_for_selector("#who", state="hidden")


def _note_foreign(url: str, base: str, wrong: list[str]) -> None:
    if not url.startswith((f"{base}/", "data:", "file:")):
        wrong.append(f"asked for {url}")
