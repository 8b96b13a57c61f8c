"""Scoring on Spark gives the local engine's rows and account, whatever the partitions, batches and losses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.scored_cohorts import KEYS, cohort_of, fit_visits, fitted_cohort, new_visits, returning
from safeimpute.cli import app
from safeimpute.errors import MissingExtra, VisitsError
from safeimpute.model.scorer import Scorer

pytestmark = pytest.mark.full
pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'safeimpute[spark]'")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def with_site(visits: pl.DataFrame, seed: int) -> pl.DataFrame:
    """A text column of 40 levels, some of which are never measured at."""
    number = pl.Series(np.random.default_rng(seed).integers(0, 40, len(visits)))
    hidden = pl.when(number < 6).then(None).otherwise(pl.col("hba1c"))
    return visits.with_columns(site=pl.lit("site ") + number.cast(pl.String), hba1c=hidden)


def saved(claim: str, factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp("spark") / "model"
    fit_visits(with_site(cohort_of(250), 1), claim).save(folder)
    return folder


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("unmeasured", tmp_path_factory)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("later", tmp_path_factory)


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    """New patients, known ones, and known ones who came back, in no order."""
    known = cohort_of(250)
    everyone = pl.concat([new_visits(), known.filter(pl.col("subject_id") <= 30), returning(known, range(31, 61))])
    return with_site(everyone, 2).sample(fraction=1.0, shuffle=True, seed=1)


def rows(frame: Any) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(frame.toArrow())).sort(KEYS)


def test_rows_equal_the_local_engines(spark: Any, fitted: Path, visits: pl.DataFrame) -> None:
    from safeimpute.spark.scoring import score

    scorer = Scorer.load(fitted)
    assert tuple(scorer.reading.high_cardinality) == ("site",)
    local = scorer.score(visits).sort(KEYS)
    assert 0 < local["released"].sum() < len(local)
    table = spark.createDataFrame(visits.to_arrow())
    for partitions in (1, 3):
        assert rows(score(table, fitted, partitions=partitions)).equals(local)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")  # cuts nearly every patient in two
    try:
        assert rows(score(table, fitted)).equals(local)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_classes_in_words_are_the_local_engines(spark: Any, visits: pl.DataFrame, tmp_path: Path) -> None:
    from safeimpute.spark.scoring import score

    def graded(table: pl.DataFrame) -> pl.DataFrame:
        value = pl.col("hba1c")
        band = pl.when(value < 6.5).then(pl.lit("good")).when(value < 8.0).then(pl.lit("fair"))
        band = band.when(value.is_not_null()).then(pl.lit("poor"))
        return table.with_columns(hba1c=band).rename({"hba1c": "control"})

    told: dict[str, Any] = {"target": "control", "tolerance": "class good<fair<poor", "fdr": 0.3}
    fit_visits(graded(cohort_of(250)), **told).save(tmp_path / "model")
    local = Scorer.load(tmp_path / "model").score(graded(visits).drop("site")).sort(KEYS)
    assert local["released"].any()
    assert set(local["band"]) == {"good", "fair", "poor"}
    table = spark.createDataFrame(graded(visits).drop("site").to_arrow())
    assert rows(score(table, tmp_path / "model", partitions=3)).equals(local)


def test_under_later_too(spark: Any, later: Path, visits: pl.DataFrame) -> None:
    from safeimpute.spark.scoring import score

    moved = visits.with_columns(pl.col("time") + 9_000.0)
    local = Scorer.load(later).score(moved).sort(KEYS)
    assert local["released"].any()
    assert rows(score(spark.createDataFrame(moved.to_arrow()), later)).equals(local)


def test_a_night_on_a_cluster(spark: Any, later: Path, visits: pl.DataFrame, tmp_path: Path) -> None:
    """The records of those who came since, brought home; and an alarm heard by every worker."""
    from safeimpute.model.night_log import NightLog
    from safeimpute.model.open_model import POINTER
    from safeimpute.monitoring.monitor import monitor
    from safeimpute.spark.scoring import records_since, score

    scorer = Scorer.load(later)
    moved = visits.with_columns(pl.col("time") + pl.when(pl.col("age") > 60).then(9_000.0).otherwise(0.0))
    table = spark.createDataFrame(moved.to_arrow())
    brought = records_since(table, later)
    came = moved.filter(pl.col("time") > scorer.model.until)["subject_id"].unique()
    expected = moved.filter(pl.col("subject_id").is_in(came.implode()))
    columns = expected.columns
    assert brought.select(columns).sort(KEYS).equals(expected.sort(KEYS))
    log = NightLog(tmp_path / "l.sqlite")
    one = monitor(scorer, brought, log)
    assert one.new == (moved["time"] > scorer.model.until).sum()
    log.record(scorer.identity, "alarm", {"found": ["x"], "began": None}, ledger_number(log, scorer))
    try:
        assert not rows(score(table, later))["released"].any()
    finally:
        (later / POINTER).unlink()
    assert rows(score(table, later))["released"].any()


def ledger_number(log: Any, scorer: Scorer) -> int:
    events = log.events(scorer.identity)
    return events[-1].number if events else 0


def test_timestamps_and_text_identifiers(spark: Any, fitted: Path, visits: pl.DataFrame) -> None:
    from safeimpute.spark.scoring import score

    moments = pl.datetime(1970, 1, 1, time_unit="us") + pl.duration(days=pl.col("time").cast(pl.Int64))
    dated = visits.with_columns(pl.col("subject_id").cast(pl.String), moments.alias("time"))
    local = Scorer.load(fitted).score(dated).sort(KEYS)
    assert local["released"].any()
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for other in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", other)
            got = rows(score(spark.createDataFrame(dated.to_arrow()), fitted))
            assert got.drop("time").equals(local.drop("time"))
            assert (got["time"].cast(pl.Datetime("us")) == local["time"]).all()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_identifiers_that_differ_by_a_zero_are_two_patients(spark: Any, fitted: Path, visits: pl.DataFrame) -> None:
    from safeimpute.spark.scoring import score

    subject = pl.col("subject_id").cast(pl.String)
    odd = pl.concat(
        [
            visits.with_columns(subject),
            visits.with_columns((pl.lit("0") + subject).alias("subject_id"), pl.col("glucose") + 1),
        ]
    )
    local = Scorer.load(fitted).score(odd).sort(KEYS)
    assert local["subject_id"].n_unique() == 2 * local["subject_id"].str.strip_chars_start("0").n_unique()
    assert rows(score(spark.createDataFrame(odd.to_arrow()), fitted)).equals(local)


def test_no_row_reaches_the_driver(
    spark: Any, fitted: Path, visits: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    from safeimpute.spark.scoring import score_files

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("rows were brought to the driver")

    for name in ("collect", "toArrow", "toPandas", "toLocalIterator", "take", "head"):
        monkeypatch.setattr(DataFrame, name, forbidden)
    strange = visits.with_columns(
        sex=pl.when(pl.col("age") > 60).then(pl.lit("X")).otherwise("sex"), ferritin=pl.lit(1.0)
    )
    strange.write_parquet(tmp_path / "visits.parquet")
    account = score_files(fitted, tmp_path / "visits.parquet", tmp_path / "out")
    expected = Scorer.load(fitted).score_whole(strange)
    assert account == expected.accounts[0]
    assert account.unknown_levels["sex"] == int((visits["age"] > 60).sum())
    assert account.ignored == ("ferritin",)
    assert pl.read_parquet(tmp_path / "out" / "*.parquet").sort(KEYS).equals(expected.table.sort(KEYS))
    assert json.loads((tmp_path / "out" / "_score.json").read_text()) == json.loads(json.dumps(asdict(account)))


def test_the_command_and_its_refusals(spark: Any, fitted: Path, visits: pl.DataFrame, tmp_path: Path) -> None:
    def score(name: str, table: pl.DataFrame, *more: str) -> Any:
        table.write_parquet(tmp_path / f"{name}.parquet")
        told = ["score", fitted, tmp_path / f"{name}.parquet", "-o", tmp_path / name, "--engine", "spark"]
        return CliRunner().invoke(app, [*map(str, told), *more])

    done = score("good", visits.rename({"glucose": "gluc"}), "--columns", "gluc=glucose")
    assert done.exit_code == 0, done.output
    assert "Promise: Of the hba1c values released" in done.output
    missing = score("short", visits.drop("glucose"))
    assert isinstance(missing.exception, VisitsError)
    text = score("text", visits.with_columns(glucose=pl.lit("blue")))  # a word such as "high" would be a result
    assert isinstance(text.exception, VisitsError)
    assert "'glucose' (lab) holds text" in str(text.exception)
    assert not (tmp_path / "text").exists()
    declared = score("declared", visits.drop("glucose"), "--without", "glucose")
    assert "No guarantee: the table lacks 'glucose'" in declared.output
    got = pl.read_parquet(tmp_path / "declared" / "*.parquet").sort(KEYS)
    local = Scorer.load(fitted).score(visits.drop("glucose"), without=("glucose",))
    assert got.equals(local.sort(KEYS))


def test_a_model_that_promises_nothing_gives_values_all_the_same(
    spark: Any, visits: pl.DataFrame, tmp_path: Path
) -> None:
    from safeimpute.spark.scoring import score

    imputer, _ = fitted_cohort("visits")
    imputer.save(tmp_path / "model")
    table = visits.drop("site")
    got = rows(score(spark.createDataFrame(table.to_arrow()), tmp_path / "model"))
    assert got.equals(imputer.score(table).sort(KEYS))
    assert not got["released"].any()


def test_without_spark_the_extra_is_named(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safeimpute.spark.scoring import score_files

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"safeimpute\[spark\]"):
        score_files(fitted, tmp_path / "visits.parquet", tmp_path / "out")


KILLER = """
import os, signal, sys
if any("pyspark" in part for part in sys.orig_argv):  # a worker's parent, not the driver
    from safeimpute.spark import scoring as spark
    whole, calls = spark.score_visits, []
    def score_visits(*given, **named):
        calls.append(1)
        marker = os.environ["MARKER"]
        if len(calls) == 3 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*given, **named)
    spark.score_visits = score_visits
