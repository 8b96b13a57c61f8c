"""The report page: says what the summary says, loads nothing, and lets no name in the data act as markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest

from safeimpute.errors import OptionError
from safeimpute.evaluation.run_summary import Histogram, RunSummary
from safeimpute.evaluation.summary import as_second_look
from safeimpute.machine.files import plain_text
from safeimpute.report.charts import draw_charts, from_zero, nice_ticks
from safeimpute.report.content import answer, page_content
from safeimpute.report.html import render_report, write_report
from safeimpute.report.palette import number, percent
from safeimpute.report.run_folder import InputRecord, Manifest

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x07\u202e{{ 7*7 }}$x$"
SECTIONS = ["promise", "measuring", "curve", "gathering", "released", "risk", "data", "accuracy", "subgroups", "card"]


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


def _text(page: str) -> str:
    """The visible text with plain spaces."""
    return " ".join(" ".join(Tags(page).text).replace("\u00a0", " ").split())


def _numbers(sentence: str) -> list[int]:
    without_share = re.sub(r"\([^)]*\)", "", sentence)
    return [int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", without_share)]


def test_answer_repeats_the_summary(run_folder: Path, summary: RunSummary) -> None:
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
def test_answer_of_edge_cases(summary: RunSummary, missing: int, released: int, expected: str) -> None:
    edge: RunSummary = {**summary, "missing": missing, "released": released, "withheld": missing - released}
    assert expected in answer(edge)


def test_sections_stand_in_order(summary: RunSummary, manifest: Manifest) -> None:
    sections = [attrs["id"] for tag, attrs in Tags(render_report(summary, manifest)).tags if tag == "section"]
    assert sections == SECTIONS


def test_promise_assumption_and_limits_are_printed(summary: RunSummary, manifest: Manifest) -> None:
    text = _text(render_report(summary, manifest))
    for said in (summary["promise"], summary["assumption"], summary["limits"]):
        assert said in text
    assert "not within each group" in text
    assert "Exploration, not a promise" in text
    assert "a level chosen after looking carries no promise" in text
    assert summary["distribution"]["warning"] in text
    assert "validation" not in text


def test_the_cutoff_stands_in_words_and_on_the_risk(summary: RunSummary, manifest: Manifest) -> None:
    page = render_report(summary, manifest)
    assert summary["cutoffs"][0]["words"] in _text(page)
    chart = draw_charts(summary)["by_risk"]
    assert chart is not None
    assert "cut-off 0.433" in chart
    assert str(chart) in page


def test_cutoffs_of_groups_do_not_stand_on_one_another(summary: RunSummary) -> None:
    several = [{**summary["cutoffs"][0], "risk": risk, "group": f"{risk}"} for risk in (0.2, 0.41, 0.433, 0.433)]
    chart = draw_charts(cast("RunSummary", {**summary, "cutoffs": several}))["by_risk"]
    assert chart is not None
    assert "cut-off" not in chart
    assert ">0.200<" in chart
    assert ">0.410<" in chart
    assert ">0.433<" not in chart


def test_who_gets_measured_is_told(summary: RunSummary, manifest: Manifest) -> None:
    text = _text(render_report(summary, manifest))
    measuring = summary["measuring"]
    assert measuring is not None
    assert "How well can we tell who gets measured?" in text
    for said in (measuring["words"], measuring["effective_size"], "days since albumin: higher at unmeasured visits"):
        assert said in text
    assert "Not seen by this model: remark (text with many different entries)" in text
    assert "3 percentage points off" in text
    assert "an analysis, no promise" in text
    complete: RunSummary = {**summary, "measuring": {**measuring, "not_used": {}}}
    assert "A gap" not in _text(render_report(complete, manifest))


def test_a_claim_that_does_not_look_at_measuring_says_so(summary: RunSummary, manifest: Manifest) -> None:
    paper: RunSummary = {
        **summary,
        "claim": "visits",
        "preset": "paper",
        "measuring": None,
        "sensitivity": [],
        "judged": 169,
        "risk_is_probability": False,
    }
    text = _text(render_report(paper, manifest))
    assert "does not look at who gets measured" in text
    assert "169 were set aside to decide the release" in text
    assert "unseen reason" not in text
    assert "score without a unit" in text


def test_page_loads_nothing_from_elsewhere(summary: RunSummary, manifest: Manifest) -> None:
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


def test_policy_allows_only_our_script(summary: RunSummary, manifest: Manifest) -> None:
    import base64
    import hashlib

    page = render_report(summary, manifest)
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(a["content"] for _, a in Tags(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def _hostile(summary: RunSummary, manifest: Manifest) -> tuple[RunSummary, Manifest]:
    """Every text the data or the command line can set carries markup."""
    text = json.dumps(summary).replace('"cholesterol"', json.dumps(HOSTILE))
    hostile = cast("RunSummary", json.loads(text))
    for key in ("promise", "assumption", "limits", "tolerance_in_words"):
        hostile[key] = f"{summary[key]} {HOSTILE}"
    assert hostile["measuring"] is not None
    hostile["measuring"]["reasons"][0]["column"] = HOSTILE
    hostile["measuring"]["columns"] = [HOSTILE]
    hostile["measuring"]["not_used"] = {HOSTILE: HOSTILE}
    hostile["cutoffs"][0]["words"] = hostile["reason_words"][HOSTILE] = HOSTILE
    hostile["unit"] = HOSTILE
    hostile["withheld_by_reason"] = {HOSTILE: summary["withheld"]}
    hostile["subgroups"][0]["title"] = HOSTILE
    hostile["subgroups"][0]["groups"][0]["group"] = HOSTILE
    hostile["data"]["attributes"] = [HOSTILE]
    hostile["data"]["ignored"] = {HOSTILE: HOSTILE}
    hostile["data"]["high_cardinality"] = [HOSTILE]
    config = {**manifest["config"], "target": HOSTILE, "exclude": [HOSTILE]}
    source: InputRecord = {**manifest["input"], "file": HOSTILE, "dropped_rows": {HOSTILE: 1}}
    return hostile, {**manifest, "config": config, "input": source}


def test_hostile_names_stay_inert(summary: RunSummary, manifest: Manifest) -> None:
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


def test_numbers_of_every_table_come_from_the_summary(summary: RunSummary, manifest: Manifest) -> None:
    content: Any = page_content(summary, manifest)
    assert [row["cells"][2] for row in content["curve_rows"]] == [f"{p['released']:,}" for p in summary["curve"]]
    assert sum(row["chosen"] for row in content["curve_rows"]) == 1
    assert [row["error"].split("\u00a0")[0] for row in content["accuracy"]] == [
        number(error) for error in summary["accuracy"]["mae"].values()
    ]
    groups = summary["subgroups"][0]["groups"]
    assert [g["released"] for g in content["subgroups"][0]["groups"]] == [f"{g['released']:,}" for g in groups]
    assert {row["lab"] for row in content["data"]["heat_map"]} == set(summary["data"]["labs"])


def test_bars_of_the_value_chart_add_up(summary: RunSummary) -> None:
    chart = draw_charts(summary)["by_value"]
    assert chart is not None
    tips = set(re.findall(r'data-tip="[^"]*?: ([\d,]+) released, ([\d,]+) withheld"', chart))
    bars = len(re.findall(r'data-tip="', chart))
    histogram = summary["by_value"]
    assert bars == sum(map(bool, histogram["released"])) + sum(map(bool, histogram["withheld"]))
    expected = set(zip(map(str, histogram["released"]), map(str, histogram["withheld"]), strict=True))
    assert tips == {pair for pair in expected if pair != ("0", "0")}


def test_a_run_without_missing_values_renders(summary: RunSummary, manifest: Manifest) -> None:
    empty: Histogram = {"edges": [], "released": [], "withheld": []}
    nothing: RunSummary = {
        **summary,
        "missing": 0,
        "released": 0,
        "withheld": 0,
        "withheld_by_reason": {},
        "by_risk": empty,
        "by_value": empty,
        "by_gap": {**empty, "no_earlier_value": {"released": 0, "withheld": 0}},
        "subgroups": [],
        "unit": None,
    }
    page = render_report(nothing, manifest)
    assert "nothing to impute" in page
    assert "No value is missing." in page
    assert "None" not in " ".join(Tags(page).text)


def test_page_stays_small(summary: RunSummary, manifest: Manifest) -> None:
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


def test_a_second_look_is_told_as_such(summary: RunSummary, manifest: Manifest) -> None:
    text = _text(render_report(as_second_look(summary), manifest))
    assert "No guarantee" in text
    assert "Promised" not in text
    assert "Second look at the same visits: no guarantee." in text
    assert "An earlier run showed these visits" in text
    assert "nothing is guaranteed" in text
    assert "on average at most 20" not in text
    assert "Promised" in _text(render_report(summary, manifest))


def test_a_refusal_says_why_and_what_would_help(summary: RunSummary, manifest: Manifest) -> None:
    why = "a level of 0.05 needs 100 patients; these are worth 60. Give more patients, or a level of 0.09"
    refused: RunSummary = {
        **summary,
        "promise": "",
        "assumption": "",
        "limits": "",
        "no_promise": why,
        "released": 0,
        "withheld": summary["missing"],
    }
    text = _text(render_report(refused, manifest))
    assert "No guarantee" in text
    assert "A level of 0.05 needs 100 patients" in text
    assert "Promised" not in text


def test_an_empty_release_says_what_would_release(summary: RunSummary, manifest: Manifest) -> None:
    nearest = "None was released. The nearest that would: a level of 0.3 would have released 246."
    empty: RunSummary = {**summary, "released": 0, "withheld": summary["missing"], "next_step": nearest}
    assert nearest in _text(render_report(empty, manifest))
    assert nearest not in _text(render_report({**summary, "next_step": nearest}, manifest))


def test_a_confident_promise_is_told_with_its_confidence(summary: RunSummary, manifest: Manifest) -> None:
    confident: RunSummary = {**summary, "promise_kind": "confident"}
    text = _text(render_report(confident, manifest))
    assert "with 90 % confidence at most 20 % of the released values" in text
    assert "asked for 90 % confidence and released" in text


def test_a_summary_of_another_version_is_refused(run_folder: Path) -> None:
    old = json.loads((run_folder / "summary.json").read_text())
    del old["cutoffs"]
    (run_folder / "summary.json").write_text(json.dumps(old))
    with pytest.raises(OptionError, match="this version"):
        write_report(run_folder)
