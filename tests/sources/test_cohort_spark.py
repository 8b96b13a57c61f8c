"""The same cohort from Spark equals DuckDB's, row for row."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import helpers.clinical_sources as sources
from helpers.cohort_engines import built, require_equal
from safeimpute.errors import SourceError

pytestmark = pytest.mark.full
pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'safeimpute[spark]'")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session a program already works in; its zone must not move a clinical clock."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


MIMIC = ("labevents", "patients", "diagnoses_icd", "admissions")
OMOP = ("measurement", "person", "condition_occurrence", "visit_occurrence")
KINDS = ("mimic3", "mimic4", "omop", "meds")
DEMO = {"mimic3": "mimic3_demo", "mimic4": "mimic4_demo", "omop": "omop_synthea27nj", "meds": "mimic4_demo_meds"}


def as_parquet(kind: str, published: Path, folder: Path) -> Path:
    """A published source for Spark: csv files with the types DuckDB finds in them; MEDS is parquet already."""
    if kind == "meds":
        return published
    hosp = "hosp" if kind == "mimic4" else ""
    (folder / hosp).mkdir(parents=True)
    for name in OMOP if kind == "omop" else MIMIC:
        [file] = [path for path in (published / hosp).iterdir() if path.name.lower().startswith(f"{name}.csv")]
        # A column without a single value has no type to find.
        empty = {"storetime": "TIMESTAMP"} if (kind, name) == ("mimic4", "labevents") else {}
        target = folder / hosp / f"{file.name.split('.')[0]}.parquet"
        duckdb.read_csv(str(file), dtype=empty, sample_size=-1).write_parquet(str(target))
    return folder


def invented_source(kind: str, folder: Path) -> Path:
    published = sources.WRITERS[kind](sources.invented(seed=21), folder / "published")
    return as_parquet(kind, published, folder / "parquet")


@pytest.mark.parametrize("anchors", ["target", "any"])
@pytest.mark.parametrize("kind", KINDS)
def test_invented_sources_on_spark(spark: Any, kind: str, anchors: str, tmp_path: Path) -> None:
    folder = invented_source(kind, tmp_path)
    require_equal(kind, folder, f"pyspark://{folder}", tmp_path / "visits.parquet", "pyspark", anchors=anchors)
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    assert spark.sql("SELECT 1 AS one").collect()[0]["one"] == 1  # the caller's session goes on
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def test_text_that_only_looks_like_a_number(spark: Any, tmp_path: Path) -> None:
    """Blanks, capitals and signs meet the same rules: patterns and trimming are each engine's own."""
    tables = sources.mimic4_tables(sources.invented(seed=21))
    marks = ("\t< ", "  Less than ", "≥", "", "about ")
    for number, row in enumerate(tables["labevents"]):
        row["value"] = f"{marks[number % 5]}{row['value']}"
        row["valueuom"] = f" {row['valueuom'].upper()}\t" if number % 2 else row["valueuom"]
        row["storetime"] = row["charttime"].replace(hour=23, microsecond=number)
    for name, rows in tables.items():
        sources.write_table(rows, tmp_path / "source" / "hosp" / f"{name}.parquet")
    folder = tmp_path / "source"
    require_equal("mimic4", folder, f"pyspark://{folder}/", tmp_path / "visits.parquet", "pyspark", anchors="any")


@pytest.mark.parametrize("place", ["clinic", ""])
def test_tables_of_the_catalogue(spark: Any, place: str, tmp_path: Path) -> None:
    """Named, or in the schema the source is usually kept in."""
    schema = place or "mimiciv_hosp"
    folder = invented_source("mimic4", tmp_path)
    spark.sql(f"CREATE DATABASE {schema}")
    for name in MIMIC:
        frame = spark.read.parquet(str(folder / "hosp" / f"{name}.parquet"))
        frame.write.saveAsTable(f"{schema}.{name}")
    try:
        require_equal("mimic4", folder, f"pyspark://{place}", tmp_path / "visits.parquet", "pyspark")
        left = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect()}
        assert left == set(MIMIC)
    finally:
        spark.sql(f"DROP DATABASE {schema} CASCADE")


@pytest.mark.data
@pytest.mark.parametrize("anchors", ["target", "any"])
@pytest.mark.parametrize("kind", KINDS)
def test_demo_on_spark(spark: Any, kind: str, anchors: str, clinical_data: Path, tmp_path: Path) -> None:
    folder = as_parquet(kind, clinical_data / DEMO[kind], tmp_path / "source")
    require_equal(kind, folder, f"pyspark://{folder}", tmp_path / "visits.parquet", "pyspark", anchors=anchors)


def test_csv_and_fhir_are_refused_by_name(spark: Any, tmp_path: Path) -> None:
    folder = sources.write_mimic4(sources.invented(seed=21), tmp_path / "source", "csv")
    with pytest.raises(SourceError, match=r"table patients .* convert csv files first"):
        built("mimic4", f"pyspark://{folder}", tmp_path / "visits.parquet")
    with pytest.raises(SourceError, match="FHIR is read from files"):
        built("fhir", f"pyspark://{folder}", tmp_path / "visits.parquet")
    assert not (tmp_path / "visits.parquet").exists()


def test_the_command_starts_and_stops_its_own_session(tmp_path: Path) -> None:
    folder = invented_source("mimic4", tmp_path)
    settings = "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
    command = ["cohort", "mimic4", f"pyspark://{folder}", "--target", "hba1c", "-o", "visits.parquet"]
    place = tmp_path / "here"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "safeimpute", *command],
        cwd=place,
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "written: visits.parquet" in done.stdout
    assert {path.name for path in place.iterdir()} == {"visits.parquet", "visits.cohort.json"}


def test_a_key_in_an_address_is_not_repeated(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="s3a://bucket/mimiciv") as failure:
        built("mimic4", "pyspark://s3a://key:secret@bucket/mimiciv", tmp_path / "visits.parquet")
    assert "secret" not in str(failure.value)
