"""FHIR R4 resources (bundles or NDJSON, plain or gzip), flattened file by file into tables for DuckDB."""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import ibis
import ibis.expr.types as ir
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from safeimpute.errors import SourceError
from safeimpute.sources.readers.engine import Budget, Source, Wanted, open_file
from safeimpute.visits import marks
from safeimpute.visits.catalogue import Catalogue, Vocabulary

VOCABULARY: Vocabulary = "loinc"
TITLE = "FHIR"

LOINC = "http://loinc.org"
UCUM = "http://unitsofmeasure.org"
DIAGNOSIS_SYSTEMS = {
    "http://snomed.info/sct": "snomed",
    "http://hl7.org/fhir/sid/icd-10-cm": "icd10",
    "http://hl7.org/fhir/sid/icd-10": "icd10",
    "http://hl7.org/fhir/sid/icd-9-cm": "icd9",
}
FINAL = {"final", "amended", "corrected"}
DENIED = {"refuted", "entered-in-error"}
HOSPITAL_STAYS = {"IMP", "ACUTE", "NONAC"}  # classes of inpatient encounters

_SUFFIXES = (".json", ".json.gz", ".ndjson", ".ndjson.gz")
_BATCH = 20_000
_TEXT, _TIME = pa.string(), pa.timestamp("us")
_SCHEMAS = {
    "results": pa.schema(
        [
            *(("subject_id", _TEXT), ("code", _TEXT), ("value", pa.float64()), ("text", _TEXT)),
            *(("unit", _TEXT), ("operator", _TEXT), ("final", pa.bool_()), ("drawn", _TIME), ("known", _TIME)),
            *(("imputed", pa.bool_()), ("id", _TEXT)),
        ]
    ),
    "diagnoses": pa.schema([("subject_id", _TEXT), ("vocabulary", _TEXT), ("code", _TEXT)]),
    "patients": pa.schema([("subject_id", _TEXT), ("sex", _TEXT), ("born", _TIME)]),
    "admissions": pa.schema([("subject_id", _TEXT), ("admitted", _TIME)]),
}
Json = dict[str, Any]
_NO_VALUE: Json = {"valueQuantity": {}, "valueString": None}  # a component has its own value, or none


class Row(NamedTuple):
    """One row of a table made from a resource."""

    table: str
    values: Json


def open_source(location: str, catalogue: Catalogue, budget: Budget) -> Source:
    if "://" in location:
        raise SourceError("FHIR is read from files: give the folder that holds them, not a database or Spark.")
    place = Path(location).expanduser()
    files = _files(place)
    tables = budget.work / "fhir"
    tables.mkdir()
    empty = _flatten(files, tables, _known_codes(catalogue))
    engine = ibis.duckdb.connect(**budget.duckdb_settings)
    notes = [f"{empty} of {len(files)} files hold nothing and were passed over"] if empty else []
    return Source(engine, str(place), catalogue, lambda name: open_file(engine, tables / f"{name}.parquet"), notes)


def _files(place: Path) -> list[Path]:
    files = [place] if place.is_file() else sorted(path for path in place.glob("**/*") if _is_resource_file(path))
    if not files:
        raise SourceError(f"{place} holds no FHIR files ({', '.join(_SUFFIXES)}).")
    return files


def _known_codes(catalogue: Catalogue) -> set[str]:
    known = {str(code) for lab in catalogue.labs.values() for code in lab.codes_in("loinc")}
    return known | {str(code) for lab in catalogue.labs.values() for code in lab.derivatives.loinc}


def flatten_results(place: Path, work: Path, catalogue: Catalogue) -> pl.DataFrame:
    """The results of FHIR files with their own ids, through tables in the folder `work`."""
    _flatten(_files(place), work, _known_codes(catalogue))
    return pl.read_parquet(work / "results.parquet")


def results(source: Source, wanted: Wanted) -> ir.Table:  # noqa: ARG001
    listed = source.table("results").drop("id")
    return listed.mutate(imputed=listed.imputed.ifelse(1, 0))


def diagnoses(source: Source) -> ir.Table:
    return source.table("diagnoses")


def patients(source: Source) -> ir.Table:
    return source.table("patients")


def admissions(source: Source) -> ir.Table:
    return source.table("admissions")


