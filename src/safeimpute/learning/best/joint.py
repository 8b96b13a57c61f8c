"""The joint course of all labs: what a patient's nearest values of every lab say about the target.

In standard units lab k at time t is m_k + a_k + sum of u_k(t) + e_k(t): a the patient's levels, u drifts (Ornstein-
Uhlenbeck, one for each of a few memories), e what visits add; each is correlated between labs. Some patients' targets
move more than others': u and e of the target are s times as large, s a patient's own, log-normal, integrated out. What
the covariances leave open of the target is regressed on the evidence of the course. Every visit is predicted from its
own, the last and the next value of every other lab and from its patient's nearby visible targets, never from its own
target. `joint_fit.py` learns all of it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from safeimpute.visits.arrays import NONE, BoolArray, FloatArray, IntArray

LARGEST = 5.0  # standard units; beyond it a value counts as this
CELLS_AT_ONCE = 500_000  # of the matrices solved at once: bounds memory
LARGEST_PATIENT_SCALE = 1.5
PATIENT_SCALES = 5  # scales of a patient's own that the integral over it is a sum of
ROUNDING = 1e-9  # of a variance, so that no factor fails by rounding
FAR = 1e8  # variance of a row that only rides along in a factor


@dataclass(frozen=True)
class Joint:
    """The fitted joint course."""

    means: FloatArray  # attributes (and one) x labs
    levels: FloatArray  # labs x labs
    drifts: FloatArray  # memories x labs x labs
    memory_days: FloatArray
    visits: FloatArray  # labs x labs: what is of one visit alone
    coefficients: FloatArray  # of the target on the evidence of the course
    patient_scale: float  # standard deviation, between patients, of the log of the target's variance around its level

    def covariance(self, labs: tuple[IntArray, ...], gap: FloatArray) -> FloatArray:
        """Of measurements of pairs of labs so many days apart; none apart is one visit."""
        found = self.changing(labs, gap)
        found += self.levels[labs]
        return found

    def changing(self, labs: tuple[IntArray, ...], gap: FloatArray) -> FloatArray:
        """The part of `covariance` that is not of the patient's levels."""
        found = self.visits[labs] * (gap == 0.0)
        for drift, memory in zip(self.drifts, self.memory_days, strict=True):
            found += drift[labs] * np.exp(gap / -memory)
        return np.asarray(found)


class Table(NamedTuple):
    """Measurements in standard units, and what every visit is told by."""

    values: FloatArray  # visits x labs; NaN where not measured
    person: FloatArray  # visits x (one and attributes)
    design: FloatArray  # regressors of the target
    patient: IntArray
    time: FloatArray
    target: int
    lab: IntArray  # of each place among what a visit is told by; own targets stand last
    told: FloatArray  # visits x places: values of other labs, NaN where there is none
    away: FloatArray  # visits x places: days from the visit, own targets included
    own: IntArray  # visits x own visits with a visible target; NONE pads


class Mixture(NamedTuple):
    """What is said of the target at some visits: one normal distribution for every scale of the patient."""

    weight: FloatArray  # scales x visits
    mean: FloatArray
    variance: FloatArray

    def moments(self) -> FloatArray:
        """Mean and standard deviation of the mixture: two columns."""
        mean = (self.weight * self.mean).sum(axis=0)
        variance = (self.weight * (self.variance + (self.mean - mean) ** 2)).sum(axis=0)
        return np.column_stack([mean, np.sqrt(variance)])


def predict_joint(joint: Joint, table: Table, rows: IntArray) -> FloatArray:
    """The target at some visits, in standard units, its standard deviation, and the target with one scale for all."""
    found = mixtures_at(joint, table, rows, (joint.patient_scale, 0.0) if joint.patient_scale else (0.0,))
    return np.column_stack([found[0].moments(), found[-1].mean[0]])


