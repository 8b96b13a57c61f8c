"""A visit's nearest visits of the same patient where something was observed, as a padded table of rows."""

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.records.history import NONE


def nearest_own_visits(
    patient: IntArray, observed: BoolArray, before: int, after: int, known_from: IntArray | None = None
) -> IntArray:
    """Rows of the last `before` and the next `after` observed visits, nearest first on each side.

    NONE pads what does not exist; a visit is never among its own. With `known_from`, an earlier visit counts only
    from that row on (see `first_row_to_know`).
    """
    rows = np.flatnonzero(observed)
    here = np.arange(len(patient))
    if known_from is not None and np.any(np.diff(known_from[rows]) < 0):
        return _known_out_of_turn(patient, observed, before, after, known_from)
    earlier = np.searchsorted(rows if known_from is None else known_from[rows] - 1, here)
    later = np.searchsorted(rows, here) + observed
    positions = [earlier - 1 - step for step in range(before)] + [later + step for step in range(after)]
    found = [_row_of_same_patient(rows, position, patient) for position in positions]
    return np.stack(found, axis=1) if found else np.empty((len(patient), 0), np.int64)


def _known_out_of_turn(
    patient: IntArray, observed: BoolArray, before: int, after: int, known_from: IntArray
) -> IntArray:
    """The same where some values became known before earlier ones: looks back visit by visit, never ahead."""
    here = np.arange(len(patient))
    found, filled = np.full((len(here), before + after), NONE, np.int64), np.zeros(len(here), np.int64)
    looking, back = here[1:], 1
    while len(looking):
        looking = looking[(looking >= back) & (filled[looking] < before)]
        looking = looking[patient[looking - back] == patient[looking]]
        row = looking - back
        known = observed[row] & (known_from[row] <= looking)
        found[looking[known], filled[looking[known]]] = row[known]
        filled[looking[known]] += 1
        back += 1
    return found


def take(values: FloatArray, rows: IntArray) -> FloatArray:
    """`values[rows]`, NaN where the row is NONE."""
    if len(values) == 0:
        return np.full(rows.shape, np.nan)
    return np.where(rows == NONE, np.nan, values[rows])


def _row_of_same_patient(rows: IntArray, position: IntArray, patient: IntArray) -> IntArray:
    exists = (position >= 0) & (position < len(rows))
    row = np.full(len(position), NONE, dtype=np.int64)
    row[exists] = rows[position[exists]]
    return np.where((row != NONE) & (patient[row] == patient), row, NONE)


def around(
    patient: IntArray, time: FloatArray, column: FloatArray, known_from: IntArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """A lab's previous value, the days since it, its next value, the days until it; NaN where there is none.

    A visit's own value is never among them. `known_from` delays earlier values as in `nearest_own_visits`; who may
    use the past only drops the next value.
    """
    rows = nearest_own_visits(patient, ~np.isnan(column), before=1, after=1, known_from=known_from)
    values, gaps = take(column, rows), np.abs(take(time, rows) - time[:, None])
    return values[:, 0], gaps[:, 0], values[:, 1], gaps[:, 1]
