"""A patient's own course: regression on the labs plus a drifting offset, read off nearby visible targets.

The target (in standard units) is x'b + a + u(t) + e: a the patient's steady level, u an Ornstein-Uhlenbeck
process in time, e noise. Every visit is predicted from its own patient's nearby visible targets, never from
itself; the parameters are those under which these leave-one-out predictions are likeliest.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from safeimpute.visits.arrays import NONE, BoolArray, FloatArray, IntArray

CHUNK = 16_384  # rows solved at once: bounds memory
ROWS_TO_FIT = 4_000  # three variance ratios need no more
RIDGE = 1.0
FEW = 6  # own visits up to which a smaller system is solved: most records are short
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

    places: IntArray  # of these visits among all that were asked for
    order: IntArray  # visits x own visits looked at: their columns, those that are there first
    here: BoolArray
    both: FloatArray  # visits x own visits x own visits: 1 where both are there, else 0
    among: FloatArray  # infinite where one of them is not there
    to_visit: FloatArray

    def weights(self, variances: Variances) -> tuple[FloatArray, FloatArray]:
        """Simple kriging weights of the own visits, and the predictive variance."""
        among = np.exp(self.among / -variances.memory_days)
        among *= variances.drifting
        among += variances.steady * self.both
        diagonal = np.arange(self.here.shape[1])
        among[:, diagonal, diagonal] += np.where(self.here, variances.noise, 1.0)
        to_visit = np.where(self.here, variances.covariance(self.to_visit), 0.0)
        weights: FloatArray = np.linalg.solve(among, to_visit[:, :, None])[:, :, 0]
        total = variances.steady + variances.drifting + variances.noise
        return weights, total - (weights * to_visit).sum(axis=1)


@dataclass(frozen=True)
class OwnVisits:
    """The own visits of some visits, with the gaps of short records apart from those of long ones."""

    there: IntArray  # visits x own visits; NONE pads
    gaps: tuple[Gaps, ...]

    def weights(self, variances: Variances) -> tuple[FloatArray, FloatArray]:
        """Per visit the weights of its own visits, in their columns, and the predictive variance."""
        weights, variance = np.zeros(self.there.shape), np.empty(len(self.there))
        for each in self.gaps:
            found, variance[each.places] = each.weights(variances)
            weights[each.places[:, None], each.order] = found
        return weights, variance


def predict_course(
    course: Course, design: FloatArray, target: FloatArray, time: FloatArray, own: IntArray, rows: IntArray
) -> Predicted:
    """Predict the visits at `rows` from their regression and the residuals of their own visits (NONE pads)."""
    # A row-wise product, not a matrix product: a visit's bytes must not depend on the rows around it.
    regression = (design * course.coefficients).sum(axis=1)
    weights, variance = np.empty((len(rows), own.shape[1])), np.empty(len(rows))
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        weights[part], variance[part] = _own_visits(time, own, rows[part]).weights(course.variances)
    there = own[rows]
    residual = np.where(there == NONE, 0.0, (target - regression)[there])
    mean = regression[rows] + (weights * residual).sum(axis=1)
    return Predicted(mean, np.sqrt(variance), regression[rows], weights)


@dataclass(frozen=True)
class Shown:
    """What the course is learnt from: some visits with a visible target, and their own visits."""

    own: OwnVisits
    design: FloatArray  # visits x regressors
    target: FloatArray
    own_design: FloatArray  # visits x own visits x regressors
    own_target: FloatArray

    def left_open(self, variances: Variances) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What the own visits leave of regressors and target, and its variances."""
        weights, variance = self.own.weights(variances)
        x: FloatArray = self.design - (weights[:, None, :] @ self.own_design)[:, 0]
        y: FloatArray = self.target - (weights * self.own_target).sum(axis=1)
        return x, y, variance

    def regress(self, variances: Variances) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ridge regression of what the own visits leave open; its coefficients, residuals and variances."""
        x, y, variance = self.left_open(variances)
        among, towards = _normal_equations(x, y, variance)
        coefficients = np.asarray(np.linalg.solve(among, towards), dtype=np.float64)
        return coefficients, y - x @ coefficients, variance


def _normal_equations(x: FloatArray, y: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    weighted = x / variance[:, None]
    return weighted.T @ x + RIDGE * np.eye(x.shape[1]), weighted.T @ y


def fit_course(
    design: FloatArray, target: FloatArray, time: FloatArray, own: IntArray, rng: np.random.Generator
) -> Course:
    """Coefficients and variances under which the visible targets predict one another best."""
    rows = np.flatnonzero(~np.isnan(target))
    if len(rows) > ROWS_TO_FIT:
        rows = np.sort(rng.choice(rows, ROWS_TO_FIT, replace=False))
    shown = _shown(design, target, time, own, rows)
    unit = _typical_gap(time, own, rows)

    def variances(logs: FloatArray) -> Variances:
        steady, drifting, memory = np.exp(np.clip(logs, -8.0, 8.0))
        return Variances(float(steady), float(drifting), float(memory * unit), NOISE)

    def loss(logs: FloatArray) -> float:
        _, residual, variance = shown.regress(variances(logs))
        return float(np.mean(np.log(variance)) + np.log(np.mean(residual**2 / variance) + 1e-12))

    simplex = np.vstack([np.zeros(3), 1.5 * np.eye(3)])
    options = {"maxfev": 80, "xatol": 0.05, "fatol": 1e-4, "initial_simplex": simplex}
    best = variances(minimize(loss, np.zeros(3), method="Nelder-Mead", options=options).x)
    coefficients, residual, variance = shown.regress(best)
    return Course(best.scaled(float(np.mean(residual**2 / variance)) + 1e-12), coefficients)


def information(
    course: Course, design: FloatArray, target: FloatArray, time: FloatArray, own: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Normal equations of the fitted course's regression, from the visible targets or every so many of them."""
    rows = np.flatnonzero(~np.isnan(target))
    shown = _shown(design, target, time, own, rows[:: max(1, -(-len(rows) // ROWS_TO_FIT))])
    return _normal_equations(*shown.left_open(course.variances))


def _shown(design: FloatArray, target: FloatArray, time: FloatArray, own: IntArray, rows: IntArray) -> Shown:
    found, visible = _own_visits(time, own, rows), np.nan_to_num(target)
    return Shown(found, design[rows], visible[rows], design[found.there], visible[found.there])


def _typical_gap(time: FloatArray, own: IntArray, rows: IntArray) -> float:
    gaps = np.abs(time[own[rows]] - time[rows, None])[own[rows] != NONE]
    return float(np.median(gaps)) if len(gaps) else 1.0


def _own_visits(time: FloatArray, own: IntArray, rows: IntArray) -> OwnVisits:
    """A visit's weights must not depend on the visits around it, so records are short or long by a fixed length."""
    there = own[rows]
    order = np.argsort(there == NONE, axis=1, kind="stable")
    short = (there != NONE).sum(axis=1) <= FEW
    parts = ((np.flatnonzero(short), FEW), (np.flatnonzero(~short), own.shape[1]))
    gaps = (_gaps(time, there, rows, order[:, :width], places) for places, width in parts if len(places))
    return OwnVisits(there, tuple(gaps))


def _gaps(time: FloatArray, there: IntArray, rows: IntArray, order: IntArray, places: IntArray) -> Gaps:
    order = order[places]
    looked = np.take_along_axis(there[places], order, axis=1)
    here = looked != NONE
    when = np.where(here, time[looked], 0.0)
    both = here[:, :, None] & here[:, None, :]
    among = np.where(both, np.abs(when[:, :, None] - when[:, None, :]), np.inf)
    return Gaps(places, order, here, both.astype(np.float64), among, np.abs(when - time[rows[places], None]))
