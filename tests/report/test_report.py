"""The report page: says what the summary says, loads nothing, and lets no name in the data act as markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from safeimpute.errors import OptionError
from safeimpute.report.charts import draw_charts
from safeimpute.report.content import answer, page_content
from safeimpute.report.html import render_report, write_report
from safeimpute.report.palette import number, percent, plain_text
from safeimpute.report.svg import from_zero, nice_ticks

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x07\u202e{{ 7*7 }}$x$"
SECTIONS = ["promise", "curve", "released", "risk", "data", "accuracy", "subgroups", "card"]


class Tags(HTMLParser):
    """Every start tag with its attributes, and the visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _numbers(sentence: str) -> list[int]:
    without_share = re.sub(r"\([^)]*\)", "", sentence)
    return [int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", without_share)]


def test_answer_repeats_the_summary(run_folder: Path, summary: dict[str, Any]) -> None:
    page = write_report(run_folder).read_text()
    heading = re.search(r'<h1 id="answer">(.*?)</h1>', page)
    assert heading is not None
    stored = json.loads((run_folder / "summary.json").read_text())
    assert _numbers(heading[1]) == [stored["missing"], stored["released"], stored["withheld"]]
    share = re.search(r"\((\d+)\s%\)", heading[1])
    assert share is not None
    assert abs(int(share[1]) - 100 * stored["released"] / stored["missing"]) <= 0.5


@pytest.mark.parametrize(
    ("missing", "released", "expected"),
    [(0, 0, "nothing to impute"), (50, 0, "none can be released"), (50, 50, "50 (100\u00a0%) are released")],
)
def test_answer_of_edge_cases(summary: dict[str, Any], missing: int, released: int, expected: str) -> None:
    edge = {**summary, "missing": missing, "released": released, "withheld": missing - released}
    assert expected in answer(edge)


def test_sections_stand_in_order(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    sections = [attrs["id"] for tag, attrs in Tags(render_report(summary, manifest)).tags if tag == "section"]
    assert sections == SECTIONS


def test_promise_assumption_and_limits_are_printed(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    text = " ".join(Tags(render_report(summary, manifest)).text)
    for key in ("promise", "assumption", "limits"):
        assert summary[key] in text
    assert "not within each group" in text
    assert "Exploration on validation values, not a promise" in text


def test_sensitivity_and_cutoff_are_told_where_there_are_any(
    summary: dict[str, Any], manifest: dict[str, Any]
) -> None:
    rows = [{"gamma": 1.0, "released": 4711}, {"gamma": 1.5, "released": 17}]
    told = summary | {"sensitivity": rows, "cutoff": {"risk": 0.2, "words": "In the long run."}}
    text = " ".join(Tags(render_report(told, manifest)).text)
    assert "4,711" in text
    assert "In the long run." in text
    silent = summary | {"sensitivity": [], "cutoff": None}
    assert "unseen reason" not in render_report(silent, manifest)


def test_page_loads_nothing_from_elsewhere(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    page = render_report(summary, manifest)
    tags = Tags(page).tags
    for tag, attrs in tags:
        for name in ("src", "href", "action", "data", "srcset", "poster", "xlink:href"):
            assert (attrs.get(name) or "data:image/png").startswith("data:image/png"), (tag, attrs)
    assert not {tag for tag, _ in tags} & {"link", "iframe", "object", "embed", "base", "form"}
    assert "@import" not in page
    assert "url(" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_policy_allows_only_our_script(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    import base64
    import hashlib

    page = render_report(summary, manifest)
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(
        a["content"] for _, a in Tags(page).tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def _hostile(summary: dict[str, Any], manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every text the data or the command line can set carries markup."""
    text = json.dumps(summary).replace('"cholesterol"', json.dumps(HOSTILE))
    bad = json.loads(text)
    bad |= {
        key: f"{summary[key]} {HOSTILE}" for key in ("promise", "assumption", "limits", "tolerance_in_words")
    }
    bad["unit"] = HOSTILE
    bad["withheld_by_reason"] = {HOSTILE: summary["withheld"]}
    bad["subgroups"][0]["title"] = HOSTILE
    bad["subgroups"][0]["groups"][0]["group"] = HOSTILE
    bad["data"]["attributes"] = [HOSTILE]
    bad["data"]["ignored"] = {HOSTILE: HOSTILE}
    config = {**manifest["config"], "target": HOSTILE, "exclude": [HOSTILE]}
    source = {**manifest["input"], "file": HOSTILE, "dropped_rows": {HOSTILE: 1}}
    return bad, {**manifest, "config": config, "input": source}


def test_hostile_names_stay_inert(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    clean, dirty = Tags(render_report(summary, manifest)), Tags(render_report(*_hostile(summary, manifest)))
    for tag in ("script", "img", "style"):
        count = sum(name == tag for name, _ in clean.tags)
        assert sum(name == tag for name, _ in dirty.tags) == count, tag
    assert not [attrs for _, attrs in dirty.tags if any(name.startswith("on") for name in attrs)]
    shown = " ".join(dirty.text)
    assert "<script>alert(1)</script>" in shown  # as text
    assert "{{ 7*7 }}" in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown


def test_numbers_of_every_table_come_from_the_summary(
    summary: dict[str, Any], manifest: dict[str, Any]
) -> None:
    content = page_content(summary, manifest)
    validation = summary["validation"]
    assert [row["cells"][1] for row in content["curve_rows"]] == [
        f"{p['released']:,}" for p in validation["curve"]
    ]
    assert sum(row["chosen"] for row in content["curve_rows"]) == 1
    assert [row["error"].split("\u00a0")[0] for row in content["accuracy"]] == [
        number(error) for error in validation["mae"].values()
    ]
    groups = summary["subgroups"][0]["groups"]
    assert [g["released"] for g in content["subgroups"][0]["groups"]] == [
        f"{g['released']:,}" for g in groups
    ]
    assert {row["lab"] for row in content["data"]["heat_map"]} == set(summary["data"]["labs"])


def test_bars_of_the_value_chart_add_up(summary: dict[str, Any]) -> None:
    chart = draw_charts(summary)["by_value"]
    assert chart is not None
    tips = set(re.findall(r'data-tip="[^"]*?: ([\d,]+) released, ([\d,]+) withheld"', chart))
    bars = len(re.findall(r'data-tip="', chart))
    histogram = summary["by_value"]
    assert bars == sum(map(bool, histogram["released"])) + sum(map(bool, histogram["withheld"]))
    expected = set(zip(map(str, histogram["released"]), map(str, histogram["withheld"]), strict=True))
    assert tips == {pair for pair in expected if pair != ("0", "0")}


def test_a_run_without_missing_values_renders(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    empty = {"edges": [], "released": [], "withheld": []}
    nothing = summary | {
        "missing": 0,
        "released": 0,
        "withheld": 0,
        "withheld_by_reason": {},
        "by_value": empty,
        "by_gap": {**empty, "no_earlier_value": {"released": 0, "withheld": 0}},
        "subgroups": [],
        "unit": None,
    }
    page = render_report(nothing, manifest)
    assert "nothing to impute" in page
    assert "No value is missing." in page
    assert "None" not in " ".join(Tags(page).text)


def test_page_stays_small(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    wide = json.loads(json.dumps(summary))
    names = [f"lab {i}" for i in range(300)]
    wide["data"] |= {
        "labs": names,
        "observed_share": dict.fromkeys(names, 0.5),
        "heat_map": [[0.5] * len(names) for _ in range(240)],
    }
    page = render_report(wide, manifest)
    assert len(page.encode()) < 1_000_000
    assert "260 less often measured labs" in page


def test_an_unfinished_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"summary\.json"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_formats() -> None:
    assert [percent(share) for share in (0.0, 0.001, 0.36, 0.999, 1.0)] == [
        "0\u00a0%",
        "<\u00a01\u00a0%",
        "36\u00a0%",
        ">\u00a099\u00a0%",
        "100\u00a0%",
    ]
    assert [number(value) for value in (0, 1945, 63.456, 0.01234, 12345.6)] == [
        "0",
        "1,945",
        "63.5",
        "0.0123",
        "12,346",
    ]
    assert plain_text("a" * 50, 10) == "a" * 9 + "…"


def test_ticks_are_round_and_inside() -> None:
    assert nice_ticks(0.0, 0.5) == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert from_zero(407, "", number, whole=True).high >= 407
    assert from_zero(1, "", number, whole=True).ticks == (0.0, 1.0)


def test_a_level_chosen_after_looking_is_told_as_such(
    summary: dict[str, Any], manifest: dict[str, Any]
) -> None:
    text = " ".join(Tags(render_report(summary, manifest | {"levels_chosen_after_looking": True})).text)
    assert "No guarantee" in text
    assert "Promised" not in text
    assert "chosen after looking: nothing is guaranteed" in text
    assert "on average at most 20" not in text
    assert "Promised" in " ".join(Tags(render_report(summary, manifest)).text)
