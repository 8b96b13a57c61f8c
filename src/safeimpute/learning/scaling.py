"""Units the learners work in: standard units of every lab, and trends since the last value."""

from dataclasses import dataclass

import numpy as np

from safeimpute.settings import LogLabs
from safeimpute.visits.arrays import NONE, BoolArray, FloatArray, IntArray, previous_observed

EPSILON_DAYS = 1.0  # keeps two results an hour apart from looking like a landslide; the preset paper has its own


def lab_trends(patient: IntArray, time: FloatArray, labs: FloatArray, epsilon: float = EPSILON_DAYS) -> FloatArray:
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


def rate(now: FloatArray, previous: FloatArray, gap_days: FloatArray, epsilon: float = EPSILON_DAYS) -> FloatArray:
    """Change per day between two values of a lab."""
    change: FloatArray = (now - previous) / (gap_days + epsilon)
    return change


SKEWED = 1.0  # sample skewness beyond which `auto` takes the logarithm of a positive lab


@dataclass(frozen=True)
class Scaler:
    """z-scores per lab, after a logarithm where a lab is skewed."""

    log: BoolArray
    floor: FloatArray  # smallest value a logarithm is taken of
    centre: FloatArray
    scale: FloatArray

    def standardise(self, labs: FloatArray) -> FloatArray:
        transformed = labs.copy()
        logged = np.maximum(labs[:, self.log], self.floor[self.log])
        transformed[:, self.log] = np.log(logged)
        return (transformed - self.centre) / self.scale

    def standard(self, value: FloatArray, lab: int) -> FloatArray:
        """Values of one lab from its own unit to z-scores."""
        transformed = np.log(np.maximum(value, self.floor[lab])) if self.log[lab] else value
        z: FloatArray = (transformed - self.centre[lab]) / self.scale[lab]
        return z

    def in_unit(self, z: FloatArray, lab: int) -> FloatArray:
        """Back from z-scores of one lab to its own unit."""
        value = z * self.scale[lab] + self.centre[lab]
        return np.asarray(np.exp(value) if self.log[lab] else value, dtype=np.float64)


def fit_scaler(labs: FloatArray, lab_names: tuple[str, ...], training: BoolArray, log_labs: LogLabs = "auto") -> Scaler:
    """Learn centre and scale from the values visible at training visits."""
    columns = [column[~np.isnan(column)] for column in labs[training].T]
    log = np.array([_take_log(name, seen, log_labs) for name, seen in zip(lab_names, columns, strict=True)], bool)
    floor = np.array([seen.min() / 2 if flag else 0.0 for seen, flag in zip(columns, log, strict=True)])
    seen_scaled = [np.log(seen) if flag else seen for seen, flag in zip(columns, log, strict=True)]
    centre = np.array([seen.mean() if len(seen) else 0.0 for seen in seen_scaled])
    spread = np.array([seen.std() if len(seen) else 0.0 for seen in seen_scaled])
    return Scaler(log=log, floor=floor, centre=centre, scale=np.where(spread > 0, spread, 1.0))


def standardise_columns(table: FloatArray, training: BoolArray) -> FloatArray:
    """z-score columns that have no unit to go back to (trends, attributes)."""
    names = tuple("" for _ in range(table.shape[1]))
    return fit_scaler(table, names, training, log_labs=()).standardise(table)


def _take_log(name: str, seen: FloatArray, log_labs: LogLabs) -> bool:
    positive = len(seen) > 0 and seen.min() > 0
    if log_labs != "auto":
        return name in log_labs and positive
    return positive and len(seen) > 2 and abs(_skewness(np.log(seen))) < SKEWED < _skewness(seen)


def _skewness(values: FloatArray) -> float:
    deviation = values - values.mean()
    spread = values.std()
    return float(np.mean(deviation**3) / spread**3) if spread > 0 else 0.0
