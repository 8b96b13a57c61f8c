"""Invented patients written as each clinical source publishes them, and the cohort rule in plain Python."""

import gzip
import json
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

MIMIC_ITEMS = {"hba1c": 50852, "glucose": 50931, "glucose_gas": 50809, "cholesterol": 50907, "sodium": 50983}
LOINC = {"hba1c": "4548-4", "glucose": "2345-7", "glucose_gas": "2339-0", "cholesterol": "2093-3", "sodium": "2951-2"}
OMOP = {"hba1c": 3004410, "glucose": 3004501, "glucose_gas": 3000483, "cholesterol": 3027114, "sodium": 3019550}
OMOP_UNITS = {"%": 8554, "mmol/mol": 9579, "mg/dL": 8840, "mmol/L": 8753}
MEDS_SCHEMA = pa.schema(
    [("subject_id", pa.int64()), ("time", pa.timestamp("us")), ("code", pa.string()), ("numeric_value", pa.float32())]
)
RANGES = {"hba1c": (3, 20), "glucose": (10, 2000), "cholesterol": (20, 1000)}
LOOKBACK = {"glucose": timedelta(days=7), "cholesterol": timedelta(days=90)}

UNITS = {"hba1c": ("%", "mmol/mol"), "glucose": ("mg/dL",), "glucose_gas": ("mg/dL",), "cholesterol": ("mg/dL",)}
LIMITS = {"hba1c": (3, 15), "glucose": (5, 2200), "glucose_gas": (40, 500), "cholesterol": (15, 700)}


@dataclass(frozen=True)
class Person:
    id: int
    sex: str
    born: int  # year
    diabetic: bool


@dataclass(frozen=True)
class Result:
    person: int
    test: str  # a key of MIMIC_ITEMS
    value: float
    drawn: datetime
    unit: str
    known: datetime | None = None


@dataclass(frozen=True)
class Records:
    people: list[Person]
    results: list[Result]
    admissions: list[tuple[int, datetime]]


