"""The joint course of all labs: what a patient's nearest values of every lab say about the target.

In standard units lab k at time t is m_k + a_k + sum of u_k(t) + e_k(t): a the patient's levels, u drifts (Ornstein-
Uhlenbeck, one for each of a few memories), e what visits add; each is correlated between labs. What the covariances
leave open of the target is regressed on the evidence of the course. Every visit is predicted from its own, the last
and the next value of every other lab and from its patient's nearby visible targets, never from its own target.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.records.history import NONE

LARGEST = 5.0  # standard units; beyond it a value counts as this
VALUES_TO_FIT = 6_000
TARGETS_TO_REGRESS = 2_000
VISITS_TOGETHER = 6  # whose products the covariances are learnt from
STEPS = 15  # of the EM algorithm, each lengthened: stopped early, it generalises better than at the maximum
LENGTHENED = 1.8
MEMORIES = (2.0, 20.0)  # to start with, in typical gaps
TO_DIAGONAL = 0.5  # pseudo-patients per lab without correlation between labs
RIDGE_MEANS, RIDGE = 10.0, 100.0
PADDED = 8  # measurements are counted in these, so that equal sizes can be solved at once
CELLS_AT_ONCE = 500_000  # of the matrices solved at once: bounds memory


@dataclass(frozen=True)
class Joint:
    """The fitted joint course."""

    means: FloatArray  # attributes (and one) x labs
    levels: FloatArray  # labs x labs
    drifts: FloatArray  # memories x labs x labs
    memory_days: FloatArray
    visits: FloatArray  # labs x labs: what is of one visit alone
    coefficients: FloatArray  # of the target on the evidence of the course

    def covariance(self, labs: tuple[IntArray, ...], gap: FloatArray) -> FloatArray:
        """Of measurements of pairs of labs so many days apart; none apart is one visit."""
        found = self.visits[labs] * (gap == 0.0)
        found += self.levels[labs]
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


class Runs(NamedTuple):
    """Measurements of runs of visits, each run of one patient; what is not there pads."""

    there: BoolArray  # runs x measurements
    value: FloatArray
    pair: IntArray  # runs x measurements x measurements: place in a flat labs x labs matrix, its end for padding
    gap: FloatArray  # likewise, in days
    visits: int

    def spread(self, matrix: FloatArray) -> FloatArray:
        """A labs x labs matrix at every pair of measurements."""
        return np.append(matrix, 0.0)[self.pair]

    def summed(self, table: FloatArray, labs: int) -> FloatArray:
        """Sums over pairs of measurements of each pair of labs."""
        found = np.bincount(self.pair.ravel(), table.ravel(), minlength=labs**2 + 1)
        return np.asarray(found[: labs**2].reshape(labs, labs))


def predict_joint(joint: Joint, table: Table, rows: IntArray) -> FloatArray:
    """The target at some visits, in standard units, and the standard deviation of that: two columns."""
    # Row-wise products, not matrix products: a visit's bytes must not depend on the rows around it.
    base = _mean_of(table, joint.means, table.target) + (table.design * joint.coefficients).sum(axis=1)
    rest = table.values[:, table.target].clip(-LARGEST, LARGEST) - base
    (weights, variance), told = _weights(joint, table, rows), _told(joint, table, rows)
    others = told.shape[1]
    away = (weights[:, :others] * told).sum(axis=1)
    own = np.where(table.own[rows] == NONE, 0.0, rest[table.own[rows]])
    mean = base[rows] + away + (weights[:, others:] * own).sum(axis=1)
    return np.column_stack([mean, np.sqrt(variance)])


def _told(joint: Joint, table: Table, rows: IntArray) -> FloatArray:
    """What the means leave of the other labs' values; 0 where there is none."""
    told = table.told[rows].clip(-LARGEST, LARGEST)
    means = np.stack([_mean_of(table, joint.means, lab)[rows] for lab in range(joint.means.shape[1])], axis=1)
    return np.asarray(np.nan_to_num(told - means[:, table.lab[: told.shape[1]]]))


