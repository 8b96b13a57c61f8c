"""reporting.md and model_card.md: every item answered by the run, or marked as the author's."""

import json
import re
from pathlib import Path

import pytest

from safeimpute.evaluation.completions import DRAWN, NOTHING_MISSING, RELEASED
from safeimpute.evaluation.downstream import Downstream, WayOutcome
from safeimpute.evaluation.drawn_run import DrawsSummary
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.report.evaluation_folder import downstream_rows, write_downstream
from safeimpute.report.figures import tipping_figure
from safeimpute.report.html import render_report
from safeimpute.report.reporting import AUTHOR, card_page, reporting_page, write_reporting
from safeimpute.report.run_folder import Manifest, tipping_table

DRAWS: DrawsSummary = {
    "draws": 20,
    "seed": 0,
    "missing": 821,
    "outside": 3,
    "coverage": {"0.9": 0.89},
    "correlation": {"steady": 0.1, "drifting": 0.4, "memory_days": 200.0},
    "tipping": [
        {
            "quantity": "mean",
            "reference": 300.0,
            "rows": [
                {"delta": d, "estimate": 310 + d / 2, "lower": 300.5 + d / 2, "upper": 320 + d / 2, "conclusion": c}
                for d, c in ((-30.0, "not settled"), (0.0, "above 300"), (30.0, "above 300"))
            ],
            "turns_below": -1.0,
            "turns_above": None,
            "words": "That turns where unmeasured values are 1 mg/dL lower than drawn.",
        }
    ],
}


def test_every_item_is_answered_or_left_to_the_author(summary: RunSummary, manifest: Manifest) -> None:
    page = reporting_page(summary, manifest, DRAWS)
    rows = re.findall(r"^\| (\d+[a-g]?\. [^|]+) \| (.+) \|$", page, re.MULTILINE)
    assert len(rows) == 24
    assert all(len(answer) > 20 for _, answer in rows)
    assert any(AUTHOR in answer for _, answer in rows)
    answers = dict(rows)
    assert f"missing at {summary['missing']:,} of" in next(v for k, v in answers.items() if k.startswith("11."))
    assert "20 draws of every missing value" in next(v for k, v in answers.items() if k.startswith("1e."))
    assert DRAWS["tipping"][0]["words"] in next(v for k, v in answers.items() if k.startswith("3b."))
    assert "not within each group" in next(v for k, v in answers.items() if k.startswith("14."))


def test_without_draws_the_author_is_told_to_make_them(summary: RunSummary, manifest: Manifest) -> None:
    assert "run again with --draws 20" in reporting_page(summary, manifest, None)


def test_a_name_cannot_break_the_table(summary: RunSummary, manifest: Manifest) -> None:
    odd: RunSummary = {**summary, "target": "a | b"}
    page = reporting_page(odd, manifest, None)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in page.splitlines() if row.startswith("| "))


def test_the_card_says_what_it_is_for(summary: RunSummary, manifest: Manifest) -> None:
    card = card_page(summary, manifest)
    for said in ("Intended use", "Not for", summary["promise"], "paper.gcn.width", "no random sample"):
        assert said in card


def test_pages_are_written_beside_the_results(tmp_path: Path, summary: RunSummary, manifest: Manifest) -> None:
    for name, content in (("summary.json", summary), ("run.json", manifest), ("draws.json", DRAWS)):
        (tmp_path / name).write_text(json.dumps(content))
    write_reporting(tmp_path)
    assert (tmp_path / "reporting.md").read_text().startswith("# Reporting missing cholesterol")
    assert (tmp_path / "model_card.md").read_text().startswith("# Model card: cholesterol")


def test_the_report_says_what_the_release_does_to_the_distribution(summary: RunSummary, manifest: Manifest) -> None:
    page = render_report(summary, manifest).replace("\u00a0", " ")
    assert "would release were measured at 274 mg/dL on average, those it would withhold at 362 mg/dL" in page
    assert "320 mg/dL from measured values alone and 309 mg/dL with released values filled in" in page
    assert "further away" in page
    assert "Use draws of every missing value" in page
    assert "0 to 59.0 mg/dL" in page or "0 to 59 mg/dL" in page


def test_tipping_points_as_table_and_picture(tmp_path: Path) -> None:
    assert tipping_table(DRAWS["tipping"])["delta"].to_list() == [-30.0, 0.0, 30.0]
    (tmp_path / "draws.json").write_text(json.dumps({"target": "a$b", "unit": "mg/dL", **DRAWS}))
    figure = tipping_figure(tmp_path)
    assert figure is not None
    figure.savefig(tmp_path / "t.svg")
    assert "turns at -1" in "".join(text.get_text() for text in figure.axes[0].texts)
    (tmp_path / "draws.json").write_text(json.dumps({**DRAWS, "tipping": []}))
    assert tipping_figure(tmp_path) is None


def _outcome(estimate: float, off: float) -> WayOutcome:
    return {
        "estimate": {"mean": estimate, "se": 0.1},
        "off": {"mean": off, "se": 0.1},
        "lower": estimate - 1,
        "upper": estimate + 1,
        "covers": 1.0,
        "width": 1.2,
        "spoken_for": 0.8,
        "behind": None,
    }


@pytest.fixture
def downstream() -> Downstream:
    ways = {NOTHING_MISSING: _outcome(7.5, 0.0), RELEASED: _outcome(7.1, -0.4), DRAWN: _outcome(7.5, 0.01)}
    advice = "mean: use draws, pooled."
    return {
        "splits": 3,
        "visits": 800,
        "hidden": 0.3,
        "released": 0.4,
        "quantities": [{"quantity": "mean", "kind": "estimate", "ways": ways, "advice": advice}],
    }


def test_downstream_is_one_table_one_figure_one_sentence_each(tmp_path: Path, downstream: Downstream) -> None:
    write_downstream(tmp_path, downstream, "hba1c", "%")
    page = (tmp_path / "downstream.md").read_text()
    assert "- mean: use draws, pooled." in page
    assert page.count("| mean |") == 1
    assert "-0.4 ± 0.1" in page
    assert (tmp_path / "figures" / "downstream.png").stat().st_size > 10_000
    assert len(downstream_rows(downstream)) == 3
    assert json.loads((tmp_path / "downstream.json").read_text()) == downstream
