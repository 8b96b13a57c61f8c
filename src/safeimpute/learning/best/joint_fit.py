"""Learning the joint course of all labs: means, covariances, memories, and how differently patients' targets move."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from safeimpute.learning.best.joint import (
    CELLS_AT_ONCE,
    LARGEST,
    Joint,
    Mixture,
    Table,
    mean_of,
    mixtures_at,
    rest_told,
)
from safeimpute.visits.arrays import NONE, BoolArray, FloatArray, IntArray

VALUES_TO_FIT = 6_000
TARGETS_TO_REGRESS = 2_000
TARGETS_FOR_SCALES = 1_000
VISITS_TOGETHER = 6  # whose products the covariances are learnt from
STEPS = 15  # of the EM algorithm, each lengthened: stopped early, it generalises better than at the maximum
LENGTHENED = 1.8
MANY = 150  # measurements of the table for each number learnt; beyond it twice the steps, longer, generalise better
STEPS_OF_MANY, LENGTHENED_OF_MANY = 30, 3.0
MEMORIES = (2.0, 20.0)  # to start with, in typical gaps
TO_DIAGONAL = 0.5  # pseudo-patients per lab without correlation between labs
RIDGE_MEANS, RIDGE = 10.0, 100.0
PADDED = 8  # measurements are counted in these, so that equal sizes can be solved at once
PATIENT_SCALES_TRIED = (0.0, 0.7, 1.3)


class Runs(NamedTuple):
    """Measurements of runs of visits, each run of one patient; what is not there pads."""

    there: BoolArray  # runs x measurements
    value: FloatArray
    of_lab: FloatArray  # runs x measurements x labs: 1 at the measurement's lab, 0 throughout for padding
    gap: FloatArray  # runs x measurements x measurements, in days
    visits: int

    def spread(self, matrix: FloatArray) -> FloatArray:
        """A labs x labs matrix at every pair of measurements."""
        return np.asarray(self.of_lab @ matrix @ self.of_lab.transpose(0, 2, 1))

    def summed(self, table: FloatArray) -> FloatArray:
        """Sums over pairs of measurements of each pair of labs."""
        return np.asarray((self.of_lab.transpose(0, 2, 1) @ table @ self.of_lab).sum(axis=0))


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
        patient_scale=0.0,
    )
    learnt = (1 + len(MEMORIES) + 1) * labs * (labs + 1) / 2
    many = np.sum(~np.isnan(rest)) > MANY * learnt
    steps, lengthened = (STEPS_OF_MANY, LENGTHENED_OF_MANY) if many else (STEPS, LENGTHENED)
    pace, last = np.full(len(MEMORIES), 0.4), np.zeros(len(MEMORIES))
    for _ in range(steps):
        joint, sign = _step(joint, runs, labs, pace, lengthened)
        pace, last = np.where(sign * last < 0, pace / 2, pace), sign
    return _with_patient_scale(_with_coefficients(joint, table, rng), table, rng)


class Slopes(NamedTuple):
    """Of the likelihood, twice, with respect to each covariance and each memory."""

    levels: FloatArray
    drifts: FloatArray
    visits: FloatArray
    memory: FloatArray  # its sign tells whether longer memories are likelier


def _step(joint: Joint, runs: list[Runs], labs: int, pace: FloatArray, lengthened: float) -> tuple[Joint, FloatArray]:
    """One lengthened step of EM: from M to M + M slope M / count, in the exponent."""
    slopes = Slopes(*(np.zeros_like(each) for each in (joint.levels, joint.drifts, joint.visits, joint.memory_days)))
    patients, visits = 0, 0
    for each in runs:
        _add_slopes(slopes, joint, each)
        patients, visits = patients + len(each.there), visits + each.visits
    shrunk = TO_DIAGONAL * labs
    drifts = [
        _moved(each, slope / visits, 2 * shrunk / visits, lengthened)
        for each, slope in zip(joint.drifts, slopes.drifts, strict=True)
    ]
    sign = np.sign(slopes.memory)
    moved = Joint(
        joint.means,
        _moved(joint.levels, slopes.levels / patients, shrunk / patients, lengthened),
        np.stack(drifts),
        joint.memory_days * np.exp(pace * sign),
        _moved(joint.visits, slopes.visits / visits, 2 * shrunk / visits, lengthened) + 1e-4 * np.eye(labs),
        joint.coefficients,
        joint.patient_scale,
    )
    return moved, sign


def _add_slopes(slopes: Slopes, joint: Joint, runs: Runs) -> None:
    kept = [np.exp(runs.gap / -memory) for memory in joint.memory_days]
    same = runs.gap == 0.0
    covariance = runs.spread(joint.levels) + runs.spread(joint.visits) * same
    drifts = [runs.spread(drift) * each for drift, each in zip(joint.drifts, kept, strict=True)]
    for drift in drifts:
        covariance += drift
    diagonal = np.arange(runs.there.shape[1])
    covariance[:, diagonal, diagonal] += ~runs.there
    inverse = np.linalg.inv(covariance)
    weighed = np.einsum("bij,bj->bi", inverse, runs.value)
    surprise = weighed[:, :, None] * weighed[:, None, :] - inverse
    slopes.levels[:] += runs.summed(surprise)
    slopes.visits[:] += runs.summed(surprise * same)
    for place, each in enumerate(kept):
        slopes.drifts[place] += runs.summed(surprise * each)
        slopes.memory[place] += (drifts[place] * surprise * runs.gap).sum()


def _moved(matrix: FloatArray, slope: FloatArray, to_diagonal: float, lengthened: float) -> FloatArray:
    """Positive throughout: root (1 + root' slope root)^lengthened root', then a little nearer to its diagonal."""
    size, axes = np.linalg.eigh(matrix)
    root = axes * np.sqrt(np.maximum(size, 1e-12))
    change, turned = np.linalg.eigh(root.T @ slope @ root)
    turned = root @ turned
    moved = (turned * np.maximum(1.0 + change, 0.02) ** lengthened) @ turned.T
    return np.asarray((moved + to_diagonal * np.diag(np.diag(moved))) / (1.0 + to_diagonal))


def _with_coefficients(joint: Joint, table: Table, rng: np.random.Generator) -> Joint:
    """Ridge regression of what the covariances leave open of some visible targets."""
    target = table.values[:, table.target].clip(-LARGEST, LARGEST) - mean_of(table, joint.means, table.target)
    rows = np.flatnonzero(~np.isnan(target))
    rows = rng.permutation(rows)[:TARGETS_TO_REGRESS]
    (weights, variance), told = _weights(joint, table, rows), rest_told(joint, table, rows)
    others, own = told.shape[1], table.own[rows]
    of_own = np.where(own == NONE, 0.0, weights[:, others:])
    x = table.design[rows] - np.einsum("rk,rkp->rp", of_own, table.design[own])
    y = target[rows] - (weights[:, :others] * told).sum(axis=1) - (of_own * np.nan_to_num(target)[own]).sum(axis=1)
    weighted = x / variance[:, None]
    coefficients = np.linalg.solve(weighted.T @ x + RIDGE * np.eye(x.shape[1]), weighted.T @ y)
    return replace(joint, coefficients=coefficients)


def _with_patient_scale(joint: Joint, table: Table, rng: np.random.Generator) -> Joint:
    """How differently patients' targets move: what makes some visible targets likeliest, each left out in turn."""
    target = table.values[:, table.target].clip(-LARGEST, LARGEST)
    rows = rng.permutation(np.flatnonzero(~np.isnan(target)))[:TARGETS_FOR_SCALES]
    if not len(rows):
        return joint

    def density(found: Mixture) -> float:
        away = (target[rows] - found.mean) ** 2 / found.variance
        each = found.weight * np.exp(-0.5 * away) / np.sqrt(found.variance)
        return float(np.mean(np.log(each.sum(axis=0) + 1e-12)))

    likely = [density(each) for each in mixtures_at(joint, table, rows, PATIENT_SCALES_TRIED)]
    return replace(joint, patient_scale=PATIENT_SCALES_TRIED[int(np.argmax(likely))])


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


def _rest(table: Table, means: FloatArray) -> FloatArray:
    """What the means leave of every measurement."""
    values = np.clip(table.values, -LARGEST, LARGEST)
    for lab in range(values.shape[1]):
        values[:, lab] -= mean_of(table, means, lab)
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
            of_lab = (lab[:, :, None] == np.arange(labs)) * there[:, :, None].astype(np.float64)
            found.append(Runs(there, value, of_lab, gap, int(visits[part].sum())))
    return found


def _short_runs(patient: IntArray) -> tuple[IntArray, IntArray]:
    """Every patient's visits in runs of about equal length; first rows and ends."""
    starts = np.flatnonzero(np.r_[True, patient[1:] != patient[:-1]])
    lengths = np.diff(np.r_[starts, len(patient)])
    runs = -(-lengths // VISITS_TOGETHER)
    number = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    begin, length, parts = (np.repeat(each, runs) for each in (starts, lengths, runs))
    return begin + number * length // parts, begin + (number + 1) * length // parts
