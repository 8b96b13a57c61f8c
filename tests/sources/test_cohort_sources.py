"""Invented patients through every source: the same visits, equal to the rule written in plain Python."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import helpers.clinical_sources as sources
from helpers.clinical_sources import Person, Records, Result
from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import define_cohort
from safeimpute.sources.cohort.summary import sum_counts
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import prepare_visits

COLUMNS = ["subject_id", "time", "hba1c", "glucose", "cholesterol", "sex", "age"]
Build = Callable[..., tuple[pl.DataFrame, dict[str, Any]]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def run(kind: str, location: Path | str, *, more: Path | None = None, **options: Any) -> Any:
        catalogue = load_catalogue(more)
        definition = define_cohort(catalogue, **({"target": "hba1c"} | options))
        out = tmp_path / "visits.parquet"
        record = build_cohort(kind, str(location), definition, out, catalogue=catalogue, force=True)
        assert json.loads((tmp_path / "visits.cohort.json").read_text()) == json.loads(json.dumps(record))
        accounts = record["accounts"]
        used, aside = sum(accounts["used"].values()), sum_counts(accounts["set_aside"])
        assert accounts["rows"] == used + aside + sum_counts(accounts["not_relevant"])
        return pl.read_parquet(out), record

    return run


def plain(table: pl.DataFrame) -> pl.DataFrame:
    """Identifiers as text, so that FHIR's compare too; the order is by number, then time."""
    return table.select(COLUMNS).with_columns(pl.col("subject_id").cast(pl.String)).sort("subject_id", "time")


def expected(records: Records, anchors: str) -> pl.DataFrame:
    rows = sources.expected_visits(records, anchors)
    labs = dict.fromkeys(("hba1c", "glucose", "cholesterol"), pl.Float64())
    schema = {"subject_id": pl.Int64(), "time": pl.Datetime("us"), **labs, "sex": pl.String(), "age": pl.Int32()}
    return plain(pl.DataFrame(rows, schema=schema))


@pytest.mark.parametrize("anchors", ["target", "any"])
@pytest.mark.parametrize("kind", sources.WRITERS)
def test_every_source_gives_the_visits_of_the_rule(kind: str, anchors: str, build: Build, tmp_path: Path) -> None:
    records = sources.invented(seed=5 if anchors == "any" else 6)
    visits, record = build(kind, sources.WRITERS[kind](records, tmp_path / "source"), anchors=anchors)
    assert_frame_equal(plain(visits), expected(records, anchors), rel_tol=1e-12)
    assert len(visits) > 30
    assert record["accounts"]["merged"]["rows"] > record["accounts"]["merged"]["measurements"] > 0
    assert record["accounts"]["set_aside"]["out of range"]["glucose"] > 0
    assert any(what.startswith("hba1c: mmol/mol to %") for what in record["remarks"]["converted"])


@pytest.mark.parametrize("form", ["csv", "parquet", "duckdb"])
def test_every_form_of_the_same_tables(form: str, build: Build, tmp_path: Path) -> None:
    records = sources.invented(seed=8)
    folder = sources.write_mimic4(records, tmp_path / "source", "parquet" if form == "duckdb" else form)
    location = folder
    if form == "duckdb":
        location = tmp_path / "mimic.duckdb"
        with duckdb.connect(location) as database:
            database.execute("CREATE SCHEMA mimiciv_hosp")
            for file in (folder / "hosp").iterdir():
                database.execute(f"CREATE TABLE mimiciv_hosp.{file.stem} AS FROM '{file}'")
    visits, _ = build("mimic4", location)
    assert_frame_equal(plain(visits), expected(records, "target"), rel_tol=1e-12)


def test_the_hosp_folder_itself_can_be_given(build: Build, tmp_path: Path) -> None:
    records = sources.invented(seed=8)
    visits, _ = build("mimic4", sources.write_mimic4(records, tmp_path / "source") / "hosp")
    assert_frame_equal(plain(visits), expected(records, "target"), rel_tol=1e-12)


NOON = datetime(2150, 6, 1, 12)


def one_patient(*results: Result, diabetic: bool = True) -> Records:
    return Records([Person(1, "F", 2100, diabetic)], list(results), [])


def hba1c(value: float = 7.0, drawn: datetime = NOON, unit: str = "%", known: datetime | None = None) -> Result:
    return Result(1, "hba1c", value, drawn, unit, known)


