"""A run of several labs in the browser: one page that turns from lab to lab, one report."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")
pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright: pip install playwright")

from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from helpers.page_checks import cut_on_paper, faults, pages_on_paper
from helpers.review_page import opened, phone, sign
from helpers.review_run import Server, running_server
from safeimpute.cli import app
from test_several_labs import visits_table

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two labs the catalogue knows, of the same patients."""
    place = tmp_path_factory.mktemp("labs")
    named = {"first": "urea_nitrogen", "second": "hematocrit"}
    visits_table().rename(named).write_parquet(place / "visits.parquet")
    (place / "quick.toml").write_text("[best]\nfolds = 3\n")
    told = ["--target", "urea_nitrogen,hematocrit", "--tolerance", "urea_nitrogen=2,hematocrit=15%", "--fdr", "0.2"]
    place_of = ["--config", str(place / "quick.toml"), "--out", str(place / "run")]
    done = CliRunner().invoke(app, ["run", str(place / "visits.parquet"), *told, "--why", "--quiet", *place_of])
    assert done.exit_code == 0, done.output
    return place / "run"


@pytest.fixture(scope="module")
def labs(folder: Path) -> Iterator[Server]:
    with running_server(folder) as server:
        yield server


def test_turning_to_another_lab_keeps_the_patient(browser: Browser, labs: Server) -> None:
    with opened(browser, labs) as page:
        page.wait_for_selector("#detail .value")
        sign(page, "Lou")
        expect(page.locator("#lab-list a")).to_have_count(2)
        expect(page.locator("#lab-list [aria-current]")).to_contain_text("Urea nitrogen")
        subject = page.inner_text("#subject")
        waiting = page.inner_text("#lab-list [aria-current] .count")
        page.keyboard.press("a")
        expect(page.locator("#lab-list [aria-current] .count")).not_to_have_text(waiting)
        page.locator("#lab-list a", has_text="Haematocrit").click()
        expect(page.locator("#title")).to_have_text("Haematocrit")
        expect(page.locator("#subject")).to_have_text(subject)
        expect(page.locator("#who")).to_be_hidden()
        page.keyboard.press("]")
        expect(page.locator("#title")).to_have_text("Urea nitrogen")
        expect(page.locator("g.mark.accepted")).to_have_count(1)
        assert faults(page) == []


def test_labs_are_turned_by_touch(browser: Browser, labs: Server) -> None:
    with phone(browser, labs, color_scheme="dark") as page:
        sign(page, "Lou")
        page.locator("#patients button").first.tap()
        expect(page.locator("#acts [data-act=reject]")).to_be_visible()
        page.locator("#lab-list a", has_text="Haematocrit").tap()
        expect(page.locator("#title")).to_have_text("Haematocrit")
        expect(page.locator("#acts [data-act=reject]")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert faults(page) == []


def test_the_report_of_all_labs_reads_and_prints(browser: Browser, folder: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((folder / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert faults(page) == []
    page.locator("nav.labs a", has_text="Haematocrit").click()
    expect(page.locator("#lab2-answer")).to_contain_text("missing hematocrit values")
    expect(page.locator("#overview")).to_be_hidden()
    page.close()
    assert cut_on_paper(browser, folder / "report.html") == []
    assert pages_on_paper(browser, folder / "report.html") <= 1 + 2 * 6
