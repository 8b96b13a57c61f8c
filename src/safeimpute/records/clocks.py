"""When a value became known: what a patient's record held by the time of each of its visits."""

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.records.history import last_visit


def known_at_visit(visits: VisitArrays) -> BoolArray:
    """Per value whether it was known by the time of its own visit; a value without a clock was."""
    if visits.known is None:
        return np.ones(visits.labs.shape, dtype=bool)
    late: BoolArray = visits.known > visits.time[:, None]
    return ~late


def first_row_to_know(visits: VisitArrays) -> IntArray:
    """Per value the first later row of the patient that may use it, or one past the patient's last row.

    Each value by its own clock alone: one that overtakes an earlier value still on its way is used at once, as it is
    at night, when nobody can tell that the earlier one will come.
    """
    rows = np.arange(len(visits))
    next_row = np.repeat(rows[:, None] + 1, visits.labs.shape[1], axis=1)
    if visits.known is None:
        return next_row
    known_times = np.where(
        np.isnan(visits.labs), np.nan, visits.known
    )  # a hidden value's clock is hidden too
    reported = [_first_row_at_or_after(visits, known) for known in known_times.T]
    waiting: IntArray = np.maximum(next_row, np.stack(reported, axis=1))
    return waiting


def on_its_way(visits: VisitArrays, lab: int) -> BoolArray:
    """Visits whose value of a lab was drawn, and not yet known by the visit's own time: missing, as of then."""
    late: BoolArray = ~np.isnan(visits.labs[:, lab]) & ~known_at_visit(visits)[:, lab]
    return late


def _first_row_at_or_after(visits: VisitArrays, moment: FloatArray) -> IntArray:
    """Row of the patient's first visit at or after each row's moment, or one past the patient's last."""
    n = len(visits)
    moment = np.where(np.isnan(moment), visits.time, moment)
    is_visit = np.r_[np.zeros(n, np.int64), np.ones(n, np.int64)]
    order = np.lexsort((is_visit, np.r_[moment, visits.time], np.tile(visits.patient, 2)))
    visits_before = np.cumsum(is_visit[order]) - is_visit[order]
    found = np.empty(2 * n, np.int64)
    found[order] = visits_before
    return np.minimum(found[:n], last_visit(visits.patient) + 1)
