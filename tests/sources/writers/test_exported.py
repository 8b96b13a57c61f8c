"""What is exported keeps identifiers, times and units, and is refused where it could not."""

import gzip
import json
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from helpers.exports import exported, imputations, origin, review
from safeimpute.errors import OptionError, VisitsError
from safeimpute.sources.writers.exported import export_table, in_utc, whole_ids
from safeimpute.sources.writers.fhir import write_fhir
from safeimpute.sources.writers.meds import write_meds
from safeimpute.sources.writers.omop import omop_tables
from safeimpute.tolerance import parse_tolerance
from safeimpute.visits.catalogue import load_catalogue

TEN = [datetime(2024, 3, 30, 8, 0, second) for second in range(10)]


def test_withheld_and_rejected_values_never_leave() -> None:
    table = imputations(12)
    rows = exported(table, review=review(12, r0="rejected", r1="accepted", r2="accepted")).rows
    assert rows["given"].to_list() == [False, True, False, *([True, True, False] * 3)]
    assert rows.filter(~pl.col("given")).select("value", "lower", "upper").null_count().row(0) == (5, 5, 5)
    assert rows["reason"][0] == "rejected by a reviewer"
    assert rows["reason"][2] == "risk above cut-off"
    kept = rows.filter("given")
    assert kept["value"].to_list() == table["value"].gather(kept["row"]).round(1).to_list()  # as HbA1c is reported


def test_only_what_was_accepted() -> None:
    found = exported(imputations(12), review=review(12, r1="accepted", r2="accepted"), only_accepted=True)
    assert found.rows["row"].to_list() == [1, 2]
    assert found.counts == {"values": 1, "withheld": 1, "accepted": 1}
    with pytest.raises(OptionError, match="no value of this run is accepted"):
        exported(only_accepted=True)


@pytest.mark.parametrize(
    "subject",
    [
        pl.Series([7, 8, 10**9], dtype=pl.Int64),
        pl.Series([7, 8, 200], dtype=pl.UInt8),
        pl.Series([7.0, 8.0, 1e9]),
        pl.Series(["7", "8", "1000000000"]),
        pl.Series(["7", "8", "9"], dtype=pl.Categorical),
    ],
)
def test_whole_numbers_come_back_whatever_their_type(subject: pl.Series) -> None:
    rows = exported(imputations(3, subject=subject, time=pl.Series(TEN[:3]))).rows
    assert rows["subject"].equals(subject.alias("subject"))
    assert whole_ids(subject, "person_id").to_list() == [int(float(str(each))) for each in subject]


@pytest.mark.parametrize("lost", ["007", "7.5", "a7", " 7", "+7", "7e0", str(2**63)])
def test_identifiers_that_would_change_are_refused_without_being_told(lost: str) -> None:
    with pytest.raises(VisitsError, match=r"1 of 3 rows have identifiers that are no whole numbers") as failure:
        whole_ids(pl.Series(["1", lost, "3"]), "person_id")
    assert lost not in str(failure.value).replace("1 of 3", "")


@pytest.mark.parametrize(
    ("time", "utc"),
    [
        (pl.Series([date(2024, 3, 31)] * 3), datetime(2024, 3, 31)),
        (pl.Series(["2024-03-31"] * 3), datetime(2024, 3, 31)),
        (pl.Series(["2024-03-31 08:15:00.000007"] * 3), datetime(2024, 3, 31, 8, 15, 0, 7)),
        (pl.Series(["2024-03-31T08:15:00+02:00"] * 3), datetime(2024, 3, 31, 6, 15)),
        (pl.Series(["2024-03-31T08:15:00Z"] * 3), datetime(2024, 3, 31, 8, 15)),
        (
            pl.Series([datetime(2024, 10, 27, 2, 30)] * 3).dt.replace_time_zone("Europe/Berlin", ambiguous="latest"),
            datetime(2024, 10, 27, 1, 30),
        ),
        (pl.Series([datetime(2024, 3, 31, 8, 15)] * 3, dtype=pl.Datetime("ns")), datetime(2024, 3, 31, 8, 15)),
        (pl.Series([datetime(2024, 3, 31, 8, 15)] * 3, dtype=pl.Datetime("ms")), datetime(2024, 3, 31, 8, 15)),
    ],
)
def test_every_kind_of_time_is_the_same_moment(time: pl.Series, utc: datetime) -> None:
    rows = exported(imputations(3, time=time)).rows
    assert in_utc(rows["time"]).to_list() == [utc] * 3


