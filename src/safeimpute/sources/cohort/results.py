"""From a source's results to usable measurements: one pass over the source, every row given a fate."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

import ibis
import ibis.expr.types as ir

from safeimpute.errors import OptionError
from safeimpute.sources.cohort.definition import CohortDefinition, CohortLab, ConceptSet
from safeimpute.sources.readers import Reader
from safeimpute.sources.readers.engine import Source, Wanted, empty_like
from safeimpute.visits import marks
from safeimpute.visits.catalogue import Code, DiseaseCodes, Vocabulary
from safeimpute.visits.limits import ABOVE, BELOW

# Not relevant: nothing is wrong with the row, this cohort has no place for it.
OTHER_CODE = "other code"
OUTSIDE = "patient outside the cohort"
UNUSED = "no visit looks back to it"
NOT_RELEVANT = (OTHER_CODE, OUTSIDE, UNUSED)

# Set aside: a row this cohort would have used, had it been sound. The first reason that holds counts.
IMPUTED = "imputed, not measured"
DERIVATIVE = "calculated from the target"
NO_PATIENT = "no patient identifier"
NO_DATE = "no possible date"
UNBORN = "dated before birth"
NOT_FINAL = "result not final"
CENSORED = "censored (< or >)"
NO_NUMBER = "no number"
NO_UNIT = "no unit"
UNKNOWN_UNIT = "unknown unit"
OUT_OF_RANGE = "out of range"
SET_ASIDE = (
    IMPUTED, DERIVATIVE, NO_PATIENT, NO_DATE, UNBORN, NOT_FINAL,
    CENSORED, NO_NUMBER, NO_UNIT, UNKNOWN_UNIT, OUT_OF_RANGE,
)  # fmt: skip

_DERIVED = "(derived)"  # stands for a lab name; no lab can be called that
_EXACT, _BELOW, _ABOVE, _BEYOND = range(4)  # what a result says: its value, or on which side of a limit it lies
NO_TREE = (
    "no concept_ancestor table: only the concepts named count, not their descendants. Add the table from the OHDSI "
    "vocabulary to count them."
)


def cohort_members(diagnoses: ir.Table, codes: DiseaseCodes) -> ir.Table:
    """Patients with one of these codes at any time in the record."""
    code = diagnoses.code.upper().replace(".", "")
    listed = [
        (diagnoses.vocabulary == "omop") & code.isin([str(concept) for concept in codes.omop]),
        (diagnoses.vocabulary == "snomed") & code.isin(list(codes.snomed)),
    ]
    for vocabulary, prefixes in (("icd9", codes.icd9), ("icd10", codes.icd10)):
        if prefixes:
            listed.append((diagnoses.vocabulary == vocabulary) & _any(code.startswith(p) for p in prefixes))
    return diagnoses.filter(_any(listed), diagnoses.subject_id.notnull()).select("subject_id").distinct()


def gather(
    results: ir.Table, definition: CohortDefinition, vocabulary: Vocabulary, members: ir.Table | None
) -> ir.Table:
    """The rows this cohort needs, identical ones counted together; all others only counted, by reason.

    Everything collapses into one grouping, so that a compressed file is read once for rows and counts.
    `members` None means that every patient belongs to the cohort.
    """
    coded = results.mutate(lab=_lab_of(results.code, definition, vocabulary))
    columns = {
        "subject_id": coded.subject_id,
        "drawn": coded.drawn,
        "known": coded.known,
        "value": coded.value,
        "unit": coded.unit.strip().lower(),
        "final": coded.final,
        "censored": _censored(coded),
        "imputed": coded.imputed,
    }
    rows = coded.select(lab=coded.lab, **_where(coded.lab.notnull(), columns))
    outside = ibis.literal(False)
    if members is not None:
        belongs = members.select(member=members.subject_id)
        rows = rows.left_join(belongs, rows.subject_id == belongs.member)
        outside = rows.subject_id.notnull() & rows.member.isnull()
    rows = rows.mutate(place=ibis.cases((rows.lab.isnull(), OTHER_CODE), (outside, OUTSIDE)))
    kept = _where(rows.place.isnull(), {name: rows[name] for name in columns})
    slim = rows.select(place=rows.place, lab=rows.lab, **kept)
    return slim.group_by(slim.columns).agg(rows=slim.count())


def _censored(coded: ir.Table) -> ir.Value:
    """Where the result is only said to lie below, above or somewhere beyond a limit.

    Written without pattern matching and without a condition as a value: SQL Server has neither.
    """
    text = coded.text.lower().strip()  # not lstrip: on Spark Ibis lets it take blanks only, no tabs
    return ibis.cases(
        (coded.operator.isin(["<", "<="]), _BELOW),
        (coded.operator.isin([">", ">="]), _ABOVE),
        (coded.operator.notnull() & (coded.operator != "="), _BEYOND),
        (_any(text.startswith(beginning) for beginning in BELOW), _BELOW),
        (_any(text.startswith(beginning) for beginning in ABOVE), _ABOVE),
        else_=_EXACT,
    )


def _where(condition: ir.Value, columns: dict[str, ir.Value]) -> dict[str, ir.Value]:
    """The columns where the condition holds, empty elsewhere."""
    return {name: condition.ifelse(column, empty_like(column)) for name, column in columns.items()}


def wanted_codes(definition: CohortDefinition, vocabulary: Vocabulary) -> Wanted:
    """Tells which rows of the source this cohort has to look at."""
    return lambda code: _lab_of(code, definition, vocabulary).notnull()


def _lab_of(code: ir.Value, definition: CohortDefinition, vocabulary: Vocabulary) -> ir.Value:
    def as_stored(codes: Iterable[Code]) -> list[Any]:
        return [int(known) if code.type().is_integer() else str(known) for known in codes]

    def all_codes(item: CohortLab) -> tuple[Code, ...]:
        marked = (f"{marks.LAB}{item.name}",) if vocabulary == "meds" else ()  # imputed, to be set aside by lab
        return (*item.codes_in(vocabulary), *marked)

    named = [(code.isin(as_stored(all_codes(item))), item.name) for item in definition.labs]
    derived = as_stored(definition.derivatives_in(vocabulary))
    return ibis.cases(*named, *([(code.isin(derived), _DERIVED)] if derived else []))


def judge(gathered: ir.Table, definition: CohortDefinition, patients: ir.Table) -> ir.Table:
    """The needed rows with their value in the lab's unit and their fate: null when usable, else why not."""
    needed = gathered.filter(gathered.place.isnull())
    births = patients.select(owner=patients.subject_id, born=patients.born)
    rows = needed.left_join(births, needed.subject_id == births.owner).drop("owner")
    rows = rows.mutate(converted=_converted(rows, definition))
    unit = rows.unit.fill_null("")
    fate = ibis.cases(
        (rows.imputed == 1, IMPUTED),
        (rows.lab == _DERIVED, DERIVATIVE),
        (rows.subject_id.isnull(), NO_PATIENT),
        (rows.drawn.isnull(), NO_DATE),
        (rows.born.notnull() & (rows.drawn < rows.born), UNBORN),
        (~rows.final, NOT_FINAL),
        (rows.censored != _EXACT, CENSORED),
        (rows.value.isnull(), NO_NUMBER),
        (unit == "", NO_UNIT),
        (rows.converted.isnull(), UNKNOWN_UNIT),
        (_outside(rows, definition, "reject"), OUT_OF_RANGE),
    )
    return rows.mutate(fate=fate, flagged=_outside(rows, definition, "flag").ifelse(1, 0))