def invented(seed: int) -> Records:
    """Eight patients with crowded, colliding and implausible results in several units."""
    chance = random.Random(seed)
    people = [Person(i, chance.choice("FM"), chance.randint(2060, 2120), i % 4 != 3) for i in range(1, 9)]

    def moment() -> datetime:
        days = chance.choice([0, 1, 6, 7, 8, 30, 89, 90, 91, 180])
        return datetime(2150, 2, 27) + timedelta(days=days, hours=chance.choice([0, 8, 8, 16]))

    results = []
    for _ in range(260):
        test = chance.choice(["hba1c", "glucose", "glucose_gas", "cholesterol", "sodium"])
        unit = chance.choice(UNITS.get(test, ("mmol/L",)))
        value = round(chance.uniform(*LIMITS.get(test, (120, 150))), 1)
        value = round((value - 2.15) / 0.0915) if unit == "mmol/mol" else value
        results.append(Result(chance.randint(1, 8), test, float(value), moment(), unit))
    results += results[:5]
    admissions = [(chance.randint(1, 8), moment() + timedelta(hours=3, days=200)) for _ in range(6)]
    return Records(people, results, admissions + [(1, moment()) for _ in range(3)])


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    """As csv, csv.gz or parquet, by the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pl.DataFrame(rows, infer_schema_length=None)
    if path.suffix == ".parquet":
        table.write_parquet(path)
        return
    text = table.write_csv(datetime_format="%Y-%m-%d %H:%M:%S")
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def mimic4_tables(records: Records) -> dict[str, list[dict[str, Any]]]:
    return {
        "patients": [
            {"subject_id": p.id, "gender": p.sex, "anchor_age": 2150 - p.born, "anchor_year": 2150}
            for p in records.people
        ],
        # Padded as published; an ICD-9 code that begins like a diabetes code of ICD-10 must not count.
        "diagnoses_icd": [
            {"subject_id": p.id, "hadm_id": p.id, "seq_num": 1}
            | ({"icd_code": "E119   ", "icd_version": 10} if p.diabetic else {"icd_code": "E1190  ", "icd_version": 9})
            for p in records.people
        ],
        "admissions": [
            {"subject_id": person, "hadm_id": number, "admittime": time}
            for number, (person, time) in enumerate(records.admissions)
        ],
        "labevents": [
            {"labevent_id": n, "subject_id": r.person, "hadm_id": None, "specimen_id": n, "itemid": MIMIC_ITEMS[r.test]}
            | {
                "charttime": r.drawn,
                "storetime": r.known,
                "value": str(r.value),
                "valuenum": r.value,
                "valueuom": r.unit,
            }
            for n, r in enumerate(records.results)
        ],
    }


def write_mimic4(records: Records, folder: Path, form: str = "csv.gz") -> Path:
    for name, rows in mimic4_tables(records).items():
        write_table(rows, folder / "hosp" / f"{name}.{form}")
    return folder


def write_mimic3(records: Records, folder: Path) -> Path:
    people = [{"SUBJECT_ID": p.id, "GENDER": p.sex, "DOB": datetime(p.born, 1, 1)} for p in records.people]
    codes = [{"SUBJECT_ID": p.id, "ICD9_CODE": "25000" if p.diabetic else "4280"} for p in records.people]
    stays = [{"SUBJECT_ID": person, "ADMITTIME": time} for person, time in records.admissions]
    events = [
        {"SUBJECT_ID": r.person, "ITEMID": MIMIC_ITEMS[r.test], "CHARTTIME": r.drawn, "VALUE": str(r.value)}
        | {"VALUENUM": r.value, "VALUEUOM": r.unit}
        for r in records.results
    ]
    tables: dict[str, list[dict[str, Any]]] = {"PATIENTS": people, "DIAGNOSES_ICD": codes}
    tables |= {"ADMISSIONS": stays, "LABEVENTS": events}
    for name, rows in tables.items():
        write_table(rows, folder / f"{name}.csv.gz")
    return folder


def omop_tables(records: Records) -> dict[str, list[dict[str, Any]]]:
    measurements = [
        {"measurement_id": n, "person_id": r.person, "measurement_concept_id": OMOP[r.test]}
        | {"measurement_date": r.drawn.date(), "measurement_datetime": r.drawn, "operator_concept_id": 0}
        | {"value_as_number": r.value, "unit_concept_id": OMOP_UNITS[r.unit], "unit_source_value": r.unit}
        for n, r in enumerate(records.results)
    ]
    return {
        "person": [
            {"person_id": p.id, "gender_concept_id": 8532 if p.sex == "F" else 8507, "year_of_birth": p.born}
            for p in records.people
        ],
        "condition_occurrence": [
            {"person_id": p.id, "condition_concept_id": 201826 if p.diabetic else 316866} for p in records.people
        ],
        "visit_occurrence": [
            {
                "person_id": person,
                "visit_concept_id": 9201,
                "visit_start_date": time.date(),
                "visit_start_datetime": time,
            }
            for person, time in records.admissions
        ],
        "measurement": measurements,
    }


def write_omop(records: Records, folder: Path) -> Path:
    for name, rows in omop_tables(records).items():
        write_table(rows, folder / f"{name}.csv")
    return folder


def write_meds(records: Records, folder: Path) -> Path:
    events: list[tuple[int, datetime | None, str, float | None]] = []
    for p in records.people:
        events += [(p.id, None, f"GENDER//{p.sex}", None), (p.id, datetime(p.born, 1, 1), "MEDS_BIRTH", None)]
        code = "10//E119" if p.diabetic else "9//4280"
        events.append((p.id, datetime(2149, 1, 1), f"DIAGNOSIS//ICD//{code}", None))
    events += [(person, time, "HOSPITAL_ADMISSION//URGENT//HOME", None) for person, time in records.admissions]
    events += [(r.person, r.drawn, f"LAB//{MIMIC_ITEMS[r.test]}//{r.unit}", r.value) for r in records.results]
    rows = [dict(zip(MEDS_SCHEMA.names, event, strict=True)) for event in events]
    for shard, parity in (("train", 0), ("held_out", 1)):  # a patient lives in one shard
        path = folder / "data" / shard / "0.parquet"
        path.parent.mkdir(parents=True)
        own = [row for row in rows if row["subject_id"] % 2 == parity]
        pq.write_table(pa.Table.from_pylist(own, schema=MEDS_SCHEMA), path)
    (folder / "metadata").mkdir()
    (folder / "metadata" / "dataset.json").write_text(json.dumps({"meds_version": "0.4.0"}))
    return folder


def observation(result: Result, **changes: Any) -> dict[str, Any]:
    quantity = {"value": result.value, "unit": result.unit, "system": "http://unitsofmeasure.org", "code": result.unit}
    return {
        "resourceType": "Observation",
        "status": "final",
        "code": {"coding": [{"system": "http://loinc.org", "code": LOINC[result.test]}]},
        "subject": {"reference": f"urn:uuid:{result.person}"},
        "effectiveDateTime": result.drawn.isoformat() + "+00:00",
        "valueQuantity": quantity,
    } | changes


def write_fhir(records: Records, folder: Path) -> Path:
    """Even patients as gzipped bundles, odd ones as NDJSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for p in records.people:
        code = "44054006" if p.diabetic else "38341003"
        person = {"resourceType": "Patient", "id": str(p.id), "birthDate": str(p.born)}
        resources: list[dict[str, Any]] = [
            person | {"gender": "female" if p.sex == "F" else "male"},
            {"resourceType": "Condition", "subject": {"reference": f"Patient/{p.id}"}}
            | {"code": {"coding": [{"system": "http://snomed.info/sct", "code": code}]}},
        ]
        resources += [
            {
                "resourceType": "Encounter",
                "status": "finished",
                "class": {"code": "IMP"},
                "subject": {"reference": f"Patient/{p.id}"},
            }
            | {"period": {"start": time.isoformat() + "Z"}}
            for owner, time in records.admissions
            if owner == p.id
        ]
        resources += [observation(r) for r in records.results if r.person == p.id]
        if p.id % 2:
            lines = "\n".join(map(json.dumps, resources))
            (folder / f"{p.id}.ndjson").write_text(lines)
        else:
            entries = [{"resource": resource} for resource in resources]
            bundle = {"resourceType": "Bundle", "type": "collection", "entry": entries}
            (folder / f"{p.id}.json.gz").write_bytes(gzip.compress(json.dumps(bundle).encode()))
    return folder


