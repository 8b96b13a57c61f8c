"""MEDS 0.3.3 and 0.4 data sets with MIMIC's codes: one long table of events, units inside the codes."""

import json
from pathlib import Path

import ibis
import ibis.expr.types as ir

from safeimpute.errors import SourceError
from safeimpute.sources.readers.engine import TIME, Budget, Source, Wanted, folder_of, open_location
from safeimpute.sources.readers.mimic import sex_of
from safeimpute.visits import marks
from safeimpute.visits.catalogue import Catalogue, Vocabulary

VOCABULARY: Vocabulary = "meds"
TITLE = "MIMIC-IV in MEDS form"

_CODE_AND_UNIT = "^(.+)//(.*)$"
NO_UNIT = "unk"  # what MIMIC's conversion writes where the source had no unit


def open_source(location: str, catalogue: Catalogue, budget: Budget) -> Source:
    """The events of all shards as one table named `data`, as the standard names their folder."""
    record = folder_of(location) / "metadata" / "dataset.json"
    if record.is_file():
        _require_version(record)
    return open_location(location, catalogue, budget)


def _require_version(record: Path) -> None:
    try:
        version = str(json.loads(record.read_text(encoding="utf-8")).get("meds_version", ""))
    except (OSError, ValueError, AttributeError):
        raise SourceError(f"{record} is not a JSON object. Fetch it again.") from None
    if version and not version.startswith(("0.3.3", "0.4")):
        raise SourceError(f"{record} says MEDS {version}; versions 0.3.3 and 0.4 can be read.")


def _events(source: Source) -> ir.Table:
    return source.get("data", subject_id="integer", time="time", code="text")


def results(source: Source, wanted: Wanted) -> ir.Table:
    """`LAB//50852//%` is code `LAB//50852` in unit `%`."""
    events = source.get(
        "data",
        only=lambda events: wanted(_without_unit(events.code)),
        subject_id="integer",
        time="time",
        code="code",
        numeric_value="number",
        text_value="text?",
    )
    unit = events.code.re_extract(_CODE_AND_UNIT, 2)
    return events.select(
        subject_id=events.subject_id,
        code=_without_unit(events.code),
        value=events.numeric_value,
        text=events.text_value,
        unit=(unit.lower() == NO_UNIT).ifelse(ibis.null("string"), unit),
        operator=ibis.null("string"),
        final=ibis.literal(True),
        drawn=events.time,
        known=ibis.null(TIME),
        imputed=events.code.startswith(marks.SOURCE).ifelse(1, 0),
    )


def _without_unit(code: ir.Value) -> ir.Value:
    return code.re_extract(_CODE_AND_UNIT, 1)


def diagnoses(source: Source) -> ir.Table:
    """`DIAGNOSIS//ICD//10//E119`."""
    events = _events(source)
    coded = events.filter(events.code.startswith("DIAGNOSIS//ICD//"))
    pattern = "^DIAGNOSIS//ICD//([^/]+)//(.*)$"
    return coded.select(
        subject_id=coded.subject_id,
        vocabulary=coded.code.re_extract(pattern, 1).cases(("9", "icd9"), ("10", "icd10")),
        code=coded.code.re_extract(pattern, 2).strip(),
    )


def patients(source: Source) -> ir.Table:
    events = _events(source)
    letter = events.code.startswith("GENDER//").ifelse(events.code.substr(len("GENDER//")), ibis.null("string"))
    birth = (events.code == "MEDS_BIRTH").ifelse(events.time, ibis.null(TIME))
    marked = events.select(subject_id=events.subject_id, letter=letter, birth=birth)
    people = marked.group_by("subject_id").agg(letter=marked.letter.max(), birth=marked.birth.min())
    return people.select(subject_id=people.subject_id, sex=sex_of(people.letter), born=people.birth.truncate("D"))


def admissions(source: Source) -> ir.Table:
    events = _events(source)
    stays = events.filter(events.code.startswith("HOSPITAL_ADMISSION//"))
    return stays.select(subject_id=stays.subject_id, admitted=stays.time)
