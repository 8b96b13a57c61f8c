"""Patients who stand in a table twice: a copy under another identifier would let a visit see its own value."""

import numpy as np

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import IntArray, VisitArrays, mix

FEWEST_VALUES = 6  # measured in a record; fewer may agree by chance


def refuse_copied_patients(visits: VisitArrays) -> None:
    """Refuse a table in which records of different patients agree in every time and every lab value."""
    copied = len(copied_patients(visits))
    if copied:
        raise VisitsError(
            f"{copied:,} patients have the same times and lab values as another patient: copies under another "
            "identifier, through which a value would be imputed from itself. Keep one of each."
        )


def copied_patients(visits: VisitArrays) -> IntArray:
    """Patients (by number) whose whole record stands in the table before, under another identifier."""
    starts = np.flatnonzero(np.r_[True, visits.patient[1:] != visits.patient[:-1]])
    if not len(visits):
        return np.empty(0, np.int64)
    with np.errstate(over="ignore"):
        record = np.add.reduceat(_visit_hash(visits), starts)
    values = np.add.reduceat((~np.isnan(visits.labs)).sum(axis=1), starts)
    rich = np.flatnonzero(values >= FEWEST_VALUES)
    _, first = np.unique(record[rich], return_index=True)
    return np.setdiff1d(rich, rich[first])


def _visit_hash(visits: VisitArrays) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """A hash of each visit's time and lab values; one bit pattern stands for every missing value."""
    found = mix((visits.time + 0.0).view(np.uint64))
    for column in visits.labs.T:
        seen = np.ascontiguousarray(np.where(np.isnan(column), np.nan, column + 0.0))
        found = mix(found ^ mix(seen.view(np.uint64)))
    return found
