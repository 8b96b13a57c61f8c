"""A model fitted to a sample and calibrated on the whole table: alike on one machine, in batches, and on Spark."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.scored_cohorts import TOLERANCE, cohort_of, fit_visits
from safeimpute.cli import app
from safeimpute.errors import GuaranteeRefused
from safeimpute.model import whole_table
from safeimpute.model.labs import decided
from safeimpute.model.manifest import verified_manifest
from safeimpute.model.scorer import Scorer
from safeimpute.model.whole_table import calibrate_files

KEPT = ("scoring", "calibrated_on")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the whole table, for models fitted to a sample of its patients."""
    folder = tmp_path_factory.mktemp("whole")
    whole = cohort_of(600)
    whole.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(folder / "whole.parquet")
    return folder


def model_of(place: Path, promise: str) -> Path:
    """Fitted to a sample of the patients, once."""
    folder = place / promise
    if not folder.exists():
        sample = cohort_of(600).filter(pl.col("subject_id") <= 250)
        tolerance = 1.0 if promise == "confident" else TOLERANCE
        fit_visits(sample, "later", promise=promise, tolerance=tolerance).save(folder)
    return folder


def facts(folder: Path) -> dict[str, object]:
    manifest: dict[str, object] = dict(verified_manifest(folder))
    return {name: manifest[name] for name in KEPT} | {"files": manifest["files"]}


@pytest.mark.parametrize("promise", ["average", pytest.param("confident", marks=pytest.mark.full)])
def test_the_cutoff_rests_on_all_patients(place: Path, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = calibrate_files(model_of(place, promise), place / "whole.parquet", place / f"{promise}-one")
    assert found.patients == 600
    assert found.auc is not None
    assert sum(row[0] for row in found.calibration) == found.visits
    old, new = (Scorer.load(place / name).model.cutoffs[0] for name in (promise, f"{promise}-one"))
    assert new.patients > 1.5 * old.patients
    assert new.risk is not None
    assert new.share is not None
    assert new.share <= 0.2
    scored = Scorer.load(place / f"{promise}-one").score(pl.read_parquet(place / "whole.parquet"))
    assert 0 < scored["released"].sum() < len(scored)
    monkeypatch.setattr(whole_table, "VISITS_AT_ONCE", 100)
    calibrate_files(place / promise, place / "whole.parquet", place / f"{promise}-many")
    assert facts(place / f"{promise}-many") == facts(place / f"{promise}-one"), "batches change no byte"


def test_the_command_and_doctor(place: Path, tmp_path: Path) -> None:
    told = ["recalibrate", model_of(place, "average"), "--visits", place / "whole.parquet", "-o", tmp_path / "new"]
    done = CliRunner().invoke(app, [str(each) for each in told], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "600 patients" in done.output
    said = CliRunner().invoke(app, ["doctor", str(tmp_path / "new")], catch_exceptions=False)
    assert "cut-off" in said.output


@pytest.mark.full
def test_a_claim_without_a_ledger_is_refused(tmp_path: Path) -> None:
    visits = cohort_of(250)
    fit_visits(visits, "visits").save(tmp_path / "model")
    visits.write_parquet(tmp_path / "v.parquet")
    with pytest.raises(GuaranteeRefused, match="'visits'"):
        calibrate_files(tmp_path / "model", tmp_path / "v.parquet", tmp_path / "new")


@pytest.mark.full
@pytest.mark.parametrize("promise", ["average", "confident"])
def test_spark_equals_local_to_the_byte(place: Path, promise: str) -> None:
    pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'safeimpute[spark]'")
    import os
    import sys

    from pyspark.sql import SparkSession

    from safeimpute.spark.calibrate import calibrate

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    local = place / f"{promise}-local"
    calibrate_files(model_of(place, promise), place / "whole.parquet", local)
    table = session.read.parquet(str(place / "whole.parquet"))
    for partitions in (1, 3):
        there = place / f"{promise}-spark-{partitions}"
        found = calibrate(table, place / promise, there, partitions=partitions)
        assert facts(there) == facts(local)
        assert json.loads(json.dumps(found.calibration)) == verified_manifest(there)["calibrated_on"]["calibration"]
    session.stop()


def test_levels_chosen_after_looking_stay_without_a_promise(tmp_path: Path) -> None:
    sample = cohort_of(600).filter(pl.col("subject_id") <= 250)
    fit_visits(sample, "later", tolerance=TOLERANCE).save(tmp_path / "model", second_look=True)
    sample.write_parquet(tmp_path / "all.parquet")
    with pytest.raises(GuaranteeRefused, match="chosen after looking"):
        calibrate_files(tmp_path / "model", tmp_path / "all.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("claim", "options"),
    [
        ("unmeasured", {"groups": ("value",)}),
        ("later", {}),
        pytest.param("unmeasured", {"promise": "confident"}, marks=pytest.mark.full),
    ],
)
def test_on_its_own_table_a_fit_decides_the_same_to_the_byte(
    tmp_path: Path, claim: str, options: dict[str, Any]
) -> None:
    visits = cohort_of(300)
    imputer = fit_visits(visits, claim, tolerance=1.0, **options)
    imputer.impute(visits)
    imputer.save(tmp_path / "model")
    visits.write_parquet(tmp_path / "visits.parquet")
    calibrate_files(tmp_path / "model", tmp_path / "visits.parquet", tmp_path / "again")
    again = Scorer.load(tmp_path / "again").one.model.cutoffs
    assert again == decided(imputer.labs_["hba1c"]).cutoffs
    assert any(each.risk is not None for each in again.values())
