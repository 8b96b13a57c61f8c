"""MIMIC-III 1.4 and MIMIC-IV 2.0 and later, as published on PhysioNet."""

import ibis
import ibis.expr.types as ir

from safeimpute.errors import SourceError
from safeimpute.sources.readers.engine import TIME, Budget, Source, Wanted, folder_of, open_location
from safeimpute.visits.catalogue import Catalogue, Vocabulary


class Mimic3:
    """Upper-case tables, ICD-9, one clock (the draw)."""

    VOCABULARY: Vocabulary = "mimic"
    TITLE = "MIMIC-III"

    def open_source(self, location: str, catalogue: Catalogue, budget: Budget) -> Source:
        source = open_location(location, catalogue, budget, schemas=("mimiciii",))
        if source.has("diagnoses_icd", "icd_version"):
            raise SourceError(
                f"{source.place} is MIMIC-IV (diagnoses carry icd_version). Use: safeimpute cohort mimic4."
            )
        return source

    def results(self, source: Source, wanted: Wanted) -> ir.Table:
        return _results(source, wanted)

    def diagnoses(self, source: Source) -> ir.Table:
        codes = source.get("diagnoses_icd", subject_id="integer", icd9_code="text")
        return codes.select(subject_id=codes.subject_id, vocabulary=ibis.literal("icd9"), code=codes.icd9_code.strip())

    def patients(self, source: Source) -> ir.Table:
        people = source.get("patients", subject_id="integer", gender="text", dob="time")
        return people.select(subject_id=people.subject_id, sex=sex_of(people.gender), born=people.dob.truncate("D"))

    def admissions(self, source: Source) -> ir.Table:
        stays = source.get("admissions", subject_id="integer", admittime="time")
        return stays.select(subject_id=stays.subject_id, admitted=stays.admittime)


class Mimic4(Mimic3):
    """The `hosp` module: ICD-9 and ICD-10, both clocks."""

    TITLE = "MIMIC-IV"

    def open_source(self, location: str, catalogue: Catalogue, budget: Budget) -> Source:
        if (folder_of(location) / "core").is_dir():
            raise SourceError(f"{location} is a MIMIC-IV before 2.0 (patients stand in core/). Use version 2.2 or 3.1.")
        source = open_location(location, catalogue, budget, folders=("hosp",), schemas=("mimiciv_hosp", "hosp"))
        if source.has("diagnoses_icd", "icd9_code"):
            raise SourceError(
                f"{source.place} is MIMIC-III (diagnoses carry icd9_code). Use: safeimpute cohort mimic3."
            )
        return source

    def results(self, source: Source, wanted: Wanted) -> ir.Table:
        return _results(source, wanted, storetime="time")

    def diagnoses(self, source: Source) -> ir.Table:
        codes = source.get("diagnoses_icd", subject_id="integer", icd_code="text", icd_version="integer")
        return codes.select(
            subject_id=codes.subject_id,
            vocabulary=codes.icd_version.cases((9, "icd9"), (10, "icd10")),
            code=codes.icd_code.strip(),
        )

    def patients(self, source: Source) -> ir.Table:
        """The birth year is the anchor year less the anchor age; MIMIC-IV gives no day."""
        people = source.get(
            "patients", subject_id="integer", gender="text", anchor_age="integer", anchor_year="integer"
        )
        born = ibis.date((people.anchor_year - people.anchor_age).cast("int32"), 1, 1).cast(TIME)
        return people.select(subject_id=people.subject_id, sex=sex_of(people.gender), born=born)


def _results(source: Source, wanted: Wanted, **known: str) -> ir.Table:
    """The laboratory's events; `known` names the column that says when a result was stored, if there is one."""
    events = source.get(
        "labevents",
        only=lambda events: wanted(events.itemid),
        subject_id="integer",
        itemid="code",
        charttime="time",
        value="text",
        valuenum="number",
        valueuom="text",
        **known,
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
        known=events.storetime if known else ibis.null(TIME),
        imputed=ibis.literal(0),
    )


def sex_of(letter: ir.Value) -> ir.Value:
    """F and M as they are, anything else as unknown."""
    return letter.strip().upper().cases(("F", "F"), ("M", "M"))