WRITERS = {"mimic3": write_mimic3, "mimic4": write_mimic4, "omop": write_omop, "meds": write_meds, "fhir": write_fhir}


def expected_visits(records: Records, anchors: str) -> list[dict[str, Any]]:
    """The cohort rule once more, by loops over lists: what a visits table must hold."""
    rows = []
    for person in records.people:
        if person.diabetic:
            rows += _visits_of(person, records, anchors)
    return rows


def _visits_of(person: Person, records: Records, anchors: str) -> list[dict[str, Any]]:
    series: dict[str, dict[datetime, list[float]]] = {"hba1c": {}, "glucose": {}, "cholesterol": {}}
    for result in records.results:
        lab = "glucose" if result.test == "glucose_gas" else result.test
        if result.person != person.id or lab not in series:
            continue
        value = 0.0915 * result.value + 2.15 if result.unit == "mmol/mol" else result.value
        if RANGES[lab][0] <= value <= RANGES[lab][1]:
            series[lab].setdefault(result.drawn, []).append(value)
    times = sorted(series["hba1c"])
    if anchors == "any":
        stays = {time.date(): time for owner, time in sorted(records.admissions, reverse=True) if owner == person.id}
        draws = {time.date(): time for time in sorted(time for lab in series.values() for time in lab)}
        times = sorted((stays | draws).values())
    visits = []
    for time in times:
        start = time.replace(hour=0, minute=0, second=0) if anchors == "any" else time
        visit: dict[str, Any] = {"subject_id": person.id, "time": time}
        for lab, values in series.items():
            earliest = min(start, time - LOOKBACK[lab]) if lab in LOOKBACK else start
            seen = [moment for moment in values if earliest <= moment <= time]
            visit[lab] = sum(values[max(seen)]) / len(values[max(seen)]) if seen else None
        if any(visit[lab] is not None for lab in series):
            visits.append(visit | {"sex": person.sex, "age": time.year - person.born})
    return visits
