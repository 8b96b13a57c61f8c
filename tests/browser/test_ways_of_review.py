"""A whole review by keyboard alone, and the same by touch on a phone; light and dark, remembered."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")
pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright: pip install playwright")

from playwright.sync_api import Browser, Page, Route, expect

from helpers.review_page import opened, phone
from helpers.review_run import Server, running_server, shared_run

ASIDE = 0  # the patient whose measured values are set aside


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose log these tests alone write to; of one patient the measured values are marked as set aside."""
    folder = Path(shutil.copytree(shared_run(tmp_path_factory), tmp_path_factory.mktemp("ways") / "run"))
    visits = pl.read_parquet(folder / "review" / "visits.parquet")
    one = (pl.col("patient") == ASIDE) & pl.col("lab.cholesterol").is_not_null()
    marked = visits.with_columns(set_aside=pl.when(one).then(pl.lit("to check the promise")))
    marked.write_parquet(folder / "review" / "visits.parquet")
    with running_server(folder) as server:
        yield server


def _tab_to(page: Page, selector: str) -> None:
    """Move the focus forward until it stands on an element, as somebody without a mouse does."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"Tab never reached {selector}")


def test_the_whole_review_by_keyboard_alone(browser: Browser, own_server: Server, tmp_path: Path) -> None:
    with opened(browser, own_server) as page:
        page.wait_for_selector("#detail .value")
        first = page.inner_text("#subject")
        page.keyboard.press("a")
        expect(page.locator("#name")).to_be_focused()
        page.keyboard.type("Kay")
        page.keyboard.press("Enter")
        expect(page.locator("#reviewer")).to_have_text("Reviewing as Kay")
        expect(page.locator("#history")).to_contain_text("Kay accepted")
        page.keyboard.press("n")
        expect(page.locator("#subject")).not_to_have_text(first)
        page.keyboard.press("r")
        expect(page.locator("#history")).to_contain_text("Kay rejected")
        page.keyboard.press("c")
        page.keyboard.type("too far from the last one")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#history q")).to_have_text("too far from the last one")
        page.keyboard.press("u")
        expect(page.locator("#history q")).to_have_count(0)
        expect(page.locator("#progress")).to_contain_text("1 accepted, 1 rejected")
        page.keyboard.press("/")
        page.keyboard.type(first.removeprefix("Patient "))
        _tab_to(page, "#patients button")
        page.keyboard.press("Enter")
        expect(page.locator("#subject")).to_have_text(first)
        _tab_to(page, "g.mark")
        expect(page.locator("#tip")).to_be_visible()
        _tab_to(page, "details.why summary")
        page.keyboard.press("Enter")
        expect(page.locator("details.why")).to_have_attribute("open", "")
        page.keyboard.press("e")
        _tab_to(page, "#level")
        shown = page.inner_text("#level-shown")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#level-shown")).not_to_have_text(shown)
        page.keyboard.press("e")
        _tab_to(page, "#export-box summary")
        page.keyboard.press("Enter")
        _tab_to(page, "#export-csv")
        with page.expect_download() as started:
            page.keyboard.press("Enter")
        started.value.save_as(tmp_path / "accepted.csv")
    assert set(pl.read_csv(tmp_path / "accepted.csv")["accepted_by"]) == {"Kay"}


def test_the_whole_review_by_touch(browser: Browser, own_server: Server) -> None:
    with phone(browser, own_server) as page:
        page.locator("#patients button").nth(2).tap()
        expect(page.locator("#detail .value")).to_be_visible()
        _within_reach(page)
        page.locator("#acts [data-act=accept]").tap()
        page.fill("#name", "Tia")
        page.locator("#who button[value=start]").tap()
        expect(page.locator("#history")).to_contain_text("Tia accepted")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        _within_reach(page)
        place = page.inner_text("#told .place")
        page.locator("#value-on").tap()
        expect(page.locator("#told .place")).not_to_have_text(place)
        page.locator("#acts [data-act=reject]").tap()
        expect(page.locator("#history")).to_contain_text("Tia rejected")
        page.locator("#more-acts [data-act=comment]").tap()
        page.fill("#comment", "odd")
        page.locator("#comment-box button[value=save]").tap()
        expect(page.locator("#history q")).to_have_text("odd")
        page.locator("#more-acts [data-act=undo]").tap()
        expect(page.locator("#history q")).to_have_count(0)
        page.locator("#chart g.mark .halo").first.tap(force=True)  # the next mark may lie over it
        expect(page.locator("#told .place")).to_contain_text("Value 1 of")
        page.locator("#to-list").tap()
        expect(page.locator("#list")).to_be_visible()
        page.select_option("[name=review]", "accepted")
        expect(page.locator("#patients .done").first).to_contain_text("decided")
        page.locator("#tab-explore").tap()
        expect(page.locator("#would-release")).to_be_visible()
        expect(page.locator("#acts")).to_be_hidden()


def _within_reach(page: Page) -> None:
    """Accept and reject stand in the lower fifth of the screen, large enough for a thumb, whatever is scrolled."""
    for act in ("accept", "reject"):
        box = page.locator(f"#acts [data-act={act}]").bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["width"] >= 44
        assert box["y"] >= 0.8 * 844
        assert box["y"] + box["height"] <= 844


def test_a_name_is_asked_once(browser: Browser, own_server: Server) -> None:
    with opened(browser, own_server) as page:
        expect(page.locator("#who")).to_be_hidden()
        page.keyboard.press("a")
        page.fill("#name", "Once")
        page.keyboard.press("Enter")
        expect(page.locator("#history")).to_contain_text("Once accepted")
        page.reload()
        page.wait_for_selector("#detail .value")
        page.keyboard.press("j")
        page.keyboard.press("a")
        expect(page.locator("#history")).to_contain_text("Once accepted")
        expect(page.locator("#reviewer")).to_have_text("Reviewing as Once")


@pytest.mark.parametrize(
    ("system", "other"), [("light", "dark"), pytest.param("dark", "light", marks=pytest.mark.full)]
)
def test_the_theme_follows_the_system_until_it_is_switched(
    browser: Browser, own_server: Server, system: str, other: str
) -> None:
    with opened(browser, own_server, color_scheme=system) as page:
        page.wait_for_selector("#detail .value")
        root, switch = page.locator("html"), page.locator("#theme")
        expect(root).to_have_attribute("data-theme", system)
        switch.click()
        expect(root).to_have_attribute("data-theme", other)
        expect(switch).to_have_attribute("aria-checked", json.dumps(other == "dark"))
        page.reload()
        page.wait_for_selector("#detail .value")
        expect(root).to_have_attribute("data-theme", other)
        page.keyboard.press("t")
        expect(root).to_have_attribute("data-theme", system)


def test_the_first_value_can_be_judged(browser: Browser, own_server: Server) -> None:
    """Its patient has a measured value about a year away or nearer, drawn as used."""
    with opened(browser, own_server) as page:
        page.wait_for_selector("#detail .value")
        expect(page.locator("#detail .state")).to_contain_text("Released")
        expect(page.locator("#chart .used:not([hidden])").first).to_be_visible()
        expect(page.locator("#title")).to_have_text("Total cholesterol")
        expect(page.locator("#other-labs svg")).to_contain_text("Alkaline phosphatase")


def test_limits_are_drawn_where_a_patient_comes_near_them(browser: Browser, own_server: Server) -> None:
    with opened(browser, own_server) as page:
        page.wait_for_selector("#detail .value")
        for _ in range(12):
            if page.locator("#chart .limit").count():
                break
            before = page.url
            page.keyboard.press("n")
            page.wait_for_function("before => location.href !== before", arg=before)
            page.wait_for_selector("#chart svg, #chart circle")
            page.wait_for_timeout(300)
        expect(page.locator("#chart .limit").first).to_be_attached()


def test_a_risk_above_the_level_is_explained(browser: Browser, own_server: Server) -> None:
    """And the first value offered is not one of them: the release stands for it by itself."""
    with opened(browser, own_server) as page:
        page.wait_for_selector("#detail .value")
        level = page.evaluate("fetch('api/run').then((answer) => answer.json())")["fdr"]
        explained = page.locator("#detail", has_text="speaks of all released values")
        expect(explained).to_have_count(0)
        all_of_them = page.inner_text("#found")
        page.select_option("[name=release]", "released")
        expect(page.locator("#found")).not_to_have_text(all_of_them)
        released = page.inner_text("#found")
        page.click("#more-filters summary")
        page.fill("[name=risk_from]", str(level + 1e-9))
        expect(page.locator("#found")).not_to_have_text(released)
        leading = page.locator("#patients button").first
        leading.click()
        expect(page.locator("#subject")).to_have_text(leading.locator(".who").inner_text())
        for each in page.locator("g.mark.released").all():
            each.focus()
            page.keyboard.press("Enter")
            if explained.count():
                return
        pytest.fail("no released value above the level was found")


def test_values_set_aside_are_drawn_and_marked(browser: Browser, own_server: Server) -> None:
    with opened(browser, own_server) as page:
        page.wait_for_selector("#detail .value")
        expect(page.locator("#legend-aside")).to_be_hidden()
        page.goto(f"{own_server.base}/#patient={ASIDE}")
        page.reload()
        squares = page.locator("#chart rect.aside")
        expect(squares.first).to_be_visible()
        assert page.locator("#chart circle.measured").count() == 0
        expect(page.locator("#legend-aside")).to_have_text("measured, set aside to check the promise")
        squares.first.hover()
        expect(page.locator("#tip")).to_contain_text("set aside to check the promise, not used")


def test_an_empty_release_says_what_would_release(browser: Browser, own_server: Server) -> None:
    told = {"released": 0, "next_step": "The nearest that would: a level of 0.3 would have released 41."}

    def empty(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | told)

    with opened(browser, own_server) as page:
        page.route("**/api/run", empty)
        page.reload()
        page.wait_for_selector("#patients button")
        expect(page.locator("#next")).to_contain_text("a level of 0.3 would have released 41")
