"""Cohorts beyond the published one: several targets, other diseases, vital signs, other dialects and table formats."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import ibis
import polars as pl
import pytest
import sqlglot

import helpers.clinical_sources as sources
from helpers.clinical_sources import Person, Records, Result
from safeimpute.errors import OptionError, SourceError
from safeimpute.sources.cohort import results, summary, visits
from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import define_cohort, read_concept_set
from safeimpute.sources.readers import READERS
from safeimpute.sources.readers.engine import Source
from safeimpute.visits.catalogue import load_catalogue

Build = Callable[..., tuple[pl.DataFrame, dict[str, Any]]]
CATALOGUE = load_catalogue()
FULL = pytest.mark.full


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def run(kind: str, location: Path, **options: Any) -> Any:
        definition = define_cohort(CATALOGUE, **({"target": "hba1c"} | options))
        out = tmp_path / "visits.parquet"
        record = build_cohort(kind, str(location), definition, out, catalogue=CATALOGUE, force=True)
        return pl.read_parquet(out), record

    return run


@pytest.mark.parametrize("kind", ["mimic4", pytest.param("fhir", marks=FULL)])
def test_several_targets_stand_where_any_of_them_was_measured(kind: str, build: Build, tmp_path: Path) -> None:
    folder = sources.WRITERS[kind](sources.invented(seed=6), tmp_path / "source")
    each = {name: build(kind, folder, target=name, labs=("glucose",))[0] for name in ("hba1c", "cholesterol")}
    both, record = build(kind, folder, target="hba1c,cholesterol", labs=("glucose", "hba1c"))
    assert record["labs"] == ["hba1c", "cholesterol", "glucose"]
    for name, alone in each.items():
        measured = both.filter(pl.col(name).is_not_null()).select("subject_id", "time", name, "glucose")
        assert measured.equals(alone.select("subject_id", "time", name, "glucose"))
    assert both.filter(pl.col("hba1c").is_null() & pl.col("cholesterol").is_null()).is_empty()
    assert both.filter(pl.col("hba1c").is_null()).height > 0
    assert both.select("subject_id", "time").n_unique() == len(both)
    assert record["published"] is None


def test_targets_that_give_each_other_away_are_refused() -> None:
    with pytest.raises(OptionError, match="'ldl' is calculated from the target 'cholesterol'"):
        define_cohort(CATALOGUE, target="cholesterol,ldl")
    with pytest.raises(OptionError, match="target is empty"):
        define_cohort(CATALOGUE, target=" , ")


def test_every_target_needs_a_result(build: Build, tmp_path: Path) -> None:
    folder = sources.write_mimic4(sources.invented(seed=6), tmp_path / "source")
    with pytest.raises(SourceError, match="no usable result of the target 'platelets'"):
        build("mimic4", folder, target="hba1c,platelets")


def people() -> Records:
    drawn = datetime(2150, 3, 1, 8)
    some = [Person(number, "F", 2100, diabetic=False) for number in range(1, 6)]
    return Records(some, [Result(person.id, "hba1c", 6.0, drawn, "%") for person in some], [])


def omop_with_tree(folder: Path) -> Path:
    """Persons 1 to 5 with conditions 10, 11 (below 10), 12 (below 11), 20 and none; 10 is SNOMED 'ten'."""
    sources.write_omop(people(), folder)
    conditions = [(1, 10), (2, 11), (3, 12), (4, 20), (2, 20)]
    rows = [{"person_id": who, "condition_concept_id": what} for who, what in conditions]
    sources.write_table(rows, folder / "condition_occurrence.csv")
    tree = [(10, 10), (10, 11), (10, 12), (11, 11), (11, 12), (12, 12), (20, 20)]
    below = [{"ancestor_concept_id": above, "descendant_concept_id": under} for above, under in tree]
    sources.write_table(below, folder / "concept_ancestor.csv")
    named = [{"concept_id": 10, "concept_code": "ten", "vocabulary_id": "SNOMED"}]
    named += [{"concept_id": 20, "concept_code": "ten", "vocabulary_id": "ICD10"}]
    sources.write_table(named, folder / "concept.csv")
    return folder


def concept_set(path: Path, *items: tuple[int, bool, bool]) -> Path:
    listed = [
        {"concept": {"CONCEPT_ID": number}, "isExcluded": excluded, "includeDescendants": below}
        for number, excluded, below in items
    ]
    path.write_text(json.dumps({"items": listed}))
    return path


@pytest.mark.parametrize(
    ("items", "members"),
    [
        pytest.param([(10, False, True)], [1, 2, 3], marks=FULL),
        pytest.param([(10, False, False)], [1], marks=FULL),
        pytest.param([(10, False, True), (11, True, True)], [1], marks=FULL),
        ([(10, False, True), (11, True, False)], [1, 3]),
        pytest.param([(11, False, True), (20, False, False)], [2, 3, 4], marks=FULL),
    ],
)
def test_a_concept_set_with_descendants_and_exclusions(
    items: list[tuple[int, bool, bool]], members: list[int], build: Build, tmp_path: Path
) -> None:
    chosen = read_concept_set(concept_set(tmp_path / "set.json", *items))
    table, record = build("omop", omop_with_tree(tmp_path / "source"), concept_set=chosen)
    assert table["subject_id"].to_list() == members
    assert record["definition"]["concept_set"] == json.loads(json.dumps(chosen.resolved()))


@FULL
def test_without_a_tree_only_the_named_concepts_count(build: Build, tmp_path: Path) -> None:
    folder = omop_with_tree(tmp_path / "source")
    (folder / "concept_ancestor.csv").unlink()
    chosen = read_concept_set(concept_set(tmp_path / "set.json", (10, False, True)))
    table, record = build("omop", folder, concept_set=chosen)
    assert table["subject_id"].to_list() == [1]
    assert any("no concept_ancestor" in note for note in record["notes"])


def test_snomed_codes_in_omop_and_fhir(build: Build, tmp_path: Path) -> None:
    folder = omop_with_tree(tmp_path / "omop")
    assert build("omop", folder, snomed=("ten",))[0]["subject_id"].to_list() == [1, 2, 3]
    with pytest.raises(OptionError, match="SNOMED code eleven is not in the table concept"):
        build("omop", folder, snomed=("ten", "eleven"))
    records = people()
    diabetic = [replace(person, diabetic=person.id % 2 == 0) for person in records.people]
    fhir = sources.write_fhir(replace(records, people=diabetic), tmp_path / "fhir")
    assert build("fhir", fhir, snomed=("38341003",))[0]["subject_id"].to_list() == ["1", "3", "5"]
    mimic = sources.write_mimic4(records, tmp_path / "mimic")
    with pytest.raises(OptionError, match="MIMIC-IV has no such codes"):
        build("mimic4", mimic, snomed=("38341003",))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"items": [{}]}', '{"items": [{"concept": {"CONCEPT_ID": "x"}}]}'])
def test_no_concept_set(text: str, tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text(text)
    with pytest.raises(OptionError, match="no concept set"):
        read_concept_set(tmp_path / "set.json")


def test_a_concept_set_that_includes_nothing(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="includes no concept"):
        read_concept_set(concept_set(tmp_path / "set.json", (10, True, True)))
    with pytest.raises(OptionError, match="cannot be read"):
        read_concept_set(tmp_path / "none.json")
    chosen = read_concept_set(concept_set(tmp_path / "set.json", (10, False, True)))
    with pytest.raises(OptionError, match="not by both"):
        define_cohort(CATALOGUE, target="hba1c", concept_set=chosen, snomed=("1",))


def pressure(person: int, systolic: float, diastolic: float, time: datetime) -> dict[str, Any]:
    def part(code: str, value: float) -> dict[str, Any]:
        quantity = {"value": value, "unit": "mmHg", "system": "http://unitsofmeasure.org", "code": "mm[Hg]"}
        return {"code": {"coding": [{"system": "http://loinc.org", "code": code}]}, "valueQuantity": quantity}

    return {
        "resourceType": "Observation",
        "status": "final",
        "code": {"coding": [{"system": "http://loinc.org", "code": "85354-9"}]},
        "subject": {"reference": f"Patient/{person}"},
        "effectiveDateTime": time.isoformat() + "+00:00",
        "component": [part("8480-6", systolic), part("8462-4", diastolic), {"code": {"text": "cuff"}}],
    }


def test_blood_pressure_is_read_from_its_components(build: Build, tmp_path: Path) -> None:
    records = people()
    folder = sources.write_fhir(records, tmp_path / "source")
    (folder / "pressure.json").write_text(json.dumps(pressure(2, 141, 87, records.results[0].drawn)))
    table, record = build(
        "fhir", folder, target="systolic_pressure", labs=("diastolic_pressure", "hba1c"), diabetes="none"
    )
    assert table.select("subject_id", "systolic_pressure", "diastolic_pressure", "hba1c").rows() == [
        ("2", 141.0, 87.0, 6.0)
    ]
    assert record["accounts"]["rows"] == 5 + 3


def test_vital_signs_in_omop_in_any_unit(build: Build, tmp_path: Path) -> None:
    folder = sources.write_omop(people(), tmp_path / "source")
    own = pl.read_csv(folder / "measurement.csv", infer_schema=False)
    hot = own.head(2).with_columns(
        measurement_concept_id=pl.lit("3020891"),
        value_as_number=pl.Series(["98.6", "38.5"]),
        unit_concept_id=pl.Series(["9289", "586323"]),
    )
    pl.concat([own, hot]).write_csv(folder / "measurement.csv")
    table, _ = build("omop", folder, target="temperature", labs=("hba1c",), diabetes="none")
    assert table["temperature"].to_list() == pytest.approx([37.0, 38.5])


def test_a_lab_without_a_code_in_the_source_is_named(build: Build, tmp_path: Path) -> None:
    folder = sources.write_mimic4(sources.invented(seed=6), tmp_path / "source")
    with pytest.raises(OptionError, match="no code of heart_rate in MIMIC-IV"):
        build("mimic4", folder, labs=("glucose", "heart_rate"))


TABLES = {
    "mimic4": {
        "labevents": "subject_id int32, itemid int32, charttime timestamp, storetime timestamp, value string, "
        "valuenum float64, valueuom string",
        "patients": "subject_id int32, gender string, anchor_age int16, anchor_year int16",
        "diagnoses_icd": "subject_id int32, icd_code string, icd_version int16",
        "admissions": "subject_id int32, admittime timestamp",
    },
    "omop": {
        "measurement": "measurement_id int32, person_id int32, measurement_concept_id int32, measurement_date date, "
        "measurement_datetime timestamp, measurement_type_concept_id int32, operator_concept_id int32, "
        "value_as_number float64, unit_concept_id int32, measurement_source_value string, unit_source_value string, "
        "value_source_value string",
        "person": "person_id int32, gender_concept_id int32, year_of_birth int32",
        "condition_occurrence": "person_id int32, condition_concept_id int32",
        "concept_ancestor": "ancestor_concept_id int32, descendant_concept_id int32",
        "visit_occurrence": "person_id int32, visit_concept_id int32, visit_start_date date, "
        "visit_start_datetime timestamp",
    },
}


def conditions_as_values(parsed: Any) -> list[str]:
    """Conditions where SQL Server wants a value: it has no type for them."""
    exp = sqlglot.exp
    found = []
    parent: Any
    child: Any
    for node in parsed.find_all(exp.Predicate, exp.Connector, exp.Not):
        parent, child = node.parent, node
        while isinstance(parent, exp.Paren):
            parent, child = parent.parent, parent
        tested = isinstance(parent, exp.If) and parent.this is child
        if not tested and not isinstance(parent, exp.Where | exp.Having | exp.Join | exp.Connector | exp.Not):
            found.append(node.sql(dialect="tsql")[:80])
    return found


class Compiled(Source):
    """A source whose tables exist only by their columns; every table computed is compiled instead."""

    dialect = ""
    texts: tuple[str, ...] = ()

    def saved(self, name: str, table: Any) -> Any:
        self.texts = (*self.texts, ibis.to_sql(table, dialect=self.dialect))
        return ibis.table(table.schema(), name=f"safeimpute_{name}")


@pytest.mark.parametrize("dialect", ["mssql", "bigquery", "snowflake"])
@pytest.mark.parametrize("kind", TABLES)
def test_every_step_compiles_to_other_dialects(kind: str, dialect: str) -> None:
    tables = {
        name: ibis.table(dict(part.split() for part in text.split(", ")), name=name)
        for name, text in TABLES[kind].items()
    }
    reader = READERS[kind]  # type: ignore[index]
    source = Compiled(engine=type("Engine", (), {"name": dialect}), place="", catalogue=CATALOGUE, locate=tables.get)
    source.dialect = dialect
    definition = define_cohort(CATALOGUE, target="hba1c,platelets", anchors="any")
    patients = source.saved("patients", reader.patients(source).distinct())
    members = source.saved("members", results.cohort_members(reader.diagnoses(source), CATALOGUE.diabetes["any"]))
    listed = reader.results(source, results.wanted_codes(definition, reader.VOCABULARY))
    gathered = source.saved("gathered", results.gather(listed, definition, reader.VOCABULARY, members))
    judged = results.judge(gathered, definition, patients)
    measured = source.saved("measured", results.merge(judged))
    stays = reader.admissions(source).semi_join(members, "subject_id")
    anchors = source.saved("anchors", visits.anchor_visits(measured, definition, stays))
    found = source.saved("found", visits.look_back(anchors, measured, definition))
    beyond = visits.at_visits(anchors, results.limits(judged, definition), definition)
    limits = source.saved("limits", beyond)
    table = visits.visits_table(
        found, measured, patients, definition, limits, known_clock=True, censored=("hba1c", "platelets")
    )
    source.saved("visits", table)
    counts = summary._fate_of_measurements(measured, found)
    source.saved("counts", counts.order_by("lab"))
    assert len(source.texts) == 9
    for text in source.texts:
        (parsed,) = sqlglot.parse(text, dialect="tsql" if dialect == "mssql" else dialect)
        assert isinstance(parsed, sqlglot.exp.Query)
        if dialect == "mssql":
            assert conditions_as_values(parsed) == []
    written = "\n".join(source.texts)
    for code in ("50852", "51265") if kind == "mimic4" else ("3004410", "3024929", "32882"):
        assert code in written
    quoted = {"mssql": "[labevents]", "bigquery": "`labevents`", "snowflake": '"labevents"'}
    if kind == "mimic4":
        assert quoted[dialect] in written


@pytest.mark.parametrize(
    ("mark", "name"), [("_delta_log", "Delta"), pytest.param("metadata/v1.metadata.json", "Iceberg", marks=FULL)]
)
def test_a_lakehouse_table_is_read_by_its_extension_or_named(
    mark: str, name: str, build: Build, tmp_path: Path
) -> None:
    """Never as a heap of parquet files: those hold rows that were deleted."""
    folder = sources.write_mimic4(sources.invented(seed=6), tmp_path / "source", "parquet")
    events = folder / "hosp" / "labevents.parquet"
    lake = folder / "hosp" / "labevents"
    lake.mkdir()
    events.rename(lake / "part-0.parquet")
    build("mimic4", folder)
    path = lake / mark
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}") if path.suffix else path.mkdir()
    with pytest.raises(SourceError, match=f"{name} table|could not be read"):
        build("mimic4", folder)
