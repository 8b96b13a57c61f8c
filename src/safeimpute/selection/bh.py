"""The Benjamini–Hochberg step-up procedure, which turns p-values into a release."""

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray

# p_(k) <= k alpha / m often holds with equality (all sides are ratios of counts); the comparison must not
# hang on the last bits of either side.
ROUNDING = 1e-12


def benjamini_hochberg(p: FloatArray, alpha: float) -> BoolArray:
    """Release every p up to p_(k*), k* the largest k with p_(k) <= k alpha / m. Equations 34 and 35."""
    if len(p) == 0:
        return np.zeros(0, dtype=bool)
    from scipy.stats import false_discovery_control

    released: BoolArray = false_discovery_control(p) <= alpha * (1.0 + ROUNDING)
    return released
