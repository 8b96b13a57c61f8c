"""The pages for a hospital's review: filled from the run, silent about nothing it asks, true to what the code does."""

import html
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.evaluation.safeguards import TABLE_CLAIM, safeguards
from safeimpute.report.hospital import CLAIMS, HOSPITAL, render_hospital_review
from safeimpute.report.run_folder import Manifest
from safeimpute.settings import Settings


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.partition("<body>")[2])).split())


def row_of(page: str, name: str) -> list[str]:
    (row,) = re.findall(rf"<tr><td>{re.escape(name)}</td>(.*?)</tr>", page)
    return re.findall("<td>(.*?)</td>", row)


def test_the_four_documents_are_filled_from_the_run(summary: RunSummary, manifest: Manifest) -> None:
    page = render_hospital_review({**summary, "claim": "later"}, manifest, "ab12")
    assert re.findall("<h2>(.*?)</h2>", page) == ["Intended use", "Model card", "Change plan", "Monitoring plan"]
    said = text_of(page)
    for fact in (summary["promise"], summary["assumption"], summary["limits"], summary["cutoffs"][0]["words"]):
        assert fact in said
    assert row_of(page, "Missing") == [f"{summary['missing']:,}: {summary['released']:,} released, "
                                       f"{summary['withheld']:,} withheld"]  # fmt: skip
    assert row_of(page, "Model folder, SHA-256") == ["ab12"]
    assert "56.6" in said
    assert said.count(HOSPITAL) == 3
    assert "None" not in said


def test_what_may_change_is_what_recalibrate_changes(summary: RunSummary, manifest: Manifest) -> None:
    pages = {
        claim: render_hospital_review({**summary, "claim": claim}, manifest, "ab12")
        for claim in ("later", "unmeasured", "visits")
    }
    may = {claim: row_of(page, "Cut-off on the risk")[1] for claim, page in pages.items()}
    assert may == {"later": "yes", "unmeasured": "yes", "visits": "no"}
    for page in pages.values():
        assert {row_of(page, fixed)[1] for fixed in ("Level of the promise", "Tolerance")} == {"no"}
    assert "only while an alarm stands" in pages["later"]
    assert "only while an alarm stands" not in pages["unmeasured"]
    assert "monitor refuses its model" in pages["unmeasured"]
    assert "20 of equal weight, of patients worth 10" in pages["later"]  # 4 / 0.2 and 2 / 0.2


def test_the_tests_are_those_of_monitor(summary: RunSummary, manifest: Manifest) -> None:
    from safeimpute.monitoring.watch import ERROR

    page = render_hospital_review({**summary, "claim": "later"}, manifest, "")
    for name, chance in ERROR.items():
        assert row_of(page, name)[-1] == f"{100 * chance:g} %"
    assert "25 %, 30 %, 40 %" in text_of(page)
    assert row_of(page, "Model folder, SHA-256") == ["no model was saved"]


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_claim_is_one_that_settings_take(claim: str) -> None:
    assert Settings(target="a", tolerance="1", fdr=0.2, claim=claim).claim == claim  # type: ignore[arg-type]
    assert safeguards(claim, 0.2)["from_table"] == (claim != TABLE_CLAIM)


def test_names_cannot_write_markup(summary: RunSummary, manifest: Manifest) -> None:
    page = render_hospital_review({**summary, "target": "<script>x</script>"}, manifest, "")
    assert "<script>" not in page


def test_the_option_of_report_writes_it(run_folder: Path, summary: RunSummary) -> None:
    (run_folder / "model").mkdir()
    (run_folder / "model" / "model.json").write_text(json.dumps({"checksum": "cd" * 32}))
    done = CliRunner().invoke(app, ["report", str(run_folder), "--hospital"])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(run_folder / "hospital_review.html")
    assert "cd" * 32 in (run_folder / "hospital_review.html").read_text()
    assert not (run_folder / "report.html").exists()
