"""Identifiers are text from the first byte on, on every path; two that differ in a blank or a zero are two patients."""

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.sources.writers.exported import whole_ids
from safeimpute.visits.columns import ColumnChoice, names_an_identifier
from safeimpute.visits.files.excel import write_excel
from safeimpute.visits.new_visits import read_new_visits, reading_of
from safeimpute.visits.tables import read_visits
from safeimpute.visits.visits import Visits, prepare_visits, subject_names

KINDS = [
    "1", "01", "001", "00001", "1.0", "1.00", "1e0", "+1", "-1", "12345678901234567890", "12345678901234567891",
    "abc", "ABC", "Abc", "a b", "a  b", "Müller", "Mu\u0308ller", "٣", "患者1", "0x1", "NaN", "NA", "null", "true",
    "1,5",
]  # fmt: skip


def table(name: str = "ID") -> pl.DataFrame:
    """Three visits of each patient."""
    ids = [each for each in KINDS for _ in range(3)]
    values = [round(5 + 0.37 * (place % 7) + place / 100, 3) for place in range(len(ids))]
    return pl.DataFrame({name: ids, "time": [float(place % 3 * 30) for place in range(len(ids))], "hba1c": values})


def given(kind: str, visits: pl.DataFrame, folder: Path) -> Any:
    name = visits.columns[0]
    if kind in ("csv", "csv.gz", "semicolon"):
        path = folder / ("v.csv.gz" if kind == "csv.gz" else "v.csv")
        mark = ";" if kind == "semicolon" else ","
        visits.to_pandas().to_csv(path, index=False, sep=mark)
        return read_visits(path, separator=mark, decimal="," if mark == ";" else ".", subject=name)
    if kind == "xlsx":
        write_excel(visits, folder / "v.xlsx")
        return read_visits(folder / "v.xlsx", subject=name)
    if kind == "parquet":
        visits.write_parquet(folder / "v.parquet")
        return read_visits(folder / "v.parquet")
    if kind == "arrow":
        return visits.to_arrow()
    if kind == "polars":
        return visits
    return visits.to_pandas().astype({name: "category" if kind == "categories" else object})


def prepared(visits: Any, name: str = "ID") -> Visits:
    return prepare_visits(visits, ColumnChoice("hba1c", subject=name))


@pytest.mark.parametrize(
    "kind", ["csv", "csv.gz", "semicolon", "xlsx", "parquet", "polars", "pandas", "categories", "arrow"]
)
def test_no_two_patients_become_one(kind: str, tmp_path: Path) -> None:
    whole = prepared(table())
    found = prepared(given(kind, table(), tmp_path))
    assert found.patients == len(KINDS)
    assert found.fingerprint == whole.fingerprint
    assert set(subject_names(found.subject)) == set(KINDS)
    new = read_new_visits(given(kind, table(), tmp_path), reading_of(whole, whole.choice))
    assert (new.arrays.patient_key == whole.arrays.patient_key).all()


@pytest.mark.parametrize("name", ["MRN", "ID", "patient_id", "PatientID", "RecordID", "odd"])
def test_leading_zeros_stay_whatever_the_column_is_called(name: str, tmp_path: Path) -> None:
    """312 patients became 157 where `--subject ID` was read as numbers."""
    ids = [each for number in range(1, 40) for each in (f"{number}", f"{number:05}") for _ in range(3)]
    visits = pl.DataFrame({name: ids, "time": [0, 30, 60] * 78, "hba1c": [5 + place / 50 for place in range(234)]})
    path = tmp_path / "v.csv"
    visits.write_csv(path)
    assert prepared(read_visits(path), name).patients == 78
    assert prepared(read_visits(path, {name: "subject_id"}), "subject_id").patients == 78
    said = CliRunner().invoke(app, ["check", str(path), "--subject", name, "--target", "hba1c"])
    assert "of 78 patients" in said.output


def test_whole_numbers_compare_by_their_text_and_keep_their_type(tmp_path: Path) -> None:
    """An integer column of a parquet or pandas table stays one; beside text it is the number as written."""
    numbers = pl.DataFrame({"ID": [1, 1, 2, 2], "time": [0, 30, 0, 30], "hba1c": [5.0, 6.0, 7.0, 5.5]})
    numbers.write_parquet(tmp_path / "v.parquet")
    for visits in (read_visits(tmp_path / "v.parquet"), numbers.to_pandas(), pd.DataFrame(numbers.to_dict()), numbers):
        found = prepared(visits)
        assert found.subject.dtype == pl.Int64
        assert subject_names(found.subject).to_list() == ["1", "1", "2", "2"]
    as_text = numbers.with_columns(pl.col("ID").cast(pl.String))
    assert prepared(as_text).fingerprint == prepared(numbers).fingerprint
    halves = numbers.with_columns(pl.col("ID").cast(pl.Float64))
    assert prepared(halves).fingerprint == prepared(numbers).fingerprint
    assert prepared(pa.table(numbers.to_dict(as_series=False))).fingerprint == prepared(numbers).fingerprint


def test_an_export_that_would_change_an_identifier_is_refused() -> None:
    assert whole_ids(pl.Series(["7", "12"]), "person_id").to_list() == [7, 12]
    for odd in ("007", "1.0", "a", "+1", "12345678901234567890"):
        with pytest.raises(Exception, match="no whole numbers"):
            whole_ids(pl.Series(["7", odd]), "person_id")


@pytest.mark.parametrize(
    "name", ["id", "ID", "mrn", "MRN", "subject_id", "PatientID", "RecordID", "hadm_id", "Pat-Nr", "USUBJID"]
)
def test_names_of_identifiers(name: str) -> None:
    assert names_an_identifier(name)


@pytest.mark.parametrize(
    "name", ["hba1c", "fluid", "amid", "time", "platelet", "albumin", "acid", "uric_acid", "lipid", "steroid"]
)
def test_names_of_no_identifiers(name: str) -> None:
    assert not names_an_identifier(name)
