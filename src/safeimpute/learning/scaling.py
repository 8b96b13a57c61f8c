"""Units the learners work in: standard units of every lab, and trends since the last value."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

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


EM_STEPS = 20
FARTHEST, SMALLEST = 6.0, 1e-12  # z-scores beyond which nobody lies, and the least chance of an interval
SKEWED = 1.0  # sample skewness beyond which `auto` takes the logarithm of a positive lab


@dataclass(frozen=True)
class Scaler:
    """z-scores per lab, after a logarithm where a lab is skewed."""

    log: BoolArray
    floor: FloatArray  # smallest value a logarithm is taken of; of other labs 0, or less where values are negative
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

    def expected(self, limits: FloatArray) -> FloatArray:
        """z-scores to expect of results known only to lie between limits; NaN where these exclude nothing."""
        return np.where(np.isinf(limits).all(axis=-1), np.nan, self.between(limits)[0])

    def between(self, limits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance in z-scores of results between limits (visits x labs x 2), were all of a lab normal.

        Nothing lies below 0 where a lab has no negative values: a skewed one would lie far below otherwise.
        """
        least = np.where(self.log | (self.floor < 0), -np.inf, 0.0)
        ends = np.maximum(limits[..., 0], least), limits[..., 1]
        low, high = (np.where(np.isinf(end), end, self.standardise(end)) for end in ends)
        return _expected_between(low, high)

    def in_unit(self, z: FloatArray, lab: int) -> FloatArray:
        """Back from z-scores of one lab to its own unit."""
        value = z * self.scale[lab] + self.centre[lab]
        return np.asarray(np.exp(value) if self.log[lab] else value, dtype=np.float64)


def fit_scaler(
    labs: FloatArray,
    lab_names: tuple[str, ...],
    training: BoolArray,
    log_labs: LogLabs = "auto",
    limits: FloatArray | None = None,
) -> Scaler:
    """Learn centre and scale from the values visible at training visits, and from limits where values are cut."""
    columns = [column[~np.isnan(column)] for column in labs[training].T]
    log = np.array([_take_log(name, seen, log_labs) for name, seen in zip(lab_names, columns, strict=True)], bool)
    floor = np.array(
        [seen.min() / 2 if flag else seen.min(initial=0.0) for seen, flag in zip(columns, log, strict=True)]
    )
    seen_scaled = [np.log(seen) if flag else seen for seen, flag in zip(columns, log, strict=True)]
    centre = np.array([seen.mean() if len(seen) else 0.0 for seen in seen_scaled])
    spread = np.array([seen.std() if len(seen) else 0.0 for seen in seen_scaled])
    scaler = Scaler(log=log, floor=floor, centre=centre, scale=np.where(spread > 0, spread, 1.0))
    return scaler if limits is None else _with_limits(scaler, labs[training], limits[training])


def _with_limits(scaler: Scaler, labs: FloatArray, limits: FloatArray) -> Scaler:
    """Centre and scale of normal distributions of which some values are known only to lie between limits (by EM)."""
    for _ in range(EM_STEPS):
        mean, variance = scaler.between(limits)
        z = np.where(np.isnan(labs), mean, scaler.standardise(labs))
        known = np.maximum((~np.isnan(z)).sum(axis=0), 1)
        centre = np.nansum(z, axis=0) / known
        spread = np.sqrt(np.nansum((z - centre) ** 2 + np.where(np.isnan(labs), variance, 0.0), axis=0) / known)
        moved, limited = np.where(spread > 0, spread, 1.0), ~np.isnan(limits[..., 0]).all(axis=0)
        scaler = replace(
            scaler,
            centre=np.where(limited, scaler.centre + scaler.scale * centre, scaler.centre),
            scale=np.where(limited, scaler.scale * moved, scaler.scale),
        )
    return scaler


def _expected_between(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a standard normal number between limits; far out, of the nearer limit."""
    low, high = np.clip(low, -FARTHEST, FARTHEST), np.clip(high, -FARTHEST, FARTHEST)
    chance = np.maximum(ndtr(high) - ndtr(low), SMALLEST)
    density = np.exp(-0.5 * np.stack([low, high]) ** 2) / np.sqrt(2.0 * np.pi)
    mean = np.clip((density[0] - density[1]) / chance, low, high)
    variance = 1.0 + (low * density[0] - high * density[1]) / chance - mean**2
    return mean, np.clip(variance, 0.0, 1.0)


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
