"""Risk thresholds fixed before calibration, and what each patient has at or below them."""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class ScoredVisits:
    """Visits of whole patients with their risk; patients without any such visit count too."""

    patient: IntArray  # 0 … n_patients - 1, in any order
    risk: FloatArray
    weight: FloatArray  # P(candidate | x) / P(scored | x) on its own scale, 1 where both are equally likely
    n_patients: int


@dataclass(frozen=True)
class LabelledVisits(ScoredVisits):
    """Scored visits whose error is known."""

    bad: BoolArray


def risk_thresholds(validation_risk: FloatArray, n: int) -> FloatArray:
    """Up to `n` increasing thresholds: evenly spaced quantiles of the validation risks."""
    return np.unique(np.quantile(validation_risk, np.arange(1, n + 1) / n))


def counts_at_thresholds(visits: ScoredVisits, amount: FloatArray, thresholds: FloatArray) -> FloatArray:
    """Per patient and threshold the sum of `amount` over visits with risk <= threshold."""
    columns = len(thresholds) + 1
    cell = visits.patient * columns + np.searchsorted(thresholds, visits.risk, side="left")
    sums = np.bincount(cell, weights=amount, minlength=visits.n_patients * columns)
    return np.cumsum(sums.reshape(visits.n_patients, columns)[:, :-1], axis=1, dtype=np.float64)
