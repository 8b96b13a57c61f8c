"""Split-conformal intervals: wide enough for the chosen share of all candidates, not of the released ones."""

import numpy as np

from safeimpute.records.arrays import FloatArray


def conformal_radii(
    calibration_error: FloatArray,
    calibration_spread: FloatArray,
    coverage: float,
    calibration_weight: FloatArray,
    candidate_weight: FloatArray,
) -> FloatArray:
    """Per candidate the multiple of its spread that covers with the asked probability.

    The weighted quantile of |error| / spread over calibration visits, the candidate's own weight standing at
    infinity; infinite where the calibration set cannot support the coverage.
    """
    score = calibration_error / calibration_spread
    order = np.argsort(score, kind="stable")
    reached = np.cumsum(calibration_weight[order])
    needed = coverage * (calibration_weight.sum() + candidate_weight) * (1 - 1e-12)
    position = np.searchsorted(reached, needed)
    radii: FloatArray = np.append(score[order], np.inf)[position]
    return radii
