"""OMOP tables fit the model's definition, load into PostgreSQL, and are never taken for measurements."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import helpers.clinical_sources as sources
from helpers.cohort_engines import built
from helpers.exports import exported, imputations, review
from helpers.postgres import load, server
from safeimpute.errors import OptionError, VisitsError
from safeimpute.sources.writers.omop import MEASUREMENT, METADATA, PROVENANCE, RUNS, omop_tables, write_omop
from safeimpute.visits.catalogue import load_catalogue

__all__ = ["server"]  # a fixture

# CDM 5.4, PostgreSQL form: name, type, whether it may be empty.
MEASUREMENT_DDL = (
    "measurement_id integer NOT NULL, person_id integer NOT NULL, measurement_concept_id integer NOT NULL, "
    "measurement_date date NOT NULL, measurement_datetime timestamp, measurement_time varchar(10), "
    "measurement_type_concept_id integer NOT NULL, operator_concept_id integer, value_as_number numeric, "
    "value_as_concept_id integer, unit_concept_id integer, range_low numeric, range_high numeric, "
    "provider_id integer, visit_occurrence_id integer, visit_detail_id integer, "
    "measurement_source_value varchar(50), measurement_source_concept_id integer, unit_source_value varchar(50), "
    "unit_source_concept_id integer, value_source_value varchar(50), measurement_event_id integer, "
    "meas_event_field_concept_id integer, PRIMARY KEY (measurement_id)"
)
METADATA_DDL = (
    "metadata_id integer NOT NULL, metadata_concept_id integer NOT NULL, metadata_type_concept_id integer NOT NULL, "
    "name varchar(250) NOT NULL, value_as_string varchar(250), value_as_concept_id integer, "
    "value_as_number numeric, metadata_date date, metadata_datetime timestamp, PRIMARY KEY (metadata_id)"
)
TYPES = {
    "integer": pl.Int32,
    "date": pl.Date,
    "timestamp": pl.Datetime("us"),
    "numeric": pl.Float64,
    "varchar(10)": pl.String,
    "varchar(50)": pl.String,
    "varchar(250)": pl.String,
}
SOURCE_DDL = {
    "person": "person_id integer, gender_concept_id integer, year_of_birth integer",
    "condition_occurrence": "person_id integer, condition_concept_id integer",
    "visit_occurrence": "person_id integer, visit_concept_id integer, visit_start_date date, "
    "visit_start_datetime timestamp",
    "measurement": MEASUREMENT_DDL.replace(
        "measurement_type_concept_id integer NOT NULL", "measurement_type_concept_id integer"
    ),
}


def columns_of(ddl: str) -> dict[str, tuple[str, bool]]:
    parts = [part.split(maxsplit=2) for part in ddl.split(", ") if not part.startswith("PRIMARY")]
    return {part[0]: (part[1], len(part) == 3) for part in parts}


def tables(**options: Any) -> dict[str, pl.DataFrame]:
    return omop_tables(exported(**options), load_catalogue())


@pytest.mark.parametrize(
    ("name", "schema", "ddl"), [("measurement", MEASUREMENT, MEASUREMENT_DDL), ("metadata", METADATA, METADATA_DDL)]
)
def test_columns_are_those_of_the_model(name: str, schema: dict[str, Any], ddl: str) -> None:
    table = tables(table=imputations(30))[name]
    defined = columns_of(ddl)
    assert list(table.schema) == list(schema) == list(defined)
    for column, (kind, needed) in defined.items():
        assert table.schema[column] == TYPES[kind], column
        if needed:
            assert table[column].null_count() == 0, column
        if kind.startswith("varchar"):
            longest = table[column].drop_nulls().str.len_chars().max() or 0
            assert int(str(longest)) <= int(kind[8:-1]), column


def test_rows_say_what_they_are() -> None:
    table = imputations(6)
    found = omop_tables(exported(table, review=review(6, r0="rejected")), load_catalogue(), first_id=100)
    rows = found["measurement"]
    assert rows["measurement_id"].to_list() == [100, 101, 102]
    assert rows["person_id"].to_list() == [2, 4, 5]
    assert rows["value_as_number"].to_list() == [round(table["value"][row], 1) for row in (1, 3, 4)]
    assert rows["measurement_datetime"].to_list() == [table["time"][row] for row in (1, 3, 4)]
    assert set(rows["measurement_type_concept_id"]) == {32882}
    assert set(rows["measurement_concept_id"]) == {3004410}
    assert set(rows["unit_concept_id"]) == {8554}
    assert set(rows["measurement_source_value"]) == {"SAFEIMPUTE//LAB//hba1c"}
    told = found[PROVENANCE]
    assert told["measurement_id"].to_list() == [None, 100, None, 101, 102, None]
    assert told["value"].null_count() == 3
    assert told["reason"].to_list()[:3] == ["rejected by a reviewer", "", "risk above cut-off"]
    assert found[RUNS]["guaranteed"].to_list() == [True]


def test_no_guarantee_is_marked_in_every_row() -> None:
    found = tables(promise="")
    assert set(found["measurement"]["measurement_source_value"]) == {"SAFEIMPUTE//LAB//hba1c//NO GUARANTEE"}
    assert found[RUNS]["guaranteed"].to_list() == [False]


def test_dates_and_zones() -> None:
    days = tables(table=imputations(3, time=pl.Series([date(2024, 3, 31)] * 3)))["measurement"]
    assert days["measurement_date"].to_list() == [date(2024, 3, 31)] * 2
    assert days["measurement_datetime"].null_count() == 2
    zoned = pl.Series([datetime(2024, 1, 1, 0, 30)] * 3).dt.replace_time_zone("Europe/Berlin")
    found = tables(table=imputations(3, time=zoned))
    assert found["measurement"]["measurement_datetime"].to_list() == [datetime(2023, 12, 31, 23, 30)] * 2
    assert [datetime.fromisoformat(text) for text in found[PROVENANCE]["time_as_given"]] == zoned.to_list()


def test_what_the_model_cannot_hold_is_refused() -> None:
    with pytest.raises(VisitsError, match="2 of 3 rows have identifiers"):
        tables(table=imputations(3, subject=pl.Series(["1", "x", "y"])))
    with pytest.raises(OptionError, match="numbered beyond"):
        omop_tables(exported(), load_catalogue(), first_id=2**31 - 3)
    wide = tables(table=imputations(3, subject=pl.Series([1, 2, 2**40])))
    assert wide["measurement"].schema["person_id"] == pl.Int64


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_the_loop_is_closed(form: Any, tmp_path: Path) -> None:
    folder = sources.write_omop(sources.invented(seed=21), tmp_path / "source")
    _, record = built("omop", str(folder), tmp_path / "visits.parquet", diabetes="none", anchors="any")
    bytes_before = (tmp_path / "visits.parquet").read_bytes()
    (tmp_path / "export").mkdir()
    write_omop(tmp_path / "export", exported(imputations(60)), load_catalogue(), form=form, first_id=1000)
    read = pl.read_csv if form == "csv" else pl.read_parquet
    imputed = read(tmp_path / "export" / f"measurement.{form}").cast(pl.String)
    own = pl.read_csv(folder / "measurement.csv", infer_schema=False)
    pl.concat([own, imputed], how="diagonal").write_csv(folder / "measurement.csv")
    _, again = built("omop", str(folder), tmp_path / "visits.parquet", diabetes="none", anchors="any")
    assert (tmp_path / "visits.parquet").read_bytes() == bytes_before
    assert again["accounts"]["set_aside"]["imputed, not measured"] == {"hba1c": 40}
    assert again["accounts"]["used"] == record["accounts"]["used"]


def test_loaded_into_duckdb_whole_or_not_at_all(tmp_path: Path) -> None:
    import duckdb

    from safeimpute.errors import SourceError
    from safeimpute.sources.writers.omop_database import load_omop

    place, export, catalogue = tmp_path / "omop.duckdb", exported(imputations(60)), load_catalogue()
    with duckdb.connect(place) as database:
        database.execute(f"CREATE SCHEMA cdm; CREATE TABLE cdm.measurement ({MEASUREMENT_DDL})")
        database.execute(
            "INSERT INTO cdm.measurement (measurement_id, person_id, measurement_concept_id, measurement_date, "
            "measurement_type_concept_id) VALUES (41, 1, 3004410, '2024-01-01', 32856)"
        )
        database.execute("CREATE SCHEMA broken; CREATE TABLE broken.measurement AS FROM cdm.measurement")
        # Written after the measurements, and refused by the database.
        database.execute(f"CREATE TABLE broken.metadata ({METADATA_DDL}, CHECK (metadata_id > 100))")
    url = f"duckdb://{place}"
    assert load_omop(url, export, catalogue, staging="ours") == 40
    assert load_omop(url, export, catalogue, staging="ours", into="cdm") == 40
    with pytest.raises(OptionError, match="already holds the values of this run"):
        load_omop(url, export, catalogue, staging="ours", into="cdm")
    with pytest.raises(SourceError):
        load_omop(url, export, catalogue, staging="ours", into="broken")
    with duckdb.connect(place) as database:
        ids = database.execute("SELECT measurement_id FROM cdm.measurement ORDER BY 1").fetchall()
        left = database.execute("SELECT count(*) FROM broken.measurement").fetchone()
        names = database.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'broken' ORDER BY 1"
        ).fetchall()
    assert [number for (number,) in ids] == list(range(41, 82))
    assert left == (1,)
    assert names == [("measurement",), ("metadata",)]


@pytest.mark.full
def test_loaded_into_postgresql_the_cohort_stays_the_same(server: str, tmp_path: Path) -> None:
    import psycopg

    from safeimpute.sources.writers.omop_database import load_omop

    folder = sources.write_omop(sources.invented(seed=21), tmp_path / "source")
    load(server, "cdm", SOURCE_DDL, {name: (folder / f"{name}.csv").read_bytes() for name in SOURCE_DDL})
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE cdm.metadata ({METADATA_DDL})")
        connection.execute("UPDATE cdm.measurement SET measurement_type_concept_id = 32856")
    options = {"diabetes": "none", "anchors": "any"}
    _, record = built("omop", server, tmp_path / "visits.parquet", **options)
    bytes_before = (tmp_path / "visits.parquet").read_bytes()
    export, catalogue = exported(imputations(60)), load_catalogue()

    def count(table: str) -> int:
        with psycopg.connect(server) as connection:
            found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            return int(found[0]) if found else -1

    own = count("cdm.measurement")
    assert load_omop(server, export, catalogue, staging="si_staging") == 40
    assert count("cdm.measurement") == own  # staging touches nothing of the model's
    assert (count("si_staging.measurement"), count(f"si_staging.{PROVENANCE}")) == (40, 60)
    with pytest.raises(OptionError, match="already holds the values of this run"):
        load_omop(server, export, catalogue, staging="si_staging")
    with pytest.raises(OptionError, match="has no table measurement"):
        load_omop(server, export, catalogue, staging="si_staging", into="nowhere")

    assert load_omop(server, export, catalogue, staging="si_staging", into="cdm") == 40
    assert count("cdm.measurement") == own + 40
    with psycopg.connect(server) as connection:
        stored = connection.execute(
            "SELECT value_as_number::text FROM cdm.measurement WHERE measurement_type_concept_id = 32882 "
            "ORDER BY measurement_id"
        ).fetchall()
    assert [float(text) for (text,) in stored] == export.rows.filter("given")["value"].to_list()
    _, again = built("omop", server, tmp_path / "visits.parquet", **options)
    assert (tmp_path / "visits.parquet").read_bytes() == bytes_before
    assert again["accounts"]["set_aside"]["imputed, not measured"] == {"hba1c": 40}
    assert again["accounts"]["used"] == record["accounts"]["used"]


@pytest.mark.full
def test_a_load_that_fails_leaves_nothing(server: str, tmp_path: Path) -> None:
    import psycopg

    from safeimpute.errors import SourceError
    from safeimpute.sources.writers.omop_database import load_omop

    narrow = MEASUREMENT_DDL.replace("measurement_source_value varchar(50)", "measurement_source_value varchar(5)")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS narrow CASCADE; CREATE SCHEMA narrow")
        connection.execute(f"CREATE TABLE narrow.measurement ({narrow})")
    with pytest.raises(SourceError) as failure:
        load_omop(server, exported(), load_catalogue(), staging="x", into="narrow")
    assert "SAFEIMPUTE" not in str(failure.value)
    with psycopg.connect(server) as connection:
        found = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'narrow'"
        ).fetchall()
        rows = connection.execute("SELECT count(*) FROM narrow.measurement").fetchone()
    assert found == [("measurement",)]
    assert rows == (0,)
