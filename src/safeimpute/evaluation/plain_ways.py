"""Plain ways of filling in, to compare with: each visit gets a value from all that is visible but its own target."""

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray, VisitArrays
from safeimpute.records.clocks import first_row_to_know
from safeimpute.records.history import first_visit, last_visit
from safeimpute.records.own_visits import nearest_own_visits, take

MEAN, LAST, OWN_MEAN = "overall mean", "last value carried forward", "patient's own other values"


def plain_values(visits: VisitArrays, *, past_only: bool) -> dict[str, FloatArray]:
    """Per way a value for every visit; the target column of `visits` holds visible targets only.

    A patient without another visible value gets the overall mean. With `past_only`, a patient's values count from
    the visit on at which they were known.
    """
    target = visits.target_values
    visible = ~np.isnan(target)
    known = first_row_to_know(visits)[:, visits.target] if past_only else None
    mean = _mean_without_own(target)
    last = take(target, nearest_own_visits(visits.patient, visible, 1, 0, known))[:, 0]
    own = _other_values(visits) if known is None else _values_known_by_then(visits, known)
    return {
        MEAN: mean,
        LAST: np.where(np.isnan(last), mean, last),
        OWN_MEAN: np.where(np.isnan(own), mean, own),
    }


def _mean_without_own(target: FloatArray) -> FloatArray:
    """The mean of all other visible targets."""
    visible = ~np.isnan(target)
    value = np.where(visible, target, 0.0)
    return _ratio(value.sum() - value, visible.sum() - visible)


def _other_values(visits: VisitArrays) -> FloatArray:
    """The mean of the patient's visible targets at other visits; NaN where there is none."""
    patient, visible = visits.patient, ~np.isnan(visits.target_values)
    value = np.where(visible, visits.target_values, 0.0)
    total, count = np.bincount(patient, value)[patient], np.bincount(patient, visible)[patient]
    return _ratio(np.asarray(total - value, dtype=np.float64), count - visible)


def _values_known_by_then(visits: VisitArrays, known_from: IntArray) -> FloatArray:
    """The mean of the patient's visible targets that were known by each visit; NaN where none was."""
    target = visits.target_values
    ever = ~np.isnan(target) & (known_from <= last_visit(visits.patient))
    total, count = np.zeros(len(visits)), np.zeros(len(visits))
    np.add.at(total, known_from[ever], target[ever])
    np.add.at(count, known_from[ever], 1.0)
    return _ratio(_running(total, visits.patient), _running(count, visits.patient))


def _running(arrived: FloatArray, patient: IntArray) -> FloatArray:
    """Running sums that start anew with every patient."""
    total, first = np.cumsum(arrived), first_visit(patient)
    return np.asarray(total - (total[first] - arrived[first]), dtype=np.float64)


def _ratio(total: FloatArray, count: FloatArray | IntArray) -> FloatArray:
    found = np.full(len(total), np.nan)
    np.divide(total, count, out=found, where=count > 0.5)
    return found
