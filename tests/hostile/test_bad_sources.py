"""Bad clinical sources: one plain message each, no output, and nothing of a patient in it."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

import helpers.clinical_sources as sources
from helpers.clinical_sources import Person, Records, Result
from helpers.fuzzing import fuzzed
from safeimpute.errors import SourceError
from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import define_cohort
from safeimpute.sources.cohort.summary import CohortRecord
from safeimpute.visits.catalogue import load_catalogue

pytestmark = pytest.mark.surface("sources")

SUBJECT, VALUE = 70770077, 7.77  # must never show in a message
NOON = datetime(2150, 6, 1, 12)
RECORDS = Records(
    [Person(SUBJECT, "F", 2100, True)],
    [Result(SUBJECT, "hba1c", VALUE, NOON + timedelta(days=day), "%") for day in range(3)],
    [(SUBJECT, NOON)],
)


def build(kind: str, location: Path | str, folder: Path, **options: Any) -> CohortRecord:
    catalogue = load_catalogue()
    budget = {name: options.pop(name) for name in ("memory", "threads") if name in options}
    definition = define_cohort(catalogue, target="hba1c", **options)
    folder.mkdir(exist_ok=True)
    return build_cohort(kind, str(location), definition, folder / "visits.parquet", catalogue=catalogue, **budget)


def refuses(kind: str, location: Path | str, tmp_path: Path, says: str, **options: Any) -> None:
    out = tmp_path / "out"
    with pytest.raises(SourceError, match=says) as failure:
        build(kind, location, out, **options)
    message = str(failure.value)
    assert failure.value.exit_code == 2
    assert failure.value.__cause__ is None
    for private in (str(SUBJECT), str(VALUE), "2150-06-0"):
        assert private not in message
    assert list(out.iterdir()) == []


@pytest.fixture
def mimic4(tmp_path: Path) -> Path:
    return sources.write_mimic4(RECORDS, tmp_path / "source") / "hosp"


def rewritten(file: Path, change: Callable[[str], str]) -> None:
    file.write_bytes(gzip.compress(change(gzip.decompress(file.read_bytes()).decode()).encode()))


@pytest.mark.parametrize("table", ["labevents", "patients", "diagnoses_icd"])
def test_a_missing_table(table: str, mimic4: Path, tmp_path: Path) -> None:
    (mimic4 / f"{table}.csv.gz").unlink()
    refuses("mimic4", mimic4, tmp_path, f"table {table} is not in")


def test_admissions_are_needed_only_for_contact_days(mimic4: Path, tmp_path: Path) -> None:
    (mimic4 / "admissions.csv.gz").unlink()
    refuses("mimic4", mimic4, tmp_path, "table admissions is not in", anchors="any")
    build("mimic4", mimic4, tmp_path / "out")


@pytest.mark.parametrize("column", ["subject_id", "itemid", "charttime", "storetime", "valuenum", "valueuom"])
def test_a_missing_column(column: str, mimic4: Path, tmp_path: Path) -> None:
    rewritten(mimic4 / "labevents.csv.gz", lambda text: text.replace(column, "something", 1))
    refuses("mimic4", mimic4, tmp_path, f"labevents in .* has no column {column}.*Columns found: .*something")


def test_another_version_or_source(mimic4: Path, tmp_path: Path) -> None:
    mimic3 = sources.write_mimic3(RECORDS, tmp_path / "mimic3")
    refuses("mimic4", mimic3, tmp_path, "is MIMIC-III .* safeimpute cohort mimic3")
    refuses("mimic3", mimic4, tmp_path, "is MIMIC-IV .* safeimpute cohort mimic4")
    (mimic4.parent / "core").mkdir()
    refuses("mimic4", mimic4.parent, tmp_path, "before 2.0")
    omop = sources.write_omop(RECORDS, tmp_path / "omop")
    sources.write_table([{"cdm_source_name": "x", "cdm_version": "v6.0"}], omop / "cdm_source.csv")
    refuses("omop", omop, tmp_path, "CDM 6.0; versions 5.3 and 5.4")
    meds = sources.write_meds(RECORDS, tmp_path / "meds")
    (meds / "metadata" / "dataset.json").write_text('{"meds_version": "0.2.1"}')
    refuses("meds", meds, tmp_path, "MEDS 0.2.1")
    (meds / "metadata" / "dataset.json").write_text("[")
    refuses("meds", meds, tmp_path, "not a JSON object")


def test_an_older_meds_names_its_patients_otherwise(tmp_path: Path) -> None:
    meds = sources.write_meds(RECORDS, tmp_path / "meds")
    for file in (meds / "data").glob("*/*.parquet"):
        pl.read_parquet(file).rename({"subject_id": "patient_id"}).write_parquet(file)
    refuses("meds", meds, tmp_path, "no column subject_id.*patient_id")


def test_text_in_the_numeric_column(mimic4: Path, tmp_path: Path) -> None:
    spoil = f",{VALUE},{VALUE},%"
    rewritten(mimic4 / "labevents.csv.gz", lambda text: text.replace(spoil, f",{VALUE},seven,%", 1))
    assert build("mimic4", mimic4, tmp_path / "some")["accounts"]["set_aside"] == {"no number": {"hba1c": 1}}
    rewritten(mimic4 / "labevents.csv.gz", lambda text: text.replace(spoil, f",{VALUE},seven,%"))
    refuses("mimic4", mimic4, tmp_path, r"no usable result of the target 'hba1c' among 3 rows \(3 no number\)")


def test_mixed_units(mimic4: Path, tmp_path: Path) -> None:
    file = mimic4 / "labevents.csv.gz"
    rewritten(file, lambda text: text.replace(f"{VALUE},%", "61.0,mmol/mol", 1).replace(f"{VALUE},%", "77,mg/dL", 1))
    record = build("mimic4", mimic4, tmp_path / "some")
    assert record["remarks"]["converted"] == {"hba1c: mmol/mol to %": 1}
    assert record["accounts"]["set_aside"] == {"unknown unit": {"hba1c": 1}}
    rewritten(file, lambda text: text.replace(",%", ",g/L").replace("mmol/mol", ""))
    refuses("mimic4", mimic4, tmp_path, r"1 no unit; 2 unknown unit")


def test_duplicate_events_are_merged_and_duplicate_patients_refused(mimic4: Path, tmp_path: Path) -> None:
    rewritten(mimic4 / "labevents.csv.gz", lambda text: text + text.split("\n", 1)[1])
    record = build("mimic4", mimic4, tmp_path / "some")
    assert record["accounts"]["merged"] == {"rows": 6, "measurements": 3, "differing": 0}
    assert record["summary"]["visits"] == 3
    rewritten(mimic4 / "patients.csv.gz", lambda text: text + text.split("\n", 1)[1].replace(",F,", ",M,"))
    refuses("mimic4", mimic4, tmp_path, "lists 1 patients more than once")


def test_impossible_dates(mimic4: Path, tmp_path: Path) -> None:
    rewritten(mimic4 / "labevents.csv.gz", lambda text: text.replace("2150-06-01", "2150-06-31"))
    record = build("mimic4", mimic4, tmp_path / "some")
    assert record["accounts"]["set_aside"] == {"no possible date": {"hba1c": 1}}
    rewritten(mimic4 / "labevents.csv.gz", lambda text: text.replace("2150-06", "soon"))
    refuses("mimic4", mimic4, tmp_path, "3 no possible date")


@pytest.mark.parametrize("table", ["labevents", "patients", "diagnoses_icd"])
def test_an_identifier_that_is_no_number(table: str, mimic4: Path, tmp_path: Path) -> None:
    """One such row does not stop a build; it belongs to nobody."""
    file = mimic4 / f"{table}.csv.gz"
    rewritten(file, lambda text: text + text.splitlines()[-1].replace(str(SUBJECT), "unknown") + "\n")
    assert build("mimic4", mimic4, tmp_path / "some")["summary"]["visits"] == 3


def test_impossible_admission_dates_are_counted(mimic4: Path, tmp_path: Path) -> None:
    rewritten(mimic4 / "admissions.csv.gz", lambda text: text.replace("2150-06-01", "2150-06-31"))
    record = build("mimic4", mimic4, tmp_path / "some", anchors="any")
    assert record["notes"] == ["1 admissions have no possible date and were passed over"]


def test_unreadable_files(mimic4: Path, tmp_path: Path) -> None:
    file = mimic4 / "labevents.csv.gz"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    refuses("mimic4", mimic4, tmp_path, r"labevents.csv.gz .*(damaged|cannot be read)")
    file.write_bytes(whole[:-4])
    refuses("mimic4", mimic4, tmp_path, r"labevents.csv.gz .*(damaged|cannot be read)")
    file.write_bytes(gzip.decompress(whole))
    refuses("mimic4", mimic4, tmp_path, "labevents.csv.gz cannot be read")
    file.write_bytes(gzip.compress(b""))
    refuses("mimic4", mimic4, tmp_path, "labevents.csv.gz is empty")
    file.write_bytes(gzip.compress(gzip.decompress(whole) + f"1,{SUBJECT},{VALUE}\n".encode()))
    refuses("mimic4", mimic4, tmp_path, "line 5 of labevents.csv.gz .* columns of the header")
    file.unlink()
    (mimic4 / "labevents.parquet").write_bytes(b"PAR1 not really")
    refuses("mimic4", mimic4, tmp_path, "damaged or no parquet file")


def test_a_table_that_is_there_twice(mimic4: Path, tmp_path: Path) -> None:
    (mimic4 / "labevents.csv").write_text("labevent_id\n")
    refuses("mimic4", mimic4, tmp_path, "more than once: labevents.csv, labevents.csv.gz")


def test_sources_that_are_not_there_or_not_known(tmp_path: Path) -> None:
    refuses("mimic4", tmp_path / "absent", tmp_path, "is not there. Give a folder")
    (tmp_path / "notes.txt").write_text("hello")
    refuses("mimic4", tmp_path / "notes.txt", tmp_path, "not a database this program knows")
    (tmp_path / "mimic.duckdb").write_bytes(b"no database" * 1000)
    refuses("mimic4", tmp_path / "mimic.duckdb", tmp_path, "is no DuckDB database")
    refuses("mimic4", "quill://user:hunter2@host/db", tmp_path, "quill://host/db is no connection string")
    refuses("mimic4", "postgresql://user:hunter2@127.0.0.1:1/db", tmp_path, "cannot be reached")


def test_nobody_of_the_cohort(mimic4: Path, tmp_path: Path) -> None:
    rewritten(mimic4 / "diagnoses_icd.csv.gz", lambda text: text.replace("E119", "I10 "))
    refuses("mimic4", mimic4, tmp_path, "3 patient outside the cohort.*--diabetes")
    rewritten(mimic4 / "labevents.csv.gz", lambda text: text.replace("50852", "50800"))
    refuses("mimic4", mimic4, tmp_path, "its codes do not occur")


def test_too_little_memory_says_so(tmp_path: Path) -> None:
    crowd = [Result(SUBJECT, "hba1c", VALUE, NOON + timedelta(minutes=m), "%") for m in range(60_000)]
    folder = sources.write_mimic4(Records(RECORDS.people, crowd, []), tmp_path / "source", "csv")
    refuses("mimic4", folder, tmp_path, "--memory", memory=0.001, threads=1)


def fhir_folder(tmp_path: Path, *resources: Any) -> Path:
    folder = sources.write_fhir(RECORDS, tmp_path / f"fhir{len(list(tmp_path.iterdir()))}")
    (folder / f"Doe_John_{SUBJECT}.ndjson").write_text("\n".join(map(json.dumps, resources)))
    return folder


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        ("not a resource", "file 2 of 2 .* no FHIR JSON"),
        ({"id": "x"}, "file 2 of 2 .* no FHIR JSON"),
        ({"resourceType": "Patient"}, "file 2 of 2 .* no FHIR JSON"),
        ({"resourceType": "Observation", "status": "final"}, "file 2 of 2 .* no FHIR JSON"),
        ({"resourceType": "Observation", "code": {"coding": 5}}, "file 2 of 2 .* no FHIR JSON"),
        ({"resourceType": "Condition", "verificationStatus": "confirmed"}, "another version"),
        ({"resourceType": "Encounter", "class": [{"code": "IMP"}]}, "another version"),
        ({"resourceType": "Encounter", "class": "inpatient"}, "another version"),
    ],
)
def test_fhir_of_another_version_or_none(resource: Any, says: str, tmp_path: Path) -> None:
    refuses("fhir", fhir_folder(tmp_path, resource), tmp_path, says)


def test_fhir_damaged_or_absent(tmp_path: Path) -> None:
    folder = fhir_folder(tmp_path)
    (folder / f"Doe_John_{SUBJECT}.ndjson").write_text('{"resourceType": "Observ')
    refuses("fhir", folder, tmp_path, "file 2 of 2")
    (folder / "z.json.gz").write_bytes(b"\x1f\x8b damaged")
    (folder / f"Doe_John_{SUBJECT}.ndjson").unlink()
    refuses("fhir", folder, tmp_path, "file 2 of 2")
    (tmp_path / "nothing").mkdir()
    refuses("fhir", tmp_path / "nothing", tmp_path, "no FHIR files")


def test_the_command_prints_one_line_and_no_traceback(mimic4: Path, tmp_path: Path) -> None:
    (mimic4 / "labevents.csv.gz").write_bytes(b"\x1f\x8b damaged")
    command = ["cohort", "mimic4", str(mimic4), "--target", "hba1c", "-o", str(tmp_path / "visits.parquet"), "-q"]
    run = subprocess.run(
        [sys.executable, "-c", "from safeimpute.cli import main; main()", *command], capture_output=True, text=True
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("safeimpute: ")
    assert len(run.stderr.splitlines()) == 1


def check_damage(tmp_path_factory: pytest.TempPathFactory, position: float, garbage: bytes, packed: bool) -> None:
    """Bytes overwritten anywhere in the results: a build that balances, or an error made on purpose."""
    folder = tmp_path_factory.mktemp("damaged")
    hosp = sources.write_mimic4(RECORDS, folder, "csv.gz" if packed else "csv") / "hosp"
    file = hosp / ("labevents.csv.gz" if packed else "labevents.csv")
    content = bytearray(file.read_bytes())
    start = int(position * (len(content) - len(garbage)))
    content[start : start + len(garbage)] = garbage
    file.write_bytes(bytes(content))
    outcome = built_or_refused(hosp, folder / "out")
    assert outcome in ("built", "refused")
    assert (folder / "out" / "visits.parquet").exists() == (outcome == "built")


test_no_damage_escapes_as_another_error, test_no_damage_escapes_at_length = fuzzed(
    check_damage, st.floats(0, 1), st.binary(min_size=1, max_size=6), st.booleans(), few=12, many=120
)


def built_or_refused(hosp: Path, out: Path) -> str:
    try:
        build("mimic4", hosp, out)
    except SourceError:
        return "refused"
    return "built"