def test_times_that_cannot_be_written_back_are_refused() -> None:
    with pytest.raises(VisitsError, match="numbers of days"):
        exported(imputations(3, time=pl.Series([1.0, 2.0, 3.0])))
    with pytest.raises(VisitsError, match="numbers of days"):
        exported(imputations(3, time=pl.Series(["1", "2", "3"])))
    high_cardinality = pl.Series([1, 2, 3], dtype=pl.Int64).cast(pl.Datetime("ns"))
    with pytest.raises(VisitsError, match="finer than a microsecond"):
        exported(imputations(3, time=high_cardinality))


def test_units_are_converted_by_the_catalogue_or_refused() -> None:
    table = imputations(4, lab="glucose", unit="mmol/L")
    rows = exported(table).rows
    assert rows["value"][0] == round(table["value"][0] * 18.016)  # as glucose is reported, in whole mg/dL
    assert rows["upper"][0] > rows["value"][0] > rows["lower"][0]
    with pytest.raises(OptionError, match="the unit of 'hba1c' is not known"):
        exported(imputations(unit=None))
    with pytest.raises(OptionError, match="knows no way"):
        exported(imputations(unit="furlong"))
    mixed = pl.concat([imputations(3), imputations(3, unit="mmol/mol")])
    with pytest.raises(OptionError, match="not the same in every row"):
        exported(mixed)


def test_a_lab_outside_the_catalogue_is_named_and_can_be_mapped() -> None:
    with pytest.raises(OptionError, match="lab 'chol' is not in the catalogue"):
        exported(imputations(lab="chol", unit="mg/dL"))
    found = exported(imputations(lab="chol", unit="mg/dL"), names={"chol": "cholesterol"})
    assert found.rows["lab"].unique().to_list() == ["cholesterol"]
    assert found.labs["cholesterol"].code("loinc") == "2093-3"


def test_no_imputation_table() -> None:
    with pytest.raises(VisitsError, match="has no column 'subject_id'"):
        exported(imputations().drop("subject_id"))
    with pytest.raises(VisitsError, match="nothing to export"):
        exported(imputations(3).clear())
    with pytest.raises(VisitsError, match=r"'subject_id'.*is empty in 1 of 3 rows"):
        exported(imputations(3, subject=pl.Series([1, None, 3])))


def test_a_run_that_releases_nothing_is_exported_without_a_value(tmp_path: Path) -> None:
    export = exported(imputations(4).with_columns(released=pl.lit(False), reason=pl.lit("no evidence")))
    assert export.counts == {"values": 0, "withheld": 4, "accepted": 0}
    for name, write in {"fhir": write_fhir, "meds": write_meds}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, export)
    assert pl.read_parquet(tmp_path / "meds" / "data" / "0.parquet").is_empty()
    found = omop_tables(export, load_catalogue())
    assert found["measurement"].is_empty()
    assert found["safeimpute_provenance"]["reason"].to_list() == ["no evidence"] * 4


@pytest.mark.parametrize("classes", ["class 6<7<8", "class none<mild<severe"])
def test_classes_are_exported_by_name(classes: str, tmp_path: Path) -> None:
    """Neither unit nor digits are theirs; a word goes where the format has a place for it, else it is refused."""
    tolerance = parse_tolerance(classes)
    table = imputations(unit=None).with_columns(value=pl.Series(np.array(tolerance.levels)[np.arange(12) % 3]))
    told = replace(origin(), classes={"hba1c": tolerance})
    ready = export_table(table, told, load_catalogue())
    names = [tolerance.bands[row % 3] if row % 3 != 2 else None for row in range(12)]
    assert ready.rows["band"].to_list() == names
    write_fhir(tmp_path, ready)
    bundle = json.loads(gzip.decompress((tmp_path / "imputations.ndjson.gz").read_bytes()))
    observations = [each["resource"] for each in bundle["entry"] if each["resource"]["resourceType"] == "Observation"]
    assert [each.get("valueCodeableConcept", {}).get("text") for each in observations] == names
    assert not any("valueQuantity" in each for each in observations)
    measured = omop_tables(ready, load_catalogue())["measurement"]
    assert measured["value_source_value"].to_list() == [name for name in names if name]
    assert measured["unit_concept_id"].null_count() == len(measured)
    assert (measured["value_as_number"].null_count() == len(measured)) == bool(tolerance.words)
    if tolerance.words:
        with pytest.raises(OptionError, match="words, and a MEDS event"):
            write_meds(tmp_path, ready)
    else:
        write_meds(tmp_path, ready)
