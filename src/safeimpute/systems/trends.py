"""Per-lab rate of change since the patient's last observation of that lab."""

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.records.history import NONE, previous_observed

EPSILON_DAYS = (
    1.0  # keeps two results an hour apart from looking like a landslide; the preset paper has its own
)


def lab_trends(
    patient: IntArray, time: FloatArray, labs: FloatArray, epsilon: float = EPSILON_DAYS
) -> FloatArray:
    """(z_i - z_r) / (t_i - t_r + epsilon), r the last earlier visit with that lab; NaN where there is none.

    Equation 8.
    """
    trends = np.full_like(labs, np.nan)
    for lab in range(labs.shape[1]):
        observed = ~np.isnan(labs[:, lab])
        previous = previous_observed(patient, observed)
        rows = np.flatnonzero(observed & (previous != NONE))
        before = previous[rows]
        trends[rows, lab] = rate(labs[rows, lab], labs[before, lab], time[rows] - time[before], epsilon)
    return trends


def rate(
    now: FloatArray, previous: FloatArray, gap_days: FloatArray, epsilon: float = EPSILON_DAYS
) -> FloatArray:
    """Change per day between two values of a lab."""
    change: FloatArray = (now - previous) / (gap_days + epsilon)
    return change