def mixtures_at(joint: Joint, table: Table, rows: IntArray, patient_scales: tuple[float, ...]) -> list[Mixture]:
    """The target at some visits, in standard units, given what each is told by; once per `patient_scale` of a joint."""
    # Row-wise products, not matrix products: a visit's bytes must not depend on the rows around it.
    base = mean_of(table, joint.means, table.target) + (table.design * joint.coefficients).sum(axis=1)
    rest = table.values[:, table.target].clip(-LARGEST, LARGEST) - base
    told = rest_told(joint, table, rows)
    own = np.where(table.own[rows] == NONE, 0.0, rest[table.own[rows]])
    chunk = max(1, CELLS_AT_ONCE // max(told.shape[1] ** 2, (own.shape[1] + 2) ** 2))
    parts = []
    for start in range(0, max(len(rows), 1), chunk):
        span = slice(start, start + chunk)
        beside = _beside(joint, table, rows[span], told[span])
        parts.append([_mixture(beside, base[rows[span]], own[span], patient_scale) for patient_scale in patient_scales])
    joined = (zip(*each, strict=True) for each in zip(*parts, strict=True))
    return [Mixture(*(np.concatenate(part, axis=1) for part in each)) for each in joined]


def _sizes(patient_scale: float) -> tuple[FloatArray, FloatArray]:
    """Scales a patient may have, of mean square 1, and how likely each is."""
    if patient_scale == 0.0:
        return np.ones(1), np.ones(1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(PATIENT_SCALES)
    return np.exp(0.5 * (patient_scale * nodes - patient_scale**2 / 2)), weights / weights.sum()


class _Beside(NamedTuple):
    """Own targets and, last, the visit itself, beside the other labs' values: all that a scale changes.

    Covariances are of what the other labs leave open; for a scale s they are steady + s once + s^2 twice.
    """

    there: BoolArray  # visits x own targets
    steady: FloatArray  # visits x (own targets and the visit) x the same
    once: FloatArray
    twice: FloatArray
    told: FloatArray  # visits x (own targets and the visit): what the other labs say of each, at scale zero
    scaled: FloatArray  # likewise, for each unit of scale


def _mixture(beside: _Beside, base: FloatArray, own: FloatArray, patient_scale: float) -> Mixture:
    sizes, likely = _sizes(patient_scale)
    found = [_given(beside, own, size) for size in sizes]
    mean, variance, fit = (np.stack(each) for each in zip(*found, strict=True))
    weight = np.exp(fit - fit.max(axis=0)) * likely[:, None]
    return Mixture(weight / weight.sum(axis=0), base + mean, variance)


def _beside(joint: Joint, table: Table, rows: IntArray, told: FloatArray) -> _Beside:
    """Condition on the other labs' values once, for all scales."""
    others, target = told.shape[1], table.target
    lab, near = table.lab[:others], np.full(table.own.shape[1] + 1, target)
    known, there = ~np.isnan(table.told[rows]), table.own[rows] != NONE
    away = np.where(np.hstack([known, there]), table.away[rows], 0.0)
    away, visit = away[:, :others], np.hstack([away[:, others:], np.zeros((len(rows), 1))])
    asked = np.hstack([there, np.ones((len(rows), 1), dtype=bool)])
    among = joint.covariance(np.ix_(lab, lab), _gap(away, away)) * _both(known, known)
    places = np.arange(others)
    among[:, places, places] += ~known
    level = joint.levels[np.ix_(lab, near)] * _both(known, asked)
    change = joint.changing(np.ix_(lab, near), _gap(away, visit)) * _both(known, asked)
    parts = np.concatenate([level, change, told[:, :, None]], axis=2)
    seen = parts.transpose(0, 2, 1) @ np.linalg.solve(among, parts)
    size, both = len(near), _both(asked, asked)
    a, b = slice(0, size), slice(size, 2 * size)
    return _Beside(
        there,
        steady=joint.levels[target, target] * both - seen[:, a, a],
        once=-(seen[:, a, b] + seen[:, b, a]),
        twice=joint.changing(np.ix_(near, near), _gap(visit, visit)) * both - seen[:, b, b],
        told=seen[:, a, -1],
        scaled=seen[:, b, -1],
    )


def _given(beside: _Beside, own: FloatArray, patient_scale: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean and variance at the visit at that scale, and the log density of its own targets then."""
    count = own.shape[1]
    said = beside.told + patient_scale * beside.scaled
    table = np.zeros((len(own), count + 2, count + 2))
    table[:, :-1, :-1] = beside.steady + patient_scale * beside.once + patient_scale**2 * beside.twice
    table[:, -1, :count] = np.where(beside.there, own - said[:, :count], 0.0)
    table[:, -1, -1] = FAR
    places = np.arange(count)
    table[:, places, places] += np.where(beside.there, ROUNDING * table[:, places, places], 1.0)
    table[:, count, count] = np.maximum((1.0 + ROUNDING) * table[:, count, count], 1e-6)
    factor = np.linalg.cholesky(table)
    to_visit, away = factor[:, count, :count], factor[:, -1, :count]
    mean = said[:, count] + (to_visit * away).sum(axis=1)
    variance = np.maximum(table[:, count, count] - (to_visit**2).sum(axis=1), 1e-6)
    # Added up one after the other: `sum` takes another order at a visit alone, whose diagonal lies in one piece.
    logs = np.cumsum(np.log(factor[:, places, places]), axis=1)[:, -1]
    fit = -logs - 0.5 * (away**2).sum(axis=1)
    return mean, variance, fit


def _gap(one: FloatArray, other: FloatArray) -> FloatArray:
    return np.abs(one[:, :, None] - other[:, None, :])


def _both(one: BoolArray, other: BoolArray) -> BoolArray:
    return one[:, :, None] & other[:, None, :]


def rest_told(joint: Joint, table: Table, rows: IntArray) -> FloatArray:
    """What the means leave of the other labs' values; 0 where there is none."""
    told = table.told[rows].clip(-LARGEST, LARGEST)
    means = np.stack([mean_of(table, joint.means, lab)[rows] for lab in range(joint.means.shape[1])], axis=1)
    return np.asarray(np.nan_to_num(told - means[:, table.lab[: told.shape[1]]]))


def mean_of(table: Table, means: FloatArray, lab: int) -> FloatArray:
    """What the attributes alone say of one lab at every visit."""
    return np.asarray((table.person * means[:, lab]).sum(axis=1))
