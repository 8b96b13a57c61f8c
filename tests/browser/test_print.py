"""The report on paper: few pages, nothing cut, nothing that scrolls."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright: pip install playwright")

from playwright.sync_api import Browser

from helpers.page_checks import cut_on_paper, pages_on_paper


def test_the_report_fits_six_pages(browser: Browser, run_folder: Path) -> None:
    assert pages_on_paper(browser, run_folder / "report.html") <= 6


def test_nothing_is_cut_on_paper(browser: Browser, run_folder: Path) -> None:
    assert cut_on_paper(browser, run_folder / "report.html") == []


def test_the_check_sees_what_is_cut(browser: Browser, tmp_path: Path) -> None:
    wide = "<div style='overflow-x: auto'><table style='width: 900px'><tr><td>wide</td></tr></table></div>"
    (tmp_path / "wide.html").write_text(f"<!doctype html><main>{wide}</main>")
    assert len(cut_on_paper(browser, tmp_path / "wide.html")) >= 2


@pytest.mark.full
def test_the_demos_report_fits_six_pages(browser: Browser, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "safeimpute", "demo", "--quiet", "--out", str(tmp_path / "demo")]
    subprocess.run(command, check=True)
    report = tmp_path / "demo" / "report.html"
    assert pages_on_paper(browser, report) <= 6
    assert cut_on_paper(browser, report) == []
