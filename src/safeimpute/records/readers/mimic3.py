"""MIMIC-III 1.4 as published on PhysioNet: upper-case tables, ICD-9, one clock (the draw)."""

import ibis
import ibis.expr.types as ir

from safeimpute.errors import SourceError
from safeimpute.records.catalogue import Catalogue, Vocabulary
from safeimpute.records.readers.engine import TIME, Budget, Source, Wanted, open_location
from safeimpute.records.readers.mimic4 import sex_of

VOCABULARY: Vocabulary = "mimic"
TITLE = "MIMIC-III"


def open_source(location: str, catalogue: Catalogue, budget: Budget) -> Source:
    source = open_location(location, catalogue, budget, schemas=("mimiciii",))
    if source.has("diagnoses_icd", "icd_version"):
        raise SourceError(
            f"{source.place} is MIMIC-IV (diagnoses carry icd_version). Use: safeimpute cohort mimic4."
        )
    return source


def results(source: Source, wanted: Wanted) -> ir.Table:
    events = source.get(
        "labevents",
        only=lambda events: wanted(events.itemid),
        subject_id="integer",
        itemid="code",
        charttime="time",
        value="text",
        valuenum="number",
        valueuom="text",
    )
    return events.select(
        subject_id=events.subject_id,
        code=events.itemid,
        value=events.valuenum,
        text=events.value,
        unit=events.valueuom,
        operator=ibis.null("string"),
        final=ibis.literal(True),
        drawn=events.charttime,
        known=ibis.null(TIME),
        imputed=ibis.literal(0),
    )


def diagnoses(source: Source) -> ir.Table:
    codes = source.get("diagnoses_icd", subject_id="integer", icd9_code="text")
    return codes.select(
        subject_id=codes.subject_id,
        vocabulary=ibis.literal("icd9"),
        code=codes.icd9_code.strip(),
    )


def patients(source: Source) -> ir.Table:
    people = source.get("patients", subject_id="integer", gender="text", dob="time")
    return people.select(
        subject_id=people.subject_id, sex=sex_of(people.gender), born=people.dob.truncate("D")
    )


def admissions(source: Source) -> ir.Table:
    stays = source.get("admissions", subject_id="integer", admittime="time")
    return stays.select(subject_id=stays.subject_id, admitted=stays.admittime)