def _converted(rows: ir.Table, definition: CohortDefinition) -> ir.Value:
    branches = []
    for item in definition.labs:
        for unit, rule in item.lab.conversions.items():
            value = rows.value * rule.times + rule.plus if rule.changes else rows.value
            branches.append(((rows.lab == item.name) & (rows.unit == unit), value))
    return ibis.cases(*branches)


def _outside(rows: ir.Table, definition: CohortDefinition, limits: str) -> ir.Value:
    branches = []
    for item in definition.labs:
        accepted = getattr(item.lab, limits)
        beyond = (rows.converted < accepted.low) | (rows.converted > accepted.high)
        branches.append((rows.lab == item.name) & beyond)
    return _any(branches)


def merge(judged: ir.Table) -> ir.Table:
    """One measurement per patient, lab and moment: the mean of its results, known when the last is."""
    usable = judged.filter(judged.fate.isnull())
    groups = usable.group_by("subject_id", "lab", "drawn").agg(
        low=usable.converted.min(),
        high=usable.converted.max(),
        total=(usable.converted.cast("decimal(18, 6)") * usable.rows).sum(),
        known=usable.known.max(),
        rows=usable.rows.sum().cast("int64"),
    )
    # Summed as decimals, and left alone where all agree: the mean must not depend on the order of rows, which
    # differs between engines and between runs.
    mean = groups.total.cast("float64") / groups.rows
    value = (groups.low == groups.high).ifelse(groups.low, mean)
    return groups.mutate(value=value, differing=(groups.low != groups.high).ifelse(1, 0)).drop("low", "high", "total")


