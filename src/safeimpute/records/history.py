"""Looking back and forth along a patient's visits; used by trends, edges and evidence."""

import numpy as np

from safeimpute.records.arrays import BoolArray, IntArray

NONE = -1  # "there is no such visit"


def first_visit(patient: IntArray) -> IntArray:
    """Row of the first visit of each row's patient; patients lie in blocks."""
    starts = (
        np.flatnonzero(np.r_[True, patient[1:] != patient[:-1]]) if len(patient) else np.empty(0, np.int64)
    )
    return np.repeat(starts, np.diff(np.r_[starts, len(patient)]))


def last_visit(patient: IntArray) -> IntArray:
    """Row of the last visit of each row's patient."""
    ends = np.flatnonzero(np.r_[patient[1:] != patient[:-1], True]) if len(patient) else np.empty(0, np.int64)
    return np.repeat(ends, np.diff(np.r_[-1, ends]))


def previous_observed(patient: IntArray, observed: BoolArray) -> IntArray:
    """Row of the same patient's last earlier visit where `observed` holds, or NONE."""
    rows = np.arange(len(patient))
    latest = np.maximum.accumulate(np.where(observed, rows, NONE)) if len(rows) else rows
    previous = np.r_[NONE, latest[:-1]] if len(rows) else rows
    return np.where(previous >= first_visit(patient), previous, NONE)


def next_observed(patient: IntArray, observed: BoolArray) -> IntArray:
    """Row of the same patient's next later visit where `observed` holds, or NONE."""
    backwards = previous_observed(patient[::-1], observed[::-1])[::-1]
    return np.where(backwards == NONE, NONE, len(patient) - 1 - backwards)
