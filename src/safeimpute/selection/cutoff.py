"""A stored risk cut-off with confidence, for deciding visit by visit without a batch.

At cut-off T a calibration patient contributes X_k = sum_i w_i 1{risk_i <= T} (bad_i - alpha). A negative
mean of X over patients says that, in the long run, less than a share alpha of what T releases is bad.
"""

import math
from dataclasses import dataclass

import numpy as np

from safeimpute.errors import GuaranteeRefused
from safeimpute.records.arrays import FloatArray
from safeimpute.selection.thresholds import LabelledVisits, counts_at_thresholds


@dataclass(frozen=True)
class Cutoff:
    """The largest risk that is released; None when no threshold could be shown to be safe."""

    risk: float | None
    confidence: float
    bound: float | None  # upper bound on the mean of X at the cut-off, below zero
    n_patients: int
    effective_patients: float | None  # of equal size, worth the patients below the cut-off


def stored_cutoff(
    calibration: LabelledVisits, thresholds: FloatArray, alpha: float, confidence: float = 0.95
) -> Cutoff:
    """The largest threshold whose Student bound on the mean of X, corrected for the grid, is below zero.

    A few patients with very many visits make the bound too short; a threshold is therefore tried only where
    the patients below it are worth max(30, 5 / alpha) of equal size, which reads no error.
    """
    size = counts_at_thresholds(calibration, calibration.weight, thresholds)
    effective = _effective_patients(size)
    needed = max(30.0, 5.0 / alpha)
    if not (effective >= needed).any():
        raise GuaranteeRefused(
            f"A stored cut-off at level {alpha:g} needs calibration patients worth {math.ceil(needed)} of "
            f"equal size; these are worth {effective.max(initial=0.0):.0f}. Calibrate on more patients."
        )
    excess = counts_at_thresholds(calibration, calibration.weight * (calibration.bad - alpha), thresholds)
    bound = _student_bound(excess, (1.0 - confidence) / len(thresholds))
    safe = np.flatnonzero((effective >= needed) & (bound < 0.0))
    if len(safe) == 0:
        return Cutoff(None, confidence, None, calibration.n_patients, None)
    best = safe[-1]
    return Cutoff(
        risk=float(thresholds[best]),
        confidence=confidence,
        bound=float(bound[best]),
        n_patients=calibration.n_patients,
        effective_patients=float(effective[best]),
    )


def _effective_patients(size: FloatArray) -> FloatArray:
    """Per threshold (sum_k S_k)^2 / sum_k S_k^2, S_k the weighted visits of patient k below it."""
    squares = np.square(size).sum(axis=0)
    effective: FloatArray = np.square(size.sum(axis=0)) / np.where(squares > 0, squares, 1.0)
    return effective


def _student_bound(values: FloatArray, error: float) -> FloatArray:
    """One-sided upper confidence bound on the mean of each column."""
    from scipy.stats import t

    n = len(values)
    spread = values.std(axis=0, ddof=1) / math.sqrt(n)
    return np.asarray(values.mean(axis=0) + t.ppf(1.0 - error, n - 1) * spread, dtype=np.float64)
