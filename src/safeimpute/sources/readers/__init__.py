"""Clinical sources as published, mapped to four common relations that the cohort is defined on.

results     subject_id, code, value, text, unit, operator, final, drawn, known (null: only one clock), imputed (1 or 0)
diagnoses   subject_id, vocabulary (icd9, icd10, omop, snomed), code (without dots)
patients    subject_id, sex (F, M or null), born (a day, as precise as the source has it)
admissions  subject_id, admitted

Every row of the source's results is there, so that all can be counted; rows whose code is not wanted may be empty
but for the code.
"""

from typing import Literal, Protocol, get_args

import ibis.expr.types as ir

from safeimpute.errors import OptionError
from safeimpute.sources.readers import fhir, meds, omop
from safeimpute.sources.readers.engine import Budget, Source, Wanted
from safeimpute.sources.readers.mimic import Mimic3, Mimic4
from safeimpute.visits.catalogue import Catalogue, Vocabulary

SourceKind = Literal["mimic3", "mimic4", "omop", "meds", "fhir"]


class Reader(Protocol):
    """What each module or class of this package offers."""

    VOCABULARY: Vocabulary
    TITLE: str

    def open_source(self, location: str, catalogue: Catalogue, budget: Budget) -> Source: ...
    def results(self, source: Source, wanted: Wanted) -> ir.Table: ...
    def diagnoses(self, source: Source) -> ir.Table: ...
    def patients(self, source: Source) -> ir.Table: ...
    def admissions(self, source: Source) -> ir.Table: ...


READERS: dict[SourceKind, Reader] = {"mimic3": Mimic3(), "mimic4": Mimic4(), "omop": omop, "meds": meds, "fhir": fhir}


def reader_for(kind: str) -> Reader:
    for name, reader in READERS.items():
        if name == kind:
            return reader
    raise OptionError(f"source {kind!r} is not known. Choose one of: {', '.join(get_args(SourceKind))}.")
