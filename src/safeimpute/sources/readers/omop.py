"""OMOP CDM 5.3 and 5.4: measurements, conditions, persons and hospital stays by standard concept."""

import ibis
import ibis.expr.types as ir

from safeimpute.errors import SourceError
from safeimpute.sources.readers.engine import TIME, Budget, Source, Wanted, open_location
from safeimpute.visits import marks
from safeimpute.visits.catalogue import Catalogue, Vocabulary

VOCABULARY: Vocabulary = "omop"
TITLE = "OMOP"

FEMALE, MALE = 8532, 8507
HOSPITAL_STAYS = (9201, 262)  # inpatient visit; emergency room and inpatient visit
OPERATORS = ((4172703, "="), (4171756, "<"), (4171754, "<="), (4172704, ">"), (4171755, ">="))


def open_source(location: str, catalogue: Catalogue, budget: Budget) -> Source:
    source = open_location(location, catalogue, budget, schemas=("cdm", "omop", "cdm54"))
    if source.has("cdm_source"):
        _require_version(source)
    return source


def _require_version(source: Source) -> None:
    for row in source.rows(source.get("cdm_source", cdm_version="text").distinct()):
        version = (row["cdm_version"] or "").strip().lower().removeprefix("v").removeprefix("cdm v")
        if not version.startswith(("5.3", "5.4")):
            raise SourceError(
                f"{source.place} says it is CDM {version or 'unknown'}; versions 5.3 and 5.4 can be read."
            )


def results(source: Source, wanted: Wanted) -> ir.Table:
    """`measurement_datetime` is optional in the CDM: without it a result stands at the start of its day."""
    events = source.get(
        "measurement",
        only=lambda events: wanted(events.measurement_concept_id),
        person_id="integer",
        measurement_concept_id="code",
        measurement_date="time",
        measurement_datetime="time?",
        operator_concept_id="integer?",
        value_as_number="number",
        value_source_value="text?",
        unit_concept_id="integer",
        unit_source_value="text?",
        measurement_type_concept_id="integer?",
        measurement_source_value="text?",
    )
    return events.select(
        subject_id=events.person_id,
        code=events.measurement_concept_id,
        value=events.value_as_number,
        text=events.value_source_value,
        unit=_unit(events, source.catalogue),
        operator=_operator(events.operator_concept_id),
        final=ibis.literal(True),
        drawn=ibis.coalesce(events.measurement_datetime, events.measurement_date),
        known=ibis.null(TIME),
        imputed=_imputed(events),
    )


def _imputed(events: ir.Table) -> ir.Value:
    """What an algorithm derived is no measurement, whosever algorithm it was."""
    return ibis.cases(
        (events.measurement_type_concept_id.isin(marks.ALGORITHMS), 1),
        (events.measurement_source_value.startswith(marks.SOURCE), 1),
        else_=0,
    )


def _unit(events: ir.Table, catalogue: Catalogue) -> ir.Value:
    """The unit concept; where none was mapped, the source's own text; any other concept is unknown."""
    return ibis.cases(
        *((events.unit_concept_id == concept, unit) for concept, unit in catalogue.omop_units.items()),
        (events.unit_concept_id.fill_null(0) == 0, events.unit_source_value),
        else_="another unit concept",
    )


def _operator(concept: ir.Value) -> ir.Value:
    return ibis.cases(
        (concept.fill_null(0) == 0, ibis.null("string")),
        *((concept == known, sign) for known, sign in OPERATORS),
        else_="another operator",
    )


def diagnoses(source: Source) -> ir.Table:
    """Each condition as the catalogue's concepts it descends from; without `concept_ancestor`, as itself."""
    conditions = source.get("condition_occurrence", person_id="integer", condition_concept_id="integer")
    if source.has("concept_ancestor"):
        tree = source.get("concept_ancestor", ancestor_concept_id="integer", descendant_concept_id="integer")
        below = tree.filter(tree.ancestor_concept_id.isin(source.catalogue.roots))
        conditions = conditions.join(below, conditions.condition_concept_id == below.descendant_concept_id)
        concept = conditions.ancestor_concept_id
    else:
        concept = conditions.condition_concept_id
        source.notes.append(
            "no concept_ancestor table: only the concepts named in the catalogue count, not their "
            "descendants. Add the table from the OHDSI vocabulary to count them."
        )
    return conditions.select(
        subject_id=conditions.person_id, vocabulary=ibis.literal("omop"), code=concept.cast("string")
    )


def patients(source: Source) -> ir.Table:
    people = source.get(
        "person",
        person_id="integer",
        gender_concept_id="integer",
        year_of_birth="integer",
        month_of_birth="integer?",
        day_of_birth="integer?",
    )
    born = ibis.date(
        people.year_of_birth.cast("int32"),
        people.month_of_birth.fill_null(1).cast("int32"),
        people.day_of_birth.fill_null(1).cast("int32"),
    )
    return people.select(
        subject_id=people.person_id,
        sex=people.gender_concept_id.cases((FEMALE, "F"), (MALE, "M")),
        born=born.cast(TIME),
    )


def admissions(source: Source) -> ir.Table:
    stays = source.get(
        "visit_occurrence",
        person_id="integer",
        visit_concept_id="integer",
        visit_start_date="time",
        visit_start_datetime="time?",
    )
    inpatient = stays.filter(stays.visit_concept_id.isin(HOSPITAL_STAYS))
    return inpatient.select(
        subject_id=inpatient.person_id,
        admitted=ibis.coalesce(inpatient.visit_start_datetime, inpatient.visit_start_date),
    )
