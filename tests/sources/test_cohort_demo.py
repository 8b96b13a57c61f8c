"""The open demo data: what a build holds, against counts written independently in plain SQL or Python."""

import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import define_cohort
from safeimpute.sources.cohort.summary import CohortRecord, sum_counts
from safeimpute.visits.catalogue import load_catalogue

pytestmark = pytest.mark.data

LABS = ["hba1c", "glucose", "cholesterol"]
FOLDERS = {
    "mimic3": "mimic3_demo",
    "mimic4": "mimic4_demo",
    "meds": "mimic4_demo_meds",
    "omop": "omop_synthea27nj",
    "fhir": "fhir_r4",
}


@pytest.fixture(scope="module")
def built(clinical_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Builds each cohort once."""
    done: dict[tuple[str, str], tuple[pl.DataFrame, CohortRecord]] = {}

    def build(kind: str, anchors: str) -> tuple[pl.DataFrame, CohortRecord]:
        if (kind, anchors) not in done:
            catalogue = load_catalogue()
            definition = define_cohort(catalogue, target="hba1c", anchors=anchors)
            out = tmp_path_factory.mktemp(f"{kind}-{anchors}") / "visits.parquet"
            record = build_cohort(kind, str(clinical_data / FOLDERS[kind]), definition, out, catalogue=catalogue)
            done[kind, anchors] = (pl.read_parquet(out), record)
        return done[kind, anchors]

    return build


def query(text: str, **views: Path | str) -> pl.DataFrame:
    with duckdb.connect() as engine:
        for name, file in views.items():
            engine.execute(f"CREATE VIEW {name} AS FROM '{file}'")
        engine.execute("CREATE MACRO v_ok(v, low, high) AS v >= low AND v <= high")
        return pl.DataFrame(engine.sql(text).to_arrow_table())


MIMIC_TARGET_VISITS = """
WITH diabetic AS ({diabetic}),
value AS (
  SELECT subject_id, charttime AS t, itemid, avg(valuenum) AS v FROM (
    SELECT subject_id, charttime, valuenum,
           CASE WHEN itemid IN (50931, 50809, 52569, 52027) THEN 1 WHEN itemid = 50907 THEN 2
                WHEN itemid = 50852 THEN 0 END AS itemid
    FROM labevents WHERE subject_id IN (FROM diabetic))
  WHERE (itemid = 0 AND v_ok(valuenum, 3, 20)) OR (itemid = 1 AND v_ok(valuenum, 10, 2000))
     OR (itemid = 2 AND v_ok(valuenum, 20, 1000))
  GROUP BY ALL)
SELECT a.subject_id AS subject_id, a.t AS time, a.v AS hba1c,
       (SELECT arg_max(g.v, g.t) FROM value g WHERE g.itemid = 1 AND g.subject_id = a.subject_id
          AND g.t <= a.t AND g.t >= a.t - INTERVAL 7 DAY) AS glucose,
       (SELECT arg_max(c.v, c.t) FROM value c WHERE c.itemid = 2 AND c.subject_id = a.subject_id
          AND c.t <= a.t AND c.t >= a.t - INTERVAL 90 DAY) AS cholesterol
FROM value a WHERE a.itemid = 0 ORDER BY 1, 2
"""
DIABETIC = {
    "mimic3": "SELECT DISTINCT subject_id FROM dx WHERE icd9_code LIKE '249%' OR icd9_code LIKE '250%'",
    "mimic4": "SELECT DISTINCT subject_id FROM dx WHERE (icd_version = 9 AND icd_code[1:3] IN ('249', '250'))"
    " OR (icd_version = 10 AND icd_code[1:3] BETWEEN 'E08' AND 'E13')",
}
PLACES = {"mimic3": ("", str.upper), "mimic4": ("hosp/", str.lower)}


def mimic_files(clinical_data: Path, kind: str, *tables: str) -> list[Path]:
    folder, spelling = PLACES[kind]
    return [clinical_data / FOLDERS[kind] / f"{folder}{spelling(name)}.csv.gz" for name in tables]


@pytest.mark.parametrize(("kind", "patients", "visits"), [("mimic3", 10, 16), ("mimic4", 20, 76)])
def test_target_visits_of_mimic_by_plain_sql(
    kind: str, patients: int, visits: int, built: Any, clinical_data: Path
) -> None:
    lab, diagnoses = mimic_files(clinical_data, kind, "labevents", "diagnoses_icd")
    expected = query(MIMIC_TARGET_VISITS.format(diabetic=DIABETIC[kind]), labevents=lab, dx=diagnoses)
    table, record = built(kind, "target")
    assert_frame_equal(table.select(expected.columns), expected, check_exact=True)
    assert (record["summary"]["patients"], record["summary"]["visits"]) == (patients, visits)


def contact_days(clinical_data: Path, kind: str) -> list[dict[str, Any]]:
    """Visits with anchors `any`, by loops: days with a draw or an admission, at the day's last draw."""
    lab, diagnoses, admissions = mimic_files(clinical_data, kind, "labevents", "diagnoses_icd", "admissions")
    diabetic = set(query(DIABETIC[kind], dx=diagnoses).to_series())
    names = {50852: "hba1c", 50931: "glucose", 50809: "glucose", 50907: "cholesterol"}
    rows = query("SELECT subject_id, itemid, charttime, valuenum FROM lab WHERE valuenum IS NOT NULL", lab=lab)
    series: dict[int, dict[str, dict[datetime, list[float]]]] = {s: {name: {} for name in LABS} for s in diabetic}
    for subject, item, time, value in rows.iter_rows():
        if subject in diabetic and item in names:
            series[subject][names[item]].setdefault(time, []).append(value)
    stays = query("SELECT subject_id, admittime FROM stays ORDER BY admittime DESC", stays=admissions)
    visits = []
    for subject in sorted(diabetic):
        days = {time.date(): time for owner, time in stays.iter_rows() if owner == subject}
        days |= {time.date(): time for time in sorted(t for lab in series[subject].values() for t in lab)}
        for day, time in sorted(days.items()):
            start = datetime(day.year, day.month, day.day)
            reach = {"hba1c": start, "glucose": time - timedelta(7), "cholesterol": time - timedelta(90)}
            cells = {}
            for name in LABS:
                seen = [t for t in series[subject][name] if min(start, reach[name]) <= t <= time]
                values = series[subject][name][max(seen)] if seen else []
                cells[name] = sum(values) / len(values) if values else None
            if any(cell is not None for cell in cells.values()):
                visits.append({"subject_id": subject, "time": time} | cells)
    return visits


@pytest.mark.parametrize(("kind", "patients", "visits"), [("mimic3", 31, 585), ("mimic4", 35, 946)])
def test_contact_days_of_mimic_by_loops(kind: str, patients: int, visits: int, built: Any, clinical_data: Path) -> None:
    table, record = built(kind, "any")
    expected = pl.DataFrame(contact_days(clinical_data, kind), schema=table.select("subject_id", "time", *LABS).schema)
    assert_frame_equal(table.select(expected.columns), expected, check_exact=True)
    assert (record["summary"]["patients"], record["summary"]["visits"]) == (patients, visits)


@pytest.mark.parametrize("kind", ["mimic3", "mimic4"])
def test_every_row_of_mimic_is_accounted_for(kind: str, built: Any, clinical_data: Path) -> None:
    lab, diagnoses = mimic_files(clinical_data, kind, "labevents", "diagnoses_icd")
    counts = query(
        f"""WITH diabetic AS ({DIABETIC[kind]}), r AS (
          SELECT itemid IN (50852, 51631, 50931, 52569, 50809, 52027, 50907) AS wanted,
                 itemid IN (50854, 51613) AS derived, valuenum,
                 subject_id IN (FROM diabetic) AS inside FROM labevents)
        SELECT count(*), count(*) FILTER (NOT wanted AND NOT derived),
               count(*) FILTER ((wanted OR derived) AND NOT inside), count(*) FILTER (derived AND inside),
               count(*) FILTER (wanted AND inside AND valuenum IS NULL) FROM r""",
        labevents=lab,
        dx=diagnoses,
    ).row(0)
    for anchors in ("target", "any"):
        accounts = built(kind, anchors)[1]["accounts"]
        aside = {reason: sum(labs.values()) for reason, labs in accounts["set_aside"].items()}
        assert counts == (
            accounts["rows"],
            sum(accounts["not_relevant"]["other code"].values()),
            sum(accounts["not_relevant"]["patient outside the cohort"].values()),
            aside["calculated from the target"],
            aside.get("censored (< or >)", 0) + aside.get("no number", 0),
        )
        used = sum(accounts["used"].values())
        assert accounts["rows"] == used + sum(aside.values()) + sum_counts(accounts["not_relevant"])


@pytest.mark.parametrize("anchors", ["target", "any"])
def test_mimic4_and_its_meds_form_give_the_same_visits(anchors: str, built: Any, clinical_data: Path) -> None:
    """All columns, to the last digit; the counts differ only by the MEDS events that are no lab results."""
    (hosp, hosp_record), (meds, meds_record) = built("mimic4", anchors), built("meds", anchors)
    assert_frame_equal(hosp, meds, check_exact=True)
    events = clinical_data / FOLDERS["meds"] / "data/*/*.parquet"
    no_labs = query("SELECT count(*) FROM events WHERE code NOT LIKE 'LAB//%'", events=events).item()
    hosp_counts, meds_counts = hosp_record["accounts"], meds_record["accounts"]
    assert meds_counts["rows"] - hosp_counts["rows"] == no_labs
    meds_counts["not_relevant"]["other code"]["other code"] -= no_labs
    assert meds_counts | {"rows": 0} == hosp_counts | {"rows": 0}
    meds_counts["not_relevant"]["other code"]["other code"] += no_labs


def test_omop_sample_by_plain_sql(built: Any, clinical_data: Path) -> None:
    folder = clinical_data / FOLDERS["omop"]
    expected = query(
        """WITH diabetic AS (
          SELECT person_id FROM condition WHERE condition_concept_id IN (201820, 201826, 201254)),
        value AS (
          SELECT person_id AS p, measurement_date AS d, avg(value_as_number) AS v,
                 CASE measurement_concept_id WHEN 3004410 THEN 'a' WHEN 3004501 THEN 'g'
                      WHEN 3000483 THEN 'g' WHEN 3027114 THEN 'c' END AS lab
          FROM measurement WHERE lab IS NOT NULL AND person_id IN (FROM diabetic) GROUP BY ALL)
        SELECT a.p AS subject_id, CAST(a.d AS TIMESTAMP) AS time, a.v AS hba1c,
               (SELECT arg_max(v, d) FROM value WHERE lab = 'g' AND p = a.p AND a.d - d BETWEEN 0 AND 7)
                 AS glucose,
               (SELECT arg_max(v, d) FROM value WHERE lab = 'c' AND p = a.p AND a.d - d BETWEEN 0 AND 90)
                 AS cholesterol
        FROM value a WHERE a.lab = 'a' ORDER BY 1, 2""",
        measurement=folder / "measurement.csv.gz",
        condition=folder / "condition_occurrence.csv.gz",
    )
    table, record = built("omop", "target")
    assert_frame_equal(table.select(expected.columns), expected, check_exact=True)
    assert len(table) == 32
    assert record["accounts"]["rows"] == 10_040
    # In this sample every laboratory day of the cohort has an HbA1c, so both anchors give the same days.
    assert built("omop", "any")[1]["summary"]["visits"] == 32


def fhir_observations(folder: Path) -> tuple[set[str], list[tuple[str, str, datetime, float]], int]:
    """Diabetic patients, their results of the three labs, and the number of all observations."""
    diabetic, results, observations = set(), [], 0
    labs = {"4548-4": "hba1c", "2339-0": "glucose", "2345-7": "glucose", "2093-3": "cholesterol"}
    for file in folder.glob("*.json.gz"):
        text = gzip.decompress(file.read_bytes())
        for entry in json.loads(text)["entry"] if text else []:
            resource = entry["resource"]
            owner = resource.get("subject", {}).get("reference", "").removeprefix("urn:uuid:")
            code = resource.get("code", {}).get("coding", [{}])[0].get("code") if "code" in resource else None
            if resource["resourceType"] == "Condition" and code in ("44054006", "73211009", "46635009"):
                diabetic.add(owner)
            if resource["resourceType"] == "Observation":
                parts = [part["code"]["coding"][0]["code"] for part in resource.get("component", [])]
                observations += 1 + sum(part in ("8480-6", "8462-4") for part in parts)  # blood pressure
                if code in labs:
                    local = datetime.fromisoformat(resource["effectiveDateTime"])
                    time = (local - local.utcoffset()).replace(tzinfo=None)  # type: ignore[operator]
                    results.append((owner, labs[code], time, resource["valueQuantity"]["value"]))
    return diabetic, results, observations


def test_fhir_sample_by_loops(built: Any, clinical_data: Path) -> None:
    diabetic, results, observations = fhir_observations(clinical_data / FOLDERS["fhir"])
    own = [row for row in results if row[0] in diabetic]

    def latest(owner: str, lab: str, time: datetime, days: int) -> float | None:
        seen = {
            t: value
            for p, name, t, value in own
            if (p, name) == (owner, lab) and timedelta() <= time - t <= timedelta(days)
        }
        return seen[max(seen)] if seen else None

    expected = sorted(
        (owner, time, value, latest(owner, "glucose", time, 7), latest(owner, "cholesterol", time, 90))
        for owner, lab, time, value in own
        if lab == "hba1c"
    )
    table, record = built("fhir", "target")
    assert table.select("subject_id", "time", *LABS).rows() == expected
    assert record["accounts"]["rows"] == observations == 4447
    assert record["notes"] == ["2 of 30 files hold nothing and were passed over"]
    days = {(owner, time.date()) for owner, _, time, _ in own}
    assert built("fhir", "any")[1]["summary"]["visits"] == len(days) == 16


def test_the_published_counts_stand_beside_the_summary(built: Any) -> None:
    assert built("mimic3", "target")[1]["published"]["patients"] == 4243
    assert built("mimic4", "target")[1]["published"]["visits_per_patient"] == 4.95
    assert built("omop", "target")[1]["published"] is None