def _is_resource_file(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(_SUFFIXES)


def _flatten(files: list[Path], folder: Path, known_codes: set[str]) -> int:
    """Write the four relations as parquet; returns how many files were empty."""
    empty = 0
    with ExitStack() as stack:
        sinks = {name: stack.enter_context(_Sink(folder / f"{name}.parquet", _SCHEMAS[name])) for name in _SCHEMAS}
        for number, file in enumerate(files, start=1):
            try:
                entries = 0
                for resource, names in _resources(file):
                    entries += 1
                    for row in _rows(resource, names, known_codes):
                        sinks[row.table].add(row.values)
                empty += entries == 0
            except (OSError, EOFError, ValueError, TypeError, AttributeError, LookupError):
                # A file's name can hold a patient's name: say which file by its place in the list.
                raise SourceError(
                    f"file {number} of {len(files)} (by name) is damaged or no FHIR JSON. "
                    "Export it again or move it away."
                ) from None
    return empty


class _Sink:
    """Rows collected into batches of one parquet file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[Json] = []
        self._writer = pq.ParquetWriter(path, schema)

    def add(self, row: Json) -> None:
        self._rows.append(row)
        if len(self._rows) >= _BATCH:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows.clear()

    def __enter__(self) -> "_Sink":
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        self._writer.close()


def _resources(file: Path) -> Iterator[tuple[Json, dict[str, str]]]:
    """Each resource of a file, with the patients its bundle knows by full address."""
    opener = gzip.open if file.name.lower().endswith(".gz") else open
    with opener(file, "rt", encoding="utf-8-sig") as stream:
        texts: Iterable[str] = stream if ".ndjson" in file.name.lower() else [stream.read()]
        for text in texts:
            if text.strip():
                yield from _unpacked(json.loads(text))


def _unpacked(document: Json) -> Iterator[tuple[Json, dict[str, str]]]:
    if not isinstance(document.get("resourceType"), str):
        raise ValueError("no resource")
    if document["resourceType"] != "Bundle":
        yield document, {}
        return
    entries = [entry for entry in document.get("entry", []) if "resource" in entry]
    patients = {
        entry["fullUrl"]: entry["resource"]["id"]
        for entry in entries
        if entry["resource"].get("resourceType") == "Patient" and "fullUrl" in entry
    }
    for entry in entries:
        yield entry["resource"], patients


def _rows(resource: Json, patients: dict[str, str], known_codes: set[str]) -> Iterator[Row]:
    match resource.get("resourceType"):
        case "Observation":
            yield Row("results", _result(resource, patients, known_codes))
            for part in resource.get("component", []):  # blood pressure has its two values there
                if known_codes & set(_loinc_codes(part)):
                    yield Row("results", _result(resource | _NO_VALUE | part, patients, known_codes))
        case "Condition":
            yield from (Row("diagnoses", values) for values in _diagnoses(resource, patients))
        case "Patient":
            sex = {"female": "F", "male": "M"}.get(resource.get("gender", ""))
            born = _moment(_whole_date(resource.get("birthDate")))
            yield Row("patients", {"subject_id": resource["id"], "sex": sex, "born": born})
        case "Encounter":
            _require_r4(isinstance(resource.get("class"), dict | None), "Encounter.class")
            if (resource.get("class") or {}).get("code") in HOSPITAL_STAYS:
                admitted = _moment(resource.get("period", {}).get("start"))
                yield Row("admissions", {"subject_id": _subject(resource, patients), "admitted": admitted})


def _result(resource: Json, patients: dict[str, str], known_codes: set[str]) -> Json:
    codes = _loinc_codes(resource)
    quantity = resource.get("valueQuantity", {})
    number = quantity.get("value")
    measured = isinstance(number, int | float) and not isinstance(number, bool)
    moment = resource.get("effectiveDateTime") or resource.get("effectiveInstant")
    return {
        "subject_id": _subject(resource, patients),
        "code": next((code for code in codes if code in known_codes), next(iter(codes), None)),
        "value": float(number) if measured else None,
        "text": resource.get("valueString"),
        "unit": quantity.get("code") if quantity.get("system") == UCUM else quantity.get("unit"),
        "operator": quantity.get("comparator"),
        "final": resource.get("status") in FINAL,
        "drawn": _moment(moment or resource.get("effectivePeriod", {}).get("start")),
        "known": _moment(resource.get("issued")),
        "imputed": _is_imputed(resource),
        "id": resource.get("id"),
    }


def _loinc_codes(resource: Json) -> list[str]:
    coded = resource["code"].get("coding", [])
    return [each["code"] for each in coded if each.get("system") == LOINC and "code" in each]


def _is_imputed(resource: Json) -> bool:
    """Whether a label says that a machine asserted it, or a tag that it was imputed here."""
    meta = resource.get("meta") or {}
    labelled = any(each.get("code") in marks.AI_LABELS for each in meta.get("security", []))
    return labelled or any(each.get("system") == marks.TAGS for each in meta.get("tag", []))


def _diagnoses(resource: Json, patients: dict[str, str]) -> Iterator[Json]:
    certainty = resource.get("verificationStatus") or {}
    _require_r4(isinstance(certainty, dict), "Condition.verificationStatus")
    if any(coding.get("code") in DENIED for coding in certainty.get("coding", [])):
        return
    for coding in resource.get("code", {}).get("coding", []):
        if vocabulary := DIAGNOSIS_SYSTEMS.get(coding.get("system")):
            code = coding.get("code", "").replace(".", "")
            yield {"subject_id": _subject(resource, patients), "vocabulary": vocabulary, "code": code}


def _require_r4(holds: bool, element: str) -> None:
    if not holds:
        raise SourceError(f"{element} is not what FHIR R4 says: the files are of another version. Export them as R4.")


def _subject(resource: Json, patients: dict[str, str]) -> str | None:
    subject = resource.get("subject", {})
    reference = subject.get("reference")
    if reference is None:
        named: str | None = subject.get("identifier", {}).get("value")
        return named
    if reference in patients:
        return patients[reference]
    relative = re.search(r"Patient/([^/|]+)", reference)
    return relative[1] if relative else reference.rsplit(":", 1)[-1]


def _whole_date(text: str | None) -> str | None:
    """A birth known to the year or month stands at its first day."""
    return text + "-01-01"[len(text) - 4 :] if text and len(text) in (4, 7) else text


def _moment(text: str | None) -> datetime | None:
    """A date or timestamp in UTC without zone; None when absent, impossible, or vaguer than a day."""
    if text is None or len(text) < len("2024-01-31"):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
