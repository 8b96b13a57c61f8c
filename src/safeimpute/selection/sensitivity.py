"""How strong an unmeasured reason for measuring must be to overturn a release: an analysis, no promise.

If the true odds of being unmeasured differ from the modelled ones by a factor of at most gamma either way,
the p-value is at most p_j(gamma) = gamma A / (gamma A + B / gamma), A = w_j + sum of w_i with V_i < V_j and B
the rest of the calibration weight.
"""

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.p_values import Scores, conformal_p_values


def sensitivity_p_values(p: FloatArray, gamma: float) -> FloatArray:
    """p_j(gamma) from p_j = A / (A + B): dividing by A + B leaves gamma^2 p / (gamma^2 p + 1 - p)."""
    return np.asarray(gamma**2 * p / (gamma**2 * p + (1.0 - p)), dtype=np.float64)


def released_over_gamma(
    candidate: Scores,
    calibration: Scores,
    bad: BoolArray,
    candidate_weight: FloatArray,
    calibration_weight: FloatArray,
    alpha: float,
    gammas: FloatArray,
) -> IntArray:
    """How many candidates BH on p(gamma) would release, for each gamma."""
    p = conformal_p_values(candidate, calibration, bad, candidate_weight, calibration_weight)
    counts = [int(benjamini_hochberg(sensitivity_p_values(p, gamma), alpha).sum()) for gamma in gammas]
    return np.array(counts, dtype=np.int64)
