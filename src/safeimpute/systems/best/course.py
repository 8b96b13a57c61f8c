"""A patient's own course: regression on the labs plus a drifting offset, read off nearby visible targets.

The target (in standard units) is x'b + a + u(t) + e: a the patient's steady level, u an Ornstein-Uhlenbeck
process in time, e noise. Every visit is predicted from its own patient's nearby visible targets, never from
itself; the parameters are those under which these leave-one-out predictions are likeliest.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.records.history import NONE

CHUNK = 16_384  # rows solved at once: bounds memory
ROWS_TO_FIT = 4_000  # three variance ratios need no more
RIDGE = 1.0
NOISE = 1.0  # the unit of the other variances until the residuals set the scale


@dataclass(frozen=True)
class Variances:
    """Where the target's spread around the regression comes from."""

    steady: float
    drifting: float
    memory_days: float
    noise: float

    def covariance(self, gap_days: FloatArray) -> FloatArray:
        return self.steady + self.drifting * np.exp(-gap_days / self.memory_days)

    def scaled(self, factor: float) -> "Variances":
        return Variances(self.steady * factor, self.drifting * factor, self.memory_days, self.noise * factor)


@dataclass(frozen=True)
class Course:
    """The fitted course of the target."""

    variances: Variances
    coefficients: FloatArray


@dataclass(frozen=True)
class Predicted:
    """What the course predicts at some visits, each from its patient's other visible targets."""

    mean: FloatArray
    deviation: FloatArray  # predictive standard deviation
    regression: FloatArray  # the part that needs no own target
    weights: FloatArray  # visits x own visits: what each own residual counts


@dataclass(frozen=True)
class Gaps:
    """Days between some visits and their own visits, and among these; what is not there counts nothing."""

    own: IntArray  # visits x own visits; NONE pads
    here: BoolArray
    both: BoolArray  # visits x own visits x own visits
    among: FloatArray
    to_visit: FloatArray

    def weights(self, variances: Variances) -> tuple[FloatArray, FloatArray]:
        """Simple kriging weights of the own visits, and the predictive variance."""
        among = np.where(self.both, variances.covariance(self.among), 0.0)
        diagonal = np.arange(self.own.shape[1])
        among[:, diagonal, diagonal] += np.where(self.here, variances.noise, 1.0)
        to_visit = np.where(self.here, variances.covariance(self.to_visit), 0.0)
        weights: FloatArray = np.linalg.solve(among, to_visit[:, :, None])[:, :, 0]
        total = variances.steady + variances.drifting + variances.noise
        return weights, total - (weights * to_visit).sum(axis=1)


def predict_course(
    course: Course, design: FloatArray, target: FloatArray, time: FloatArray, own: IntArray, rows: IntArray
) -> Predicted:
    """Predict the visits at `rows` from their regression and the residuals of their own visits (NONE pads)."""
    # A row-wise product, not a matrix product: a visit's bytes must not depend on the rows around it.
    regression = (design * course.coefficients).sum(axis=1)
    weights, variance = np.empty((len(rows), own.shape[1])), np.empty(len(rows))
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        weights[part], variance[part] = _gaps(time, own, rows[part]).weights(course.variances)
    there = own[rows]
    residual = np.where(there == NONE, 0.0, (target - regression)[there])
    mean = regression[rows] + (weights * residual).sum(axis=1)
    return Predicted(mean, np.sqrt(variance), regression[rows], weights)


def fit_course(
    design: FloatArray, target: FloatArray, time: FloatArray, own: IntArray, rng: np.random.Generator
) -> Course:
    """Coefficients and variances under which the visible targets predict one another best."""
    rows = np.flatnonzero(~np.isnan(target))
    if len(rows) > ROWS_TO_FIT:
        rows = np.sort(rng.choice(rows, ROWS_TO_FIT, replace=False))
    unit, gaps = _typical_gap(time, own, rows), _gaps(time, own, rows)

    def variances(logs: FloatArray) -> Variances:
        steady, drifting, memory = np.exp(np.clip(logs, -8.0, 8.0))
        return Variances(float(steady), float(drifting), float(memory * unit), NOISE)

    def loss(logs: FloatArray) -> float:
        _, residual, variance = _regress(variances(logs), gaps, design, target, rows)
        return float(np.mean(np.log(variance)) + np.log(np.mean(residual**2 / variance) + 1e-12))

    simplex = np.vstack([np.zeros(3), 1.5 * np.eye(3)])
    options = {"maxfev": 80, "xatol": 0.05, "fatol": 1e-4, "initial_simplex": simplex}
    best = variances(minimize(loss, np.zeros(3), method="Nelder-Mead", options=options).x)
    coefficients, residual, variance = _regress(best, gaps, design, target, rows)
    return Course(best.scaled(float(np.mean(residual**2 / variance)) + 1e-12), coefficients)


def _typical_gap(time: FloatArray, own: IntArray, rows: IntArray) -> float:
    gaps = np.abs(time[own[rows]] - time[rows, None])[own[rows] != NONE]
    return float(np.median(gaps)) if len(gaps) else 1.0


def _regress(
    variances: Variances, gaps: Gaps, design: FloatArray, target: FloatArray, rows: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Ridge regression of what the own visits leave open; its coefficients, residuals and variances."""
    weights, variance = gaps.weights(variances)
    weights = np.where(gaps.own == NONE, 0.0, weights)
    visible = np.nan_to_num(target)
    x = design[rows] - np.einsum("rk,rkp->rp", weights, design[gaps.own])
    y = visible[rows] - (weights * visible[gaps.own]).sum(axis=1)
    weighted = x / variance[:, None]
    coefficients = np.linalg.solve(weighted.T @ x + RIDGE * np.eye(x.shape[1]), weighted.T @ y)
    return coefficients, y - x @ coefficients, variance


def _gaps(time: FloatArray, own: IntArray, rows: IntArray) -> Gaps:
    there = own[rows]
    here = there != NONE
    when = np.where(here, time[there], 0.0)
    both = here[:, :, None] & here[:, None, :]
    among = np.abs(when[:, :, None] - when[:, None, :])
    return Gaps(there, here, both, among, np.abs(when - time[rows, None]))
