"""Whose visits a cohort holds when the disease is a concept set or a list of SNOMED codes."""

import ibis.expr.types as ir

from safeimpute.errors import OptionError
from safeimpute.records.cohort.concept_set import ConceptSet
from safeimpute.records.cohort.definition import CohortDefinition
from safeimpute.records.readers import Reader
from safeimpute.records.readers.engine import Source

NO_TREE = (
    "no concept_ancestor table: only the concepts named count, not their descendants. Add the table from the OHDSI "
    "vocabulary to count them."
)


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
    included, excluded = (
        set(chosen.included | chosen.included_below),
        set(chosen.excluded | chosen.excluded_below),
    )
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
