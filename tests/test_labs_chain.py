"""The whole chain for several labs on the command line: run, report, score, review page, evaluate, audit."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import OptionError
from test_several_labs import LABS, visits_table

pytestmark = pytest.mark.full
TOLD = ["--target", "first,second", "--tolerance", "first=2,second=15%", "--fdr", "0.2", "--seed", "1"]


def typed(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("labs")
    visits_table().write_parquet(place / "visits.parquet")
    (place / "quick.toml").write_text("[best]\nfolds = 3\n")
    quick = ["--config", str(place / "quick.toml")]
    said = typed("run", str(place / "visits.parquet"), *TOLD, *quick, "--why", "--out", str(place / "run"))
    (place / "said.txt").write_text(said)
    return place


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run" / "summary.json").read_text()))


def test_the_run_says_every_lab_and_what_it_promises(folder: Path) -> None:
    said = (folder / "said.txt").read_text()
    for words in (*LABS, "all labs", "For each of 2 labs by itself", "light fit: 3 folds"):
        assert words in said


def test_the_folder_holds_long_and_wide_tables_and_a_folder_per_lab(folder: Path) -> None:
    run, summary = folder / "run", summary_of(folder)
    long = pl.read_parquet(run / "imputations.parquet")
    assert summary["missing"] == len(long)
    assert summary["released"] == long["released"].sum() == sum(s["released"] for s in summary["labs"].values())
    wide = pl.read_parquet(run / "filled.parquet")
    assert sum(wide[f"{lab}_released"].sum() for lab in LABS) == summary["released"]
    for lab, line in summary["labs"].items():
        own = pl.read_parquet(run / line["folder"] / "imputations.parquet")
        assert own.equals(long.filter(pl.col("lab") == lab))
        assert (run / line["folder"] / "figures").is_dir()


def test_the_report_has_a_page_per_lab_and_loads_nothing(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text()
    assert page.count('<article class="page"') == len(LABS)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert page.count("<body>") == page.count("<script>") == page.count("<main>") == 1
    before = page
    typed("report", str(folder / "run"))
    assert (folder / "run" / "report.html").read_text() == before


def test_new_visits_are_scored_against_all_labs(folder: Path) -> None:
    out = folder / "scored.parquet"
    said = typed("score", str(folder / "run" / "model"), str(folder / "visits.parquet"), "-o", str(out))
    scored = pl.read_parquet(out)
    assert set(scored["lab"]) == set(LABS)
    assert scored["released"].sum() == summary_of(folder)["released"]
    assert "first missing at" in said
    assert "second missing at" in said
    with pytest.raises(OptionError, match="one lab at a time"):
        typed("score", str(folder / "run" / "model"), str(folder / "visits.parquet"), "-o", "x", "--engine", "spark")


def test_another_level_is_a_second_look_of_every_lab(folder: Path) -> None:
    out = folder / "again"
    typed("rerun", str(folder / "run"), "--tolerance", "first=2,second=15%", "--fdr", "0.3", "--out", str(out), "-q")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["second_look"]
    assert not summary["promise"]
    assert all(line["second_look"] for line in summary["labs"].values())


def test_one_page_reviews_all_labs(folder: Path) -> None:
    review = pytest.importorskip("helpers.review_client")

    from safeimpute.web.app import create_app, open_reviews
    from safeimpute.web.decisions import log_beside

    run = folder / "run"
    page = create_app(run, open_reviews(run), review.ACCESS)
    with review.TestClient(page, base_url=review.BASE, headers={"origin": review.BASE}) as client:
        assert client.get("/labs/1/api/run").status_code == 403
        first = client.get(f"/?token={review.ACCESS.token}")
        assert first.url.path == "/labs/1/"
        assert 'id="lab-list"' in first.text
        told = client.get("/labs/2/api/run").json()
        assert told["target"] == "second"
        assert [each["lab"] for each in told["labs"]] == list(LABS)
        assert client.get("/report").status_code == client.get("/labs/2/report").status_code == 200
        released = pl.read_parquet(run / "labs" / "02-second" / "imputations.parquet")["released"].arg_true()[0]
        given = {"imputation": int(released), "kind": "accept", "reviewer": "a"}
        assert client.post("/labs/2/api/decisions", json=given).json()["progress"]["accepted"] == 1
        assert client.get("/labs/1/api/run").json()["progress"]["accepted"] == 0
        export = client.get("/export/accepted.csv").text.splitlines()
        assert len(export) == 2
        assert ",second," in export[1]
    assert log_beside(run).is_file()


@pytest.mark.parametrize("over", ["labs", "cells"])
def test_evaluate_has_each_lab_and_all_of_them(folder: Path, over: str) -> None:
    out = folder / f"evaluation-{over}.json"
    more = ["--fdr", "0.2,0.3", "--splits", "2", "--over", over, "--json", str(out)]
    quick = ["--config", str(folder / "quick.toml")]
    typed("evaluate", str(folder / "visits.parquet"), *TOLD, *more, *quick, "--out", str(folder / f"e-{over}"))
    found = json.loads(out.read_text())
    assert list(found["labs"]) == list(LABS)
    alone = {"preset", "target", "tolerance", "imputation", "release", "risk_auc", "seconds", "peak_mib"}
    assert all(alone <= each.keys() for each in found["labs"].values())
    assert [row["fdr"] for row in found["release"]] == [0.2, 0.3]
    assert (found["over"], found["effort"][:9]) == (over, "light fit")
    for place, row in enumerate(found["release"]):
        shares = [each["release"][place]["acceptance"]["mean"] for each in found["labs"].values()]
        assert min(shares) <= row["acceptance"]["mean"] <= max(shares)
        assert row["mae"]["mean"] is None
    assert (folder / f"e-{over}" / "labs" / "01-first" / "evaluation.json").is_file()


def test_audit_has_each_lab_and_all_of_them(folder: Path) -> None:
    out = folder / "audit.json"
    quick = ["--config", str(folder / "quick.toml"), "--splits", "1", "--json", str(out)]
    said = typed("audit", str(folder / "visits.parquet"), *TOLD, *quick)
    found = json.loads(out.read_text())
    assert list(found["labs"]) == list(LABS)
    assert all(row["fdr"] == 0.2 for row in found["levels"])
    assert "All 2 labs together" in said
