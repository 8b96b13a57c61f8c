"""The Benjamini–Hochberg step-up procedure, which turns p-values into a release."""

import numpy as np

from safeimpute.errors import GuaranteeRefused
from safeimpute.records.arrays import BoolArray, FloatArray

# p_(k) <= k alpha / m often holds with equality (all sides are ratios of counts); the comparison must not
# hang on the last bits of either side.
ROUNDING = 1e-12

SMALLEST_BATCH = 100


def benjamini_hochberg(p: FloatArray, alpha: float) -> BoolArray:
    """Release every p up to p_(k*), k* the largest k with p_(k) <= k alpha / m."""
    if len(p) == 0:
        return np.zeros(0, dtype=bool)
    from scipy.stats import false_discovery_control

    released: BoolArray = false_discovery_control(p) <= alpha * (1.0 + ROUNDING)
    return released


def require_batch(n_candidates: int) -> None:
    """Refuse a batch so small that the share of bad values among actual releases strays far above alpha.

    FDR counts an empty release as free of error, so a batch of one that is rarely released may be bad
    whenever it is released.
    """
    if n_candidates < SMALLEST_BATCH:
        raise GuaranteeRefused(
            f"A joint release needs at least {SMALLEST_BATCH} candidates; there are {n_candidates}. "
            "Decide by the stored cut-off instead, or collect a larger batch."
        )
