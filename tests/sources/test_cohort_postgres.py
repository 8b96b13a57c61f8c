"""The same cohort from a real PostgreSQL server equals DuckDB's, row for row."""

from pathlib import Path

import pytest

import helpers.clinical_sources as sources
from helpers.cohort_engines import built, require_equal
from helpers.postgres import load, server
from safeimpute.errors import SourceError

__all__ = ["server"]  # a fixture

pytestmark = pytest.mark.full

# The types of the public build scripts: fixed-width ICD codes, timestamps to the second.
MIMIC4_TYPES = {
    "labevents": "labevent_id integer, subject_id integer, hadm_id integer, specimen_id integer, "
    "itemid integer, charttime timestamp(0), storetime timestamp(0), value varchar(200), "
    "valuenum double precision, "
    "valueuom varchar(20), ref_range_lower double precision, ref_range_upper double precision, "
    "flag varchar(10), comments text",
    "patients": "subject_id integer, gender char(1), anchor_age smallint, anchor_year smallint, dod timestamp",
    "admissions": "subject_id integer, hadm_id integer, admittime timestamp, dischtime timestamp, "
    "admission_type varchar(40)",
    "diagnoses_icd": "subject_id integer, hadm_id integer, seq_num integer, icd_code char(7), icd_version smallint",
}
OMOP_TYPES = {
    "person": "person_id integer, gender_concept_id integer, year_of_birth integer",
    "condition_occurrence": "person_id integer, condition_concept_id integer",
    "visit_occurrence": "person_id integer, visit_concept_id integer, visit_start_date date, "
    "visit_start_datetime timestamp",
    "measurement": "measurement_id integer, person_id integer, measurement_concept_id integer, "
    "measurement_date date, measurement_datetime timestamp, operator_concept_id integer, "
    "value_as_number numeric, unit_concept_id integer, unit_source_value varchar(50)",
}


@pytest.mark.data
@pytest.mark.parametrize("anchors", ["target", "any"])
def test_mimic4_demo_from_postgresql(anchors: str, server: str, clinical_data: Path, tmp_path: Path) -> None:
    import gzip

    hosp = clinical_data / "mimic4_demo" / "hosp"
    tables = {name: gzip.decompress((hosp / f"{name}.csv.gz").read_bytes()) for name in MIMIC4_TYPES}
    load(server, "mimiciv_hosp", MIMIC4_TYPES, tables)
    require_equal("mimic4", hosp.parent, server, tmp_path / "visits.parquet", "postgres", anchors=anchors)


@pytest.mark.parametrize("anchors", ["target", "any"])
def test_invented_mimic4_from_postgresql(anchors: str, server: str, tmp_path: Path) -> None:
    folder = sources.write_mimic4(sources.invented(seed=21), tmp_path / "source", "csv")
    tables = {name: (folder / "hosp" / f"{name}.csv").read_bytes() for name in MIMIC4_TYPES}
    load(server, "hosp", MIMIC4_TYPES, tables)
    require_equal("mimic4", folder, f"{server}/hosp", tmp_path / "visits.parquet", "postgres", anchors=anchors)


@pytest.mark.parametrize("anchors", ["target", "any"])
def test_invented_omop_from_postgresql(anchors: str, server: str, tmp_path: Path) -> None:
    folder = sources.write_omop(sources.invented(seed=21), tmp_path / "source")
    load(server, "cdm", OMOP_TYPES, {name: (folder / f"{name}.csv").read_bytes() for name in OMOP_TYPES})
    require_equal("omop", folder, server, tmp_path / "visits.parquet", "postgres", anchors=anchors)


def test_a_wrong_password_is_one_plain_line(server: str, tmp_path: Path) -> None:
    password = server.split(":")[2].split("@")[0]
    with pytest.raises(SourceError, match="refused the user name or password") as failure:
        built("mimic4", server.replace(password, "guess"), tmp_path / "visits.parquet")
    assert password not in str(failure.value)
    assert "guess" not in str(failure.value)
    assert list(tmp_path.iterdir()) == []


def test_text_where_numbers_belong_is_refused(server: str, tmp_path: Path) -> None:
    folder = sources.write_mimic4(sources.invented(seed=21), tmp_path / "source", "csv")
    types = MIMIC4_TYPES | {
        "labevents": MIMIC4_TYPES["labevents"].replace("valuenum double precision", "valuenum text")
    }
    load(server, "wrong", types, {name: (folder / "hosp" / f"{name}.csv").read_bytes() for name in types})
    with pytest.raises(SourceError, match="holds string, expected number"):
        built("mimic4", f"{server}/wrong", tmp_path / "visits.parquet")
    assert not (tmp_path / "visits.parquet").exists()
