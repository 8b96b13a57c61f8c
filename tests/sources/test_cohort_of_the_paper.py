"""What the paper's own cohort needs: type 1, a window of days, body measurements, sex alone, any disease by ICD."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import helpers.clinical_sources as sources
from helpers.clinical_sources import Person, Records, Result
from safeimpute.errors import OptionError
from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import define_cohort
from safeimpute.visits.catalogue import load_catalogue

START = datetime(2150, 3, 1, 8)


def built(kind: str, location: Path, out: Path, more: Path | None = None, **options: Any) -> pl.DataFrame:
    catalogue = load_catalogue(more)
    definition = define_cohort(catalogue, **({"target": "hba1c"} | options))
    build_cohort(kind, str(location), definition, out, catalogue=catalogue, force=True)
    return pl.read_parquet(out)


def people(count: int) -> Records:
    """A measurement of HbA1c every thirty days, four each."""
    everybody = [Person(i, "F" if i % 2 else "M", 2090, True) for i in range(1, count + 1)]
    results = [
        Result(person.id, "hba1c", 6.0 + person.id / 10, START + timedelta(days=30 * k), "%")
        for person in everybody
        for k in range(4)
    ]
    return Records(everybody, results, [(1, START + timedelta(days=200))])


def with_codes(folder: Path, codes: list[tuple[str, int]]) -> Path:
    """A MIMIC-IV in which each patient has one diagnosis."""
    sources.write_mimic4(people(len(codes)), folder)
    rows = [
        {"subject_id": n, "hadm_id": n, "seq_num": 1, "icd_code": code, "icd_version": version}
        for n, (code, version) in enumerate(codes, start=1)
    ]
    sources.write_table(rows, folder / "hosp" / "diagnoses_icd.csv.gz")
    return folder


def test_type_1_is_told_by_code(tmp_path: Path) -> None:
    codes = [("E1065", 10), ("E119", 10), ("25001", 9), ("25093", 9), ("25000", 9), ("25002", 9)]
    visits = built("mimic4", with_codes(tmp_path / "m", codes), tmp_path / "v.parquet", diabetes="type1")
    assert set(visits["subject_id"]) == {1, 3, 4}
    everybody = built("mimic4", tmp_path / "m", tmp_path / "v.parquet")
    assert set(everybody["subject_id"]) == {1, 2, 3, 4, 5, 6}


def test_any_disease_by_the_beginning_of_its_icd_codes(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[diseases.cirrhosis]\nicd9 = ["571.6"]\nicd10 = ["K74"]\n')
    location = with_codes(tmp_path / "m", [("K743", 10), ("5716", 9), ("K70", 10), ("K743", 9)])
    visits = built("mimic4", location, tmp_path / "v.parquet", own, disease="cirrhosis")
    assert set(visits["subject_id"]) == {1, 2}
    with pytest.raises(OptionError, match=r"\[diseases.gout\]"):
        define_cohort(load_catalogue(own), target="hba1c", disease="gout")
    own.write_text('[diseases.cirrhosis]\nicd10 = [""]\n')
    with pytest.raises(OptionError, match="match everybody"):
        load_catalogue(own)
    own.write_text("[diseases.cirrhosis]\n")
    with pytest.raises(OptionError, match="give icd9"):
        load_catalogue(own)


def test_a_disease_counts_with_its_descendants_in_omop(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[diseases.failure]\nomop = [316139]\n")
    folder = sources.write_omop(people(3), tmp_path / "o")
    conditions = [{"person_id": p, "condition_concept_id": c} for p, c in ((1, 316139), (2, 444031), (3, 201826))]
    sources.write_table(conditions, folder / "condition_occurrence.csv")
    tree = [{"ancestor_concept_id": 316139, "descendant_concept_id": c} for c in (316139, 444031)]
    sources.write_table(tree, folder / "concept_ancestor.csv")
    visits = built("omop", folder, tmp_path / "v.parquet", own, disease="failure")
    assert set(visits["subject_id"]) == {1, 2}


@pytest.mark.parametrize("anchors", ["target", "any"])
def test_visits_lie_in_the_window_and_may_look_before_it(tmp_path: Path, anchors: str) -> None:
    records = people(4)
    before = [Result(1, "glucose", 111.0, START + timedelta(days=27), "mg/dL")]
    records = replace(records, results=records.results + before)
    folder = sources.write_mimic4(records, tmp_path / "m")
    first, last = (START + timedelta(days=30)).date(), (START + timedelta(days=90)).date()
    told: dict[str, Any] = {"since": first.isoformat(), "until": last.isoformat(), "anchors": anchors}
    visits = built("mimic4", folder, tmp_path / "v.parquet", **told)
    assert set(visits["time"].dt.date()) == {first, first + timedelta(days=30)}  # the last day is not in it
    earliest = visits.filter((pl.col("subject_id") == 1) & (pl.col("time").dt.date() == first))
    assert earliest["glucose"].to_list() == [111.0]
    assert len(visits) == 8


def test_sex_can_be_the_only_attribute(tmp_path: Path) -> None:
    folder = sources.write_mimic4(people(3), tmp_path / "m")
    visits = built("mimic4", folder, tmp_path / "v.parquet", attributes=("sex",))
    assert "sex" in visits.columns
    assert "age" not in visits.columns


@pytest.mark.parametrize("kind", ["omop", "fhir"])
def test_body_measurements_are_labs(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sources.OMOP, "weight", 3025315)
    monkeypatch.setitem(sources.LOINC, "weight", "29463-7")
    monkeypatch.setitem(sources.MIMIC_ITEMS, "weight", 1)
    for unit, concept in (("kg", 9529), ("lb", 8739)):
        monkeypatch.setitem(sources.OMOP_UNITS, unit, concept)
    records = people(2)
    body = [Result(1, "weight", 80.0, START, "kg"), Result(2, "weight", 200.0, START, "lb")]
    folder = sources.WRITERS[kind](replace(records, results=records.results + body), tmp_path / "s")
    visits = built(kind, folder, tmp_path / "v.parquet", labs=("weight", "bmi"), diabetes="none")
    first = visits.filter(pl.col("time") == START).sort("subject_id")
    assert first["weight"].to_list() == pytest.approx([80.0, 90.718474])
    with pytest.raises(OptionError, match="give the answer away"):
        define_cohort(load_catalogue(), target="bmi", labs=("weight",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "2022-13-01"}, "is no day"),
        ({"since": "2022-01-02", "until": "2022-01-02"}, "is empty"),
        ({"attributes": ("race",)}, "sex, age"),
    ],
)
def test_what_is_not_understood(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        define_cohort(load_catalogue(), **({"target": "hba1c"} | options))
