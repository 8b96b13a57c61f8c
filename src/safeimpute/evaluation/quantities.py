"""What people compute from completed visits, with standard errors that count patients, not visits (NumPy only)."""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray

HALF = 1.96


@dataclass(frozen=True)
class Estimated:
    """An estimate, its variance over patients, and how many patients it rests on."""

    value: float
    variance: float
    patients: int


def mean_of(values: FloatArray, patient: IntArray, weight: FloatArray | None = None) -> Estimated:
    """Mean over visits; its variance is that of a ratio of patients' totals."""
    weight = np.ones(len(values)) if weight is None else weight
    total = weight.sum()
    mean = float(weight @ values / total)
    return Estimated(mean, _between_patients(weight * (values - mean) / total, patient), _patients(patient))


def share_above(
    values: FloatArray, limit: float, patient: IntArray, weight: FloatArray | None = None
) -> Estimated:
    """Share of visits whose value lies at or above a limit."""
    return mean_of((values >= limit).astype(np.float64), patient, weight)


def quantile_of(
    values: FloatArray, chance: float, patient: IntArray, weight: FloatArray | None = None
) -> Estimated:
    """A quantile; its standard error by Woodruff's way, from the share of visits below it."""
    weight = np.ones(len(values)) if weight is None else weight
    order = np.argsort(values, kind="stable")
    sorted_, reached = values[order], (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    middle = float(np.interp(chance, reached, sorted_))
    spread = HALF * np.sqrt(mean_of((values <= middle).astype(np.float64), patient, weight).variance)
    low, high = np.interp([chance - spread, chance + spread], reached, sorted_)
    return Estimated(middle, float(((high - low) / (2 * HALF)) ** 2), _patients(patient))


def slope_of(
    values: FloatArray, regressor: FloatArray, patient: IntArray, weight: FloatArray | None = None
) -> Estimated:
    """Coefficient of a regressor in a linear regression of the values on it, with a sandwich over patients."""
    weight = np.ones(len(values)) if weight is None else weight
    design = np.column_stack([np.ones(len(values)), regressor])
    bread = np.linalg.pinv(design.T @ (weight[:, None] * design))
    coefficients = bread @ (design.T @ (weight * values))
    pull = (weight * (values - design @ coefficients))[:, None] * design @ bread
    return Estimated(
        float(coefficients[1]),
        _between_patients(np.ascontiguousarray(pull[:, 1]), patient),
        _patients(patient),
    )


def _patients(patient: IntArray) -> int:
    return len(np.unique(patient))


def _between_patients(pull: FloatArray, patient: IntArray) -> float:
    """Variance of a sum of contributions, those of one patient taken together."""
    _, number = np.unique(patient, return_inverse=True)
    totals = np.bincount(number, pull)
    patients = len(totals)
    if patients < 2:
        return float("inf")
    return float(np.sum(np.square(totals)) * patients / (patients - 1))
