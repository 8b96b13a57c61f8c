"""One browser and one server over the small run, or a skip that says what is missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.review_page import opened
from helpers.review_run import Server, running_server, shared_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the small run, so that its decisions are this test process's own."""
    return Path(shutil.copytree(shared_run(tmp_path_factory), tmp_path_factory.mktemp("browser") / "run"))


@pytest.fixture(scope="session")
def server(run_folder: Path) -> Iterator[Server]:
    with running_server(run_folder) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    if CHROMIUM is None:
        pytest.skip("browser tests need Chromium on the path: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser", server: Server) -> "Iterator[Page]":
    """A fresh page on a wide screen, of somebody who has not said who they are."""
    with opened(browser, server, viewport={"width": 1440, "height": 900}) as page:
        page.wait_for_selector("#detail .value")
        yield page
