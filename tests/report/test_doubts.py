"""The report where a release is empty, bounded or in doubt, and its configuration."""

import re
from typing import cast

import pytest

from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.report.charts import draw_charts
from safeimpute.report.content import sensitivity_words
from safeimpute.report.html import render_report
from safeimpute.report.run_folder import Manifest


@pytest.mark.parametrize(
    ("released", "expected"),
    [
        ([164, 120, 0, 0], "of 1.5 either way, 120 of the 164 values could still be released; by a factor of 2 none"),
        ([164, 0, 0, 0], "A factor of 1.5 would already leave none"),
        ([164, 150, 140, 30], "off by a factor of 3 either way, 30 of the 164"),
    ],
)
def test_an_unseen_reason_is_one_sentence(summary: RunSummary, released: list[int], expected: str) -> None:
    rows = [{"gamma": gamma, "released": count} for gamma, count in zip((1.0, 1.5, 2.0, 3.0), released, strict=True)]
    doubted = cast("RunSummary", {**summary, "released": 164, "sensitivity": rows})
    assert expected in sensitivity_words(doubted)
    picture = draw_charts(doubted)["sensitivity"]
    assert picture is not None
    assert len(re.findall("<rect", picture)) == sum(count > 0 for count in released)
    for count in released:
        assert f">{count}</text>" in picture


def test_the_bound_is_drawn_to_size(summary: RunSummary, manifest: Manifest) -> None:
    bound = {**summary["bound"], "values": 200, "risky": 50, "words": "At most 50 of 200."}
    page = render_report(cast("RunSummary", {**summary, "fdr": 0.1, "bound": bound}), manifest)
    bar = '<div class="bound-bar" aria-hidden="true"><div style="width: 25.0%"></div>'
    assert f'{bar}<i style="width: 10.0%"></i></div>' in page, "what the level allows, and what bad luck may add"
    alone = cast("RunSummary", {**summary, "bound": {**bound, "headline": ""}})
    assert f"{bar}</div>" in render_report(alone, manifest), "without a promise no level is drawn"


def test_one_sentence_with_one_number_heads_the_report(summary: RunSummary, manifest: Manifest) -> None:
    header = render_report(summary, manifest).partition("<main>")[0]
    (said,) = re.findall(r'<p class="headline">(.*?)</p>', header)
    assert said.replace("\u00a0", " ").replace("\u202f", " ") == summary["bound"]["headline"]
    assert "confidence" not in header


def test_how_much_hangs_on_the_draw_stands_beside_the_bound(summary: RunSummary, manifest: Manifest) -> None:
    page = render_report(summary, manifest)
    assert summary["stability"]["words"] in page.split('id="measuring"')[0]
    nothing = cast("RunSummary", {**summary, "stability": {**summary["stability"], "words": ""}})
    assert summary["stability"]["words"] not in render_report(nothing, manifest)


def test_every_setting_stands_in_the_folded_configuration(summary: RunSummary, manifest: Manifest) -> None:
    page = render_report(summary, manifest)
    folded = page.partition('<details class="configuration">')[2].partition("</details>")[0]
    for name in manifest["config"]:
        assert re.search(rf"<dt>{name}(\.|</dt>)", folded), name