def limits(judged: ir.Table, definition: CohortDefinition) -> ir.Table:
    """Censored results: per patient, lab and moment what the value lies above or below, in the lab's unit.

    Where the limit itself cannot be read, it is the end of what the lab can be in a living patient.
    """
    rows = judged.filter(judged.fate == CENSORED)
    ends = {
        side: ibis.cases(*((rows.lab == item.name, getattr(item.lab.reject, side)) for item in definition.labs))
        for side in ("low", "high")
    }
    low = ibis.cases(
        (rows.censored == _ABOVE, ibis.coalesce(rows.converted, ends["low"])), (rows.censored == _BEYOND, ends["low"])
    )
    high = ibis.cases((rows.censored == _BELOW, ibis.coalesce(rows.converted, ends["high"])))
    sided = rows.select("subject_id", "lab", "drawn", low=low.cast("float64"), high=high.cast("float64"))
    return sided.group_by("subject_id", "lab", "drawn").agg(low=sided.low.max(), high=sided.high.min())


def _any(conditions: Iterable[ir.Value]) -> ir.Value:
    return reduce(or_, conditions)


def disease_members(source: Source, reader: Reader, definition: CohortDefinition) -> ir.Table:
    """Patients with the disease at any time in the record."""
    if reader.VOCABULARY == "omop":
        chosen = definition.concept_set or _snomed_concepts(source, definition.snomed)
        return _with_condition(source, _concepts(source, chosen))
    if definition.concept_set is not None or reader.VOCABULARY != "loinc":
        raise OptionError(
            f"{reader.TITLE} has no such codes: a concept set goes with OMOP, SNOMED codes with OMOP or FHIR. Its "
            "diagnoses are ICD codes."
        )
    listed = reader.diagnoses(source)
    having = (listed.vocabulary == "snomed") & listed.code.isin(list(definition.snomed))
    return listed.filter(having, listed.subject_id.notnull()).select("subject_id").distinct()


def _snomed_concepts(source: Source, codes: tuple[str, ...]) -> ConceptSet:
    """SNOMED codes as OMOP concepts with their descendants; they are named in the table `concept`."""
    named = source.get("concept", concept_id="integer", concept_code="text", vocabulary_id="text")
    own = named.filter(named.vocabulary_id == "SNOMED", named.concept_code.isin(list(codes)))
    rows = source.rows(own.select("concept_id", "concept_code"))
    if unknown := sorted(set(codes) - {row["concept_code"] for row in rows}):
        raise OptionError(f"SNOMED code {', '.join(unknown)} is not in the table concept of {source.place}.")
    return ConceptSet(frozenset(), frozenset(row["concept_id"] for row in rows))


def _concepts(source: Source, chosen: ConceptSet) -> list[int]:
    """Every concept that counts."""
    included, excluded = (set(chosen.included | chosen.included_below), set(chosen.excluded | chosen.excluded_below))
    if not chosen.with_descendants:
        return sorted(included - excluded)
    if not source.has("concept_ancestor"):
        source.notes.append(NO_TREE)
        return sorted(included - excluded)
    tree = source.get("concept_ancestor", ancestor_concept_id="integer", descendant_concept_id="integer")
    below = tree.filter(tree.ancestor_concept_id.isin(sorted(chosen.with_descendants)))
    rows = source.rows(below.select("ancestor_concept_id", "descendant_concept_id").distinct())
    for row in rows:
        ancestor, concept = row["ancestor_concept_id"], row["descendant_concept_id"]
        if ancestor in chosen.included_below:
            included.add(concept)
        if ancestor in chosen.excluded_below:
            excluded.add(concept)
    return sorted(included - excluded)


def _with_condition(source: Source, concepts: list[int]) -> ir.Table:
    conditions = source.get("condition_occurrence", person_id="integer", condition_concept_id="integer")
    having = conditions.condition_concept_id.isin(concepts)
    found = conditions.filter(having, conditions.person_id.notnull())
    return found.select(subject_id=found.person_id).distinct()