@pytest.mark.parametrize(
    ("gap", "found"),
    [
        (timedelta(days=7), True),
        (timedelta(days=7, minutes=1), False),
        (timedelta(), True),
        (-timedelta(minutes=1), False),
    ],
)
def test_the_look_back_is_closed_at_both_ends(gap: timedelta, found: bool, build: Build, tmp_path: Path) -> None:
    records = one_patient(hba1c(), Result(1, "glucose", 123, NOON - gap, "mg/dL"))
    visits, record = build("mimic4", sources.write_mimic4(records, tmp_path / "source"))
    assert (visits["glucose"][0] == 123) if found else (visits["glucose"][0] is None)
    assert record["accounts"]["not_relevant"].get("no visit looks back to it", {}).get("glucose", 0) == (not found)


def test_look_back_and_specimen_can_be_chosen(build: Build, tmp_path: Path) -> None:
    records = one_patient(
        hba1c(),
        Result(1, "glucose", 100, NOON - timedelta(days=20), "mg/dL"),
        Result(1, "glucose_gas", 150, NOON - timedelta(days=1), "mg/dL"),
    )
    folder = sources.write_mimic4(records, tmp_path / "source")
    assert build("mimic4", folder)[0]["glucose"].to_list() == [150]
    assert build("mimic4", folder, glucose="serum")[0]["glucose"].to_list() == [None]
    assert build("mimic4", folder, glucose="serum", lookback="glucose=30d")[0]["glucose"].to_list() == [100]
    assert build("mimic4", folder, lookback="glucose=23h")[0]["glucose"].to_list() == [None]


def test_both_clocks_are_carried(build: Build, tmp_path: Path) -> None:
    later = NOON + timedelta(hours=5)
    records = one_patient(
        hba1c(known=later), Result(1, "glucose", 110, NOON - timedelta(days=2), "mg/dL", NOON - timedelta(days=1))
    )
    visits, record = build("mimic4", sources.write_mimic4(records, tmp_path / "source"))
    row = visits.row(0, named=True)
    assert (row["time"], row["hba1c__drawn"], row["hba1c__known"]) == (NOON, NOON, later)
    assert row["glucose__drawn"] == NOON - timedelta(days=2)
    assert row["glucose__known"] == NOON - timedelta(days=1)
    assert row["cholesterol__known"] is None
    assert record["clocks"] == ["drawn", "known"]


def test_a_source_with_one_clock_claims_no_other(build: Build, tmp_path: Path) -> None:
    visits, record = build("mimic3", sources.write_mimic3(one_patient(hba1c()), tmp_path / "source"))
    assert record["clocks"] == ["drawn"]
    assert not [name for name in visits.columns if name.endswith("__known")]


def test_results_of_one_moment_are_averaged_and_known_with_the_last(build: Build, tmp_path: Path) -> None:
    first, last = NOON + timedelta(hours=1), NOON + timedelta(hours=2)
    records = one_patient(hba1c(7.0, known=first), hba1c(8.0, known=last), hba1c(8.0, known=last))
    visits, record = build("mimic4", sources.write_mimic4(records, tmp_path / "source"))
    assert visits["hba1c"].to_list() == [pytest.approx((7 + 8 + 8) / 3)]
    assert visits["hba1c__known"].to_list() == [last]
    assert record["accounts"]["merged"] == {"rows": 3, "measurements": 1, "differing": 1}


def test_equal_results_of_one_moment_keep_their_exact_value(build: Build, tmp_path: Path) -> None:
    records = one_patient(*[hba1c(5.1)] * 3)
    visits, _ = build("mimic4", sources.write_mimic4(records, tmp_path / "source"))
    assert visits["hba1c"].to_list() == [5.1]


