"""How errors of one patient's missing values hang together: learnt from values hidden at the same time.

The error of a visit imputed without its own value alone says nothing about this: neighbouring visits then see each
other's values, and their errors are pulled apart. So several values of a patient are hidden at once.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.records.history import first_visit

MOST_LAGS = 12  # pairs further apart along a patient's hidden visits add little
MEMORIES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])  # tried, times the median gap
MOST_SHARED = 0.98
FEWEST_PAIRS = 30
ALL_HIDDEN = 0.3  # share of patients of whom everything is hidden, as of patients never measured
HALF = 0.5  # of the others' values, each is hidden with this chance
MOST_VISITS = 20_000  # estimated once more to learn three numbers


@dataclass(frozen=True)
class Dependence:
    """Correlation of two errors of a patient on the scale of normal scores: steady + drifting exp(-gap / memory)."""

    steady: float
    drifting: float
    memory_days: float

    def normals(self, patient: IntArray, time: FloatArray, rng: np.random.Generator) -> FloatArray:
        """A standard normal number per visit, correlated within each patient; patients lie in blocks."""
        own = rng.standard_normal(len(patient)) * np.sqrt(1.0 - self.steady - self.drifting)
        if not len(patient):
            return np.asarray(own)
        level = rng.standard_normal(int(patient.max()) + 1)[patient]
        course = self._course(patient, time, rng)
        return np.asarray(own + np.sqrt(self.steady) * level + np.sqrt(self.drifting) * course)

    def _course(self, patient: IntArray, time: FloatArray, rng: np.random.Generator) -> FloatArray:
        """A standard Ornstein-Uhlenbeck path per patient, advanced for all patients together."""
        course = rng.standard_normal(len(patient))
        place = np.arange(len(patient)) - first_visit(patient)
        kept = np.exp(-np.abs(np.diff(time, prepend=time[0])) / self.memory_days)
        order = np.argsort(place, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(place[order])) + 1)[1:]:
            course[rows] = kept[rows] * course[rows - 1] + np.sqrt(1.0 - kept[rows] ** 2) * course[rows]
        return course


INDEPENDENT = Dependence(0.0, 0.0, 1.0)


def hide_together(visits: VisitArrays, rng: np.random.Generator) -> tuple[VisitArrays, BoolArray, FloatArray]:
    """Some patients, several of whose visible targets are hidden at once; which, and all that were visible."""
    visible = ~np.isnan(visits.target_values)
    patients = int(visits.patient.max()) + 1
    several = np.bincount(visits.patient[visible], minlength=patients) >= 2
    size = int(several[visits.patient].sum())
    drawn = several & (rng.random(patients) < MOST_VISITS / max(size, 1))
    some = visits.take(drawn[visits.patient])
    everything = rng.random(int(some.patient.max(initial=-1)) + 1) < ALL_HIDDEN
    there = ~np.isnan(some.target_values)
    hidden = there & (everything[some.patient] | (rng.random(len(some)) < HALF))
    return some.with_target(np.where(hidden, np.nan, some.target_values)), hidden, some.target_values


def fit_dependence(score: FloatArray, patient: IntArray, time: FloatArray) -> Dependence:
    """Fit to normal scores of errors hidden together; visits sorted by patient and time. Too few pairs: independent."""
    product, gap = _pairs(score, patient, time)
    if len(product) < FEWEST_PAIRS:
        return INDEPENDENT
    unit = max(float(np.median(gap)), 1e-9)
    best, least = INDEPENDENT, float(product @ product)
    for memory in MEMORIES * unit:
        design = np.column_stack([np.ones(len(gap)), np.exp(-gap / memory)])
        (steady, drifting), left = nnls(design, product)
        if left**2 < least - 1e-9:
            most = min(1.0, MOST_SHARED / max(steady + drifting, 1e-9))
            best = Dependence(float(steady * most), float(drifting * most), float(memory))
            least = left**2
    return best


def _pairs(score: FloatArray, patient: IntArray, time: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Products of two scores of a patient and the days between them."""
    products, gaps = [np.empty(0)], [np.empty(0)]
    for lag in range(1, min(MOST_LAGS, len(score) - 1) + 1):
        same = patient[lag:] == patient[:-lag]
        products.append((score[lag:] * score[:-lag])[same])
        gaps.append((time[lag:] - time[:-lag])[same])
    return np.concatenate(products), np.concatenate(gaps)
