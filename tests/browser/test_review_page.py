"""The review page in a real browser, as a reviewer uses it."""

import re
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")
pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright: pip install playwright")

from playwright.sync_api import Browser, Page, Route, expect

from helpers.review_page import sign
from helpers.review_run import FORMULA_ID, HTML_ID, Server


def _find(page: Page, text: str) -> None:
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Escape")
    expect(page.locator("#patients button")).to_have_count(1)
    page.click("#patients button")


def _next_patient(page: Page) -> None:
    before = page.inner_text("#subject")
    page.keyboard.press("n")
    expect(page.locator("#subject")).not_to_have_text(before)


def _mixed_patient(run_folder: Path) -> str:
    """A patient with both a released and a withheld value."""
    table = pl.read_parquet(run_folder / "imputations.parquet")
    both = table.group_by("subject_id").agg(pl.col("released").n_unique().alias("kinds"))
    return str(both.filter(pl.col("kinds") == 2).sort("subject_id")["subject_id"][0])


def test_filtering_changes_what_is_listed(page: Page, run_folder: Path) -> None:
    table = pl.read_parquet(run_folder / "imputations.parquet")
    expect(page.locator("#found")).to_contain_text(f"{len(table):,} values")
    page.select_option("[name=release]", "withheld")
    withheld = table.filter(~pl.col("released"))
    expect(page.locator("#found")).to_contain_text(f"{withheld['subject_id'].n_unique()} patients")
    expect(page.locator("#found")).to_contain_text(f"{len(withheld):,} values")
    page.click("#more-filters summary")
    page.fill("[name=value_from]", "300")
    expect(page.locator("#found")).to_contain_text(f"{int((withheld['value'] >= 300).sum()):,} values")


def test_a_patient_shows_released_and_withheld_points_and_why(page: Page, run_folder: Path) -> None:
    subject = _mixed_patient(run_folder)
    page.fill("#search", subject)
    page.locator("#patients button", has_text=f"Patient {subject}").first.click()
    expect(page.locator("#subject")).to_have_text(f"Patient {subject}")
    table = pl.read_parquet(run_folder / "imputations.parquet").filter(pl.col("subject_id") == subject)
    expect(page.locator("g.mark.released")).to_have_count(int(table["released"].sum()))
    expect(page.locator("g.mark.withheld")).to_have_count(int((~table["released"]).sum()))
    reason = table.filter(~pl.col("released"))["reason"][0]
    page.locator("g.mark.withheld").first.focus()
    expect(page.locator("#tip")).to_contain_text(f"Withheld: {reason}")
    page.keyboard.press("Enter")
    expect(page.locator("#detail .state")).to_have_text(f"Withheld: {reason}")
    expect(page.locator("[data-act=accept]")).to_be_disabled()
    expect(page.locator("#detail .risk-scale")).to_have_attribute("aria-label", re.compile(r"Risk .+, cut-off"))
    page.locator("g.mark.released").first.hover()
    expect(page.locator("#tip")).to_contain_text("90 % interval")
    page.locator("g.mark.released").first.click()
    expect(page.locator("#detail .state")).to_have_text("Released")
    expect(page.locator("#because")).to_contain_text(re.compile(r"rests .*on ", re.IGNORECASE))
    expect(page.locator("#band")).to_be_visible()
    expect(page.locator("#detail .value")).to_contain_text("mg/dL")
    expect(page.locator("#detail")).to_contain_text("What carried this value")
    expect(page.locator("#detail")).to_contain_text("Nothing is set aside")


def test_some_value_says_which_visits_carried_it(page: Page) -> None:
    for _ in range(12):
        if page.locator("#detail caption").count():
            break
        page.keyboard.press("j")
    expect(page.locator("#detail caption").first).to_contain_text("of the weight")
    expect(page.locator("#detail table").first).to_contain_text("mg/dL")


def test_a_slider_changes_the_count_and_is_marked_as_exploration(page: Page) -> None:
    page.keyboard.press("e")
    expect(page.locator("#view-explore .flag").first).to_contain_text("not a promise")
    expect(page.locator("#explore-about")).to_contain_text("carries no promise")
    expect(page.locator("#rerun")).to_be_disabled()
    run_level = page.inner_text("#would-release")
    page.locator("#level").fill("2")
    expect(page.locator("#would-release")).not_to_have_text(run_level)
    strict = page.inner_text("#would-release")
    page.locator("#level").fill("49")
    loose = page.inner_text("#would-release")
    assert int(strict.split()[0]) < int(run_level.split()[0]) < int(loose.split()[0])
    page.locator("#tolerance").focus()
    shown = page.inner_text("#tolerance-shown")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#tolerance-shown") != shown
    expect(page.locator("#rerun")).to_be_enabled()


@pytest.mark.full
def test_the_button_starts_a_run_that_ends_in_a_labelled_report(page: Page, run_folder: Path) -> None:
    page.keyboard.press("e")
    page.locator("#level").fill("49")
    page.click("#rerun")
    state = page.locator("#rerun-state")
    expect(state).to_contain_text("Running into", timeout=20_000)
    expect(state).to_contain_text("Finished: ", timeout=240_000)
    expect(state).to_contain_text("level chosen after looking: no guarantee")
    expect(state).to_contain_text("Second look at the same visits: no guarantee.")
    with page.context.expect_page() as opened:
        state.get_by_text("Its report").click()
    expect(opened.value.locator("body")).to_contain_text("No guarantee")
    written = run_folder.with_name(state.locator("h3").inner_text().removeprefix("Finished: "))
    assert (written / "report.html").is_file()