def spoiled(records: Records, *rows: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """MIMIC-IV's tables with further lab rows, each a copy of the first with changes."""
    tables = sources.mimic4_tables(records)
    lab = [{name: None if value is None else str(value) for name, value in row.items()} for row in tables["labevents"]]
    tables["labevents"] = lab + [lab[0] | row for row in rows]
    return tables


def test_every_reason_to_set_a_row_aside(build: Build, tmp_path: Path) -> None:
    tables = spoiled(
        one_patient(hba1c(), diabetic=True),
        {"itemid": "51613"},
        {"itemid": "50854", "valuenum": None, "value": "DONE"},
        {"subject_id": "nobody"},
        {"charttime": "2150-02-30 12:00:00"},
        {"charttime": None},
        {"charttime": "1999-01-01 12:00:00"},
        {"value": ">14", "valuenum": "14"},
        {"value": "GREATER THAN 15", "valuenum": None},
        {"value": "< 4.0", "valuenum": None},
        {"value": "hemolyzed", "valuenum": None},
        {"value": "7.1", "valuenum": "seven"},
        {"valueuom": None},
        {"valueuom": "mg/dL"},
        {"valuenum": "2.9"},
        {"valuenum": "20.1"},
        {"valuenum": "48", "value": "48"},
        {"subject_id": "2"},
        {"itemid": "51222"},
    )
    for name, rows in tables.items():
        sources.write_table(rows, tmp_path / "source" / "hosp" / f"{name}.csv.gz")
    visits, record = build("mimic4", tmp_path / "source")
    assert visits["hba1c"].to_list() == [7.0]
    assert {reason: sum(labs.values()) for reason, labs in record["accounts"]["set_aside"].items()} == {
        "calculated from the target": 2,
        "no patient identifier": 1,
        "no possible date": 2,
        "dated before birth": 1,
        "censored (< or >)": 3,
        "no number": 2,
        "no unit": 1,
        "unknown unit": 1,
        "out of range": 3,
    }
    assert record["accounts"]["not_relevant"] == {
        "other code": {"other code": 1},
        "patient outside the cohort": {"hba1c": 1},
    }


def test_omop_operators_units_and_dates(build: Build, tmp_path: Path) -> None:
    tables = sources.omop_tables(one_patient(hba1c()))
    row = tables["measurement"][0]
    day = (NOON + timedelta(days=30)).date()
    tables["measurement"] += [
        row | {"operator_concept_id": 4171756},
        row | {"operator_concept_id": 4172704},
        row | {"operator_concept_id": 12345},
        row | {"unit_concept_id": 8876},
        row | {"unit_concept_id": 0, "unit_source_value": "furlong"},
        row | {"operator_concept_id": 4172703},
        row
        | {
            "operator_concept_id": 4172703,
            "unit_concept_id": None,
            "measurement_date": day,
            "measurement_datetime": None,
        },
    ]
    for name, rows in tables.items():
        sources.write_table(rows, tmp_path / "source" / f"{name}.parquet")
    visits, record = build("omop", tmp_path / "source")
    assert visits["time"].to_list() == [NOON, datetime(day.year, day.month, day.day)]
    assert record["accounts"]["set_aside"] == {"censored (< or >)": {"hba1c": 3}, "unknown unit": {"hba1c": 2}}
    assert "concept_ancestor" in record["notes"][0]


def test_omop_descendants_count_with_the_vocabulary(build: Build, tmp_path: Path) -> None:
    """As OHDSI's Athena exports the table: tab-separated, named in capitals."""
    records = one_patient(hba1c())
    folder = sources.write_omop(records, tmp_path / "source")
    sources.write_table([{"person_id": 1, "condition_concept_id": 4226121}], folder / "condition_occurrence.csv")
    header = "ancestor_concept_id\tdescendant_concept_id\tmin_levels_of_separation\tmax_levels_of_separation"
    (folder / "CONCEPT_ANCESTOR.csv").write_text(
        f"{header}\n201820\t4226121\t2\t3\n201826\t4226121\t1\t1\n", newline=""
    )
    visits, record = build("omop", folder, diabetes="primary")
    assert len(visits) == 1
    assert record["notes"] == []


@pytest.mark.parametrize(
    ("code", "version", "any_diabetes", "primary"),
    [
        ("25000", 9, 1, 1), ("24900", 9, 1, 0), ("E119", 10, 1, 1), ("E0800", 10, 1, 0), ("E1010", 10, 1, 1),
        ("E139", 10, 1, 1), ("E140", 10, 1, 0), ("E15", 10, 0, 0), ("E119", 9, 0, 0), ("25000", 10, 0, 0),
        ("V250", 9, 0, 0), ("e11.9", 10, 1, 1),
    ],
)  # fmt: skip
def test_who_is_diabetic(code: str, version: int, any_diabetes: int, primary: int) -> None:
    import ibis

    from safeimpute.sources.cohort.results import cohort_members

    diagnoses = ibis.memtable({"subject_id": [1], "vocabulary": [f"icd{version}"], "code": [code]})
    catalogue = load_catalogue()
    assert cohort_members(diagnoses, catalogue.diabetes["any"]).count().to_pyarrow().as_py() == any_diabetes
    assert cohort_members(diagnoses, catalogue.diabetes["primary"]).count().to_pyarrow().as_py() == primary


def test_everybody_counts_without_the_diagnoses(build: Build, tmp_path: Path) -> None:
    folder = sources.write_mimic4(one_patient(hba1c(), diabetic=False), tmp_path / "source")
    (folder / "hosp" / "diagnoses_icd.csv.gz").unlink()
    assert len(build("mimic4", folder, diabetes="none")[0]) == 1


def test_fhir_statuses_codings_and_vague_dates(build: Build, tmp_path: Path) -> None:
    records = one_patient(hba1c())
    folder = sources.write_fhir(records, tmp_path / "source")
    local = {"coding": [{"system": "urn:lab", "code": "A1C"}, {"system": "http://loinc.org", "code": "71875-9"}]}
    known = {"system": "http://loinc.org", "code": "4548-4"}
    second = sources.observation(hba1c(8.0, NOON + timedelta(days=40)), issued="2150-07-12T02:00:00+02:00")
    spoilt = sources.observation(hba1c())
    lines = [
        second | {"code": {"coding": [*local["coding"], known]}},
        spoilt | {"status": "entered-in-error"},
        spoilt | {"status": "preliminary"},
        spoilt | {"effectiveDateTime": "2150-06"},
        spoilt | {"valueQuantity": spoilt["valueQuantity"] | {"comparator": ">"}},
        {name: value for name, value in spoilt.items() if name != "valueQuantity"},
        spoilt | {"code": local},
        {name: value for name, value in spoilt.items() if name != "subject"},
    ]
    (folder / "more.ndjson").write_text("\n".join(map(json.dumps, lines)))
    (folder / "nothing.json").write_text("")
    visits, record = build("fhir", folder)
    assert visits["hba1c"].to_list() == [7.0, 8.0]
    assert visits["hba1c__known"].to_list() == [None, datetime(2150, 7, 12)]
    assert {reason: sum(labs.values()) for reason, labs in record["accounts"]["set_aside"].items()} == {
        "no patient identifier": 1,
        "no possible date": 1,
        "result not final": 2,
        "censored (< or >)": 1,
        "no number": 1,
    }
    assert record["notes"] == ["1 of 3 files hold nothing and were passed over"]


def test_fhir_patients_are_known_by_their_full_address(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    address = "urn:uuid:0b1c"
    resources = [
        (address, {"resourceType": "Patient", "id": "p1", "gender": "male"}),
        ("urn:uuid:1", sources.observation(hba1c(), subject={"reference": address})),
        (
            "urn:uuid:2",
            sources.observation(hba1c(drawn=NOON + timedelta(days=1)), subject={"reference": "https://x/Patient/p1"}),
        ),
    ]
    entries = [{"fullUrl": url, "resource": resource} for url, resource in resources]
    (folder / "bundle.json").write_text(json.dumps({"resourceType": "Bundle", "entry": entries}))
    visits, _ = build("fhir", folder, diabetes="none")
    assert visits["subject_id"].to_list() == ["p1", "p1"]
    assert visits["sex"].to_list() == ["M", "M"]
    assert visits["age"].to_list() == [None, None]


def test_hidden_ages_of_mimic3_become_91(build: Build, tmp_path: Path) -> None:
    records = Records([Person(1, "F", 1850, True)], [hba1c()], [])
    visits, _ = build("mimic3", sources.write_mimic3(records, tmp_path / "source"))
    assert visits["age"].to_list() == [91]


def test_age_counts_birthdays(build: Build, tmp_path: Path) -> None:
    tables = sources.omop_tables(one_patient(hba1c(), hba1c(drawn=NOON + timedelta(days=1))))
    tables["person"][0] |= {"month_of_birth": 6, "day_of_birth": 2}
    for name, rows in tables.items():
        sources.write_table(rows or [{"person_id": None}], tmp_path / "source" / f"{name}.csv")
    visits, _ = build("omop", tmp_path / "source")
    assert visits["age"].to_list() == [49, 50]


def test_any_lab_can_be_target_and_users_labs_too(build: Build, tmp_path: Path) -> None:
    more = tmp_path / "mine.toml"
    more.write_text(
        '[labs.troponin]\ntitle = "troponin"\nunit = "ng/mL"\nreject = [0, 100]\nflag = [0, 50]\n'
        'lookback = "1d"\n'
        "codes.serum = { mimic = [51003] }\n"
    )
    tables = spoiled(one_patient(hba1c()), {"itemid": "51003", "valuenum": "0.5", "value": "0.5", "valueuom": "ng/mL"})
    for name, rows in tables.items():
        sources.write_table(rows, tmp_path / "source" / "hosp" / f"{name}.csv")
    visits, _ = build("mimic4", tmp_path / "source", target="troponin", labs=("hba1c",), more=more)
    assert visits.select("troponin", "hba1c").row(0) == (0.5, 7.0)


def test_a_days_visit_stands_at_its_last_draw(build: Build, tmp_path: Path) -> None:
    morning, evening = NOON.replace(hour=6), NOON.replace(hour=20)
    records = Records(
        [Person(1, "F", 2100, True)],
        [hba1c(7.0, morning), Result(1, "glucose", 140, evening, "mg/dL"), hba1c(7.5, NOON - timedelta(days=1))],
        [(1, NOON.replace(hour=3)), (1, NOON + timedelta(days=3)), (1, NOON + timedelta(days=300))],
    )
    visits, record = build("mimic4", sources.write_mimic4(records, tmp_path / "source"), anchors="any")
    assert visits["time"].to_list() == [NOON - timedelta(days=1), evening, NOON + timedelta(days=3)]
    assert visits["hba1c"].to_list() == [7.5, 7.0, None]  # the target is never carried to another day
    assert visits["glucose"].to_list() == [None, 140, 140]
    assert record["contacts"] == {"anchors": 4, "without_any_lab_value": 1}


def test_the_invented_sources_keep_their_standards(tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing about real MEDS and FHIR."""
    import pyarrow.parquet as pq
    from fhir.resources.R4B import get_fhir_model_class
    from meds.schema import DataSchema

    records = sources.invented(seed=3)
    for shard in sources.write_meds(records, tmp_path / "meds").glob("data/*/*.parquet"):
        DataSchema.validate(pq.read_table(shard, partitioning=None))
    for file in sources.write_fhir(records, tmp_path / "fhir").glob("*.ndjson"):
        for line in file.read_text().splitlines():
            resource = json.loads(line)
            get_fhir_model_class(resource["resourceType"]).model_validate(resource)


def censored(kind: str, folder: Path) -> Path:
    """Two days with another lab; on the second the target (4.0) came back as below 4, later that day."""
    second = NOON + timedelta(days=40)
    records = one_patient(
        hba1c(),
        Result(1, "cholesterol", 200, NOON, "mg/dL"),
        Result(1, "cholesterol", 210, second, "mg/dL"),
        hba1c(4.0, second + timedelta(hours=2)),
        hba1c(7.5, NOON + timedelta(days=80)),
    )
    place = sources.WRITERS[kind](replace(records, admissions=[(1, NOON)]), folder)
    for file in (each for each in place.rglob("*") if each.is_file()):
        if kind == "fhir":
            file.write_text(file.read_text().replace('"value": 4.0', '"comparator": "<", "value": 4.0'))
        elif file.suffix == ".parquet":
            data = pl.read_parquet(file)
            below = pl.col("numeric_value") == 4.0
            data.with_columns(
                text_value=pl.when(below).then(pl.lit("<4.0")), numeric_value=pl.when(~below).then("numeric_value")
            ).write_parquet(file)
        elif "measurement" in file.name or "labevents" in file.name.lower():
            table = pl.read_csv(file, infer_schema=False)
            number = next(n for n in table.columns if n.lower() in ("valuenum", "value_as_number"))
            below = pl.col(number) == "4.0"
            sign = (
                {"operator_concept_id": pl.when(below).then(pl.lit("4171756")).otherwise("operator_concept_id")}
                if kind == "omop"
                else {
                    n: pl.when(below).then(pl.lit("< 4.0")).otherwise(n) for n in table.columns if n.lower() == "value"
                }
            )
            sources.write_table(table.with_columns(**sign).to_dicts(), file)
    return place


@pytest.mark.parametrize("anchors", ["target", "any"])
@pytest.mark.parametrize("kind", sources.WRITERS)
def test_a_result_beyond_a_limit_is_measured_at_its_visit(
    kind: str, anchors: str, build: Build, tmp_path: Path
) -> None:
    """The day of the censored result is a visit, its target neither a value nor missing."""
    visits, record = build(kind, censored(kind, tmp_path / "source"), anchors=anchors)
    found = prepare_visits(visits, ColumnChoice("hba1c"))
    assert sum_counts({"": record["accounts"]["set_aside"]["censored (< or >)"]}) == 1
    assert np.sum(~np.isnan(found.arrays.target_values)) == 2
    if anchors == "any":
        assert found.censored == record["censored"] == {"hba1c": 1}
        assert found.arrays.target_censored.tolist() == [False, True, False]
        if kind != "meds":
            assert visits["hba1c__high"].drop_nulls().to_list() == [4.0]
    else:
        assert len(visits) == 2, "a visit stands where the target has a value"