def _weights(joint: Joint, table: Table, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """What everything a visit is told by counts (simple kriging; visits x places), and the variance left open."""
    places, target = len(table.lab), table.target
    weights, variance = np.empty((len(rows), places)), np.empty(len(rows))
    total = float(joint.covariance((np.array([target]), np.array([target])), np.zeros(1))[0])
    chunk = max(1, CELLS_AT_ONCE // max(places**2, 1))
    among, to_target = np.ix_(table.lab, table.lab), np.ix_(np.array([target]), table.lab)
    for start in range(0, len(rows), chunk):
        span = slice(start, start + chunk)
        part = rows[span]
        there = np.hstack([~np.isnan(table.told[part]), table.own[part] != NONE])
        away = np.where(there, table.away[part], 0.0)
        covariance = joint.covariance(among, np.abs(away[:, :, None] - away[:, None, :]))
        covariance *= there[:, :, None] & there[:, None, :]
        diagonal = np.arange(places)
        covariance[:, diagonal, diagonal] += ~there
        cross = np.where(there, joint.covariance(to_target, np.abs(away)), 0.0)
        weights[span] = np.linalg.solve(covariance, cross[:, :, None])[:, :, 0]
        variance[span] = total - (weights[span] * cross).sum(axis=1)
    return weights, np.maximum(variance, 1e-6)


def fit_joint(table: Table, rng: np.random.Generator) -> Joint:
    """Means by ridge regression, covariances by EM steps from what visits near each other have in common."""
    means = _fit_means(table)
    rest = _rest(table, means)
    labs = rest.shape[1]
    runs = _runs(table, rest, rng)
    start = _start(rest)
    gaps = np.diff(table.time)[np.diff(table.patient) == 0]
    typical = float(np.median(gaps)) if len(gaps) else 1.0  # days between visits
    joint = Joint(
        means=means,
        levels=0.4 * start,
        drifts=np.stack([0.35 / len(MEMORIES) * start for _ in MEMORIES]),
        memory_days=typical * np.array(MEMORIES),
        visits=0.25 * start,
        coefficients=np.zeros(table.design.shape[1]),
    )
    pace, last = np.full(len(MEMORIES), 0.4), np.zeros(len(MEMORIES))
    for _ in range(STEPS):
        joint, sign = _step(joint, runs, labs, pace)
        pace, last = np.where(sign * last < 0, pace / 2, pace), sign
    return _with_coefficients(joint, table, rng)


class Slopes(NamedTuple):
    """Of the likelihood, twice, with respect to each covariance and each memory."""

    levels: FloatArray
    drifts: FloatArray
    visits: FloatArray
    memory: FloatArray  # its sign tells whether longer memories are likelier


def _step(joint: Joint, runs: list[Runs], labs: int, pace: FloatArray) -> tuple[Joint, FloatArray]:
    """One lengthened step of EM: from M to M + M slope M / count, in the exponent."""
    slopes = Slopes(
        *(np.zeros_like(each) for each in (joint.levels, joint.drifts, joint.visits, joint.memory_days))
    )
    patients, visits = 0, 0
    for each in runs:
        _add_slopes(slopes, joint, each, labs)
        patients, visits = patients + len(each.there), visits + each.visits
    shrunk = TO_DIAGONAL * labs
    drifts = [
        _moved(each, slope / visits, 2 * shrunk / visits)
        for each, slope in zip(joint.drifts, slopes.drifts, strict=True)
    ]
    sign = np.sign(slopes.memory)
    moved = Joint(
        joint.means,
        _moved(joint.levels, slopes.levels / patients, shrunk / patients),
        np.stack(drifts),
        joint.memory_days * np.exp(pace * sign),
        _moved(joint.visits, slopes.visits / visits, 2 * shrunk / visits) + 1e-4 * np.eye(labs),
        joint.coefficients,
    )
    return moved, sign


def _add_slopes(slopes: Slopes, joint: Joint, runs: Runs, labs: int) -> None:
    kept = [np.exp(runs.gap / -memory) for memory in joint.memory_days]
    same = runs.gap == 0.0
    covariance = runs.spread(joint.levels) + runs.spread(joint.visits) * same
    for drift, each in zip(joint.drifts, kept, strict=True):
        covariance += runs.spread(drift) * each
    diagonal = np.arange(runs.there.shape[1])
    covariance[:, diagonal, diagonal] += ~runs.there
    inverse = np.linalg.inv(covariance)
    weighed = np.einsum("bij,bj->bi", inverse, runs.value)
    surprise = weighed[:, :, None] * weighed[:, None, :] - inverse
    slopes.levels[:] += runs.summed(surprise, labs)
    slopes.visits[:] += runs.summed(surprise * same, labs)
    for place, each in enumerate(kept):
        drifting = surprise * each
        slopes.drifts[place] += runs.summed(drifting, labs)
        slopes.memory[place] += (runs.spread(joint.drifts[place]) * drifting * runs.gap).sum()


def _moved(matrix: FloatArray, slope: FloatArray, to_diagonal: float) -> FloatArray:
    """Positive throughout: root (1 + root' slope root)^lengthened root', then a little nearer to its diagonal."""
    size, axes = np.linalg.eigh(matrix)
    root = axes * np.sqrt(np.maximum(size, 1e-12))
    change, turned = np.linalg.eigh(root.T @ slope @ root)
    turned = root @ turned
    moved = (turned * np.maximum(1.0 + change, 0.02) ** LENGTHENED) @ turned.T
    return np.asarray((moved + to_diagonal * np.diag(np.diag(moved))) / (1.0 + to_diagonal))


def _with_coefficients(joint: Joint, table: Table, rng: np.random.Generator) -> Joint:
    """Ridge regression of what the covariances leave open of some visible targets."""
    target = table.values[:, table.target].clip(-LARGEST, LARGEST) - _mean_of(
        table, joint.means, table.target
    )
    rows = np.flatnonzero(~np.isnan(target))
    rows = rng.permutation(rows)[:TARGETS_TO_REGRESS]
    (weights, variance), told = _weights(joint, table, rows), _told(joint, table, rows)
    others, own = told.shape[1], table.own[rows]
    of_own = np.where(own == NONE, 0.0, weights[:, others:])
    x = table.design[rows] - np.einsum("rk,rkp->rp", of_own, table.design[own])
    y = (
        target[rows]
        - (weights[:, :others] * told).sum(axis=1)
        - (of_own * np.nan_to_num(target)[own]).sum(axis=1)
    )
    weighted = x / variance[:, None]
    coefficients = np.linalg.solve(weighted.T @ x + RIDGE * np.eye(x.shape[1]), weighted.T @ y)
    return replace(joint, coefficients=coefficients)


def _mean_of(table: Table, means: FloatArray, lab: int) -> FloatArray:
    return np.asarray((table.person * means[:, lab]).sum(axis=1))


def _rest(table: Table, means: FloatArray) -> FloatArray:
    """What the means leave of every measurement."""
    values = np.clip(table.values, -LARGEST, LARGEST)
    for lab in range(values.shape[1]):
        values[:, lab] -= _mean_of(table, means, lab)
    return values


def _fit_means(table: Table) -> FloatArray:
    values, person = np.clip(table.values, -LARGEST, LARGEST), table.person
    ridge = RIDGE_MEANS * np.eye(person.shape[1])
    ridge[0, 0] = 1e-6
    means = np.zeros((person.shape[1], values.shape[1]))
    for lab, value in enumerate(values.T):
        there = person[~np.isnan(value)]
        if len(there):
            means[:, lab] = np.linalg.solve(there.T @ there + ridge, there.T @ value[~np.isnan(value)])
    return means


def _start(rest: FloatArray) -> FloatArray:
    """The covariance of labs at one visit, from pairs measured together, shrunk and made positive."""
    labs, there = rest.shape[1], (~np.isnan(rest)).astype(np.float64)
    known = np.nan_to_num(rest)
    found = (known.T @ known) / np.maximum(there.T @ there, 1.0)
    lean = TO_DIAGONAL * labs / max(len(rest), 1)
    found = (found + lean * np.diag(np.diag(found))) / (1.0 + lean)
    size, axes = np.linalg.eigh(found)
    return np.asarray((axes * np.maximum(size, 0.02)) @ axes.T)


def _runs(table: Table, rest: FloatArray, rng: np.random.Generator) -> list[Runs]:
    """Runs of few visits, drawn at random until they hold enough measurements; those of about a size together."""
    first, end = _short_runs(table.patient)
    labs, flat = rest.shape[1], np.flatnonzero(~np.isnan(rest))
    before = np.r_[0, np.cumsum((~np.isnan(rest)).sum(axis=1))]
    order = rng.permutation(len(first))
    held = (before[end] - before[first])[order]
    order = order[(held > 0) & (np.cumsum(held) - held < VALUES_TO_FIT)]
    first, end, visits = before[first[order]], before[end[order]], (end - first)[order]
    size = -(-(end - first) // PADDED) * PADDED
    found = []
    for values in np.unique(size).tolist():
        same = np.flatnonzero(size == values)
        at_once = max(1, CELLS_AT_ONCE // values**2)
        for start in range(0, len(same), at_once):
            part = same[start : start + at_once]
            place = first[part, None] + np.arange(values)
            there = place < end[part, None]
            row, lab = np.divmod(flat[np.where(there, place, 0)], labs)
            when, value = table.time[row], np.where(there, rest[row, lab], 0.0)
            gap = np.abs(when[:, :, None] - when[:, None, :])
            both = there[:, :, None] & there[:, None, :]
            pair = np.where(both, labs * lab[:, :, None] + lab[:, None, :], labs**2)
            found.append(Runs(there, value, pair, gap, int(visits[part].sum())))
    return found


def _short_runs(patient: IntArray) -> tuple[IntArray, IntArray]:
    """Every patient's visits in runs of about equal length; first rows and ends."""
    starts = np.flatnonzero(np.r_[True, patient[1:] != patient[:-1]])
    lengths = np.diff(np.r_[starts, len(patient)])
    runs = -(-lengths // VISITS_TOGETHER)
    number = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    begin, length, parts = (np.repeat(each, runs) for each in (starts, lengths, runs))
    return begin + number * length // parts, begin + (number + 1) * length // parts
