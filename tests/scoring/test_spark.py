"""Scoring on Spark gives the local engine's rows, whatever the partitions, batches and losses."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.scored_cohorts import fitted_cohort, new_visits
from safeimpute.cli import app
from safeimpute.errors import GuaranteeRefused, MissingExtra, VisitsError
from safeimpute.scoring.scorer import Scorer

pytestmark = pytest.mark.full
pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'safeimpute[spark]'")
KEYS = ["subject_id", "time"]


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


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    imputer, visits = fitted_cohort()
    folder = tmp_path_factory.mktemp("spark") / "model"
    imputer.save(folder)
    return folder, visits


@pytest.fixture(scope="module")
def visits(fitted: tuple[Path, pl.DataFrame]) -> pl.DataFrame:
    """New patients, and some the model knows, in no order."""
    known = fitted[1].filter(pl.col("subject_id") <= 60)
    return pl.concat([new_visits(), known]).sample(fraction=1.0, shuffle=True, seed=1)


def rows(frame: Any) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(frame.toArrow())).sort(KEYS)


@pytest.mark.parametrize("rule", ["cutoff", "bh"])
def test_rows_equal_the_local_engines(
    spark: Any, fitted: tuple[Path, pl.DataFrame], visits: pl.DataFrame, rule: Any
) -> None:
    from safeimpute.scoring.spark import score

    local = Scorer.load(fitted[0]).score(visits, rule).sort(KEYS)
    assert local["released"].any()
    assert not local["released"].all()
    table = spark.createDataFrame(visits.to_arrow())
    for partitions in (1, 2, 7):
        assert rows(score(table, fitted[0], rule, partitions=partitions)).equals(local)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")  # cuts nearly every patient in two
    try:
        assert rows(score(table, fitted[0], rule)).equals(local)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_timestamps_and_text_identifiers(
    spark: Any, fitted: tuple[Path, pl.DataFrame], visits: pl.DataFrame
) -> None:
    from safeimpute.scoring.spark import score

    moments = pl.datetime(2020, 1, 1, time_unit="us") + pl.duration(days=pl.col("time").cast(pl.Int64))
    dated = visits.with_columns(pl.col("subject_id").cast(pl.String), moments.alias("time"))
    local = Scorer.load(fitted[0]).score(dated).sort(KEYS)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for other in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", other)
            got = rows(score(spark.createDataFrame(dated.to_arrow()), fitted[0]))
            assert got.drop("time").equals(local.drop("time"))
            assert (got["time"].cast(pl.Datetime("us")) == local["time"]).all()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_only_counts_reach_the_driver(
    spark: Any, fitted: tuple[Path, pl.DataFrame], visits: pl.DataFrame, tmp_path: Path, monkeypatch: Any
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    from safeimpute.scoring.spark import score_files

    brought: list[int] = []

    def counted(name: str) -> None:
        original = getattr(DataFrame, name)

        def method(self: Any, *arguments: Any, **named: Any) -> Any:
            result = original(self, *arguments, **named)
            brought.append(len(result))
            assert not {"subject_id", "value"} & set(self.columns)
            return result

        monkeypatch.setattr(DataFrame, name, method)

    for name in ("collect", "toArrow", "toPandas", "toLocalIterator"):
        counted(name)
    visits.write_parquet(tmp_path / "visits.parquet")
    account = score_files(fitted[0], tmp_path / "visits.parquet", tmp_path / "out", "bh")
    expected = Scorer.load(fitted[0]).score_whole(visits, "bh")
    assert account == expected.account
    assert pl.read_parquet(tmp_path / "out" / "*.parquet").sort(KEYS).equals(expected.table.sort(KEYS))
    assert 0 < sum(brought) < 2 * expected.account.released


def test_the_command_and_its_refusals(
    spark: Any, fitted: tuple[Path, pl.DataFrame], visits: pl.DataFrame, tmp_path: Path
) -> None:
    def score(name: str, table: pl.DataFrame, *more: str) -> Any:
        table.write_parquet(tmp_path / f"{name}.parquet")
        command = [
            "score",
            fitted[0],
            tmp_path / f"{name}.parquet",
            "-o",
            tmp_path / name,
            "--engine",
            "spark",
        ]
        return CliRunner().invoke(app, [*map(str, command), *more])

    done = score("good", visits)
    assert done.exit_code == 0, done.output
    assert "95 % confidence" in done.output
    assert "patients are known to the model" in done.output
    missing = score("short", visits.drop("glucose"))
    assert isinstance(missing.exception, VisitsError)
    text = score("text", visits.with_columns(glucose=pl.lit("high")))
    assert isinstance(text.exception, VisitsError)
    assert "'glucose' (lab) holds text" in str(text.exception)
    assert not (tmp_path / "text").exists()
    declared = score("declared", visits.drop("glucose"), "--without", "glucose")
    assert "No guarantee: the table lacks 'glucose'" in declared.output


def test_claims_it_cannot_serve_are_refused_by_name(spark: Any, visits: pl.DataFrame, tmp_path: Path) -> None:
    from safeimpute.scoring.spark import score

    imputer, _ = fitted_cohort("patients", patients=200)
    imputer.save(tmp_path / "model")
    table = spark.createDataFrame(visits.to_arrow())
    with pytest.raises(GuaranteeRefused, match=r"'patients,unmeasured'.*claim 'patients'"):
        score(table, tmp_path / "model", "bh")
    got = rows(score(table, tmp_path / "model"))
    assert got.equals(Scorer.load(tmp_path / "model").score(visits).sort(KEYS))
    assert not got["released"].any()


def test_a_batch_too_small_is_refused(
    spark: Any, fitted: tuple[Path, pl.DataFrame], visits: pl.DataFrame
) -> None:
    from safeimpute.scoring.spark import score

    few = visits.filter(pl.col("subject_id") > 10_000_250)
    with pytest.raises(GuaranteeRefused, match="at least 100 candidates"):
        score(spark.createDataFrame(few.to_arrow()), fitted[0], "bh")


def test_without_spark_the_extra_is_named(
    fitted: tuple[Path, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safeimpute.scoring.spark import score_files

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"safeimpute\[spark\]"):
        score_files(fitted[0], tmp_path / "visits.parquet", tmp_path / "out")


KILLER = """
import os, signal, sys
if any("pyspark" in part for part in sys.orig_argv):  # a worker's parent, not the driver
    from safeimpute.scoring import spark
    whole, calls = spark.score_new, []
    def score_new(*given):
        calls.append(1)
        marker = os.environ["MARKER"]
        if len(calls) == 3 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*given)
    spark.score_new = score_new
"""
DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
session = (SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
           .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50").getOrCreate())
from safeimpute.scoring.spark import score_files
model, visits, out = map(Path, sys.argv[1:])
score_files(model, visits, out, "bh")
"""


def test_a_killed_worker_loses_and_doubles_nothing(
    fitted: tuple[Path, pl.DataFrame], visits: pl.DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(KILLER)
    (tmp_path / "driver.py").write_text(DRIVER)
    visits.write_parquet(tmp_path / "visits.parquet")
    paths = [
        str(part)
        for part in (tmp_path / "driver.py", fitted[0], tmp_path / "visits.parquet", tmp_path / "out")
    ]
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path / "site"),
        "MARKER": str(tmp_path / "killed"),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, *paths], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "killed").exists(), "no worker was killed, so nothing was tested"
    assert "Lost task" in done.stderr or "crashed" in done.stderr
    got = pl.read_parquet(tmp_path / "out" / "*.parquet").sort(KEYS)
    assert got.equals(Scorer.load(fitted[0]).score(visits, "bh").sort(KEYS))