def test_an_accepted_value_is_kept_and_exported(page: Page, tmp_path: Path) -> None:
    sign(page, "Ada")
    page.keyboard.press("a")
    expect(page.locator("#history")).to_contain_text("Ada accepted")
    value, subject = page.inner_text("#detail .value"), page.inner_text("#subject").removeprefix("Patient ")
    page.reload()
    expect(page.locator("#subject")).to_have_text(f"Patient {subject}")
    expect(page.locator("g.mark.accepted")).to_have_count(1)
    page.locator("g.mark.accepted").click()
    expect(page.locator("#history")).to_contain_text("Ada accepted")
    page.click("#export-box summary")
    for kind in ("csv", "parquet"):
        with page.expect_download() as started:
            page.click(f"#export-{kind}")
        started.value.save_as(tmp_path / f"accepted.{kind}")
    for table in (pl.read_csv(tmp_path / "accepted.csv"), pl.read_parquet(tmp_path / "accepted.parquet")):
        kept = table.filter(pl.col("subject_id").cast(pl.String) == subject)
        assert f"{kept['value'][0]:.0f}" == value.split()[0].replace(",", "").split("\xa0")[0]
        assert "not this accepted subset" in kept["note"][0]
    page.keyboard.press("u")
    expect(page.locator("g.mark.accepted")).to_have_count(0)


def test_a_decision_needs_a_name(page: Page) -> None:
    page.keyboard.press("r")
    expect(page.locator("#name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#announce")).to_contain_text("a decision needs a name")
    expect(page.locator("#history")).to_have_text("Not yet decided.")


def test_reject_comment_and_undo_by_keyboard_alone(page: Page) -> None:
    sign(page, "Ben")
    _next_patient(page)
    page.keyboard.press("r")
    expect(page.locator("#history")).to_contain_text("Ben rejected")
    page.keyboard.press("c")
    page.keyboard.type("<b>unlikely</b>")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#history q")).to_have_text("<b>unlikely</b>")
    page.keyboard.press("u")
    expect(page.locator("#history q")).to_have_count(0)
    page.keyboard.press("u")
    expect(page.locator("#history")).to_have_text("Not yet decided.")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_a_key_that_overtakes_the_page_decides_nothing(page: Page) -> None:
    """A decision pressed while the next patient is still loading must hit neither patient."""
    sign(page, "Cleo")

    def late(route: Route) -> None:
        page.wait_for_timeout(300)
        route.continue_()

    page.route("**/api/patients/*", late)
    before = page.inner_text("#progress")
    page.keyboard.press("n")
    page.keyboard.press("r")
    expect(page.locator("#announce")).to_contain_text("nothing was decided")
    expect(page.locator("#history")).to_have_text("Not yet decided.")
    assert page.inner_text("#progress") == before


@pytest.mark.parametrize("hostile", [HTML_ID, FORMULA_ID])
def test_an_identifier_never_acts(page: Page, run_folder: Path, hostile: str) -> None:
    title = page.title()
    _find(page, hostile[:10])
    expect(page.locator("#subject")).to_have_text(f"Patient {hostile}")
    expect(page.locator("#patients .who")).to_have_text(f"Patient {hostile}")
    assert page.locator("img").count() == 0
    assert page.title() == title
    page.goto((run_folder / "report.html").as_uri())
    assert page.evaluate("document.querySelectorAll('img:not([src^=\"data:image/png\"])').length") == 0
    text = (run_folder / "imputations.csv").read_text()
    guarded = hostile.replace('"', '""')
    assert (f'"\'{guarded}"' if hostile.startswith("=") else f'"{guarded}"') in text


def test_two_reviewers_see_each_other(page: Page, browser: Browser, server: Server) -> None:
    sign(page, "Ada")
    for _ in range(3):
        _next_patient(page)
    other = browser.new_context().new_page()
    other.goto(server.address)
    other.wait_for_selector("#detail .value")
    sign(other, "Ben")
    subject = page.inner_text("#subject")
    page.keyboard.press("r")
    expect(page.locator("#history")).to_contain_text("Ada rejected")
    _find_exactly(other, subject)
    other.locator("g.mark.rejected").first.click()
    expect(other.locator("#history")).to_contain_text("Ada rejected")
    other.keyboard.press("r")
    expect(other.locator("#history li")).to_have_count(2)
    other.context.close()


def _find_exactly(page: Page, subject: str) -> None:
    page.fill("#search", subject.removeprefix("Patient "))
    page.locator("#patients button", has=page.get_by_text(subject, exact=True)).click()
    expect(page.locator("#subject")).to_have_text(subject)


def test_a_wrong_token_or_host_is_refused(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = context.new_page()
    wrong = page.goto(f"{server.base}/?token=wrong")
    assert wrong is not None
    assert wrong.status == 403
    bare = page.goto(f"{server.base}/api/patients")
    assert bare is not None
    assert bare.status == 403
    answer = context.request.get(server.address, headers={"host": "evil.example"})
    assert answer.status == 421
    context.close()


def test_the_report_opens_from_the_page_and_explains_itself(page: Page, server: Server) -> None:
    page.goto(f"{server.base}/report")
    expect(page.locator("#answer")).to_contain_text("missing cholesterol values")
    page.locator("#released summary").first.click()  # folded until it is asked for
    page.locator("#released rect[data-tip]").first.hover()
    expect(page.locator("#tip")).to_contain_text("released")


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_runs_over_the_edge(page: Page, run_folder: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.body.classList.remove('showing-patient')")  # back to the list on a phone
    for tab in ("review", "explore"):
        page.click(f"#tab-{tab}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto((run_folder / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_colours_are_those_of_the_report(page: Page) -> None:
    from safeimpute.report import palette

    style = page.evaluate("fetch('/page.css').then((answer) => answer.text())")
    for name in ("released", "withheld", "error", "neutral", "ink", "muted", "grid"):
        assert f"--{name}: {getattr(palette, name.upper())};" in style