"""
DRIVER = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from pyspark.sql import SparkSession
session = (SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
           .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50").getOrCreate())
from safeimpute.spark.scoring import score_files
model, visits, out = map(Path, sys.argv[1:])
score_files(model, visits, out)
"""


def test_a_killed_worker_loses_and_doubles_nothing(fitted: Path, visits: pl.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(KILLER)
    (tmp_path / "driver.py").write_text(DRIVER)
    visits.write_parquet(tmp_path / "visits.parquet")
    names = ("driver.py", "visits.parquet", "out")
    driver, table, out = (str(tmp_path / name) for name in names)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]),
        "MARKER": str(tmp_path / "killed"),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, driver, str(fitted), table, out], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "killed").exists(), "no worker was killed, so nothing was tested"
    assert "Lost task" in done.stderr or "crashed" in done.stderr
    expected = Scorer.load(fitted).score_whole(visits)
    assert pl.read_parquet(tmp_path / "out" / "*.parquet").sort(KEYS).equals(expected.table.sort(KEYS))
    told = json.loads((tmp_path / "out" / "_score.json").read_text())
    assert told == json.loads(json.dumps(asdict(expected.accounts[0])))


def test_released_values_are_known_again(spark: Any, fitted: Path, visits: pl.DataFrame, tmp_path: Path) -> None:
    """Filled in without their marks, they are refused by either engine; what was measured is not."""
    from safeimpute.model.whole_table import calibrate_files
    from safeimpute.spark.calibrate import calibrate_files_on_spark
    from safeimpute.spark.scoring import score_files

    visits.write_parquet(tmp_path / "visits.parquet")
    score_files(fitted, tmp_path / "visits.parquet", tmp_path / "out")
    score_files(fitted, tmp_path / "visits.parquet", tmp_path / "again")
    done = pl.read_parquet(tmp_path / "out" / "*.parquet").filter("released").select(*KEYS, "value")
    filled = visits.join(done, on=KEYS, how="left").with_columns(hba1c=pl.coalesce("hba1c", "value")).drop("value")
    filled.write_parquet(tmp_path / "filled.parquet")
    with pytest.raises(VisitsError, match=f"holds {len(done):,} values that an earlier run released"):
        score_files(fitted, tmp_path / "filled.parquet", tmp_path / "third")
    assert not (tmp_path / "third").exists()
    for calibrated in (calibrate_files, calibrate_files_on_spark):
        with pytest.raises(VisitsError, match="that an earlier run released"):
            calibrated(fitted, tmp_path / "filled.parquet", tmp_path / "third")
    told = ["score", fitted, tmp_path / "filled.parquet", "-o", tmp_path / "local.parquet"]
    assert isinstance(CliRunner().invoke(app, [*map(str, told)]).exception, VisitsError)


def test_results_beyond_a_limit_are_not_listed(spark: Any, fitted: Path, visits: pl.DataFrame) -> None:
    from safeimpute.spark.scoring import score

    text = pl.col("hba1c").cast(pl.String)
    below = visits.with_columns(hba1c=pl.when(pl.col("hba1c") < 5.6).then(pl.lit("<5.6")).otherwise(text))
    got = rows(score(spark.createDataFrame(below.to_arrow()), fitted))
    assert len(got) == visits["hba1c"].null_count()
    assert got.equals(Scorer.load(fitted).score(below).sort(KEYS))
